"""Remembering, editing, moving, deleting and finding memories again, through the facade."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

import commonbook
from commonbook.errors import (
    Ambiguous,
    BadInput,
    BadSpaceName,
    BadText,
    BadTime,
    KeyConflict,
    NotAllowed,
    NotFound,
    TooLarge,
    VersionConflict,
)
from commonbook.service.book import Book
from commonbook.values.memory import Draft, Filter
from commonbook.values.request import RequestContext
from commonbook.values.spaces import Actor
from tests.conftest import Folder, OpenBook
from tests.support.stored import stored

UNKNOWN = "0192f0c1-0000-7000-8000-000000000000"


def actions(book: Book, space: str) -> list[str]:
    return [entry.action for entry in book.log(space=space)]


# --- remember


def test_a_memory_is_what_was_said_and_a_receipt_says_where_it_is(book: Book, folder: Folder):
    receipt = book.remember(
        "Alice owns the billing service.",
        space="team/backend",
        kind="fact",
        tags=["billing", "#people", "billing"],
        importance=0.7,
        occurred="2026-05-01",
        valid_from="2026-05-01",
        valid_until="2026-06-30",
        expires="2030-01-01T12:00+01:00",
    )
    assert (receipt.new, receipt.durable, receipt.revision, receipt.version) == (True, True, 1, 1)
    assert receipt.space == "team/backend"
    assert (folder() / receipt.path).is_file()
    memory = book.get(receipt.id)
    assert (memory.text, memory.title) == ("Alice owns the billing service.", "Alice owns the billing service.")
    assert (memory.kind, memory.tags, memory.importance) == ("fact", ("billing", "people"), 0.7)
    assert memory.author == "user:local"
    assert memory.occurred == datetime(2026, 5, 1, tzinfo=UTC)
    assert memory.valid_until == datetime(2026, 6, 30, 23, 59, 59, 999999, tzinfo=UTC)
    assert memory.expires == datetime(2030, 1, 1, 11, tzinfo=UTC)


def test_the_title_is_the_first_line_unless_one_is_given(book: Book):
    assert book.get(book.remember("# Deploy day\n\nOn Fridays.").id).title == "Deploy day"
    assert book.get(book.remember("text", title="Mine").id).title == "Mine"


@pytest.mark.promise("writes.exact")
def test_a_text_comes_back_to_the_last_character(book: Book, open_book: OpenBook):
    texts = [
        "",
        " ",
        "\n",
        "\nx\n\n",
        "a\r\nb\r\n",
        "مرحبا \u202etest\u202c 🎉",
        "---\nid: x\n---\n",
        "tab\t",
        "x" * 100_000,
    ]
    receipts = [book.remember(text, title="t") for text in texts]
    again = open_book()
    again.rebuild()
    assert [again.get(receipt.id).text for receipt in receipts] == texts


def test_a_batch_is_stored_whole_or_not_at_all(book: Book):
    with pytest.raises(BadText):
        book.remember_many([Draft(text="fine"), Draft(text="not\0fine")])
    with pytest.raises(NotFound):
        book.remember_many([Draft(text="fine"), Draft(text="fine too", replaces=UNKNOWN)])
    assert book.list().items == ()
    assert len(book.remember_many([Draft(text=f"number {n}") for n in range(120)])) == 120
    assert book.status().memories == 120


@pytest.mark.promise("writes.once")
def test_the_same_key_stores_once_and_gives_the_first_receipt_again(book: Book, open_book: OpenBook):
    first = book.remember("once", key="k1", tags=["a"])
    again = open_book().remember("once", key="k1", tags=["a"])
    assert (first.new, again.new) == (True, False)
    assert (again.id, again.version, again.path) == (first.id, first.version, first.path)
    assert book.status().memories == 1
    # Another space is another key; other content under the same key is a conflict that stores nothing.
    assert book.remember("once", key="k1", tags=["a"], space="other").new
    with pytest.raises(KeyConflict):
        book.remember("twice", key="k1", tags=["a"])
    with pytest.raises(KeyConflict):
        book.remember("once", key="k1", tags=["b"])
    assert book.status().memories == 2


@pytest.mark.promise("writes.once")
def test_a_repeat_inside_one_batch_is_stored_once(book: Book):
    first, second = book.remember_many([Draft(text="once", key="k"), Draft(text="once", key="k")])
    assert (first.new, second.new, second.id) == (True, False, first.id)


def test_a_receipt_names_an_older_memory_of_the_same_text(book: Book):
    first = book.remember("The build needs Python 3.11")
    assert first.duplicate_of is None
    assert book.remember("The build needs Python 3.11\n", space="other").duplicate_of == first.id
    book.delete(first.id)
    assert book.remember("The build needs Python 3.11").duplicate_of != first.id


def test_replacing_a_memory_supersedes_it_in_the_same_step(book: Book):
    old = book.remember("Alice owns billing")
    new = book.remember("Bob owns billing", replaces=old.id)
    assert book.get(old.id).superseded_by == new.id
    assert "superseded" in book.get(old.id).marks
    assert [(link.relation, link.target, link.target_hash) for link in stored(book, new.id).links] == [
        ("supersedes", old.id, stored(book, old.id).content_hash)
    ]
    assert book.get(old.id).text == "Alice owns billing"


@pytest.mark.promise("writes.bad-input")
@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"text": "a\0b"}, BadText),
        ({"text": "lone \ud800"}, BadText),
        ({"text": "x" * (4 * 1024 * 1024 + 1)}, TooLarge),
        ({"text": "x", "title": "y" * 201}, TooLarge),
        ({"text": "x", "title": "a\0"}, BadText),
        ({"text": "x", "space": "../etc"}, BadSpaceName),
        ({"text": "x", "space": "a/../b"}, BadSpaceName),
        ({"text": "x", "space": "/abs"}, BadSpaceName),
        ({"text": "x", "space": "Team"}, BadSpaceName),
        ({"text": "x", "space": "_system"}, BadSpaceName),
        ({"text": "x", "space": "a/2026-05"}, BadSpaceName),
        ({"text": "x", "space": "a/b/c/d/e/f/g/h"}, BadSpaceName),
        ({"text": "x", "kind": "poem"}, BadInput),
        ({"text": "x", "kind": "notice"}, BadInput),
        ({"text": "x", "tags": ["two,words"]}, BadInput),
        ({"text": "x", "tags": [f"t{n}" for n in range(65)]}, TooLarge),
        ({"text": "x", "importance": 1.5}, BadInput),
        ({"text": "x", "importance": float("nan")}, BadInput),
        ({"text": "x", "occurred": "last blue moon"}, BadTime),
        ({"text": "x", "valid_from": "2026-02-02", "valid_until": "2026-01-01"}, BadInput),
        ({"text": "x", "links": [("Knows it", UNKNOWN)]}, BadInput),
        ({"text": "x", "links": [("related_to", UNKNOWN)]}, NotFound),
        ({"text": "x", "replaces": UNKNOWN}, NotFound),
        ({"text": "x", "replaces": "nonsense"}, BadInput),
        ({"text": "x", "key": ""}, BadInput),
    ],
)
def test_bad_input_is_refused_with_a_fix_and_changes_nothing(book: Book, wrong, error):
    before = (book.status()._replace(database_bytes=0), book.spaces())
    with pytest.raises(error) as caught:
        book.remember(**wrong)
    assert caught.value.fix
    assert (book.status()._replace(database_bytes=0), book.spaces()) == before


# --- edit


def test_an_edit_of_title_or_text_is_a_new_revision_and_any_edit_a_new_version(book: Book):
    memory = book.remember("one", title="t")
    assert (book.edit(memory.id, tags=["x"]).revision, book.get(memory.id).version) == (1, 2)
    assert (book.edit(memory.id, text="two").revision, book.get(memory.id).version) == (2, 3)
    assert (book.edit(memory.id, title="T").revision, book.get(memory.id).version) == (3, 4)
    assert book.edit(memory.id, text="two", title="T").version == 4
    book.edit(memory.id, importance=0.5, kind="fact", occurred="2020-01-01")
    book.edit(memory.id, importance=None, occurred=None)
    assert (book.get(memory.id).importance, book.get(memory.id).occurred, book.get(memory.id).kind) == (
        None,
        None,
        "fact",
    )


@pytest.mark.promise("writes.versions")
def test_an_edit_of_another_version_than_expected_is_a_conflict(book: Book):
    memory = book.remember("one")
    book.edit(memory.id, text="two", expected_version=1)
    with pytest.raises(VersionConflict) as caught:
        book.edit(memory.id, text="three", expected_version=1)
    assert (caught.value.expected, caught.value.found) == (1, 2)
    assert book.get(memory.id).text == "two"


def test_a_hand_edit_that_nobody_has_seen_yet_conflicts_with_the_expected_version(book: Book, home: Path):
    memory = book.remember("one")
    path = home / memory.path
    path.write_text(path.read_text().replace("\none\n", "\nby hand\n"))
    with pytest.raises(VersionConflict):
        book.edit(memory.id, text="two", expected_version=1)
    book.edit(memory.id, text="two")
    assert [(one.text, one.author) for one in book.history(memory.id)] == [
        ("one", "user:local"),
        ("by hand", "user:filesystem"),
        ("two", "user:local"),
    ]


def test_history_keeps_every_text_with_who_and_when(book: Book):
    memory = book.remember("one")
    book.edit(memory.id, text="two")
    book.edit(memory.id, text="three")
    book.delete(memory.id)
    history = book.history(memory.id)
    assert [one.text for one in history] == ["one", "two", "three"]
    assert [one.revision for one in history] == [1, 2, 3]
    assert all(one.author == "user:local" for one in history)
    assert not any(one.current for one in history)


# --- move, delete


@pytest.mark.promise("access.past-texts")
def test_a_move_names_the_file_after_the_present_title(book: Book, folder: Folder):
    memory = book.remember("We fire Carla", title="We fire Carla", space="vault")
    assert book.edit(memory.id, text="Lunch is at noon", title="Lunch").path == memory.path
    moved = book.move(memory.id, "team")
    assert moved.path == memory.path.replace("vault/", "team/").replace("we-fire-carla", "lunch")
    book.grant("user:bob", "team", "reader")
    bob = book.acting_as("user:bob")
    assert bob.get(memory.id).path == moved.path
    assert "carla" not in str(bob.recall("lunch", spaces="team").hits).lower()
    book.sync()
    assert book.get(memory.id).path == moved.path
    assert [path.relative_to(folder()).as_posix() for path in folder().rglob("*.md")] == [moved.path]


def test_a_move_takes_file_history_tags_and_links_along(book: Book, folder: Folder):
    other = book.remember("other")
    memory = book.remember("one", space="a", tags=["x"], links=[("related_to", other.id)])
    book.edit(memory.id, text="two")
    moved = book.move(memory.id, "b/c")
    assert moved.space == "b/c"
    assert moved.path == memory.path.replace("a/", "b/c/", 1).replace("one--", "two--")
    assert (folder() / moved.path).is_file()
    assert not (folder() / memory.path).exists()
    assert [one.text for one in book.history(memory.id)] == ["one", "two"]
    assert [one.id for one in book.list(Filter(space="b/c", tags=("x",))).items] == [memory.id]
    assert book.list(Filter(space="a")).items == ()
    assert [link.source for link in book.links(other.id)] == [memory.id]
    assert actions(book, "a")[-1] == "move.out"
    assert actions(book, "b/c")[-1] == "move.in"
    assert book.verify_log().ok


def test_delete_removes_the_file_and_leaves_a_tombstone(book: Book, folder: Folder):
    memory = book.remember("one", tags=["x"])
    book.delete(memory.id)
    assert not (folder() / memory.path).exists()
    with pytest.raises(NotFound):
        book.get(memory.id)
    with pytest.raises(NotFound):
        book.edit(memory.id, text="two")
    assert book.list().items == ()
    (tomb,) = book.list(Filter(deleted=True)).items
    assert tomb.id == memory.id
    assert tomb.deleted is not None


def test_deleting_many_is_all_or_none_and_a_dry_run_deletes_nothing(book: Book):
    ids = [book.remember(f"n{n}", tags=["old"]).id for n in range(3)]
    kept = book.remember("kept", tags=["new"])
    with pytest.raises(NotFound):
        book.delete(ids[0], UNKNOWN)
    assert book.get(ids[0]).deleted is None
    assert set(book.delete_where(Filter(tags=("old",)), dry_run=True).ids) == set(ids)
    assert book.status().memories == 4
    assert set(book.delete_where(Filter(tags=("old",))).ids) == set(ids)
    assert [one.id for one in book.list().items] == [kept.id]
    with pytest.raises(BadInput):
        book.delete_where(Filter())


# --- list


def test_a_list_pages_through_everything_once_newest_first(book: Book):
    made = [receipt.id for receipt in book.remember_many([Draft(text=f"n{n}") for n in range(25)])]
    made += [book.remember(f"m{n}").id for n in range(5)]
    seen: list[str] = []
    after = None
    while True:
        page = book.list(limit=7, after=after)
        seen += [one.id for one in page.items]
        after = page.next
        if after is None:
            break
    assert sorted(seen) == sorted(made)
    assert len(seen) == len(set(seen))
    assert seen[:5] == made[:-6:-1]


def test_a_list_is_filtered_by_space_kind_tag_and_time(book: Book):
    a = book.remember("a", space="team/a", kind="fact", tags=["x", "y"], occurred="2026-01-10")
    b = book.remember("b", space="team/b", tags=["x"], occurred="2026-02-10")
    c = book.remember("c", space="team", occurred="2026-03-10T23:30:00Z")

    def ids(**wanted) -> set[str]:
        return {one.id for one in book.list(Filter(**wanted)).items}

    assert ids(space="team") == {c.id}
    assert ids(space="team/") == {a.id, b.id, c.id}
    assert ids(kinds=("fact",)) == {a.id}
    assert ids(tags=("x",)) == {a.id, b.id}
    assert ids(tags=("x", "y")) == {a.id}
    assert ids(since="2026-02-10", until="2026-03-10") == {b.id, c.id}
    assert ids(space="nowhere") == set()
    with pytest.raises(BadInput):
        book.list(after="nonsense")
    with pytest.raises(BadInput):
        book.list(limit=0)


def test_a_part_of_an_id_is_enough_to_find_it(book: Book):
    memory = book.remember("one")
    assert book.find_id(memory.id[-8:]) == memory.id
    assert book.find_id(memory.id) == memory.id
    assert book.find_id(Path(memory.path).name) == memory.id
    with pytest.raises(NotFound):
        book.find_id("ffffffff")
    with pytest.raises(NotFound):
        book.find_id("no id")
    with pytest.raises(BadInput):
        book.find_id(" ")


@pytest.mark.promise("writes.names")
def test_a_title_a_file_name_or_an_alias_finds_a_memory_if_only_one_has_it(book: Book, tmp_path: Path):
    notes = {"Projects/Garden.md": "---\naliases: [Yard]\n---\ngreen", "Home.md": "x", "Other/Home.md": "y"}
    for path, text in notes.items():
        (tmp_path / "vault" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "vault" / path).write_text(text)
    book.import_folder(str(tmp_path / "vault"), space="team")
    garden = next(memory.id for memory in book.list().items if memory.text == "green")
    owner = book.remember("Alice owns billing", space="personal").id
    for name in ("Garden.md", "garden", "Projects/Garden.md", "projects/garden", "yard"):
        assert book.find_id(name) == garden
    assert book.find_id("alice owns BILLING") == owner
    with pytest.raises(Ambiguous) as several:
        book.find_id("Home.md")
    assert "Other/Home.md" in several.value.message
    assert book.get(book.find_id("Other/Home")).text == "y"
    for name in ("Alice", "Other/Garden", "none.md"):
        with pytest.raises(NotFound):
            book.find_id(name)
    stranger = book.acting_as("user:eve")
    with pytest.raises(NotFound):
        stranger.find_id("Garden.md")
    book.delete(garden)
    with pytest.raises(NotFound):
        book.find_id("Garden.md")


# --- links


def test_links_are_seen_from_both_ends_and_in_the_file(book: Book, folder: Folder):
    a, b = book.remember("a"), book.remember("b")
    assert book.link(a.id, "contradicts", b.id).version == 2
    assert book.link(a.id, "contradicts", b.id).version == 2
    assert [(link.source, link.target) for link in book.links(b.id)] == [(a.id, b.id)]
    assert f"  - contradicts {b.id}@{stored(book, b.id).content_hash}" in (folder() / a.path).read_text()
    with pytest.raises(BadInput):
        book.link(a.id, "related_to", a.id)
    with pytest.raises(NotFound):
        book.unlink(a.id, "related_to", b.id)
    assert book.unlink(a.id, "contradicts", b.id).version == 3
    assert book.links(b.id) == ()
    assert "links:" not in (folder() / a.path).read_text()


def test_an_expired_memory_says_so(book: Book):
    assert book.get(book.remember("x", expires="2020-01-01").id).marks == ("expired",)


# --- spaces


def test_a_renamed_space_takes_everything_below_along_and_keeps_its_ids(book: Book, folder: Folder):
    one = book.remember("one", space="team/a")
    two = book.remember("two", space="team/a/deep")
    other = book.remember("three", space="team/ab")
    ids = {space.name: space.id for space in book.spaces()}
    book.rename_space("team/a", "squad")
    names = {space.name: space.id for space in book.spaces()}
    assert names == {"squad": ids["team/a"], "squad/deep": ids["team/a/deep"], "team/ab": ids["team/ab"]}
    assert book.get(one.id).path == one.path.replace("team/a/", "squad/", 1)
    assert (folder() / book.get(two.id).path).is_file()
    assert book.get(two.id).version == 1
    assert not (folder() / "team" / "a").exists()
    assert book.get(other.id).path == other.path
    assert book.sync().read == 0
    assert book.verify_log().ok
    assert book.doctor() == ()


def test_a_space_cannot_be_renamed_onto_another_or_into_itself(book: Book):
    book.remember("one", space="a")
    book.remember("two", space="b")
    for old, new, error in [
        ("a", "b", commonbook.errors.SpaceExists),
        ("a", "a/x", BadInput),
        ("none", "c", NotFound),
    ]:
        with pytest.raises(error):
            book.rename_space(old, new)
    with pytest.raises(commonbook.errors.SpaceExists):
        book.create_space("a")
    assert [space.name for space in book.spaces()] == ["a", "b"]


def test_without_a_named_space_the_project_of_the_working_directory_is_meant(
    place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    project = tmp_path / "My Project"
    project.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    monkeypatch.chdir(project)
    with commonbook.open(place, create=True) as book:
        assert book.remember("x").space == "projects/my-project"
    monkeypatch.setenv("COMMONBOOK_SPACE", "chosen")
    with commonbook.open(place) as book:
        assert book.remember("x").space == "chosen"
        assert book.remember("x", space="asked").space == "asked"


# --- actors


def test_an_actor_without_grants_sees_and_changes_nothing(book: Book):
    memory = book.remember("secret", space="team", tags=["t"])
    stranger = Book(
        book._engines,
        book._settings,
        caller=RequestContext(Actor("agent:stranger")),
        recall_service=book._recall_service,
    )
    assert stranger.list().items == ()
    assert stranger.spaces() == ()
    assert stranger.status().memories == 0
    for refused in (
        lambda: stranger.list(Filter(space="team")),
        lambda: stranger.list(Filter(space="nowhere")),
        lambda: stranger.remember("x", space="team"),
        lambda: stranger.remember("x", space="nowhere"),
        lambda: stranger.create_space("mine"),
        lambda: stranger.create_space("team"),
        lambda: stranger.rename_space("team", "mine"),
    ):
        with pytest.raises(NotAllowed):
            refused()
    for hidden in (
        lambda: stranger.get(memory.id),
        lambda: stranger.edit(memory.id, text="y"),
        lambda: stranger.move(memory.id, "other"),
        lambda: stranger.delete(memory.id),
        lambda: stranger.history(memory.id),
        lambda: stranger.link(memory.id, "related_to", memory.id),
        lambda: stranger.find_id(memory.id[-8:]),
    ):
        with pytest.raises(NotFound):
            hidden()
    assert book.get(memory.id).version == 1


def test_a_title_that_was_made_from_the_text_follows_it_and_a_given_one_stays(book: Book):
    made, given = book.remember("Alice owns billing"), book.remember("Alice owns billing", title="Billing")
    for memory in (made, given):
        book.edit(memory.id, text="Bob owns billing")
    assert (book.get(made.id).title, book.get(given.id).title) == ("Bob owns billing", "Billing")


def test_many_memories_of_a_generator_are_all_stored(book):
    receipts = book.remember_many(Draft(text, space="team") for text in ("one", "two"))
    assert [book.get(receipt.id).text for receipt in receipts] == ["one", "two"]
