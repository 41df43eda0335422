"""Sharing on the command line when something goes wrong, each command a process of its own.

COMMONBOOK_COPIES   how many live copies a source has whose worker is killed (1200; the full setting is 5000)
COMMONBOOK_SEED     where the dice begin
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

import commonbook
from commonbook.service.book import Book
from commonbook.values.ids import format_time
from tests.sharing.test_sharing_races import SEED, many_copies, wrong_with_copies, wrong_with_fan_out
from tests.support import crashing
from tests.support.embedding_service import Service, serving

COPIES = int(os.environ.get("COMMONBOOK_COPIES", "1200"))
KILLS = 3

pytestmark = pytest.mark.timeout(180 + COPIES // 4)


class Commands:
    """The command line on the book of a test."""

    def __init__(self, place: Path | str) -> None:
        self.environment = crashing.environment(**crashing.named(place), COMMONBOOK_SPACE="personal")

    def begun(self, *args: str, **more: str) -> subprocess.Popen[str]:
        """Begin a command, and do not wait for it."""
        return subprocess.Popen(
            [sys.executable, "-m", "commonbook", *args],
            env={**self.environment, **more},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *args: str, **more: str) -> Any:
        """Run a command that goes well; return its answer."""
        running = self.begun(*args, "--json", **more)
        out, err = running.communicate(timeout=170)
        assert running.returncode == 0, (args, err)
        return json.loads(out) if out else None

    def refused(self, *args: str) -> dict[str, str]:
        """Run a command that fails; return its error."""
        running = self.begun(*args, "--json")
        out, err = running.communicate(timeout=170)
        assert (running.returncode, out) == (1, "")
        return dict(json.loads(err)["error"])


@pytest.fixture
def commands(place) -> Commands:
    commonbook.open(place, create=True).close()
    return Commands(place)


# --- no embedder


@pytest.mark.promise("copies.edits")
@pytest.mark.slow
def test_a_refresh_needs_no_embedder_and_its_vectors_are_those_of_the_source(commands):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        commands.environment.pop(name, None)
    with serving() as service:
        there = {"COMMONBOOK_EMBEDDER": "openai:small", "COMMONBOOK_EMBEDDER_URL": service.url}
        gone = {**there, "COMMONBOOK_EMBEDDER_URL": f"http://127.0.0.1:{free_port()}/v1"}
        source = commands("remember", "Alice owns the billing service", "--title", "billing", **there)["id"]
        copies = {
            mode: commands("share", source, "--to", mode, "--refresh", mode, **there)[0]["id"]
            for mode in ("live", "lazy", "snapshot")
        }
        commands("reindex", **there)
        assert times_embedded(service, "Alice") == 1, "once, for the source and its three copies"
        # A write waits for no model, and a live copy changes with its source.
        assert commands("edit", source, "Bertha runs the invoicing desk", **gone)["copies"] == 1
        commands("reindex", **there)
        assert times_embedded(service, "Bertha") == 1, "once, for the source and the live copy"
        assert commands("show", copies["lazy"], **gone)["text"] == "Bertha runs the invoicing desk"
        assert commands("refresh", copies["snapshot"], **gone)["revision"] == 2
        commands("reindex", **there)
        assert times_embedded(service, "Bertha") == 1, "not again for what followed"
        for space, copy in copies.items():
            (hit,) = commands("recall", "the desk", "--space", space, "--explain", **there)["hits"]
            assert hit["id"] == copy
            assert hit["parts"]["meaning"] != 0


def times_embedded(service: Service, word: str) -> int:
    """Return how many texts with this word the service was asked for."""
    return sum(word in text for batch in service.batches for text in batch)


def free_port() -> int:
    """Return a port of this machine at which nobody answers."""
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        return int(nobody.getsockname()[1])


# --- nothing is left behind


@contextmanager
def refusing(place: Path | str, table: str, which: str) -> Iterator[None]:
    """Let the database refuse such rows of a table, as a full or damaged one would, for every writer."""
    if isinstance(place, Path):
        make = (
            f"CREATE TRIGGER refuse BEFORE INSERT ON {table} WHEN {which}"
            " BEGIN SELECT RAISE(ABORT, 'no more of this'); END"
        )
        with closing(sqlite3.connect(place / ".commonbook" / "state.db", isolation_level=None)) as database:
            database.execute(make)
            yield
            database.execute("DROP TRIGGER refuse")
        return
    with psycopg.connect(place, autocommit=True) as server:
        server.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql"
            " AS $$ BEGIN RAISE EXCEPTION 'no more of this'; END $$"
        )
        server.execute(
            f"CREATE TRIGGER refuse BEFORE INSERT ON {table} FOR EACH ROW WHEN ({which}) EXECUTE FUNCTION refuse()"
        )
        yield
        server.execute(f"DROP TRIGGER refuse ON {table}")
        server.execute("DROP FUNCTION refuse")


TABLES = (
    "space", "place", "memory", "memory_tag", "revision", "link", "copy", "change", "change_count",
    "log_entry", "log_head", "file", "file_journal", "file_left", "job",
)  # fmt: skip


def everything(book: Book, place: Path | str) -> object:
    """Return all rows that a share or an edit could leave behind, and all files."""
    with book._engines.db.reading() as tx:
        rows = {table: sorted(map(repr, tx.rows(f"SELECT * FROM {table}"))) for table in TABLES}
    files: dict[str, bytes] = {}
    if isinstance(place, Path):
        files = {str(path): path.read_bytes() for path in place.rglob("*.md")}
        assert os.listdir(place / ".commonbook" / "out") == []
    return rows, files


@pytest.mark.promise("copies.whole")
@pytest.mark.parametrize(
    ("table", "which"),
    [
        ("copy", "NEW.mode = 'live'"),
        ("memory", "NEW.shared IS NOT NULL"),
        ("link", "NEW.relation = 'shared_from'"),
        ("log_entry", "NEW.action = 'share'"),
    ],
)
def test_a_share_that_cannot_be_written_whole_leaves_nothing_behind(commands, place, book, table, which):
    source = commands("remember", "the first words")["id"]
    before = everything(book, place)
    with refusing(place, table, which):
        error = commands.refused("share", source, "--to", "team")
        assert error["type"] == "home_damaged"
        assert "no more of this" in error["message"]
        assert everything(book, place) == before
    assert commands("copies", source) == []
    (shared,) = commands("share", source, "--to", "team")
    assert shared["new"]
    assert wrong_with_copies(book) == []


@pytest.mark.promise("copies.whole")
def test_an_edit_whose_copies_cannot_be_logged_does_not_happen(commands, place, book):
    source = commands("remember", "the first words")["id"]
    for space in ("a", "b", "c"):
        commands("share", source, "--to", space)
    before = everything(book, place)
    with refusing(place, "log_entry", "NEW.action = 'refresh'"):
        assert "no more of this" in commands.refused("edit", source, "the second words")["message"]
        assert everything(book, place) == before
    assert commands("edit", source, "the second words")["copies"] == 3
    assert wrong_with_copies(book) == []


# --- a crash in the middle of a fan-out


@pytest.mark.promise("copies.whole")
@pytest.mark.slow
def test_commands_that_are_killed_in_the_middle_of_a_fan_out_lose_no_copy(commands, open_book):
    dice = random.Random(f"{SEED} fan-out")
    book = open_book()
    source, copies = many_copies(book, COPIES)
    edit = commands.begun("edit", source, "the second words", "--json")
    assert edit.stdout
    # Some change with the edit; it has answered, and does a little of the rest.
    assert json.loads(edit.stdout.readline())["copies"] == 100
    edit.kill()
    edit.communicate()
    killed = 0
    # A worker changes 200 at a time, and may be through with the next before it dies.
    while killed < KILLS and (done := current(book)) + 400 < COPIES:
        a_minute_later(book)
        worker = commands.begun("worker", "--once")
        killed_when_done(worker, book, dice.randint(done + 1, max(done + 1, COPIES - 400)))
        killed += 1
        stale = sum(one.freshness == "stale" for one in book.copies(source))
        assert current(book) + stale == COPIES, "what has not followed says so"
    assert killed, SEED
    assert current(book) < COPIES, "the dead had done it all"
    a_minute_later(book)
    commands("worker", "--once")
    listed = commands("copies", source)
    assert sorted(one["id"] for one in listed) == sorted(copies)
    assert {one["freshness"] for one in listed} == {"fresh"}
    assert [one["how"] for one in commands("history", copies[-1])] == ["share", "refresh"]
    assert wrong_with_fan_out(book, source, copies, "the second words") == []
    assert book.doctor() == ()
    status = book.status()
    assert (status.waiting_jobs, status.failed_jobs, status.pending_files) == (0, 0, 0)


@pytest.mark.promise("copies.whole")
@pytest.mark.slow
def test_an_edit_that_is_killed_changes_all_copies_that_change_with_it_or_none(commands, open_book, place):
    dice = random.Random(f"{SEED} edit")
    book = open_book()
    source, copies = many_copies(book, 90)
    for _ in range(8):
        before = written(place)
        edit = commands.begun("edit", source, "the second words")
        while edit.poll() is None and written(place) == before:
            time.sleep(0.001)
        time.sleep(dice.uniform(0, 0.03))
        edit.kill()
        edit.communicate()
        changed = book.get(source).text == "the second words"
        assert current(book) == (90 if changed else 0), SEED
        if changed:
            break
    commands("edit", source, "the second words")
    assert wrong_with_fan_out(book, source, copies, "the second words") == []
    assert book.doctor() == ()


def written(place: Path | str) -> object:
    """Return something that changes when somebody else begins to write."""
    if isinstance(place, Path):
        return (place / ".commonbook" / "state.db-wal").stat().st_mtime_ns
    with psycopg.connect(place) as server:
        return server.execute("SELECT count(backend_xid) FROM pg_stat_activity").fetchone()


def current(book: Book) -> int:
    """Return how many copies have followed."""
    with book._engines.db.reading() as tx:
        row = tx.row("SELECT count(*) FROM memory WHERE shared IS NOT NULL AND text = 'the second words'")
    return int(row[0]) if row else 0


def killed_when_done(child: subprocess.Popen[str], book: Book, wanted: int) -> None:
    """Kill a worker once so many copies have followed."""
    while current(book) < wanted:
        assert child.poll() is None, child.communicate()
        time.sleep(0.005)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    assert child.returncode == -signal.SIGKILL


def a_minute_later(book: Book) -> None:
    """Let the lease of the dead be over, without waiting for it."""
    book._engines.db.write(
        lambda tx: tx.run("UPDATE job SET leased_until = :now WHERE state = 'running'", now=format_time(tx.now))
    )
