"""Homes that an earlier program made: they open, are migrated to the current schema, and keep their contents."""

from __future__ import annotations

import base64
import errno
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

import commonbook
from commonbook import Book, DiskFull, NotFound
from commonbook.engines.postgres.migrations import MIGRATIONS as POSTGRES_MIGRATIONS
from commonbook.engines.sqlite.migrations import MIGRATIONS
from commonbook.model.ids import format_time
from commonbook.model.spaces import Space
from commonbook.ports.database import Transaction
from commonbook.tables.file_journal import content_hash
from tests.support.postgres_server import TEMPLATE

MADE = Path(__file__).parents[1] / "data"


def write_files(folder: Path, made: dict[str, Any]) -> None:
    """Write the files of an older home, kept as text, with keys that are good for nothing else."""
    for file, content in made["files"].items():
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if file.endswith(".md") else base64.b64decode(content))
        path.chmod(0o600)
    (folder / ".commonbook" / "keys").chmod(0o700)


def write_home(home: Path, version: int) -> Path:
    """Write a home as an older program left it."""
    made = made_by(version)
    write_files(home, made)
    with closing(sqlite3.connect(home / ".commonbook" / "state.db")) as database:
        database.executescript(made["sql"])
        database.execute(f"PRAGMA user_version = {version}")
        database.execute("PRAGMA journal_mode = WAL")
    return home


def made_by(version: int) -> dict[str, Any]:
    made: dict[str, Any] = json.loads((MADE / f"home-of-schema-{version}.json").read_text(encoding="utf-8"))
    assert made["version"] == version
    return made


def fill_server(address: str, version: int) -> None:
    """Store the rows of an older home in an empty database; both engines have the same tables, but for files."""
    with closing(sqlite3.connect(":memory:")) as rows, psycopg.connect(address) as server:
        rows.executescript(made_by(version)["sql"])
        for migration in POSTGRES_MIGRATIONS[:version]:
            server.execute(migration)
        server.execute("CREATE TABLE schema_version (version INTEGER NOT NULL)")
        server.execute("INSERT INTO schema_version (version) VALUES (%s)", (version,))
        tables = rows.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'file%'"
        ).fetchall()
        for (table,) in tables:
            selected = rows.execute(f"SELECT * FROM {table}")
            columns = ", ".join(column[0] for column in selected.description)
            values = ", ".join(["%s"] * len(selected.description))
            insert = f"INSERT INTO {table} ({columns}) VALUES ({values})"
            server.cursor().executemany(insert, selected.fetchall())


@pytest.fixture
def older(home: Path) -> Path:
    """A home of the first schema."""
    return write_home(home, 1)


@pytest.fixture
def migrating(home: Path) -> Path:
    """A home that is migrated when it is opened."""
    return write_home(home, 2)


@pytest.fixture(params=[2, 3, 4, 5, 6, 7])
def filled(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path | str]:
    """The place of a book of an older schema that has one of everything."""
    if engine == "sqlite":
        yield write_home(tmp_path / "home", request.param)
        return
    server = request.getfixturevalue("postgres")
    address = server.make_database("older", template=TEMPLATE)
    fill_server(address, request.param)
    write_files(tmp_path / "files", made_by(request.param))
    monkeypatch.setenv("COMMONBOOK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COMMONBOOK_KEYS", str(tmp_path / "files" / ".commonbook" / "keys"))
    yield address
    server.drop_database("older")


def test_a_home_of_the_first_schema_opens_and_says_what_it_said(older: Path):
    with commonbook.open(older) as book:
        texts = {memory.text for memory in book.list().items if memory.kind == "note"}
        assert texts == {"Bertha owns the billing service", "The deploy runs on Fridays"}
        (owner,) = book.recall("who owns billing", spaces=["team/backend"]).hits
        assert [one.text for one in book.history(owner.id)] == [
            "Alice owns the billing service",
            "Bertha owns the billing service",
        ]
        assert [one.text for one in book.messages("talk").items][-1] == "And the otter?"
        assert {hit.passage for hit in book.recall("heron otter", spaces=["personal"]).hits} >= {"And the otter?"}
        assert book.verify_log().findings == ()
        assert book.doctor() == ()


def test_a_home_of_the_first_schema_can_do_what_came_later(older: Path):
    with commonbook.open(older) as book:
        (owner,) = book.recall("who owns billing", spaces=["team/backend"]).hits
        copy = book.share(owner.id, "everybody")
        book.edit(owner.id, text="Carla owns the billing service")
        assert book.get(copy.id).text == "Carla owns the billing service"
        book.grant("user:alice", "team", "reader")
        book.settle("talk")
    with commonbook.open(older) as book:
        assert book.status().schema == len(MIGRATIONS)
        assert book.doctor() == ()


def by_text(book: Book, text: str) -> commonbook.Memory:
    (memory,) = [memory for memory in book.list(limit=100).items if memory.text == text]
    return memory


def test_there_is_a_home_of_every_older_schema():
    versions = {json.loads(path.read_text(encoding="utf-8"))["version"] for path in MADE.glob("home-of-schema-*.json")}
    # Of the present schema there is one only once it is released.
    assert versions >= set(range(1, len(MIGRATIONS)))


def test_the_memories_of_an_older_home_say_what_they_said(filled: Path | str):
    with commonbook.open(filled) as book:
        owner = by_text(book, "Carla owns the billing service")
        assert [one.text.split()[0] for one in book.history(owner.id)] == ["Alice", "Bertha", "Carla"]
        assert (owner.space.name, owner.tags, owner.author) == ("team", ("people",), "user:local")
        page = by_text(book, "Call Bertha when billing pages")
        (link,) = [link for link in book.links(page.id) if link.relation == "derived_from"]
        assert link.target == owner.id
        assert "source_changed" in page.marks
        new = by_text(book, "The deploy runs on Mondays")
        (old,) = [link.target for link in book.links(new.id) if link.relation == "supersedes"]
        assert book.get(old).superseded_by == new.id
        assert book.recall("when does the deploy run", spaces=["team", "personal"]).hits[0].id == new.id
        moved = by_text(book, "The vault code is in the safe")
        assert [one.text for one in book.history(moved.id)] == [
            "The vault code is 1234",
            "The vault code is in the safe",
        ]
        # The log knows that the first text was in another space.
        ben = book.acting_as("user:ben")
        assert [one.text for one in ben.history(moved.id)] == ["", "The vault code is in the safe"]
        assert not [one for one in book.list(limit=100).items if one.text == "A line that was wrong"]


def test_the_copies_of_an_older_home_are_as_fresh_as_they_were(filled: Path | str):
    with commonbook.open(filled) as book:
        listed = book.list(commonbook.Filter(space="everybody"), limit=100).items
        copies = {one.shared.mode: one for one in listed if one.shared}
        in_team = {one.text: one for one in book.list(commonbook.Filter(space="team"), limit=100).items}
        sources = {mode: in_team[f"The {mode} price is six"] for mode in ("live", "lazy", "snapshot")}
        assert {mode: one.text[-4:] for mode, one in copies.items()} == {
            "live": " six",
            "lazy": "five",
            "snapshot": "five",
        }
        assert {mode: one.freshness for mode, one in copies.items()} == {
            "live": "fresh",
            "lazy": "stale",
            "snapshot": "stale",
        }
        assert book.get(copies["lazy"].id).text == "The lazy price is six"
        for mode, copy in copies.items():
            assert [one.id for one in book.lineage(copy.id).ancestors] == [sources[mode].id]
        book.edit(sources["live"].id, text="The live price is seven")
        assert book.get(copies["live"].id).text == "The live price is seven"


def test_the_sessions_of_an_older_home_go_on(filled: Path | str):
    with commonbook.open(filled) as book:
        sessions = {one.id: one for one in book.sessions()}
        assert {(one.id, one.space.name, one.parent, one.closed is None) for one in sessions.values()} == {
            ("talk", "team", None, False),
            ("talk/2", "team", "talk", True),
            ("alone", "personal", None, True),
        }
        assert sessions["talk"].tags == ("birds",)
        first = book.messages("talk").items
        assert [one.text for one in first] == ["Where is the heron?", "By the river."]
        (episode,) = {one.episode for one in first}
        assert episode is not None
        assert "By the river." in book.get(episode).text
        second = book.messages("talk/2").items
        assert [(one.text, one.episode, one.rewound_at is not None) for one in second] == [
            ("And the otter?", None, False),
            ("Under the bridge.", None, False),
            ("And the crane?", None, True),
        ]
        hits = book.recall("otter", spaces=["team"]).hits
        assert "And the otter?" in {hit.passage for hit in hits}
        (settled,) = book.settle("talk/2").episodes
        assert "Under the bridge." in book.get(settled).text
        assert "crane" not in book.get(settled).text


def test_the_rights_rules_and_limits_of_an_older_home_hold(filled: Path | str):
    with commonbook.open(filled) as book:
        assert {(one.principal, one.space.name, one.role) for one in book.grants()} == {
            ("user:ana", "team", "writer"),
            ("user:ana", "everybody", "reader"),
            ("user:ben", "team", "reader"),
            ("user:ben", "everybody", "admin"),
        }
        keys = book.keys()
        assert [(one.principal, one.label) for one in keys] == [("agent:helper", "helper")]
        assert ("user:ana", "share", 7) in {(one.principal, one.action, one.per_minute) for one in book.limits()}
        ana, ben = book.acting_as("user:ana"), book.acting_as("user:ben")
        with pytest.raises(NotFound):
            ben.get(by_text(book, "Call Bertha when billing pages").id)
        ana.remember("A second line of the digest", space="team", tags=["digest"])
        assert {one.text for one in book.list(commonbook.Filter(space="digest")).items} == {
            "The digest has one line",
            "A second line of the digest",
        }
        (request,) = ben.pending()
        approved = ben.approve(request.id)
        assert approved.copy is not None
        assert book.get(approved.copy).text == "The request waits for a decision"


def waiting(book: Book) -> set[tuple[str | None, str | None, str | None]]:
    return {
        (item.dependent.title, item.invalidated.title, item.invalidating and item.invalidating.title)
        for item in book.inbox().items
    }


def test_dependents_are_notified_by_a_job_of_what_was_replaced_before_there_were_notices(filled: Path | str):
    with commonbook.open(filled) as book:
        while book.work():
            pass
        assert waiting(book) >= {
            ("Milk is cheap", "Milk costs one", "Milk costs three"),
            ("Tea is dear", "Tea costs two", None),
        }
        assert (book.status().failed_jobs, book.work()) == (0, 0)


@pytest.mark.parametrize("filled", [3, 4], indirect=True)
def test_the_doubts_of_an_older_home_are_as_they_were(filled: Path | str):
    with commonbook.open(filled) as book:
        open_, kept = (by_text(book, f"Oil is cheap in the {verdict} shop") for verdict in ("None", "keep"))
        oil = {item for item in waiting(book) if "Oil" in (item[0] or "")}
        assert oil == {(open_.title, "Oil costs five in the None shop", "Oil costs nine in the None shop")}
        assert ("suspect" in open_.marks, "suspect" in kept.marks) == (True, False)
        assert [one.note for one in kept.decisions] == ["still cheaper than elsewhere"]
        assert {one.name: one.depth for one in book.spaces()}["team"] == 7
        book.triage(open_.id, "retract")
        assert not [item for item in waiting(book) if "Oil" in (item[0] or "")]


@pytest.mark.parametrize("filled", [4], indirect=True)
def test_links_and_tags_in_the_texts_of_an_older_home_count(filled: Path | str):
    with commonbook.open(filled) as book:
        garden = by_text(book, "Beds and paths")
        sources = {link.source for link in book.links(garden.id) if link.relation == "mentions"}
        assert {book.get(source).text.split()[0] for source in sources} == {"Water", "See"}
        (tagged,) = book.list(commonbook.Filter(tags=("todo",))).items
        assert tagged.tags == ("home", "todo")
        assert [hit.id for hit in book.recall("water", spaces=["notes"], tags=["todo"]).hits] == [tagged.id]


def _add_space_as_then(tx: Transaction, space: Space) -> None:
    tx.run(
        "INSERT INTO space (id, name, created, folder) VALUES (:id, :name, :created, :folder)",
        id=space.id,
        name=space.name,
        created=format_time(space.created),
        folder=space.own_folder,
    )


def test_the_long_texts_of_an_older_home_are_compressed_and_say_what_they_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    home, texts = tmp_path / "home", [f"Line {number} of a report.\n" * 60 for number in (1, 2)]
    with monkeypatch.context() as as_then:
        as_then.setattr("commonbook.compose.book.MIGRATIONS", MIGRATIONS[:5])
        as_then.setattr("commonbook.engines.sqlite.database.SqliteTransaction.compresses_texts", False)
        as_then.setattr("commonbook.tables.spaces._COLUMNS", "id, name, created, depth, folder, NULL AS review")
        as_then.setattr("commonbook.tables.spaces.add", _add_space_as_then)
        with commonbook.open(home, create=True) as book:
            report = book.remember(texts[0], space="personal", title="The report").id
            book.edit(report, text=texts[1])
            linking = book.remember("See [[The report]]", space="personal").id
    with commonbook.open(home) as book:
        assert [one.text for one in book.history(report)] == texts
        assert [link.target for link in book.links(linking)] == [report]
        assert book.remember(texts[1], space="personal").duplicate_of == report
        assert (book.verify_log().findings, book.doctor()) == ((), ())
    with closing(sqlite3.connect(home / ".commonbook" / "state.db")) as database:
        ((size,),) = database.execute("SELECT length(text) FROM memory WHERE id = ?", (report,)).fetchall()
        assert size < len(texts[1]) / 4
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_an_older_home_is_whole_after_its_migration_and_its_jobs(filled: Path | str):
    with commonbook.open(filled) as book:
        assert book.verify_log().findings == ()
        while book.work():
            pass
        assert book.verify_log().findings == ()
        assert book.doctor() == ()
    with commonbook.open(filled) as book:
        assert book.schema_migration is None
        assert book.status().findings == ()


def test_the_spaces_of_an_older_home_get_their_files_when_it_is_opened(tmp_path: Path):
    home = write_home(tmp_path / "home", 4)
    with commonbook.open(home) as book:
        spaces = {space.name: space for space in book.spaces() if not space.name.endswith("_invalidations")}
        del spaces["_home"]
        where = {memory.id: memory.space for memory in book.list(limit=100).items}
        for space in spaces.values():
            assert space.id in (home / space.folder / ".space.toml").read_text()
    for name in ("state.db", "state.db-wal", "state.db-shm"):
        (home / ".commonbook" / name).unlink(missing_ok=True)
    with commonbook.open(home) as book:
        found = {memory.id: memory.space.id for memory in book.list(limit=100).items}
        assert found.items() >= {id_: space.id for id_, space in where.items() if space.name in spaces}.items()


def test_an_older_home_that_lost_its_database_still_has_its_spaces(tmp_path: Path):
    """The older program wrote no space files; its own files show in which folders it kept spaces."""
    with commonbook.open(write_home(tmp_path / "whole", 4)) as book:
        where = {memory.id: memory.space.name for memory in book.list(limit=100).items}
    home = write_home(tmp_path / "home", 4)
    (home / ".commonbook" / "state.db").unlink()
    (home / "thoughts" / "2026-11").mkdir(parents=True)
    (home / "thoughts" / "2026-11" / "some--thing.md").write_text("a folder of a person")
    with commonbook.open(home, create=True) as book:
        found = {memory.id: memory.space.name for memory in book.list(limit=100).items}
        assert {id_: found[id_] for id_ in where} == where
        assert "thoughts" not in found.values()


# --- the copy that is made before a migration


def version_of(database: Path) -> int:
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        ((version,),) = connection.execute("PRAGMA user_version").fetchall()
    return int(version)


def test_the_database_is_copied_before_a_migration_and_the_copy_goes_after_a_good_check(migrating: Path):
    home, version = migrating, 2
    state = home / ".commonbook" / "state.db"
    # A change that is only in the write-ahead log yet belongs to the copy too.
    writer = sqlite3.connect(state)
    writer.execute("INSERT INTO home (name, value) VALUES ('test', 'in the log')")
    writer.commit()
    copy = state.with_name(f"state.db.before-{len(MIGRATIONS)}")
    with commonbook.open(home) as book:
        assert book.schema_migration == commonbook.SchemaMigration(version, len(MIGRATIONS), str(copy))
        assert book.status().schema_copies == (str(copy),)
        assert book.acting_as("user:ana").status().schema_copies == ()
        assert book.acting_as("user:ana").schema_migration is None
    writer.close()
    assert (version_of(copy), version_of(state)) == (version, len(MIGRATIONS))
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


def test_a_copy_that_is_put_back_opens_as_before(migrating: Path):
    home, version = migrating, 2
    with commonbook.open(home) as book:
        assert book.schema_migration is not None
        copy = Path(str(book.schema_migration.copy))
        texts = {one.text for one in book.list(limit=100).items}
    copy.rename(home / ".commonbook" / "state.db")
    assert version_of(home / ".commonbook" / "state.db") == version
    with commonbook.open(home) as book:
        assert {one.text for one in book.list(limit=100).items} == texts
        assert book.verify_log().findings == ()


def mark_changed_files_malformed(home: Path) -> set[str]:
    """Do to the database what an older program does when it reads files whose format it does not know."""
    with closing(sqlite3.connect(home / ".commonbook" / "state.db")) as database:
        rows = database.execute("SELECT path, hash FROM file").fetchall()
        changed = {path for path, hash_ in rows if hash_ != content_hash((home / path).read_bytes())}
        for path in changed:
            stat = (home / path).stat()
            state = (content_hash((home / path).read_bytes()), stat.st_size, stat.st_mtime_ns, path)
            database.execute(
                "UPDATE file SET trouble = 'bad links', young = 0, hash = ?, size = ?, mtime_ns = ? WHERE path = ?",
                state,
            )
        database.commit()
    return changed


def test_what_the_older_program_found_malformed_after_the_way_back_is_read_again(home: Path):
    write_home(home, 3)
    with commonbook.open(home) as book:
        assert book.schema_migration is not None
        copy = Path(str(book.schema_migration.copy))
        before = {one.id: (one.text, one.marks, one.freshness, one.links) for one in book.list(limit=100).items}
    copy.rename(home / ".commonbook" / "state.db")
    assert mark_changed_files_malformed(home)
    with commonbook.open(home) as book:
        after = {one.id: (one.text, one.marks, one.freshness, one.links) for one in book.list(limit=100).items}
        assert after == before
        page = by_text(book, "Call Bertha when billing pages")
        assert book.edit(page.id, text="Call Carla when billing pages").revision > page.revision
        assert book.doctor() == ()


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


def test_the_file_of_an_episode_that_was_moved_before_the_migration_names_the_space_of_its_session(home: Path):
    write_home(home, 3)
    with closing(sqlite3.connect(home / ".commonbook" / "state.db")) as database:
        # The session was in another space than its episode.
        database.execute(
            "UPDATE session_place SET space = (SELECT id FROM space WHERE name = 'everybody') WHERE id = 'talk'"
        )
        database.commit()
    with commonbook.open(home) as book:
        (episode,) = [one for one in book.list(limit=100).items if one.session == "talk"]
        assert episode.session_space == "everybody"
        assert "session_space: everybody\n" in (home / episode.path).read_text(encoding="utf-8")


@pytest.mark.parametrize("where", ["before", "while copying"])
def test_without_room_for_the_copy_nothing_is_migrated(migrating: Path, where: str, monkeypatch: pytest.MonkeyPatch):
    home, version = migrating, 2

    def full(*_args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        if where == "before":
            usage = shutil.disk_usage(home)._replace(free=1000)
            patched.setattr(shutil, "disk_usage", lambda _path: usage)
        else:
            patched.setattr(os, "replace", full)
        with pytest.raises(DiskFull) as caught:
            commonbook.open(home)
    assert "nothing was changed" in (caught.value.fix or "")
    assert version_of(home / ".commonbook" / "state.db") == version
    assert not list((home / ".commonbook").glob("state.db.before-*"))
    with commonbook.open(home) as book:
        assert book.schema_migration is not None


def test_the_command_says_that_it_migrated_and_where_the_copy_is(migrating: Path):
    home, version = migrating, 2
    command = [sys.executable, "-m", "commonbook", "--home", str(home), "list"]
    first, second = (subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(2))
    copy = home / ".commonbook" / f"state.db.before-{len(MIGRATIONS)}"
    assert first.stderr == (
        f"commonbook: the schema was migrated from {version} to {len(MIGRATIONS)}; the former database is {copy}\n"
    )
    assert second.stderr == ""
    assert first.stdout == second.stdout


def test_a_new_home_has_nothing_to_copy(home: Path):
    with commonbook.open(home, create=True) as book:
        assert book.schema_migration is None
    assert not list((home / ".commonbook").glob("state.db.before-*"))
