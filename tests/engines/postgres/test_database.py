"""The database on PostgreSQL: one SQL, transactions that are retried, and commits whose answer was lost."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import psycopg
import pytest

from commonbook.engines.postgres import connections, database
from commonbook.engines.postgres.database import PostgresDatabase, PostgresTransaction
from commonbook.engines.postgres.migrations import MIGRATIONS
from commonbook.engines.process import SystemClock
from commonbook.errors import (
    BadInput,
    Busy,
    DatabaseUnfit,
    DatabaseUnreachable,
    HomeDamaged,
    HomeOfAnotherBuild,
    NotReplicated,
    ServerLost,
)
from commonbook.ports.database import RetryTransaction, Transaction
from tests.support.postgres_server import TEMPLATE, Server

KEPT = "CREATE TABLE kept (a BIGINT PRIMARY KEY, b BIGINT NOT NULL DEFAULT 0)"


def opened(address: str, *, busy_seconds: float = 20, connections: int = 20, migrations=MIGRATIONS) -> PostgresDatabase:
    return PostgresDatabase(
        address, migrations=migrations, clock=SystemClock(), busy_seconds=busy_seconds, connections=connections
    )


@pytest.fixture
def db(postgres_book: tuple[str, str]) -> Iterator[PostgresDatabase]:
    database = opened(postgres_book[0])
    with database.connection() as pooled:
        pooled.connection.execute(KEPT)
    yield database
    database.close()


def everything(db: PostgresDatabase) -> list[tuple[Any, ...]]:
    with db.reading() as tx:
        return tx.rows("SELECT a, b FROM kept ORDER BY a")


# --- one SQL for both engines


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("SELECT :a, :long_name", "SELECT %(a)s, %(long_name)s"),
        ("WHERE a IN :ids AND b = :b", "WHERE a = ANY(%(ids)s) AND b = %(b)s"),
        ("WHERE a IN ('x', ':y') AND b = ':z'", "WHERE a IN ('x', ':y') AND b = ':z'"),
        ("WHERE a LIKE '10%' AND b % 2 = :c", "WHERE a LIKE '10%%' AND b %% 2 = %(c)s"),
        ("SELECT 'it''s :x', :y::text", "SELECT 'it''s :x', %(y)s::text"),
    ],
)
def test_parameters_are_written_as_the_driver_wants_them(ours, theirs):
    assert database._psycopg_notation(ours) == theirs


@pytest.mark.parametrize(
    "texts",
    [[], ["a"], ["a", "b", "a b"], ['"', "\\", 'a"b', "{", "}", ",", "NULL", "", " "], ["\n", "é", "%s", ":a", "'"]],
)
@pytest.mark.parametrize("sequence", [list, tuple])
def test_a_list_of_any_texts_arrives_as_it_was(db, texts, sequence):
    with db.reading() as tx:
        assert tx.rows("SELECT CAST(:texts AS TEXT[])", texts=sequence(texts)) == [(texts,)]
        assert tx.rows(
            "SELECT a FROM unnest(CAST(:texts AS TEXT[])) AS t (a) WHERE a IN :few",
            texts=sequence(texts),
            few=sequence(texts[:1]),
        ) == [(text,) for text in texts[:1]]


def test_a_text_that_the_database_would_cut_is_refused(db):
    with db.reading() as tx:
        with pytest.raises(psycopg.DataError, match="NUL"):
            tx.rows("SELECT CAST(:a AS TEXT)", a="before\0after")
        assert tx.row("SELECT 1") == (1,)


def test_a_transaction_begins_however_many_statements_were_prepared(db, monkeypatch):
    monkeypatch.setattr(connections, "_MAX_PREPARED", 5)
    few = opened(db._pool._address)
    for _ in range(3):
        with few.reading() as tx:
            assert [tx.row(f"SELECT {number}") for number in range(12)] == [(number,) for number in range(12)]
        few.write(lambda tx: [tx.row(f"SELECT {number}, 1") for number in range(12)])
    with few.connection() as pooled:
        prepared = pooled.connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchone()
    assert prepared in [(5,), (6,)]
    few.close()


def test_what_is_in_quotes_is_told_from_what_is_a_parameter(db):
    with db.reading() as tx:
        assert tx.row("SELECT '50% :a', :a", a="100% 'b'") == ("50% :a", "100% 'b'")
        assert tx.rows("SELECT 1 WHERE 'x' IN :none", none=()) == []
        assert tx.row("SELECT 1 WHERE 'x' IN :some", some=("x", "y")) == (1,)


# --- views


def test_a_view_does_not_move_while_others_write(db):
    db.write(lambda tx: tx.run("INSERT INTO kept (a) VALUES (1)"))
    with db.reading() as tx:
        assert tx.rows("SELECT a FROM kept") == [(1,)]
        db.write(lambda other: other.run("INSERT INTO kept (a) VALUES (2)"))
        assert tx.rows("SELECT a FROM kept") == [(1,)]
    assert everything(db) == [(1, 0), (2, 0)]


def test_nothing_is_written_in_a_view(db):
    with pytest.raises(DatabaseUnreachable), db.reading() as tx:
        tx.rows("INSERT INTO kept (a) VALUES (1) RETURNING a")
    assert everything(db) == []


# --- operations


def test_an_operation_that_fails_leaves_nothing(db):
    def operation(tx):
        tx.run("INSERT INTO kept (a) VALUES (1)")
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        db.write(operation)
    assert everything(db) == []


def test_a_transaction_inside_another_is_a_mistake(db):
    with pytest.raises(RuntimeError, match="inside another"):
        db.write(lambda _tx: db.write(lambda _other: None))
    db.write(lambda tx: tx.run("INSERT INTO kept (a) VALUES (1)"))


@pytest.mark.promise("postgres.retries")
def test_an_operation_that_was_overtaken_is_run_again_from_the_beginning(db):
    counts: list[Any] = []

    def operation(tx):
        counts.append(tx.run("INSERT INTO kept (a) VALUES (1)"))
        if len(counts) < 3:
            raise RetryTransaction
        return len(counts)

    assert db.write(operation) == 3
    assert everything(db) == [(1, 0)]


@pytest.mark.promise("postgres.retries")
def test_two_that_lock_each_other_out_both_come_through(db):
    db.write(lambda tx: tx.run("INSERT INTO kept (a) VALUES (1), (2)"))
    both = threading.Barrier(2, timeout=60)
    orders: list[Any] = []

    def operation(order):
        def update_both(tx):
            orders.append(order)
            tx.run("UPDATE kept SET b = b + 1 WHERE a = :a", a=order[0])
            if len(orders) <= 2:
                both.wait()
            tx.run("UPDATE kept SET b = b + 1 WHERE a = :a", a=order[1])

        return update_both

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(db.write, [operation((1, 2)), operation((2, 1))]))
    assert len(orders) > 2
    assert everything(db) == [(1, 2), (2, 2)]


def test_a_reader_whom_others_lock_out_is_told_to_try_again(postgres_book, db):
    db.write(lambda tx: tx.run("CREATE TABLE other (a BIGINT)"))
    with psycopg.connect(postgres_book[0]) as owner, ThreadPoolExecutor(1) as pool:
        # So that the reader is the one that detects the deadlock.
        owner.execute("SET deadlock_timeout TO '60s'")
        owner.execute("LOCK TABLE other IN ACCESS EXCLUSIVE MODE")
        waiting = []

        def read():
            with db.reading() as tx:
                assert tx.rows("SELECT a FROM kept") == []
                waiting.append(pool.submit(owner.execute, "LOCK TABLE kept IN ACCESS EXCLUSIVE MODE"))
                tx.rows("SELECT a FROM other")

        with pytest.raises(Busy, match="collided"):
            read()
        waiting[0].result(timeout=60)
        owner.rollback()
    assert everything(db) == []


def test_who_comes_second_to_make_the_same_thing_finds_it_made(db):
    both = threading.Barrier(2, timeout=60)
    first = [True, True]

    def operation(tx):
        if tx.row("SELECT 1 FROM kept WHERE a = 7"):
            return "found"
        if first:
            first.pop()
            both.wait()
        tx.run("INSERT INTO kept (a) VALUES (7)")
        return "made"

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(db.write, [operation, operation])) == ["found", "made"]


def test_what_can_never_be_there_twice_ends_in_an_error(db, monkeypatch):
    monkeypatch.setattr(database, "_MAX_COLLISIONS", 3)
    with pytest.raises(HomeDamaged, match="duplicate key"):
        db.write(lambda tx: tx.run("INSERT INTO kept (a) VALUES (1), (1)"))


@pytest.mark.promise("postgres.waits")
def test_who_waits_too_long_for_a_lock_is_told_so(postgres_book, db):
    db.write(lambda tx: tx.run("INSERT INTO kept (a) VALUES (1)"))
    impatient = opened(postgres_book[0], busy_seconds=0.2)
    with db.connection() as pooled, pooled.connection.transaction():
        pooled.connection.execute("UPDATE kept SET b = 5")
        with pytest.raises(Busy, match="held a lock that this needs"):
            impatient.write(lambda tx: tx.run("UPDATE kept SET b = 6"))
    impatient.write(lambda tx: tx.run("UPDATE kept SET b = b + 1"))
    impatient.close()
    assert everything(db) == [(1, 6)]


@pytest.mark.promise("postgres.waits")
def test_a_statement_that_takes_too_long_is_ended(postgres_book, monkeypatch):
    impatient = opened(postgres_book[0], busy_seconds=0.2)
    # Only now, and for the next connection: opening may take as long as it takes.
    monkeypatch.setattr("commonbook.engines.postgres.connections._STATEMENT_SECONDS", 0.1)
    impatient._pool.close_idle()
    with pytest.raises(Busy, match="too long"), impatient.reading() as tx:
        tx.rows("SELECT pg_sleep(10)")
    impatient.close()


_QUIET = """
import sys
from commonbook.engines.process import SystemClock
from commonbook.engines.postgres.database import PostgresDatabase
from commonbook.engines.postgres.migrations import MIGRATIONS

def operation(tx):
    tx.run_many("INSERT INTO kept (a) VALUES (:a)", [{"a": 1}, {"a": 1}])
    raise SystemExit(3)

PostgresDatabase(sys.argv[1], migrations=MIGRATIONS, clock=SystemClock(), busy_seconds=5).write(operation)
"""


def test_what_goes_wrong_after_an_error_is_not_told_beside_it(postgres_book, db):
    done = subprocess.run([sys.executable, "-c", _QUIET, postgres_book[0]], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (3, b"")


def test_a_process_has_no_more_connections_than_it_may(postgres_book):
    small = opened(postgres_book[0], busy_seconds=0.2, connections=2)
    with small.reading(), small.reading(), pytest.raises(Busy, match="all 2 connections") as caught:
        small.write(lambda _tx: None)
    assert "COMMONBOOK_CONNECTIONS" in caught.value.fix
    small.write(lambda _tx: None)
    small.close()


def test_who_finds_the_server_full_waits_for_a_connection(postgres):
    postgres.run("CREATE ROLE few LOGIN CONNECTION LIMIT 1")
    postgres.make_database("narrow", template=TEMPLATE)
    postgres.run("ALTER DATABASE narrow OWNER TO few")
    first = opened(postgres.address("narrow", user="few"))
    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(opened, postgres.address("narrow", user="few"))
        time.sleep(0.5)
        assert not second.done()
        first.close()
        second.result(60).close()
    postgres.drop_database("narrow")
    postgres.run("DROP ROLE few")


# --- lost connections


def killing(db: PostgresDatabase) -> Callable[[Any], None]:
    """Return a way to end the server's side of a transaction's connection."""

    def kill(tx) -> None:
        (pid,) = tx.row("SELECT pg_backend_pid()")
        with db.connection() as pooled:
            pooled.connection.execute("SELECT pg_terminate_backend(%s::int, 5000)", (pid,))

    return kill


@pytest.mark.promise("postgres.retries")
def test_a_connection_lost_in_the_middle_of_an_operation_is_made_anew(db):
    kill, counts = killing(db), list[int]()

    def operation(tx):
        counts.append(tx.run("INSERT INTO kept (a) VALUES (1)"))
        if len(counts) == 1:
            kill(tx)
            tx.row("SELECT 1")

    db.write(operation)
    assert len(counts) == 2
    assert everything(db) == [(1, 0)]


@pytest.mark.promise("postgres.retries")
def test_a_connection_lost_before_the_commit_is_told_from_one_lost_after_it(db):
    kill, counts = killing(db), list[int]()

    def operation(tx):
        counts.append(tx.run("INSERT INTO kept (a, b) VALUES (1, :b)", b=len(counts)))
        if len(counts) == 1:
            kill(tx)
        return len(counts)

    assert db.write(operation) == 2
    assert everything(db) == [(1, 1)]


class Counting:
    """An operation that stores how often it ran before, and returns how often it ran."""

    def __init__(self) -> None:
        self.runs = 0

    def __call__(self, tx: Transaction) -> int:
        tx.run("INSERT INTO kept (a) VALUES (:a)", a=self.runs)
        self.runs += 1
        return self.runs


class Commits:
    """Simulates the fate of the commits of this process: each goes to the next function, later ones succeed."""

    def __init__(self, monkeypatch, *fates):
        self.fates = list(fates)
        execute = psycopg.Connection.execute

        def committed(connection):
            execute(connection, "COMMIT")
            execute(connection, "SELECT 1").fetchone()

        def executing(connection, statement, *arguments, **options):
            if statement == "COMMIT" and self.fates:
                self.fates.pop(0)(connection, lambda: committed(connection))
            return execute(connection, statement, *arguments, **options)

        monkeypatch.setattr(psycopg.Connection, "execute", executing)


def answer_lost(connection, commit):
    commit()
    connection.close()
    raise psycopg.OperationalError("the connection is lost")


def never_arrived(connection, _commit):
    connection.close()
    raise psycopg.OperationalError("the connection is lost")


@pytest.mark.promise("postgres.retries")
def test_a_commit_whose_answer_was_lost_is_not_made_twice(db, monkeypatch):
    Commits(monkeypatch, answer_lost)
    assert db.write(Counting()) == 1
    assert everything(db) == [(0, 0)]


def test_a_line_that_broke_off_inside_the_driver_is_lost_too(db, monkeypatch):
    """The driver's own errors have no code then, and it may not know yet that the connection is closed."""

    def broken(_connection, commit):
        commit()
        raise psycopg.OperationalError("cannot exit pipeline mode while busy")

    Commits(monkeypatch, broken)
    assert db.write(Counting()) == 1
    assert everything(db) == [(0, 0)]


@pytest.mark.promise("postgres.retries")
def test_a_commit_that_never_arrived_is_made_again(db, monkeypatch):
    Commits(monkeypatch, never_arrived, never_arrived)
    assert db.write(Counting()) == 3
    assert everything(db) == [(2, 0)]


@pytest.mark.parametrize("ending", ["COMMIT", "ROLLBACK"])
def test_a_commit_that_is_still_under_way_is_waited_for(postgres_book, db, monkeypatch, ending):
    """The server has the commit but has not answered yet when the connection is lost; it ends some time later."""
    late: list[threading.Timer] = []
    monkeypatch.setattr(database, "new_id", lambda: "the mark")

    def under_way(connection, _commit):
        connection.close()
        # The transaction that the server continues alone.
        twin = psycopg.connect(postgres_book[0])
        twin.execute("INSERT INTO committed (mark, at) VALUES ('the mark', '2026')")
        twin.execute("INSERT INTO kept (a) VALUES (0)")

        def end() -> None:
            twin.execute(ending)
            twin.close()

        late.append(threading.Timer(0.5, end))
        late[0].start()
        raise psycopg.OperationalError("the connection is lost")

    Commits(monkeypatch, under_way)
    begun = time.monotonic()
    assert db.write(Counting()) == (1 if ending == "COMMIT" else 2)
    assert time.monotonic() - begun > 0.3
    late[0].join()
    assert everything(db) == [(0 if ending == "COMMIT" else 1, 0)]


def test_an_error_of_what_was_sent_with_the_commit_is_no_doubt(db, monkeypatch):
    """Nobody waits for what is sent last: its error comes with the commit, and the transaction was not made."""
    db.write(partial(_insert, a=0))
    runs: list[Any] = []

    def operation(tx):
        runs.append(len(runs))
        tx.run_many("INSERT INTO kept (a) VALUES (:a)", [{"a": len(runs) // 3}])
        return len(runs)

    assert db.write(operation) == 3
    assert everything(db) == [(0, 0), (1, 0)]


@pytest.mark.promise("postgres.waits")
def test_who_gives_up_in_doubt_says_so(postgres_book, db, monkeypatch):
    impatient = opened(postgres_book[0], busy_seconds=0.3)
    monkeypatch.setattr(database, "new_id", lambda: "the mark")
    holding = psycopg.connect(postgres_book[0])

    def under_way(connection, _commit):
        connection.close()
        holding.execute("INSERT INTO committed (mark, at) VALUES ('the mark', '2026')")
        raise psycopg.OperationalError("the connection is lost")

    Commits(monkeypatch, under_way)
    with pytest.raises(DatabaseUnreachable, match="may have been made or not") as caught:
        impatient.write(partial(_insert, a=1))
    assert "with its key" in caught.value.fix
    holding.close()
    impatient.close()


class ClockAhead:
    """The clock of a machine whose time is wrong."""

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(days=2)


def test_a_machine_whose_clock_is_ahead_does_not_take_away_the_marks_of_others(postgres_book, db, monkeypatch):
    def answer_lost_while_another_tidies(connection, commit):
        commit()
        PostgresDatabase(postgres_book[0], migrations=MIGRATIONS, clock=ClockAhead(), busy_seconds=20).close()
        connection.close()
        raise psycopg.OperationalError("the connection is lost")

    Commits(monkeypatch, answer_lost_while_another_tidies)
    assert db.write(Counting()) == 1
    assert everything(db) == [(0, 0)]


def test_a_write_is_not_made_again_when_tidying_up_after_it_fails(db, monkeypatch):
    monkeypatch.setattr(database, "_WRITES_PER_TIDY", 1)
    monkeypatch.setattr(PostgresDatabase, "_tidy", lambda *_: (_ for _ in ()).throw(psycopg.OperationalError("lost")))
    for number in range(3):
        db.write(partial(_insert, a=number), durable=False)
    assert [a for a, _ in everything(db)] == [0, 1, 2]


def test_marks_of_commits_are_removed_when_nobody_can_be_in_doubt_any_more(postgres_book, db):
    db.write(lambda tx: tx.run("INSERT INTO kept (a) VALUES (1)"))
    with db.reading() as tx:
        assert tx.row("SELECT count(*) FROM committed") == (1,)
    db.write(lambda tx: tx.run("UPDATE committed SET at = '2020-01-01T00:00:00.000000Z'"), durable=False)
    opened(postgres_book[0]).close()
    with db.reading() as tx:
        assert tx.row("SELECT count(*) FROM committed") == (0,)


def _insert(tx: PostgresTransaction, a: int) -> None:
    tx.run("INSERT INTO kept (a) VALUES (:a)", a=a)


def test_connections_that_a_server_ended_while_nobody_used_them_are_made_anew(postgres_book, db):
    """It says why before it hangs up, so that there is something to be heard, and not only an end."""

    def end_all() -> None:
        with ExitStack() as used:
            for _ in range(4):
                used.enter_context(db.connection())
        with psycopg.connect(postgres_book[0], autocommit=True) as other:
            ended = other.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
            ).fetchall()
        assert len(ended) == 4

    for _ in range(5):
        end_all()
        assert everything(db) == []
        end_all()
        with db.connection() as pooled:
            assert pooled.connection.execute("SELECT 1").fetchone() == (1,)


def test_a_process_may_have_any_number_of_files_open(postgres_book):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        db = opened(postgres_book[0])
        with db.reading() as tx:
            assert tx.row("SELECT 1") == (1,)
        db.close()
    finally:
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.promise("postgres.waits")
def test_a_server_that_restarts_is_waited_for():
    with Server.started(fsync="on") as server:
        server.make_template()
        db = opened(server.make_database("x", template=TEMPLATE))
        with db.connection() as pooled:
            pooled.connection.execute(KEPT)
        for number in range(3):
            db.write(partial(_insert, a=number))
            server.kill()
            again = threading.Timer(0.5, server.start)
            again.start()
            assert everything(db) == [(a, 0) for a in range(number + 1)]
            again.join()
        server.kill()
        short = threading.Timer(0.5, server.start)
        short.start()
        db.write(lambda tx: tx.run("INSERT INTO kept (a) VALUES (99)"))
        short.join()
        assert [a for a, _ in everything(db)] == [0, 1, 2, 99]
        db.close()


@pytest.mark.promise("postgres.failover")
@pytest.mark.parametrize("proving", [False, True])
@pytest.mark.parametrize("blow", ["cancel", "terminate", "kill"])
def test_a_commit_that_only_one_server_has_is_not_acknowledged(blow, proving):
    """The wait for a standby ends without one: PostgreSQL says so in a warning only, and reports success.

    If the connection, or the server, ended in that wait, the mark or the checked row is there although no standby has
    it.
    """

    def operation(tx: Transaction) -> None:
        if proving:
            tx.commit_check = lambda later: later.row("SELECT 1 FROM home WHERE name = 'a'") is not None
        tx.run("INSERT INTO home (name, value) VALUES ('a', 'b')")

    with Server.started(fsync="on") as server:
        server.make_template()
        place = server.make_database("x", template=TEMPLATE)
        # With this setting alone, the warning would never arrive.
        server.run("ALTER DATABASE x SET client_min_messages = 'error'")
        db = opened(place)
        server.configure(synchronous_standby_names="'nobody'")
        server.reload()
        with _meanwhile(_cancel_waits, server):
            _wait_until_commits_wait(server)
        doing = _cancel_waits if blow == "cancel" else partial(_end_a_wait, blow=blow)
        with _meanwhile(doing, server), pytest.raises(NotReplicated, match="synchronous replication"):
            db.write(operation)
        db.close()


@contextmanager
def _meanwhile(work: Callable[[Server, threading.Event], None], server: Server) -> Iterator[None]:
    """Run this against a server in a thread of its own, until the block ends."""
    stop = threading.Event()
    thread = threading.Thread(target=work, args=(server, stop))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _wait_until_commits_wait(server: Server) -> None:
    """Commit until the server says that it waited: it reads its settings again in its own time."""
    warnings: list[str | None] = []
    until = time.monotonic() + 150
    with psycopg.connect(server.address(), autocommit=True) as connection:
        connection.add_notice_handler(lambda notice: warnings.append(notice.message_primary))
        while not any("synchronous replication" in (warning or "") for warning in warnings):
            assert time.monotonic() < until, "the server does not wait for a standby"
            connection.execute("SELECT pg_current_xact_id()")


def _end_a_wait(server: Server, stop: threading.Event, blow: str) -> None:
    """End the first wait for a standby with its connection, or with the server; cancel those that follow."""
    waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    with psycopg.connect(server.address(), autocommit=True) as connection:
        while not connection.execute(waiting).fetchall() and not stop.is_set():
            time.sleep(0.05)
        if blow == "terminate":
            connection.execute(f"SELECT pg_terminate_backend(pid) FROM ({waiting}) waits")
    if blow == "kill":
        server.kill()
        server.start()
    _cancel_waits(server, stop)


def _cancel_waits(server: Server, stop: threading.Event) -> None:
    with psycopg.connect(server.address(), autocommit=True) as connection:
        while not stop.wait(0.1):
            connection.execute(
                "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
                " AND state_change < now() - interval '200 ms'"
            )


def test_a_number_comes_back_as_it_was_whatever_the_server_would_show(postgres):
    address = postgres.make_database("short", template=TEMPLATE)
    postgres.run("ALTER DATABASE short SET extra_float_digits = 0")
    db = opened(address)
    with db.reading() as tx:
        assert tx.row("SELECT CAST(:a AS DOUBLE PRECISION)", a=1 / 3) == (1 / 3,)
    db.close()
    postgres.drop_database("short")


@pytest.mark.promise("writes.durable")
def test_a_server_that_would_not_make_commits_durable_is_overruled(postgres):
    address = postgres.make_database("lazy", template=TEMPLATE)
    postgres.run("ALTER DATABASE lazy SET synchronous_commit = off")
    db = opened(address)
    with db.connection() as pooled:
        assert pooled.connection.execute("SHOW synchronous_commit").fetchone() == ("on",)
    assert db.write(lambda tx: tx.row("SHOW synchronous_commit"), durable=False) == ("off",)
    db.close()
    postgres.drop_database("lazy")


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_process_that_forks_goes_on_in_parent_and_child(db):
    """A child that used its parent's connections would speak into the middle of what the parent says."""
    stop = threading.Event()
    numbers = iter(range(10**6))

    def busy() -> None:
        while not stop.is_set():
            db.write(partial(_insert, a=next(numbers)))

    other = threading.Thread(target=busy)
    other.start()
    children = []
    for child in range(3):
        time.sleep(0.05)
        pid = os.fork()
        if pid == 0:
            with suppress(BaseException):
                db.write(partial(_insert, a=-1 - child))
                os._exit(0 if len(everything(db)) else 1)
            os._exit(2)
        children.append(pid)
        assert everything(db)
    stop.set()
    other.join()
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children] == [0, 0, 0]
    found = [a for a, _ in everything(db)]
    assert found == list(range(-3, next(numbers)))


# --- the schema


def test_any_number_of_servers_may_start_on_an_empty_database(postgres):
    address = postgres.make_database("many")
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: opened(address), range(8)))
    assert {db.schema for db in found} == {len(MIGRATIONS)}
    for db in found:
        db.write(lambda tx: tx.run("INSERT INTO home (name, value) VALUES ('a', 'b') ON CONFLICT DO NOTHING"))
        db.close()
    postgres.drop_database("many")


def test_a_later_migration_is_made_once_and_older_programs_stop(postgres):
    address = postgres.make_database("later", template=TEMPLATE)
    old = opened(address)
    newer = (*MIGRATIONS, "CREATE TABLE more (a BIGINT); INSERT INTO more VALUES (1)")
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: opened(address, migrations=newer), range(4)))
    with found[0].reading() as tx:
        assert tx.rows("SELECT a FROM more") == [(1,)]
    with pytest.raises(HomeOfAnotherBuild, match=f"schema {len(newer)}"):
        old.write(lambda _tx: None)
    with pytest.raises(HomeOfAnotherBuild), old.reading():
        pass
    with pytest.raises(HomeOfAnotherBuild):
        opened(address)
    for db in (old, *found):
        db.close()
    postgres.drop_database("later")


def test_a_migration_may_take_longer_than_any_statement(postgres, monkeypatch):
    address = postgres.make_database("slow", template=TEMPLATE)
    opened(address).close()
    monkeypatch.setattr("commonbook.engines.postgres.connections._STATEMENT_SECONDS", 0.5)
    slow = opened(address, busy_seconds=0.5, migrations=(*MIGRATIONS, "SELECT pg_sleep(1.5)"))
    with pytest.raises(Busy), slow.reading() as tx:
        tx.rows("SELECT pg_sleep(10)")
    slow.close()
    postgres.drop_database("slow")


def test_a_migration_that_fails_changes_nothing(postgres):
    address = postgres.make_database("broken", template=TEMPLATE)
    opened(address).close()
    with pytest.raises(HomeDamaged):
        opened(address, migrations=(*MIGRATIONS, "CREATE TABLE more (a BIGINT); SELECT nonsense"))
    again = opened(address)
    with again.reading() as tx:
        assert tx.row("SELECT to_regclass('more')") == (None,)
    again.close()
    postgres.drop_database("broken")


def test_text_is_compared_byte_by_byte_whatever_the_database_does(db):
    with db.reading() as tx:
        rows = tx.rows(
            "SELECT table_name, column_name, collation_name FROM information_schema.columns"
            " WHERE table_schema = 'public' AND data_type = 'text'"
        )
    assert len(rows) > 50
    assert {row[2] for row in rows} == {"C"}


# Tables that map an id to its space, or belong to no space.
_OF_NO_SPACE = {
    "api_key", "browser_session", "committed", "file", "file_journal", "file_left", "file_reverted", "home",
    "kept_vector", "place", "rate_count", "rate_limit", "space",
}  # fmt: skip


def test_every_key_has_the_space_in_it_so_that_tables_can_be_distributed(db):
    with db.reading() as tx:
        keys = tx.rows(
            "SELECT indrelid::regclass::text, indexrelid::regclass::text, pg_get_indexdef(indexrelid) FROM pg_index"
            " JOIN pg_class ON pg_class.oid = indrelid WHERE indisunique AND relnamespace = 'public'::regnamespace"
        )
    ours = [(table, name, definition) for table, name, definition in keys if table not in {*_OF_NO_SPACE, "kept"}]
    assert len(ours) > 12
    assert [
        name for _, name, definition in ours if "space" not in definition.partition(" WHERE ")[0].partition("(")[2]
    ] == []


def test_what_is_no_address_is_refused_without_being_shown():
    with pytest.raises(BadInput) as caught:
        opened("postgresql://user:s3cret@host:port:x/name?nonsense=1")
    assert "s3cret" not in str(caught.value)


# --- a connection that is not ours alone


def test_statements_that_somebody_dropped_are_prepared_on_a_new_connection(db):
    db.write(partial(_insert, a=1))
    with db.connection() as pooled:
        pooled.connection.pgconn.exec_(b"DEALLOCATE ALL")
    db.write(partial(_insert, a=2))
    with db.connection() as pooled:
        pooled.connection.pgconn.exec_(b"DEALLOCATE ALL")
    with pytest.raises(ServerLost, match="lost its prepared statements"), db.reading() as tx:
        tx.row("SELECT 1")
    assert [a for a, _ in everything(db)] == [1, 2]


@pytest.mark.parametrize(
    ("before", "query", "change"),
    [
        ("SELECT 1", "SELECT b FROM kept WHERE :value <> ''", "ALTER TABLE kept ALTER COLUMN b TYPE TEXT"),
        (
            "CREATE TYPE mood AS ENUM ('1')",
            "SELECT CAST(:value AS mood)",
            "DROP TYPE mood; CREATE TYPE mood AS ENUM ('1')",
        ),
    ],
    ids=["column", "type"],
)
def test_statements_about_what_was_made_anew_are_prepared_on_a_new_connection(postgres_book, db, before, query, change):
    with psycopg.connect(postgres_book[0], autocommit=True) as other:
        other.execute(before)
        db.write(lambda tx: tx.rows(query, value="1"))
        other.execute(change)
    db.write(lambda tx: tx.rows(query, value="1"))


def test_a_pooler_that_lends_one_connection_to_several_is_named(postgres_book):
    database = opened(postgres_book[0])
    with database.connection() as pooled:
        pooled.connection.execute("PREPARE _pg3_0 AS SELECT 1")
    with pytest.raises(DatabaseUnfit, match="others use the same connection") as caught:
        database.write(lambda tx: tx.row("SELECT 1"))
    assert "whole session" in caught.value.fix
    database.close()


def test_a_line_that_was_interrupted_between_two_transactions_is_not_used_again(db, monkeypatch):
    with monkeypatch.context() as patched:
        enter = psycopg.Pipeline.__enter__

        def interrupted(pipe: psycopg.Pipeline) -> psycopg.Pipeline:
            enter(pipe)
            raise KeyboardInterrupt

        patched.setattr(psycopg.Pipeline, "__enter__", interrupted)
        with pytest.raises(KeyboardInterrupt), db.reading():
            pass
    # This runs outside of a pipeline, which a connection that is still in pipeline mode does not accept.
    assert db.bytes_used() > 0
