"""Metadata of the user's own: stored, filtered inside list and recall, in the file, exported and imported."""

from __future__ import annotations

import copy
import pickle

import pytest

import commonbook
from commonbook import Draft, Filter, Metadata, MetadataValue
from commonbook.errors import BadInput, KeyConflict
from commonbook.service.book import Book
from tests.interfaces.cli.test_cli import cli

__all__ = ["cli"]

FIELDS: dict[str, MetadataValue] = {
    "ticket": "A-12",
    "score": 3,
    "weight": 0.25,
    "done": True,
    "open": False,
    "looks_like": "3",
    "word": "true",
    "empty": "",
    "quoted": 'say "hi", {it\'s} # ok: yes',
    "large": 2**53,
    "small": -1.5e-07,
    "ünï": "ünï 語",
    "a.b-c_d": "x",
    "née le": "1980-03-16",
    "_hidden": "yes",
    "no": "01234",
    "topics": ("red", 3, True, "3", "1980-03-16", "a, b", "[[Alice]]"),
}


@pytest.fixture(params=["pending", "indexed"])
def settle(request, book):
    """Leave everything as pending deltas, or write it into the index."""
    return (lambda: book.reindex()) if request.param == "indexed" else (lambda: None)


def titles(page) -> set[str]:
    return {memory.title for memory in page.items}


def hits(book: Book, query: str = "otter", **options) -> set[str]:
    return {hit.title for hit in book.recall(query, **options).hits}


def test_metadata_is_stored_with_its_types_and_comes_back_in_a_new_process(open_book):
    memory_id = open_book().remember("the otter", metadata=FIELDS).id
    metadata = open_book().get(memory_id).metadata
    assert metadata == FIELDS
    assert {name: type(value) for name, value in metadata.items()} == {n: type(v) for n, v in FIELDS.items()}
    assert metadata["ticket"] == "A-12"
    assert open_book().get(open_book().remember("none").id).metadata == {}


def test_it_is_an_immutable_value():
    metadata = Metadata({"b": 1, "a": "x"})
    assert list(metadata) == ["a", "b"]
    assert metadata == {"a": "x", "b": 1} == metadata
    assert metadata != {"a": "x", "b": True}
    assert hash(metadata) == hash(Metadata({"a": "x", "b": 1}))
    assert copy.deepcopy(metadata) == pickle.loads(pickle.dumps(metadata)) == metadata
    with pytest.raises(TypeError):
        metadata["a"] = 2  # type: ignore[index]


def test_edit_replaces_and_clears_it_and_another_edit_leaves_it(book: Book):
    memory_id = book.remember("the otter", metadata={"a": 1}).id
    book.edit(memory_id, text="the otters")
    assert book.get(memory_id).metadata == {"a": 1}
    version = book.get(memory_id).version
    assert book.edit(memory_id, metadata={"a": 1}).version == version, "nothing has changed"
    assert book.edit(memory_id, metadata={"a": True}).version == version + 1
    assert book.get(memory_id).metadata == {"a": True}
    assert (book.get(memory_id).revision, book.edit(memory_id, metadata=None).new) == (2, False)
    assert book.get(memory_id).metadata == {}


def test_list_and_recall_filter_by_it(book: Book, settle):
    book.remember("otter one", metadata={"ticket": "A-1", "score": 3})
    two = book.remember("otter two", metadata={"ticket": "A-2", "score": 3.0}).id
    book.remember("otter three", metadata={"ticket": "A-2", "score": "3"}, tags=["x"])
    book.remember("otter four", tags=["metadata ticket A-1"])
    settle()
    for found in (lambda **m: titles(book.list(Filter(metadata=m))), lambda **m: hits(book, metadata=m)):
        assert found(ticket="A-1") == {"otter one"}
        assert found(ticket="A-2") == {"otter two", "otter three"}
        assert found(ticket="A-2", score=3) == {"otter two"}
        assert found(score=3.0) == {"otter one", "otter two"}
        assert found(score="3") == {"otter three"}
        assert found(score=True) == found(ticket="A") == found(nothing="A-1") == set()
    assert hits(book, "", metadata={"ticket": "A-1"}) == {"otter one"}
    assert hits(book, tags=["x"], metadata={"ticket": "A-2"}) == {"otter three"}
    book.edit(two, metadata={"ticket": "A-1"})
    settle()
    assert titles(book.list(Filter(metadata={"ticket": "A-1"}))) == hits(book, metadata={"ticket": "A-1"})
    assert hits(book, metadata={"ticket": "A-1"}) == {"otter one", "otter two"}
    assert book.delete_where(Filter(metadata={"ticket": "A-1"})).ids
    settle()
    assert hits(book, metadata={"ticket": "A-1"}) == titles(book.list(Filter(metadata={"ticket": "A-1"}))) == set()


@pytest.mark.promise("recall.filters")
def test_the_filter_applies_before_the_best_are_chosen(book: Book, settle):
    book.remember_many([Draft(f"otter otter otter {number}") for number in range(60)])
    book.remember("once there was an otter, long ago and far away", metadata={"rare": True})
    settle()
    (hit,) = book.recall("otter", metadata={"rare": True}, k=1).hits
    assert hit.title.startswith("once")


@pytest.mark.parametrize(
    "wrong",
    [
        5, "x", ["a"], {"": 1}, {"1a": 1}, {"a ": 1}, {"a=b": 1}, {"a:b": 1}, {"a\n": 1},
        {"a" * 65: 1}, {5: 1}, {"a": None}, {"a": [[1]]}, {"a": []}, {"a": [1] * 33}, {"a": ["x" * 300] * 2}, {"a": {}},
        {"a": "x" * 501}, {"a": "two\nlines"}, {"a": "\0"}, {"a": "\ud800"}, {"a": float("nan")}, {"a": float("inf")},
        {"a": 2**53 + 1}, {"a": -(10**400)}, {f"a{number}": 1 for number in range(33)}, {"a": b"x"},
    ],
    ids=repr,
)  # fmt: skip
def test_anything_but_a_small_mapping_of_scalars_is_refused_and_changes_nothing(book: Book, wrong):
    memory = book.get(book.remember("the otter", metadata={"a": 1}).id)
    for act in (
        lambda: book.remember("never", metadata=wrong),
        lambda: book.edit(memory.id, metadata=wrong),
        lambda: book.recall("otter", metadata=wrong),
        lambda: book.list(Filter(metadata=wrong)),
    ):
        with pytest.raises(BadInput) as caught:
            act()
        assert caught.value.fix
    assert [one.version for one in book.list().items] == [memory.version]


def test_a_key_with_other_metadata_is_a_conflict(book: Book):
    first = book.remember("the otter", key="k", metadata={"b": 1, "a": 2})
    assert book.remember("the otter", key="k", metadata={"a": 2, "b": 1}).id == first.id
    with pytest.raises(KeyConflict):
        book.remember("the otter", key="k", metadata={"a": 2})


def test_a_copy_takes_it_over_when_it_is_made(book: Book):
    copied = book.share(book.remember("the otter", metadata=FIELDS).id, "team").id
    assert book.get(copied).metadata == FIELDS
    assert hits(book, spaces="team", metadata={"ticket": "A-12"})


def test_an_export_brings_it_into_another_book_and_importing_again_changes_nothing(book: Book, tmp_path):
    memory_id = book.remember("the otter", metadata=FIELDS).id
    before = book.get(memory_id).version
    book.export(str(tmp_path / "out"))
    with commonbook.open(tmp_path / "other", create=True) as other:
        other.import_folder(str(tmp_path / "out"))
        assert other.get(memory_id).metadata == FIELDS
        assert titles(other.list(Filter(metadata={"looks_like": "3"})))
    book.import_folder(str(tmp_path / "out"))
    assert book.get(memory_id).metadata == FIELDS
    assert book.get(memory_id).version == before


@pytest.mark.promise("files.metadata")
def test_a_lost_database_brings_it_back_from_the_files(book: Book, home):
    memory_id = book.remember("the otter", metadata=FIELDS).id
    book.close()
    for left in (home / ".commonbook").glob("state.db*"):
        left.unlink()
    with commonbook.open(home) as again:
        assert again.get(memory_id).metadata == FIELDS
        assert hits(again, metadata={"done": True})


@pytest.mark.promise("files.metadata")
@pytest.mark.parametrize("name", ["title", "type", "kind", "date", "updated", "Aliases", "cssclasses", "commonbook_id"])
def test_a_name_that_a_file_has_for_something_else_is_refused(book: Book, name):
    memory = book.get(book.remember("the otter", metadata={"a": 1}).id)
    for act in (
        lambda: book.remember("never", metadata={name: "x"}),
        lambda: book.edit(memory.id, metadata={name: "x"}),
        lambda: book.recall("otter", metadata={name: "x"}),
        lambda: book.list(Filter(metadata={name: "x"})),
    ):
        with pytest.raises(BadInput, match=name) as caught:
            act()
        assert f"my_{name}" in caught.value.fix
    assert book.list().items == (memory,)


def test_a_filter_on_a_value_of_a_list_finds_it(book: Book, settle):
    both = book.remember("otter one", metadata={"topics": ["red", 3]}).id
    book.remember("otter two", metadata={"topics": "red"})
    settle()
    for found in (lambda **m: titles(book.list(Filter(metadata=m))), lambda **m: hits(book, metadata=m)):
        assert found(topics="red") == {"otter one", "otter two"}
        assert found(topics=3) == found(topics=["red", 3]) == {"otter one"}
        assert found(topics="3") == found(topics="re") == set()
    assert book.get(both).metadata == {"topics": ["red", 3]}
    assert book.edit(both, metadata={"topics": ("red", 3)}).version == 1


def test_recall_finds_a_memory_by_the_names_and_values_of_its_metadata(book: Book, settle):
    book.remember("He likes tea.", title="Tom Berger", metadata={"birthday": "1980-03-16", "topics": ["sailing"]})
    book.remember("Tom asked when the price list of the bakery will be ready.", title="Tuesday")
    settle()
    for query in ("1980-03-16", "when is the birthday of Tom Berger", "sailing"):
        assert book.recall(query).hits[0].title == "Tom Berger", query


def test_an_edit_masks_only_the_metadata_that_it_changes(book: Book):
    kept = book.remember("the otter", metadata={"password": "hunter2x9", "n": 3}, mask=False).id
    assert book.edit(kept, metadata={"password": "hunter2x9", "n": 4}).masked == 0
    assert book.get(kept).metadata == {"password": "hunter2x9", "n": 4}
    assert book.edit(kept, metadata={"password": ["hunter2x8", 5], "n": 4}).masked == 1
    assert book.get(kept).metadata == {"password": ("[masked: secret]", 5), "n": 4}


def test_the_command_line_sets_shows_and_filters_it(cli):
    one = cli.remember("otter one", "--meta", "ticket=A-1", "--meta", "score=3", "--meta", 'text="3"')["id"]
    cli.remember("otter two", "--meta", "ticket=A-2")
    assert cli("show", one, "--json").json["metadata"] == {"ticket": "A-1", "score": 3, "text": "3"}
    assert all(word in cli("show", one).out for word in ("ticket=A-1", "score=3", "text=3"))
    assert cli.ids("--meta", "score=3") == [one]
    assert [hit["id"] for hit in cli("recall", "otter", "--meta", "ticket=A-1", "--json").json["hits"]] == [one]
    assert cli("edit", one, "--meta", "ticket=A-9").code == 0
    assert cli("show", one, "--json").json["metadata"] == {"ticket": "A-9", "score": 3, "text": "3"}
    assert cli("edit", one, "--meta", "none").code == 0
    assert cli("show", one, "--json").json["metadata"] == {}
    assert cli("remember", "x", "--meta", "no").code == 2
    line = b'{"text": "otter three", "metadata": {"ticket": "A-3"}}\n'
    assert cli("remember", "--batch", "-", stdin=line).code == 0
    assert len(cli.ids("--meta", "ticket=A-3")) == 1


def test_edit_on_the_command_line_sets_or_removes_one_field_and_keeps_the_others(cli):
    one = cli.remember("otter", "--meta", "ticket=A-1", "--meta", "score=3", "--meta", "owner=ann")["id"]
    assert cli("edit", one, "--meta", "owner=bob", "--meta", "score=", "--meta", "gone=", "--add-tag", "x").code == 0
    shown = cli("show", one, "--json").json
    assert (shown["metadata"], shown["tags"]) == ({"ticket": "A-1", "owner": "bob"}, ["x"])
    assert cli("edit", one, "--meta", 'owner=""').code == 0
    assert cli("show", one, "--json").json["metadata"] == {"ticket": "A-1", "owner": ""}
    assert cli("edit", one, "--meta", "no").code == 2
    assert cli("edit", one, "--meta", "ticket=").code == cli("edit", one, "--meta", "owner=").code == 0
    assert cli("show", one, "--json").json["metadata"] == {}
    assert "NAME= removes it" in " ".join(cli("edit", "--help").out.split())


def test_secrets_in_it_are_masked_unless_told_otherwise(book: Book):
    key = "sk-proj-" + "a1B2" * 12
    secrets: dict[str, MetadataValue] = {"password": "hunter2x9", "note": key, "ticket": "A-12", "n": 3}
    receipt = book.remember("the otter", metadata=secrets)
    assert receipt.masked == 2
    for kept in (book.get(receipt.id).metadata, book.get(book.edit(receipt.id, metadata=secrets).id).metadata):
        assert (kept["ticket"], kept["n"]) == ("A-12", 3)
        assert "hunter2x9" not in str(kept)
        assert "a1B2a1B2" not in str(kept)
    plain = book.remember("the seal", metadata=secrets, mask=False)
    assert book.get(plain.id).metadata == secrets
