"""Migrations: the database of a home is copied and migrated, and one that another build has made is refused.

The later build of these tests has one more migration, which is made up.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

import commonbook
from commonbook.engines import migration_steps
from commonbook.engines.sqlite.migrations import MIGRATIONS
from commonbook.errors import DiskFull, HomeOfAnotherBuild

LATER = (*MIGRATIONS, "ALTER TABLE home ADD COLUMN note TEXT")
OLD, NEW = len(MIGRATIONS), len(LATER)


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process be the later build."""
    monkeypatch.setattr("commonbook.compose.book.MIGRATIONS", LATER)


@pytest.fixture
def made(home: Path) -> Path:
    """A home of this build, with a memory."""
    with commonbook.open(home, create=True) as book:
        book.remember("Alice owns billing")
    return home


def version_of(database: Path) -> int:
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        ((version,),) = connection.execute("PRAGMA user_version").fetchall()
    return int(version)


def migrate(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Open a home with the later build, and return the copy of its former database."""
    with monkeypatch.context() as patched:
        patched.setattr("commonbook.compose.book.MIGRATIONS", LATER)
        with commonbook.open(home) as book:
            assert book.schema_migration is not None
            return Path(str(book.schema_migration.copy))


# --- the copy that is made before a migration


@pytest.mark.promise("builds.copy")
@pytest.mark.usefixtures("later")
def test_the_database_is_copied_before_a_migration_and_the_copy_goes_after_a_good_check(
    home: Path, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as patched:
        patched.setattr("commonbook.compose.book.MIGRATIONS", MIGRATIONS)
        commonbook.open(home, create=True).close()
    state = home / ".commonbook" / "state.db"
    # A change that is only in the write-ahead log yet belongs to the copy too.
    writer = sqlite3.connect(state)
    writer.execute("INSERT INTO home (name, value) VALUES ('test', 'in the log')")
    writer.commit()
    copy = state.with_name(f"state.db.before-{NEW}")
    with commonbook.open(home) as book:
        assert book.schema_migration == commonbook.SchemaMigration(OLD, NEW, str(copy))
        assert book.status().schema_copies == (str(copy),)
        assert book.acting_as("user:ana").status().schema_copies == ()
        assert book.acting_as("user:ana").schema_migration is None
    writer.close()
    assert (version_of(copy), version_of(state)) == (OLD, NEW)
    assert copy.stat().st_mode & 0o077 == 0
    with closing(sqlite3.connect(copy)) as kept:
        assert kept.execute("SELECT value FROM home WHERE name = 'test'").fetchall() == [("in the log",)]
        assert kept.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    with commonbook.open(home) as book:
        assert book.schema_migration is None
        key = home / ".commonbook" / "keys" / "signing.key"
        key.chmod(0o644)
        assert book.doctor() != ()
        assert copy.exists()
        key.chmod(0o600)
        assert book.doctor() == ()
        assert not copy.exists()
        assert book.status().schema_copies == ()


@pytest.mark.promise("builds.copy")
def test_a_copy_that_is_put_back_opens_as_before(made: Path, monkeypatch: pytest.MonkeyPatch):
    copy = migrate(made, monkeypatch)
    with pytest.raises(HomeOfAnotherBuild):
        commonbook.open(made)
    copy.rename(made / ".commonbook" / "state.db")
    with commonbook.open(made) as book:
        assert [one.text for one in book.list().items] == ["Alice owns billing"]
        assert book.verify_log().findings == ()


@pytest.mark.promise("builds.copy")
@pytest.mark.parametrize("where", ["before", "while copying"])
def test_without_room_for_the_copy_nothing_is_migrated(made: Path, where: str, monkeypatch: pytest.MonkeyPatch):
    def full(*_args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("commonbook.compose.book.MIGRATIONS", LATER)
        if where == "before":
            disk = SimpleNamespace(f_bavail=1, f_frsize=1000)
            patched.setattr(os, "statvfs", lambda _path: disk)
        else:
            patched.setattr(os, "replace", full)
        with pytest.raises(DiskFull) as caught:
            commonbook.open(made)
    assert "nothing was changed" in (caught.value.fix or "")
    assert version_of(made / ".commonbook" / "state.db") == OLD
    assert not list((made / ".commonbook").glob("state.db.before-*"))
    assert migrate(made, monkeypatch).exists()


@pytest.mark.promise("builds.copy")
def test_the_command_says_that_it_migrated_and_where_the_copy_is(made: Path):
    script = (
        "import runpy, commonbook.compose.book as book\n"
        f"book.MIGRATIONS = (*book.MIGRATIONS, {LATER[-1]!r})\n"
        "runpy.run_module('commonbook', run_name='__main__')"
    )
    command = [sys.executable, "-c", script, "--home", str(made), "list"]
    first, second = (subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(2))
    copy = made / ".commonbook" / f"state.db.before-{NEW}"
    assert first.stderr == (f"commonbook: the schema was migrated from {OLD} to {NEW}; the former database is {copy}\n")
    assert second.stderr == ""
    assert first.stdout == second.stdout


def test_a_new_home_has_nothing_to_copy(home: Path):
    with commonbook.open(home, create=True) as book:
        assert book.schema_migration is None
    assert not list((home / ".commonbook").glob("state.db.before-*"))


# --- homes of other builds


@pytest.mark.promise("builds.refused")
@pytest.mark.parametrize("pragma", ["application_id = 4711", f"user_version = {NEW}"])
def test_a_home_of_another_build_is_refused_and_the_error_names_the_way_over(made: Path, pragma: str):
    state = made / ".commonbook" / "state.db"
    with closing(sqlite3.connect(state)) as database:
        database.execute(f"PRAGMA {pragma}")
    before = state.read_bytes()
    with pytest.raises(HomeOfAnotherBuild) as caught:
        commonbook.open(made, create=True)
    assert "commonbook export" in (caught.value.fix or "")
    assert "commonbook import" in (caught.value.fix or "")
    assert state.read_bytes() == before


@pytest.mark.usefixtures("later")
def test_a_home_of_another_build_with_an_older_number_is_not_migrated(home: Path, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as patched:
        patched.setattr("commonbook.compose.book.MIGRATIONS", (f"{MIGRATIONS[0]};CREATE TABLE more (a TEXT)",))
        commonbook.open(home, create=True).close()
    with pytest.raises(HomeOfAnotherBuild):
        commonbook.open(home)


def test_the_fingerprint_follows_what_is_defined_and_not_how_it_is_written():
    table = "CREATE TABLE one (a TEXT);"
    assert migration_steps.fingerprint([f"-- a table\n{table}\n"]) == migration_steps.fingerprint([f"\n  {table}"])
    assert migration_steps.fingerprint([table]) != migration_steps.fingerprint([table.replace("TEXT", "REAL")])
    assert migration_steps.fingerprint([table]) != migration_steps.fingerprint([table, "CREATE TABLE two (a TEXT);"])


# --- files that could not be read once


@pytest.mark.promise("files.malformed")
@pytest.mark.parametrize("remedy", ["rebuild", "touch"])
def test_a_file_that_parses_does_not_stay_malformed(home: Path, remedy: str):
    with commonbook.open(home, create=True) as book:
        memory = book.remember("the walrus sleeps").id
        path = home / book.get(memory).path
    with closing(sqlite3.connect(home / ".commonbook" / "state.db")) as database:
        database.execute("UPDATE file SET trouble = 'bad links', young = 0")
        database.commit()
    with commonbook.open(home) as book:
        if remedy == "rebuild":
            book.rebuild()
        else:
            os.utime(path, (1_700_000_000, 1_700_000_000))
            book.sync()
        assert book.get(memory).marks == ()
        assert book.edit(memory, text="the otter swims").revision == 2
        assert book.doctor() == ()
