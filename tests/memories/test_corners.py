"""Rare cases: odd tags, repeats, paths and times."""

from __future__ import annotations

import sqlite3
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from commonbook.core.tables import memories
from commonbook.errors import BadInput, KeyConflict, NotFound
from commonbook.interfaces.cli.main import main
from commonbook.service.book import Book
from commonbook.values.memory import Draft, Filter
from tests.conftest import Folder
from tests.support.power_cuts import Call, Disk
from tests.support.transfers import write

DEEP = "a/b/c/d/e/f/g"


def file_of(home: Path, path: str, text: str) -> None:
    write(home, {path: text})


# --- repeats


def test_a_repeat_after_its_space_was_renamed_returns_the_first_receipt(book: Book):
    first = book.remember("one", space="team", key="k")
    book.rename_space("team", "crew")
    assert book.remember("one", space="crew", key="k") == first._replace(new=False)


def test_a_repeat_may_spell_a_number_or_a_moment_otherwise(book: Book):
    first = book.remember("one", importance=1, occurred="2026-05-01T10:00+02:00", key="k")
    for occurred in ("2026-05-01 08:00Z", "2026-05-01T08:00", datetime(2026, 5, 1, 8, tzinfo=UTC)):
        again = book.remember("one", importance=1.0, occurred=occurred, title="one", kind="note", tags=[], key="k")
        assert again == first._replace(new=False)
    with pytest.raises(KeyConflict):
        book.remember("one", importance=1, occurred="2026-05-01T08:01Z", key="k")


def test_a_repeat_with_a_time_in_words_is_the_same_request_a_moment_later(book: Book):
    first = book.remember("one", occurred="2h ago", key="k")
    assert book.remember("one", occurred="2h  ago", key="k").id == first.id
    with pytest.raises(KeyConflict):
        book.remember("one", occurred="3h ago", key="k")


# --- tags


def test_a_tag_that_a_file_has_can_be_asked_for_by_every_verb(book: Book, home: Path):
    file_of(home, "personal/x.md", '---\ntags: [machine learning, "a, b", "[[c]]"]\n---\n\nby hand\n')
    book.sync()
    (memory,) = book.list(Filter(tags=("machine learning",))).items
    assert memory.tags == ("machine learning", "a", "b", "c")
    other = book.remember("by a verb", tags=["#machine  learning"])
    assert book.get(other.id).tags == ("machine learning",)
    assert book.edit(memory.id, tags=[*memory.tags, "d"]).version == memory.version + 1
    assert set(book.delete_where(Filter(tags=("machine learning",))).ids) == {memory.id, other.id}


def test_tags_with_blanks_are_added_and_removed_on_the_command_line(book: Book, capsys: pytest.CaptureFixture[str]):
    memory = book.remember("one", tags=["machine learning", "b"])
    change = ["edit", memory.id, "--remove-tag", "#b", "--add-tag", "deep learning"]
    assert main(change) == 0, capsys.readouterr()
    assert book.get(memory.id).tags == ("machine learning", "deep learning")


def test_one_text_in_place_of_a_list_of_tags_is_refused(book: Book):
    memory = book.remember("one", tags=["x"])
    for call in (
        lambda: book.remember("two", tags="billing"),
        lambda: book.remember_many([Draft("two", tags="billing")]),  # type: ignore[arg-type] # what a caller without types may do
        lambda: book.edit(memory.id, tags="billing"),
        lambda: book.list(Filter(tags="billing")),  # type: ignore[arg-type] # the same
    ):
        with pytest.raises(BadInput):
            call()
    assert [one.tags for one in book.list().items] == [("x",)]


# --- paths


def test_a_deleted_memory_that_an_import_brings_back_lies_in_its_space_as_that_is_called_now(
    book: Book, folder: Folder, tmp_path: Path
):
    memory = book.remember("one", space="team")
    book.export(str(tmp_path / "out"))
    book.delete(memory.id)
    book.rename_space("team", "crew")
    assert book.import_folder(str(tmp_path / "out")).updated == 1
    back = book.get(memory.id)
    assert (back.space, back.path) == ("crew", memory.path.replace("team/", "crew/"))
    assert (folder() / back.path).is_file()
    book.sync()
    assert book.get(memory.id).space == "crew"


def test_a_file_from_below_the_deepest_level_moves_into_the_space_that_was_asked_for(book: Book, home: Path):
    book.create_space(DEEP)
    book.create_space("team/h")
    file_of(home, f"{DEEP}/h/i/x.md", "deep\n")
    book.sync()
    (memory,) = book.list().items
    # The folder `h` is a space of its own in the folder of the team.
    assert (memory.space, book.move(memory.id, "team").path) == (DEEP, "team/x.md")
    book.sync()
    assert book.get(memory.id).space == "team"


def test_a_memory_is_found_by_the_path_of_its_file(book: Book, home: Path, capsys: pytest.CaptureFixture[str]):
    long = "notes/" + "n" * (36 - len("notes/.md")) + ".md"
    for path in ("notes/foo.md", "personal/2026-11/foo--tail.md", "Odd Name/It's.md", long):
        file_of(home, path, f"{path}\n")
    book.sync()
    for memory in book.list().items:
        assert book.find_id(memory.path) == memory.id
        assert book.find_id(f"./{memory.path}") == memory.id
        assert main(["show", memory.path, "--home", str(home)]) == 0
        assert memory.text in capsys.readouterr().out
    with pytest.raises(NotFound):
        book.find_id("notes/none.md")
    with pytest.raises(NotFound):
        book.find_id("0192f0c1-0000-7000-8000-000000000000")


# --- times and numbers


@pytest.mark.parametrize("year", ["1901", "1979", "2107", "2108", "9999"])
def test_a_zip_takes_a_memory_of_any_year(book: Book, tmp_path: Path, year: str):
    content = f"---\ncreated: 1900-01-01\nupdated: {year}-12-31T23:59:59Z\n---\n\nfar off\n"
    write(tmp_path / "in", {"x.md": content})
    assert book.import_folder(str(tmp_path / "in")).done == 1
    assert book.export(str(tmp_path / "out.zip")).done == 1
    with zipfile.ZipFile(tmp_path / "out.zip") as archive:
        (_, member, _) = archive.infolist()
    assert 1980 <= member.date_time[0] <= 2107


@pytest.mark.parametrize("field", ["version: {}", "revision: {}"])
def test_a_number_in_a_file_counts_nothing(book: Book, home: Path, field: str):
    for number in (2**53 - 1, 2**53, "1.0", "draft"):
        file_of(home, f"personal/{number}.md", f"---\n{field.format(number)}\n---\n\nfine\n")
    report = book.sync()
    assert (report.new, report.malformed) == (4, 0)
    assert {(one.version, one.revision) for one in book.list().items} == {(1, 1)}
    assert book.doctor() == ()


# --- lists and numbers


def test_memories_without_a_text_are_no_duplicates(book: Book):
    book.remember("", title="first")
    assert book.remember(" ", title="second").duplicate_of is None
    assert book.remember("same").duplicate_of is None
    assert book.remember("same ").duplicate_of is not None


def test_the_links_of_deleted_memories_are_not_counted(book: Book):
    target = book.remember("target")
    source = book.remember("source", links=[("related_to", target.id), ("derived_from", target.id)])
    assert book.status().links == 2
    book.delete(source.id)
    assert book.status().links == 0


def test_pages_over_many_spaces_are_in_one_order_and_leave_nothing_out(book: Book):
    drafts = [Draft(f"n{n}", space=f"s{n % 3}", tags=("even",) if n % 2 == 0 else ()) for n in range(20)]
    made = [receipt.id for receipt in book.remember_many(drafts)] + [book.remember("last", space="s0").id]
    for chosen, wanted in ((Filter(), set(made)), (Filter(tags=("even",)), set(made[0:20:2]))):
        seen: list[tuple[datetime, str]] = []
        after = None
        while True:
            page = book.list(chosen, limit=4, after=after)
            seen += [(one.created, one.id) for one in page.items]
            after = page.next
            if after is None:
                break
        assert seen == sorted(seen, reverse=True)
        assert len(seen) == len(wanted)
        assert {id_ for _, id_ in seen} == wanted


def test_deleted_memories_are_listed_by_their_tags(book: Book):
    one, two = book.remember("one", tags=["x", "y"]), book.remember("two", tags=["xy"])
    book.delete(one.id, two.id)
    for tags, found in ((("x",), [one.id]), (("x", "y"), [one.id]), (("xy",), [two.id]), (("z",), [])):
        assert [memory.id for memory in book.list(Filter(tags=tags, deleted=True)).items] == found


def test_a_list_is_read_from_indexes(book: Book, home: Path):
    book.remember("one", tags=["x"])
    plans = []
    with sqlite3.connect(home / ".commonbook" / "state.db") as connection:
        for chosen in (Filter(), Filter(tags=("x",))):
            sql, params = memories._page_query(chosen, since=None, until=None, after=None)
            rows = connection.execute(f"EXPLAIN QUERY PLAN {sql}", {**params, "space": "", "limit": 9})
            plans.append([row[3] for row in rows])
    connection.close()
    assert plans[0] == ["SEARCH memory USING INDEX memory_by_time (space=?)"]
    assert plans[1][:2] == [
        "SEARCH memory_tag USING PRIMARY KEY (space=? AND tag=?)",
        "SEARCH memory USING INDEX sqlite_autoindex_memory_1 (space=? AND id=?)",
    ]


# --- the model of a disk


def test_the_model_of_a_disk_knows_both_ways_to_open_a_file(tmp_path: Path):
    disk = Disk(tmp_path / "root")
    for name in ("open", "openat"):
        path = "".join(f"\\x{byte:02x}" for byte in bytes(tmp_path / "root" / name))
        before = "AT_FDCWD, " if name == "openat" else ""
        disk.feed(Call(name, f'{before}"{path}", O_WRONLY|O_CREAT, 0600', 3))
        assert name.encode() in disk.top.entries
    outside = "".join(f"\\x{byte:02x}" for byte in b"/proc/sys/vm/overcommit_memory")
    disk.feed(Call("open", f'"{outside}", O_RDONLY|O_CLOEXEC', 3))
