"""Details of the files: what is rebuilt from them, when they are read, and which parts are kept as written."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

import commonbook
from commonbook.errors import FileInTheWay
from commonbook.service.book import Book
from commonbook.values.memory import Draft, Filter
from tests.conftest import OpenBook
from tests.support.hand_edits import change

OTHER_ID = "0192f0c1-aaaa-7bbb-8ccc-0123456789ab"


# --- rebuilding


def everything(home: Path) -> list[tuple[object, ...]]:
    with commonbook.open(home, create=True) as book:
        found: list[tuple[object, ...]] = [
            (
                memory.id,
                memory.space,
                memory.revision,
                memory.version,
                memory.text,
                memory.tags,
                memory.links,
                book.links(memory.id),
                [(one.revision, one.text, one.author) for one in book.history(memory.id)],
            )
            for memory in book.list(limit=1000).items
        ]
        found.append(tuple(one.id for one in book.list(Filter(tags=("x",))).items))
        found.append((book.remember("again and again", key="probe").duplicate_of,))
    return found


def test_what_only_serves_search_can_be_thrown_away_and_rebuilt(home: Path, book: Book):
    book.remember("again and again")
    first = book.remember("one", tags=["x"])
    for n in range(20):
        book.remember(f"n{n}", space=f"s{n % 3}", tags=["x", f"t{n}"], links=[("related_to", first.id)])
    book.edit(first.id, text="two")
    book.remember("again and again", key="probe")
    book.close()
    before = everything(home)
    with sqlite3.connect(home / ".commonbook" / "state.db") as state:
        for statement in (
            "DELETE FROM memory_tag",
            "DELETE FROM link",
            "DELETE FROM file",
            "UPDATE memory SET digest = ''",
        ):
            state.execute(statement)
    state.close()
    with commonbook.open(home) as again:
        again.rebuild()
        assert again.doctor() == ()
    assert everything(home) == before


@pytest.mark.slow
def test_a_rebuild_goes_on_while_another_process_writes(home: Path, book: Book):
    made = book.remember_many([Draft(text=f"n{n}", tags=("x",)) for n in range(300)])
    script = (
        "import sys, commonbook\n"
        "with commonbook.open(sys.argv[1], create=True) as book:\n"
        "    for n in range(100):\n"
        "        print(book.remember(f'beside {n}', tags=['x']).id, flush=True)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(home)], stdout=subprocess.PIPE, text=True) as writer:
        while writer.poll() is None:
            book.rebuild()
        assert writer.stdout is not None
        beside = writer.stdout.read().split()
    assert writer.returncode == 0
    found = {one.id for one in book.list(Filter(tags=("x",)), limit=1000).items}
    assert found == {one.id for one in made} | set(beside)
    assert len(beside) == 100
    assert book.verify_log().ok


@pytest.mark.promise("lost.files")
def test_with_the_database_lost_the_folder_brings_ids_spaces_and_links_back(home: Path, book: Book):
    target = book.remember("target", space="team/x")
    receipt = book.remember("one", kind="fact", tags=["t"], links=[("derived_from", target.id)], occurred="2020-01-01")
    book.edit(receipt.id, text="two")
    before = book.get(receipt.id)
    files = {path: path.read_bytes() for path in home.rglob("*.md")}
    book.close()
    for name in ("state.db", "state.db-wal", "state.db-shm"):
        (home / ".commonbook" / name).unlink(missing_ok=True)
    with commonbook.open(home) as again:
        after = again.get(receipt.id)
        for field in (
            "id",
            "text",
            "title",
            "kind",
            "tags",
            "links",
            "occurred",
            "created",
            "path",
        ):
            assert getattr(after, field) == getattr(before, field), field
        assert after.version > 10**12, "no version from before the loss matches by accident"
        assert after.revision == 1
        assert after.space == before.space
        assert [link.source for link in again.links(target.id)] == [receipt.id]
        entry = again.log(space="team/x")[0]
        assert (entry.action, '"origin":"folder"' in entry.payload) == ("space.create", True)
        assert again.verify_log().ok
        assert again.doctor() == ()
    assert {path: path.read_bytes() for path in home.rglob("*.md")} == files


# --- which files are read


OPENED = """
import sys
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
import commonbook
with commonbook.open(sys.argv[1], create=True) as book:
    assert book.status().memories == int(sys.argv[2])
print(sum(path.endswith(".md") for path in opened))
"""


@pytest.mark.promise("files.opening")
@pytest.mark.slow
def test_opening_an_unchanged_home_of_ten_thousand_files_reads_no_files_text(home: Path, book: Book):
    for start in range(0, 10_000, 1000):
        book.remember_many([Draft(text=f"memory number {n}", space=f"s{n % 7}") for n in range(start, start + 1000)])
    book.close()
    process = subprocess.run(
        [sys.executable, "-c", OPENED, str(home), "10000"], capture_output=True, text=True, check=True
    )
    assert process.stdout.strip() == "0"


def test_the_audit_hook_of_that_test_does_see_a_file_being_read(home: Path, book: Book):
    receipt = book.remember("one")
    book.close()
    change(home / receipt.path, "\none\n", "\ntwo\n")
    process = subprocess.run([sys.executable, "-c", OPENED, str(home), "1"], capture_output=True, text=True, check=True)
    assert int(process.stdout) > 0


def test_an_edit_of_the_same_size_right_after_a_write_is_seen(home: Path, book: Book):
    receipt = book.remember("aaaa", title="t")
    for n in range(30):
        old, new = ("aaaa", "bbbb") if n % 2 == 0 else ("bbbb", "aaaa")
        change(home / receipt.path, f"\n{old}\n", f"\n{new}\n")
        book.sync()
        assert book.get(receipt.id).text == new


# --- which parts of files, and which files, are left as they are


@pytest.mark.promise("files.bytes")
def test_unknown_fields_comments_line_ends_and_a_byte_order_mark_are_kept(home: Path, book: Book):
    original = (
        b"\xef\xbb\xbf---\r\n# mine\r\naliases: [x, y]\r\ntitle:   'Odd'   # why\r\n"
        b"custom:\r\n  deep: {a: 1}\r\n---\r\nBody\r\n\r\nwith CRLF"
    )
    path = home / "odd.md"
    path.write_bytes(original)
    book.sync()
    (memory,) = book.list().items
    assert (memory.title, memory.text) == ("Odd", "Body\r\n\r\nwith CRLF")
    book.edit(memory.id, tags=["new"])
    data = path.read_bytes()
    for kept in (
        b"\xef\xbb\xbf---\r\n# mine\r\naliases: [x, y]\r\ntitle:   'Odd'   # why\r\n",
        b"custom:\r\n  deep: {a: 1}\r\n",
    ):
        assert kept in data
    assert data.endswith(b"---\r\nBody\r\n\r\nwith CRLF")
    assert b"tags: [new]\r\n" in data


def test_of_two_files_with_one_id_the_known_path_keeps_it(home: Path, book: Book, open_book: OpenBook):
    receipt = book.remember("one")
    copy = home / "copy.md"
    shutil.copy(home / receipt.path, copy)
    again = open_book()
    assert again.get(receipt.id).path == receipt.path
    (other,) = [one for one in again.list().items if one.id != receipt.id]
    assert (other.path, other.text, other.version) == ("copy.md", "one", 1)
    assert other.id in copy.read_text()
    assert receipt.id not in copy.read_text()


@pytest.mark.promise("files.ids")
def test_an_id_edited_by_hand_is_put_back_and_a_removed_one_by_the_next_write(home: Path, book: Book):
    receipt, other = book.remember("one", tags=["x"]), book.remember("two")
    path = home / receipt.path
    for wrong in (f"id: {OTHER_ID}", f"id: {other.id}"):
        change(path, f"id: {receipt.id}", wrong)
        book.sync()
        assert f"id: {receipt.id}" in path.read_text()
    change(path, f"id: {receipt.id}", "note: none")
    book.sync()
    assert receipt.id not in path.read_text()
    assert book.status().memories == 2
    book.edit(receipt.id, importance=0.5)
    assert f"id: {receipt.id}" in path.read_text()
    path.write_text("only text is left")
    book.sync()
    memory = book.get(receipt.id)
    assert (memory.text, memory.tags, memory.path) == ("only text is left", ("x",), receipt.path)
    assert f"id: {receipt.id}" in path.read_text()
    assert book.status().memories == 2


def test_a_version_in_a_file_is_the_persons_own(home: Path, book: Book):
    receipt = book.remember("one")
    change(home / receipt.path, "type: note", "type: note\nversion: 77\nrevision: 9")
    book.sync()
    assert book.get(receipt.id).revision == 1
    assert book.edit(receipt.id, text="two").revision == 2
    assert "\nversion: 77\nrevision: 9\n" in (home / receipt.path).read_text()


def test_links_out_of_the_home_and_hidden_and_ignored_files_are_left_alone(home: Path, book: Book, tmp_path: Path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.md").write_text("secret")
    (home / "link.md").symlink_to(outside / "secret.md")
    (home / "linked").symlink_to(outside)
    for name in (".obsidian", ".git", ".trash", "drafts"):
        (home / name).mkdir()
        (home / name / "x.md").write_text("left alone")
    for name in (".hidden.md", "x.md~", ".#x.md", "x.md.tmp", "x.txt", "skip-me.md", ".x.md.swp"):
        (home / name).write_text("left alone")
    (home / ".commonbookignore").write_text("# drafts\ndrafts/\nskip-*.md\n")
    book.sync()
    assert book.list().items == ()
    assert (outside / "secret.md").read_text() == "secret"
    assert book.doctor() == ()


def test_a_memory_whose_file_is_ignored_later_is_not_deleted(home: Path, book: Book):
    receipt = book.remember("one", space="drafts")
    (home / ".commonbookignore").write_text("drafts/\n")
    book.sync()
    assert book.get(receipt.id).text == "one"


def test_nothing_is_ever_written_through_a_link_that_leads_out(home: Path, book: Book, tmp_path: Path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (home / "team").symlink_to(outside)
    with pytest.raises(FileInTheWay):
        book.remember("x", space="team")
    assert list(outside.iterdir()) == []


def test_a_name_in_another_normal_form_is_the_same_name(home: Path, book: Book):
    folder = home / "notes"
    folder.mkdir()
    (folder / unicodedata.normalize("NFD", "Café.md")).write_text("au lait")
    book.sync()
    (memory,) = book.list().items
    assert memory.path == "notes/" + unicodedata.normalize("NFC", "Café.md")
    book.edit(memory.id, text="noir")
    assert len(list(folder.iterdir())) == 1
    assert book.sync().read == 0
    assert "noir" in next(folder.iterdir()).read_text()


def save_again(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.promise("files.left-path")
def test_a_save_at_a_path_of_a_space_that_was_renamed_edits_the_memory(home: Path, book: Book, open_book: OpenBook):
    renamed = book.remember("two", space="b")
    stale = (home / renamed.path).read_text()
    book.rename_space("b", "d")
    save_again(home / renamed.path, stale.replace("\ntwo\n", "\ntwo more\n"))
    again = open_book()
    assert (again.get(renamed.id).text, again.get(renamed.id).space) == ("two more", "d")
    assert again.status().memories == 1
    assert [path.relative_to(home).parts[0] for path in home.rglob("*.md")] == ["d"]
    assert again.doctor() == ()


@pytest.mark.promise("files.left-path")
@pytest.mark.parametrize("edited", [False, True])
@pytest.mark.parametrize("renamed", [False, True])
def test_a_save_at_the_former_path_of_a_memory_is_not_shown_in_its_new_space(
    home: Path, book: Book, open_book: OpenBook, edited: bool, renamed: bool
):
    book.grant("user:bob", "team", "reader")
    moved = book.remember("the plan", space="vault", title="Plan")
    stale = (home / moved.path).read_text()
    book.move(moved.id, "team")
    if edited:
        book.edit(moved.id, text="the plan, for all")
    if renamed:
        book.rename_space("vault", "safe")
    save_again(home / moved.path, stale.replace("the plan", "the secret plan"))
    again = open_book()
    bob = again.acting_as("user:bob")
    assert (bob.get(moved.id).text, bob.get(moved.id).space) == (
        "the plan, for all" if edited else "the plan",
        "team",
    )
    assert "secret" not in str(bob.history(moved.id)) + str(bob.list())
    (kept,) = [one for one in again.list().items if one.id != moved.id]
    assert (kept.text, kept.space, kept.path) == (
        "the secret plan",
        "personal" if renamed else "vault",
        moved.path,
    )
    assert again.doctor() == ()


def test_a_save_at_a_former_path_in_a_space_that_was_renamed_is_not_shown_in_the_space_above(
    home: Path, book: Book, open_book: OpenBook
):
    book.create_space("team")
    moved = book.remember("the plan", space="team/vault", title="Plan")
    stale = (home / moved.path).read_text()
    book.move(moved.id, "team")
    # The path of the renamed space now lies in the space above it, where the memory is.
    book.rename_space("team/vault", "safe")
    save_again(home / moved.path, stale.replace("the plan", "the secret plan"))
    again = open_book()
    assert again.get(moved.id).text == "the plan"
    assert [one.text for one in again.history(moved.id)] == ["the plan"]


def test_a_save_at_a_former_path_that_changes_nothing_leaves_nothing_there(home: Path, book: Book, open_book: OpenBook):
    moved = book.remember("the plan", space="vault")
    book.move(moved.id, "team")
    save_again(home / moved.path, (home / book.get(moved.id).path).read_text())
    again = open_book()
    assert [one.id for one in again.list().items] == [moved.id]
    assert [path.relative_to(home).parts[0] for path in home.rglob("*.md")] == ["team"]


def test_a_folder_in_place_of_a_file_is_left_alone_and_named_and_its_memory_stays(home: Path, book: Book):
    receipt = book.remember("one")
    path = home / receipt.path
    path.unlink()
    path.mkdir()
    book.sync()
    assert [(finding.where, "directory" in finding.why) for finding in book.doctor()] == [(receipt.path, True)]
    with pytest.raises(FileInTheWay):
        book.edit(receipt.id, text="two")
    assert book.get(receipt.id).text == "one"
    assert path.is_dir()
