"""Markdown is the truth of what a memory says: what people do to the files, through the facade (REQUIREMENTS B)."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import time
import unicodedata
from pathlib import Path

import pytest

import commonplace
from commonplace.book import Commonplace
from commonplace.errors import FileInTheWay, NotFound
from commonplace.model import Draft, Filter
from tests.conftest import OpenBook

OTHER_ID = "0192f0c1-aaaa-7bbb-8ccc-0123456789ab"


def change(path: Path, old: str, new: str) -> None:
    """Edit a file as a person does."""
    text = path.read_bytes().decode()
    assert old in text
    path.write_bytes(text.replace(old, new).encode())


def texts(book: Commonplace, memory_id: str) -> list[str]:
    return [one.text for one in book.history(memory_id)]


def wait_until(holds, seconds: float = 10.0):
    """Wait for a condition, not for the clock; return how long it took."""
    start = time.monotonic()
    while not holds():
        assert time.monotonic() - start < seconds, "it did not come about"
        time.sleep(0.02)
    return time.monotonic() - start


# --- B1


def test_every_memory_is_a_file_with_front_matter_and_a_name_that_says_what_it_is(book: Commonplace, home: Path):
    receipt = book.remember("Alice owns the billing service", space="team/backend", tags=["billing"])
    assert receipt.path.startswith("team/backend/")
    assert receipt.path.endswith(f"/alice-owns-the-billing-service--{receipt.id[-8:]}.md")
    lines = (home / receipt.path).read_text().splitlines()
    assert lines[0] == "---"
    assert f"id: {receipt.id}" in lines
    assert "title: Alice owns the billing service" in lines
    assert "tags: [billing]" in lines
    assert lines[-1] == "Alice owns the billing service"


def test_a_slug_and_a_month_stay_when_title_and_dates_change(book: Commonplace):
    receipt = book.remember("Old name")
    assert book.edit(receipt.id, title="New name", occurred="1999-01-01").path == receipt.path


# --- B2


def test_hand_edits_of_every_field_are_taken_in_at_the_next_opening(book: Commonplace, home: Path, open_book: OpenBook):
    target = book.remember("target")
    receipt = book.remember("The first text", title="First", tags=["a"], kind="note")
    book.close()
    path = home / receipt.path
    change(path, "\nThe first text\n", "\nAnother text\n")
    change(path, "title: First", "title: Second")
    change(path, "tags: [a]", "tags:\n  - b\n  - c # mine\nmood: sunny")
    change(path, "kind: note", "kind: decision")
    change(path, "author:", "occurred: 2020-02-03\nvalid_until: 2031-01-01\nimportance: 0.25\nauthor:")
    change(path, "updated:", f"links:\n  - related_to {target.id}\nupdated:")
    again = open_book()
    memory = again.get(receipt.id)
    assert (memory.text, memory.title, memory.kind, memory.tags) == ("Another text", "Second", "decision", ("b", "c"))
    assert memory.occurred is not None
    assert memory.occurred.isoformat() == "2020-02-03T00:00:00+00:00"
    assert memory.importance == 0.25
    assert [(link.relation, link.target) for link in memory.links] == [("related_to", target.id)]
    assert [link.source for link in again.links(target.id)] == [receipt.id]
    assert [one.id for one in again.list(Filter(tags=("c",))).items] == [receipt.id]
    assert (memory.version, memory.revision) == (2, 2)
    assert again.history(receipt.id)[-1].author == "user:filesystem"
    # What we do not know, and how the person wrote it, stays; only our numbers go up.
    text = path.read_text()
    assert "tags:\n  - b\n  - c # mine\nmood: sunny\n" in text
    assert "occurred: 2020-02-03\n" in text
    assert "version: 2\n" in text
    assert again.verify_log().ok
    assert again.doctor() == ()


def test_a_hand_edit_shows_within_two_seconds_while_another_process_watches(home: Path, tmp_path: Path):
    script = tmp_path / "watcher.py"
    script.write_text(
        "import sys, commonplace\n"
        "with commonplace.open(sys.argv[1]) as book, book.watching(lambda report: print('.', flush=True)):\n"
        "    print('ready', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with commonplace.open(home) as book:
        receipt = book.remember("before", title="t")
        new = home / "team" / "fresh.md"
        with subprocess.Popen(
            [sys.executable, str(script), str(home)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as watcher:
            try:
                assert watcher.stdout is not None
                assert {watcher.stdout.readline().strip(), watcher.stdout.readline().strip()} == {"ready", "."}
                change(home / receipt.path, "\nbefore\n", "\nafter\n")
                assert wait_until(lambda: book.get(receipt.id).text == "after") < 2
                new.parent.mkdir()
                new.write_text("A new thought")
                assert wait_until(lambda: len(book.list(Filter(space="team")).items) == 1) < 2
                moved = home / "elsewhere" / "moved.md"
                moved.parent.mkdir()
                (home / receipt.path).rename(moved)
                assert wait_until(lambda: book.get(receipt.id).space.name == "elsewhere") < 2
                moved.unlink()
                wait_until(lambda: receipt.id not in {one.id for one in book.list().items})
                assert book.get(book.list().items[0].id).title == "A new thought"
            finally:
                watcher.communicate()
            assert watcher.returncode == 0


# --- B3


def test_a_new_file_without_front_matter_becomes_a_memory_and_gets_one(home: Path, open_book: OpenBook):
    open_book().close()
    (home / "team" / "My Notes").mkdir(parents=True)
    path = home / "team" / "My Notes" / "Some idea.md"
    path.write_bytes(b"# A heading\r\n\r\nand text\r\n")
    book = open_book()
    (memory,) = book.list().items
    assert (memory.space.name, memory.title, memory.author) == ("team", "A heading", "user:filesystem")
    assert memory.path == "team/My Notes/Some idea.md"
    data = path.read_bytes()
    assert data.startswith(b"---")
    assert data.endswith(b"# A heading\r\n\r\nand text\r\n")
    assert memory.id.encode() in data
    assert book.sync().read == 0


def test_a_removed_file_removes_its_memory_and_brings_it_back_with_its_history(
    home: Path, book: Commonplace, open_book: OpenBook, tmp_path: Path
):
    receipt = book.remember("one", tags=["x"])
    book.edit(receipt.id, text="two")
    aside = tmp_path / "aside.md"
    (home / receipt.path).rename(aside)
    again = open_book()
    with pytest.raises(NotFound):
        again.get(receipt.id)
    assert again.list(Filter(tags=("x",))).items == ()
    place = home / "elsewhere" / "back.md"
    place.parent.mkdir()
    aside.rename(place)
    back = open_book()
    memory = back.get(receipt.id)
    assert (memory.text, memory.space.name, memory.tags) == ("two", "elsewhere", ("x",))
    assert texts(back, receipt.id) == ["one", "two"]
    assert [entry.action for entry in back.log(space="elsewhere")] == ["space.create", "restore"]
    assert back.doctor() == ()


def test_a_moved_file_keeps_its_id_and_links(home: Path, book: Commonplace, open_book: OpenBook):
    target = book.remember("target")
    receipt = book.remember("one", space="a", links=[("related_to", target.id)])
    new = home / "b" / "renamed by hand.md"
    new.parent.mkdir()
    (home / receipt.path).rename(new)
    again = open_book()
    memory = again.get(receipt.id)
    assert (memory.space.name, memory.path) == ("b", "b/renamed by hand.md")
    assert [link.source for link in again.links(target.id)] == [receipt.id]
    assert again.list().items[0].id == receipt.id
    assert again.status().memories == 2
    assert again.doctor() == ()


def test_a_file_moved_inside_its_space_only_changes_its_path(home: Path, book: Commonplace):
    receipt = book.remember("one", space="a")
    (home / receipt.path).rename(home / "a" / "other.md")
    book.sync()
    assert (book.get(receipt.id).path, book.get(receipt.id).version) == ("a/other.md", 1)
    book.edit(receipt.id, text="two")
    assert sorted(path.name for path in (home / "a").rglob("*.md")) == ["other.md"]


def test_an_edit_through_the_api_finds_a_file_that_was_just_moved(home: Path, book: Commonplace):
    receipt = book.remember("one", space="a")
    (home / "a" / "other.md").write_bytes((home / receipt.path).read_bytes())
    (home / receipt.path).unlink()
    assert book.edit(receipt.id, text="two").path == "a/other.md"
    assert [path.name for path in (home / "a").rglob("*.md")] == ["other.md"]
    assert book.status().memories == 1


def test_a_file_moved_over_another_replaces_it(home: Path, book: Commonplace, open_book: OpenBook):
    a, b = book.remember("a"), book.remember("b")
    (home / a.path).replace(home / b.path)
    again = open_book()
    assert again.get(a.id).path == b.path
    with pytest.raises(NotFound):
        again.get(b.id)
    assert again.doctor() == ()


def test_a_folder_renamed_by_hand_moves_everything_in_it(home: Path, book: Commonplace, open_book: OpenBook):
    made = book.remember_many([Draft(text=f"n{n}", space="old/place") for n in range(30)])
    (home / "old").rename(home / "new")
    again = open_book()
    assert {again.get(one.id).space.name for one in made} == {"new/place"}
    assert again.status().memories == 30
    assert again.doctor() == ()


# --- B5


@pytest.mark.parametrize(
    "broken",
    [
        b"---\ntitle: [unclosed\n---\n\ntext\n",
        b"---\nkind: poem\n---\n\ntext\n",
        b"---\ntitle: x\ntitle: y\n---\n\ntext\n",
        b"---\na: &a [x]\nb: *a\n---\n\ntext\n",
        b"---\ntitle: !!python/object/apply:os.system [ls]\n---\ntext\n",
        b"\xff\xfe broken",
        b"a\0b",
        b"",
    ],
)
def test_a_malformed_file_is_named_marked_and_left_alone_until_it_is_mended(
    home: Path, book: Commonplace, open_book: OpenBook, broken: bytes
):
    receipt = book.remember("good text", tags=["x"])
    path = home / receipt.path
    good = path.read_bytes()
    path.write_bytes(broken)
    again = open_book()
    assert again.get(receipt.id).text == "good text"
    assert again.get(receipt.id).marks == ("malformed",)
    assert [finding.where for finding in again.doctor()] == [receipt.path]
    assert [finding.where for finding in again.status().wrong] == [receipt.path]
    with pytest.raises(FileInTheWay):
        again.edit(receipt.id, text="over it")
    with pytest.raises(FileInTheWay):
        again.delete(receipt.id)
    assert path.read_bytes() == broken
    path.write_bytes(good.replace(b"good text", b"mended"))
    healed = open_book()
    assert (healed.get(receipt.id).text, healed.get(receipt.id).marks) == ("mended", ())
    assert healed.doctor() == ()


def test_a_malformed_new_file_is_named_and_becomes_a_memory_when_mended(home: Path, book: Commonplace):
    path = home / "notes.md"
    path.write_text("---\ntitle: [oops\n---\n\ntext\n")
    assert book.sync().malformed == 1
    assert book.list().items == ()
    assert [finding.where for finding in book.status().wrong] == ["notes.md"]
    path.write_text("---\ntitle: fine\n---\n\ntext\n")
    book.sync()
    assert book.list().items[0].title == "fine"
    path.write_text("---\nbroken: [\n")
    book.sync()
    path.unlink()
    book.sync()
    assert (book.status().wrong, book.list().items) == ((), ())


# --- B6


def everything(home: Path) -> list[tuple[object, ...]]:
    with commonplace.open(home) as book:
        found: list[tuple[object, ...]] = [
            (
                memory.id,
                memory.space.id,
                memory.space.name,
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


def test_what_only_serves_search_can_be_thrown_away_and_rebuilt(home: Path, book: Commonplace):
    book.remember("again and again")
    first = book.remember("one", tags=["x"])
    for n in range(20):
        book.remember(f"n{n}", space=f"s{n % 3}", tags=["x", f"t{n}"], links=[("related_to", first.id)])
    book.edit(first.id, text="two")
    book.remember("again and again", key="probe")
    book.close()
    before = everything(home)
    with sqlite3.connect(home / ".commonplace" / "state.db") as state:
        for statement in (
            "DELETE FROM memory_tag",
            "DELETE FROM link",
            "DELETE FROM file",
            "UPDATE memory SET digest = ''",
        ):
            state.execute(statement)
    state.close()
    with commonplace.open(home) as again:
        again.rebuild()
        assert again.doctor() == ()
    assert everything(home) == before


def test_a_rebuild_goes_on_while_another_process_writes(home: Path, book: Commonplace):
    made = book.remember_many([Draft(text=f"n{n}", tags=("x",)) for n in range(300)])
    script = (
        "import sys, commonplace\n"
        "with commonplace.open(sys.argv[1]) as book:\n"
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


def test_with_the_database_lost_the_folder_brings_ids_spaces_and_links_back(home: Path, book: Commonplace):
    target = book.remember("target", space="team/x")
    receipt = book.remember("one", kind="fact", tags=["t"], links=[("derived_from", target.id)], occurred="2020-01-01")
    book.edit(receipt.id, text="two")
    before = book.get(receipt.id)
    files = {path: path.read_bytes() for path in home.rglob("*.md")}
    book.close()
    for name in ("state.db", "state.db-wal", "state.db-shm"):
        (home / ".commonplace" / name).unlink(missing_ok=True)
    with commonplace.open(home) as again:
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
            "revision",
            "version",
            "path",
        ):
            assert getattr(after, field) == getattr(before, field), field
        assert after.space.name == before.space.name
        assert [link.source for link in again.links(target.id)] == [receipt.id]
        entry = again.log(space="team/x")[0]
        assert (entry.action, '"origin":"folder"' in entry.payload) == ("space.create", True)
        assert again.verify_log().ok
        assert again.doctor() == ()
    assert {path: path.read_bytes() for path in home.rglob("*.md")} == files


# --- B7


def test_memories_of_one_title_and_day_in_two_spaces_never_touch_each_others_file(home: Path, book: Commonplace):
    made = [book.remember("the same", space=space) for space in ("a", "b", "a", "a/b", "personal")]
    assert len({one.path for one in made}) == 5
    book.edit(made[0].id, text="changed")
    assert [book.get(one.id).text for one in made[1:]] == ["the same"] * 4
    assert all("the same" in (home / one.path).read_text() for one in made[1:])
    book.move(made[0].id, "b")
    assert "the same" in (home / made[1].path).read_text()


# --- B8


OPENED = """
import sys
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
import commonplace
with commonplace.open(sys.argv[1]) as book:
    assert book.status().memories == int(sys.argv[2])
print(sum(path.endswith(".md") for path in opened))
"""


@pytest.mark.slow
def test_opening_an_unchanged_home_of_ten_thousand_files_reads_no_files_text(home: Path, book: Commonplace):
    for start in range(0, 10_000, 1000):
        book.remember_many([Draft(text=f"memory number {n}", space=f"s{n % 7}") for n in range(start, start + 1000)])
    book.close()
    said = subprocess.run(
        [sys.executable, "-c", OPENED, str(home), "10000"], capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == "0"


def test_the_audit_hook_of_that_test_does_see_a_file_being_read(home: Path, book: Commonplace):
    receipt = book.remember("one")
    book.close()
    change(home / receipt.path, "\none\n", "\ntwo\n")
    said = subprocess.run([sys.executable, "-c", OPENED, str(home), "1"], capture_output=True, text=True, check=True)
    assert int(said.stdout) > 0


def test_an_edit_of_the_same_size_right_after_a_write_is_seen(home: Path, book: Commonplace):
    receipt = book.remember("aaaa", title="t")
    for n in range(30):
        old, new = ("aaaa", "bbbb") if n % 2 == 0 else ("bbbb", "aaaa")
        change(home / receipt.path, f"\n{old}\n", f"\n{new}\n")
        book.sync()
        assert book.get(receipt.id).text == new


# --- B9


def test_when_many_files_vanish_nothing_is_deleted_before_a_person_agrees(
    home: Path, book: Commonplace, open_book: OpenBook, tmp_path: Path
):
    made = book.remember_many([Draft(text=f"n{n}", space="team") for n in range(40)])
    book.edit(made[0].id, text="edited")
    aside = tmp_path / "team"
    (home / "team").rename(aside)
    held = open_book()
    assert held.status().memories == 40
    assert held.status().pending_deletions == 40
    assert held.get(made[0].id).marks == ("missing",)
    assert held.doctor()[0].what == "missing file"
    aside.rename(home / "team")
    back = open_book()
    assert back.status().pending_deletions == 0
    assert back.get(made[0].id).marks == ()
    assert texts(back, made[0].id) == ["n0", "edited"]
    assert back.doctor() == ()
    shutil.rmtree(home / "team")
    gone = open_book()
    assert gone.status().memories == 40
    assert gone.accept_deletions() == 40
    assert (gone.status().memories, gone.status().deleted) == (0, 40)


def test_ten_files_or_a_tenth_may_go_without_asking(home: Path, book: Commonplace, open_book: OpenBook):
    made = book.remember_many([Draft(text=f"n{n}") for n in range(200)])
    for one in made[:20]:
        (home / one.path).unlink()
    assert open_book().status().memories == 180


def test_a_checkout_of_an_old_commit_and_back_keeps_everything(home: Path, book: Commonplace, open_book: OpenBook):
    def git(*words: str) -> None:
        subprocess.run(
            ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *words],
            cwd=home,
            check=True,
            capture_output=True,
        )

    old = book.remember_many([Draft(text=f"old {n}") for n in range(15)])
    git("init", "-q")
    (home / ".gitignore").write_text(".commonplace/\n")
    git("add", ".")
    git("commit", "-qm", "one")
    new = book.remember_many([Draft(text=f"new {n}") for n in range(15)])
    book.edit(old[0].id, text="edited")
    git("add", ".")
    git("commit", "-qm", "two")
    git("checkout", "-q", "HEAD~1")
    then = open_book()
    assert then.status().pending_deletions == 15
    assert then.get(old[0].id).text == "old 0"
    git("checkout", "-qf", "master") if (home / ".git/refs/heads/master").exists() else git("checkout", "-qf", "main")
    now = open_book()
    assert now.status().pending_deletions == 0
    assert now.get(old[0].id).text == "edited"
    assert {now.get(one.id).text for one in new} == {f"new {n}" for n in range(15)}
    assert "edited" in texts(now, old[0].id)
    assert now.doctor() == ()


def test_files_that_a_cloud_drive_evicted_are_not_taken_for_deleted_or_emptied(
    home: Path, book: Commonplace, open_book: OpenBook
):
    a, b = book.remember("a"), book.remember("b")
    path = home / a.path
    path.rename(path.with_name(f".{path.name}.icloud"))
    (home / b.path).write_bytes(b"")
    again = open_book()
    assert again.get(a.id).text == "a"
    assert (again.get(b.id).text, again.get(b.id).marks) == ("b", ("malformed",))


def test_a_home_that_is_taken_away_while_a_book_is_open_loses_nothing(home: Path, book: Commonplace, tmp_path: Path):
    receipt = book.remember("one")
    home.rename(tmp_path / "unmounted")
    home.mkdir()
    book.sync()
    (home).rmdir()
    (tmp_path / "unmounted").rename(home)
    book.sync()
    assert book.get(receipt.id).text == "one"


# --- B10


def test_unknown_fields_comments_line_ends_and_a_byte_order_mark_are_kept(home: Path, book: Commonplace):
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


def test_of_two_files_with_one_id_the_known_path_keeps_it(home: Path, book: Commonplace, open_book: OpenBook):
    receipt = book.remember("one")
    copy = home / "copy.md"
    shutil.copy(home / receipt.path, copy)
    again = open_book()
    assert again.get(receipt.id).path == receipt.path
    (other,) = [one for one in again.list().items if one.id != receipt.id]
    assert (other.path, other.text, other.version) == ("copy.md", "one", 1)
    assert other.id in copy.read_text()
    assert receipt.id not in copy.read_text()


def test_an_id_edited_or_removed_by_hand_is_put_back(home: Path, book: Commonplace):
    receipt, other = book.remember("one", tags=["x"]), book.remember("two")
    path = home / receipt.path
    for wrong in (f"id: {OTHER_ID}", f"id: {other.id}", "note: none"):
        change(path, f"id: {receipt.id}", wrong)
        book.sync()
        assert f"id: {receipt.id}" in path.read_text()
    path.write_text("only text is left")
    book.sync()
    memory = book.get(receipt.id)
    assert (memory.text, memory.tags, memory.path) == ("only text is left", ("x",), receipt.path)
    assert f"id: {receipt.id}" in path.read_text()
    assert book.status().memories == 2


def test_version_and_revision_edited_by_hand_are_put_right(home: Path, book: Commonplace):
    receipt = book.remember("one")
    change(home / receipt.path, "version: 1", "version: 77")
    change(home / receipt.path, "revision: 1", "revision: 9")
    book.sync()
    memory = book.get(receipt.id)
    assert memory.revision == 1
    assert f"version: {memory.version}\n" in (home / receipt.path).read_text()
    assert memory.version < 10


def test_links_out_of_the_home_and_hidden_and_ignored_files_are_left_alone(
    home: Path, book: Commonplace, tmp_path: Path
):
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
    (home / ".commonplaceignore").write_text("# drafts\ndrafts/\nskip-*.md\n")
    book.sync()
    assert book.list().items == ()
    assert (outside / "secret.md").read_text() == "secret"
    assert book.doctor() == ()


def test_a_memory_whose_file_is_ignored_later_is_not_deleted(home: Path, book: Commonplace):
    receipt = book.remember("one", space="drafts")
    (home / ".commonplaceignore").write_text("drafts/\n")
    book.sync()
    assert book.get(receipt.id).text == "one"


def test_nothing_is_ever_written_through_a_link_that_leads_out(home: Path, book: Commonplace, tmp_path: Path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (home / "team").symlink_to(outside)
    with pytest.raises(FileInTheWay):
        book.remember("x", space="team")
    assert list(outside.iterdir()) == []


def test_a_name_in_another_normal_form_is_the_same_name(home: Path, book: Commonplace):
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


def test_a_save_at_a_path_that_we_left_edits_the_moved_memory(home: Path, book: Commonplace, open_book: OpenBook):
    moved, renamed = book.remember("one", space="a"), book.remember("two", space="b")
    stale = [(home / one.path, (home / one.path).read_text()) for one in (moved, renamed)]
    book.move(moved.id, "c")
    book.rename_space("b", "d")
    for (path, text), old, new in zip(stale, ("one", "two"), ("one more", "two more"), strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace(f"\n{old}\n", f"\n{new}\n"))
    again = open_book()
    assert (again.get(moved.id).text, again.get(moved.id).space.name) == ("one more", "c")
    assert (again.get(renamed.id).text, again.get(renamed.id).space.name) == ("two more", "d")
    assert again.status().memories == 2
    assert sorted(path.relative_to(home).parts[0] for path in home.rglob("*.md")) == ["c", "d"]
    assert again.doctor() == ()


def test_the_leading_run_of_legal_names_decides_the_space(home: Path, book: Commonplace):
    places = {
        "root.md": "personal",
        "team/x.md": "team",
        "team/2026-05/x.md": "team",
        "team/Backend/x.md": "team",
        "Notes/x.md": "personal",
        "a/b/c/d/e/f/g/h/x.md": "a/b/c/d/e/f/g",
        "_private/x.md": "personal",
        "team/_x/y/z.md": "team",
    }
    for path in places:
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_text(path)
    book.sync()
    assert {one.path: one.space.name for one in book.list().items} == places


def test_a_home_inside_which_files_cannot_be_read_names_them(home: Path, book: Commonplace):
    receipt = book.remember("one")
    path = home / receipt.path
    path.unlink()
    path.mkdir()
    book.sync()
    assert book.get(receipt.id).text == "one"
    assert os.path.isdir(path)
