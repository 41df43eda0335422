"""Migration of a book between a home and PostgreSQL: everything is copied, and the old book refuses writes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from itertools import count
from pathlib import Path

import pytest

import commonbook
from commonbook.compose.book import open_book
from commonbook.compose.databases import migrate_book, unlock_book
from commonbook.core.settings.settings import DatabaseChoice, Settings
from commonbook.errors import CommonbookError, Conflict, HomeDamaged, Moved
from commonbook.subjects.transfer import migrate
from commonbook.values.memory import Draft, Filter, Memory
from tests.support.postgres_server import TEMPLATE

pytestmark = pytest.mark.slow

_NAMES = count()


@pytest.fixture
def empty(postgres):
    """The address of a database that nobody has used."""
    name = f"moving_{next(_NAMES)}"
    yield postgres.make_database(name, template=TEMPLATE)
    postgres.drop_database(name)


@pytest.fixture
def full(home: Path) -> Path:
    """A home with something in every table."""
    with commonbook.open(home, create=True) as book:
        owner = book.remember("Alice owns the billing service", space="team/backend", tags=["people"], key="k1").id
        book.edit(owner, text="Bertha owns the billing service")
        book.remember("The deploy runs on Fridays", space="personal", links=[("related_to", owner)])
        book.delete(book.remember("gone", space="personal").id)
        report = book.remember("A line of a long report. " * 40, space="personal").id
        book.edit(report, text="Another line of a long report. " * 40)
        book.append("talk", ["Where is the heron?", "On the green weir."], space="personal", tags=["birds"])
        book.settle("talk")
        book.append("talk", ["And the otter?"])
        book.share(owner, "everybody")
        book.grant("user:alice", "team", "reader")
        book.create_key("user:alice", label="laptop")
        for number in range(1_200):
            if number % 400 == 0:
                drafts = []
            drafts.append(Draft(text=f"note {number} of many", space="many"))
            if len(drafts) == 400:
                book.remember_many(drafts)
    return home


def settings(place: str | Path, keys: str | None = None) -> Settings:
    if str(place).startswith("postgresql"):
        return Settings(home="", cwd=os.getcwd(), database=DatabaseChoice(str(place), keys))
    # The keys of a home that moves to a server are copied out of the home.
    return Settings.load(place)._replace(keys=f"{place}-keys")


def contents(place: str | Path, keys: str | None = None) -> dict[str, object]:
    """Return everything that the verbs of a book answer."""
    with open_book(settings(place, keys), create=True) as book:
        items: list[Memory] = []
        page = book.list(limit=1000)
        while True:
            items += page.items
            if page.next is None:
                break
            page = book.list(limit=1000, after=page.next)
        every = sorted((memory._replace(marks=()) for memory in items), key=lambda memory: memory.id)
        hits = [
            (hit.id, hit.passage, hit.score)
            for query in ("who owns billing", "heron otter", "note 7 of many")
            for hit in book.recall(query, spaces=["/"]).hits
        ]
        return {
            "memories": every,
            "histories": [book.history(memory.id) for memory in every if memory.revision > 1],
            "deleted": [memory.id for memory in book.list(Filter(deleted=True)).items],
            "messages": book.messages("talk").items,
            "sessions": book.sessions(),
            "spaces": book.spaces(),
            "grants": book.grants(),
            "keys": book.keys(),
            "log": [book.log(space=space.name, limit=5_000) for space in book.spaces()],
            "hits": hits,
            "log_is_right": book.verify_log().findings == (),
        }


def test_a_home_moves_to_postgresql_with_everything_in_it(full: Path, empty: str):
    before = contents(full)
    steps: list[tuple[str, int, int]] = []
    report = migrate_book(settings(full), empty, progress=lambda *step: steps.append(step))
    keys = str(full / ".commonbook" / "keys")
    assert contents(empty, keys) == before
    assert report.tables["memory"] > 1_200
    assert report.files == 0
    assert {what for what, _, _ in steps} >= {"copying", "comparing", "indexing"}
    with open_book(settings(empty, keys)) as book:
        again = book.remember("Alice owns the billing service", space="team/backend", tags=["people"], key="k1")
        assert not again.new, "a key that was used before the move is known"


def test_what_was_moved_away_is_read_and_refuses_to_be_written_to_with_the_new_address(full: Path, empty: str):
    with commonbook.open(full, create=True) as early:
        migrate_book(settings(full), empty)
        for place in (early, commonbook.open(full)):
            with pytest.raises(Moved, match="was moved to postgresql://") as caught:
                place.remember("too late", space="personal")
            assert "export COMMONBOOK_DATABASE='postgresql://" in caught.value.fix
            assert f" COMMONBOOK_KEYS={full}-keys" in caught.value.fix
            with pytest.raises(Moved):
                place.append("talk", ["too late"])
            assert place.recall("who owns billing", spaces=["team/"]).hits
            place.close()
    with pytest.raises(CommonbookError):
        migrate_book(settings(full), str(full.parent / "elsewhere"))


def test_a_book_moves_back_into_a_home_with_its_files(full: Path, empty: str, tmp_path: Path):
    before = contents(full)
    migrate_book(settings(full), empty)
    back = tmp_path / "back"
    keys = str(full / ".commonbook" / "keys")
    report = migrate_book(settings(empty, keys), str(back))
    assert report.files == len(before["memories"])  # type: ignore[arg-type]
    assert contents(back) == before
    with commonbook.open(back, create=True) as book:
        assert book.doctor() == ()
        for memory in book.list(limit=50).items:
            assert (back / memory.path).read_bytes() == (full / memory.path).read_bytes()
    with open_book(settings(empty, keys)) as left, pytest.raises(Moved) as caught:
        left.remember("too late", space="personal")
    assert caught.value.fix.endswith(f"--home {back}")


def test_a_home_moves_to_another_folder_too(full: Path, tmp_path: Path):
    before = contents(full)
    migrate_book(settings(full), str(tmp_path / "other"))
    assert contents(tmp_path / "other") == before


class Died(Exception):
    """Stands in for an error or an interruption."""


def takes_writes(place: str | Path, keys: str | None = None) -> bool:
    with open_book(settings(place, keys), create=True) as book:
        try:
            book.remember("is this the book?", space="personal")
        except Moved:
            return False
    return True


KILLED = """
import os, signal, sys
from commonbook.compose.databases import migrate_book, unlock_book
from commonbook.subjects.transfer import migrate
from tests.transfer.test_migrate import settings

place, keys, to, moment = sys.argv[1:]

def kill(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

def progress(what, done, total):
    if what == moment and done * 2 >= total:
        kill()

if moment == "switched":
    migrate._open_target = kill
migrate_book(settings(place, keys or None), to, progress=progress)
"""


def kill_move(place: str | Path, keys: str, to: str | Path, moment: str) -> None:
    """Move a book in a process that kills itself at this moment."""
    command = [sys.executable, "-c", KILLED, str(place), keys, str(to), moment]
    assert subprocess.run(command, check=False, cwd=Path(__file__).parents[2]).returncode == -signal.SIGKILL


@pytest.mark.promise("move.killed")
@pytest.mark.parametrize(("moment", "back"), [("copying", False), ("checking the log", False), ("comparing", True)])
def test_a_move_that_is_killed_leaves_the_source_whole_and_starts_again(
    full: Path, empty: str, tmp_path: Path, moment: str, back: bool
):
    old, keys, new, new_keys = str(full), "", empty, f"{full}-keys"
    if back:
        migrate_book(settings(full), empty)
        old, keys, new, new_keys = empty, f"{full}-keys", str(tmp_path / "back"), ""
    before = contents(old, keys)
    kill_move(old, keys, new, moment)
    assert contents(old, keys) == before
    with open_book(settings(new, new_keys)) as book:
        assert not book.spaces()
    with open_book(settings(old, keys)) as book, pytest.raises(Moved, match="is being moved to") as caught:
        book.remember("not yet", space="personal")
    assert "commonbook migrate --unlock" in caught.value.fix
    assert unlock_book(settings(old, keys))
    assert not unlock_book(settings(old, keys))
    assert takes_writes(old, keys)
    before = contents(old, keys)
    kill_move(old, keys, new, moment)
    migrate_book(settings(old, keys), new)
    assert contents(new, new_keys) == before
    assert takes_writes(new, new_keys)
    assert not takes_writes(old, keys)


@pytest.mark.promise("move.killed")
@pytest.mark.parametrize("moment", ["switched", "writing files"])
def test_a_move_that_is_killed_after_the_switch_is_completed_and_at_no_time_do_both_take_writes(
    full: Path, tmp_path: Path, moment: str
):
    before = contents(full)
    new = tmp_path / "new"
    kill_move(full, "", new, moment)
    assert not takes_writes(full)
    assert not unlock_book(settings(full))
    if moment == "switched":
        assert not takes_writes(new)
        migrate_book(settings(full), str(new))
    assert contents(new) == before
    with commonbook.open(new) as book:
        assert all((new / memory.path).is_file() for memory in before["memories"])  # type: ignore[attr-defined]
        assert book.doctor() == ()
    assert not takes_writes(full)
    assert takes_writes(new)
    with pytest.raises(Moved):
        migrate_book(settings(full), str(new))


def test_a_move_that_fails_unlocks_the_book_and_what_is_written_then_comes_along(full: Path, empty: str):
    keys = f"{full}-keys"
    locked: list[bool] = []

    def stop(what: str, _done: int, _total: int) -> None:
        if what == "comparing":
            locked.append(not takes_writes(full))
            raise Died

    with pytest.raises(Died):
        migrate_book(settings(full), empty, progress=stop)
    assert locked == [True]
    with commonbook.open(full) as book:
        book.remember("written between two tries", space="aaa")
        book.delete(book.list(limit=1).items[0].id)
    before = contents(full)
    migrate_book(settings(full), empty)
    assert contents(empty, keys) == before


def test_a_move_whose_book_is_unlocked_meanwhile_gives_up(full: Path, empty: str):
    written: list[str] = []

    def unlock(what: str, _done: int, _total: int) -> None:
        if what == "checking the log" and not written:
            assert unlock_book(settings(full))
            with commonbook.open(full) as book:
                written.append(book.remember("written meanwhile", space="personal").id)

    with pytest.raises(Conflict, match="was unlocked"):
        migrate_book(settings(full), empty, progress=unlock)
    assert takes_writes(full)
    assert not takes_writes(empty, f"{full}-keys")
    migrate_book(settings(full), empty)
    with open_book(settings(empty, f"{full}-keys")) as book:
        assert book.get(written[0]).text == "written meanwhile"


def test_a_book_is_not_moved_into_a_folder_of_notes(home: Path, tmp_path: Path):
    commonbook.open(home, create=True).close()
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.md").write_text("a note")
    with pytest.raises(Conflict, match="files of its own"):
        migrate_book(settings(home), str(tmp_path / "notes"))
    assert [path.name for path in (tmp_path / "notes").rglob("*")] == ["mine.md"]
    with commonbook.open(home) as book:
        assert book.remember("still written to", space="personal").new


def test_a_book_is_not_moved_into_itself(home: Path):
    commonbook.open(home, create=True).close()
    with pytest.raises(Conflict, match="is this book"):
        migrate_book(settings(home), str(home))
    with commonbook.open(home) as book:
        assert book.remember("still written to", space="personal").new


def test_keys_that_were_copied_in_part_are_copied_again(full: Path, empty: str, tmp_path: Path, monkeypatch):
    keys = str(full / ".commonbook" / "keys")
    migrate_book(settings(full), empty)
    rename = os.rename

    def die(old: str, new: str) -> None:
        raise Died

    monkeypatch.setattr(os, "rename", die)
    with pytest.raises(Died):
        migrate_book(settings(empty, keys), str(tmp_path / "back"))
    monkeypatch.setattr(os, "rename", rename)
    migrate_book(settings(empty, keys), str(tmp_path / "back"))
    assert takes_writes(tmp_path / "back")


def test_what_is_written_while_the_book_moves_comes_along_or_is_refused(full: Path, empty: str):
    """A writer goes on all the time: what was acknowledged is in the new book."""
    acknowledged: list[str] = []
    ended = threading.Event()

    def writer() -> None:
        with commonbook.open(full, create=True) as book:
            for number in count():
                try:
                    acknowledged.append(book.remember(f"meanwhile {number}", space="meanwhile").id)
                    book.edit(acknowledged[number // 2], text=f"edited {number}")
                except Moved:
                    ended.set()
                    return

    thread = threading.Thread(target=writer)
    thread.start()
    migrate_book(settings(full), empty)
    assert ended.wait(60)
    thread.join()
    keys = str(full / ".commonbook" / "keys")
    assert acknowledged
    with open_book(settings(empty, keys)) as book:
        there = {memory.id for memory in _all(book, "meanwhile")}
        assert set(acknowledged) == there
        assert book.verify_log().findings == ()
    assert contents(empty, keys) == contents(full)


def _all(book, space):
    page = book.list(Filter(space=space), limit=1000)
    yield from page.items
    while page.next:
        page = book.list(Filter(space=space), limit=1000, after=page.next)
        yield from page.items


def test_a_book_with_other_keys_or_with_memories_of_its_own_is_not_moved_into(full: Path, tmp_path: Path):
    other = tmp_path / "other"
    with commonbook.open(other, create=True) as book:
        book.remember("mine", space="personal")
    with pytest.raises(Conflict, match="a book with memories"):
        migrate_book(settings(full), str(other))
    commonbook.open(tmp_path / "unused", create=True).close()
    with pytest.raises(Conflict, match="the keys of another book"):
        migrate_book(settings(full), str(tmp_path / "unused"))
    with commonbook.open(full, create=True) as book:
        book.remember("still written to", space="personal")
    with commonbook.open(other) as book:
        assert [memory.text for memory in book.list().items] == ["mine"]


def test_a_log_that_does_not_verify_stops_the_move_and_leaves_the_old_book_as_it_is(full: Path, empty: str):
    import sqlite3

    database = sqlite3.connect(full / ".commonbook" / "state.db")
    database.execute("UPDATE log_entry SET actor = 'user:mallory' WHERE seq = 2")
    database.commit()
    database.close()
    with pytest.raises(HomeDamaged, match="does not verify"):
        migrate_book(settings(full), empty)
    with commonbook.open(full, create=True) as book:
        book.remember("still written to", space="fresh")


def test_every_table_of_the_book_moves(full: Path, postgres_book):
    """A table that comes later and is forgotten here would be left behind."""
    stay = {"home", "file", "file_journal", "file_left", "file_reverted", "committed"}
    moved = {table.name: set(table.columns) for table in migrate.TABLES}
    with commonbook.open(full, create=True) as book, book._engines.db.reading() as tx:
        tables = [row[0] for row in tx.rows("SELECT name FROM sqlite_master WHERE type = 'table'")]
        here = {name: {row[1] for row in tx.rows(f"PRAGMA table_info({name})")} for name in tables}
    assert {name: columns for name, columns in here.items() if name not in stay} == moved
    with open_book(settings(*postgres_book), create=True) as book, book._engines.db.reading() as tx:
        rows = tx.rows(
            "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public'"
            " AND table_name NOT LIKE 'recall%%'"
        )
    there: dict[str, set[str]] = {}
    for table, column in rows:
        there.setdefault(table, set()).add(column)
    assert {name: columns for name, columns in there.items() if name not in stay and name in moved} == moved
    assert {name for name in there if name not in moved} <= {*stay, "schema", "schema_version", "version"}


def test_the_command_moves_the_book_and_says_where_it_is(full: Path, empty: str):
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "commonbook", "--home", str(full), *arguments]
        environment = {**os.environ, "COMMONBOOK_KEYS": f"{full}-keys"}
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)

    done = run("migrate", empty, "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["to"].startswith("postgresql://")
    assert answer["rows"] > 1_200
    assert (answer["keys"], answer["indexed"]) == (f"{full}-keys", True)
    late = run("remember", "too late")
    assert late.returncode == 1
    assert "was moved to postgresql://" in late.stderr
    assert "not being moved" in run("migrate", "--unlock").stdout
    assert "commonbook migrate TO" in run("migrate").stderr
