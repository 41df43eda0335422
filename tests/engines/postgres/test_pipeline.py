"""The pipeline to PostgreSQL: parameters arrive unchanged, results come in order, and errors do no further harm."""

from __future__ import annotations

import _thread
import signal
import threading
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import errors as pg
from psycopg.pq import TransactionStatus

from commonbook.engines.postgres import pipeline
from commonbook.engines.postgres.pipeline import Binary, Pipeline


@pytest.fixture
def pipe(postgres_book: tuple[str, str]) -> Iterator[Pipeline]:
    with psycopg.connect(postgres_book[0], autocommit=True, prepare_threshold=None) as connection:
        yield Pipeline(connection)


def sent(pipe: Pipeline, *statements: str) -> None:
    """Send statements, the parameter of each being 0, and wait for all of them at the end."""
    with pipe:
        for statement in statements:
            pipe.send(statement, {"a": 0})


def known(pipe: Pipeline) -> int:
    """How many statements the server has prepared for this connection."""
    found = pipe.connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchone()
    assert found is not None
    return int(found[0])


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("text", "plain"),
        ("text", "é, ☃, 𝄞, \\, ', \", $1, %s, {}"),
        ("text", ""),
        ("text", None),
        ("bigint", 0),
        ("bigint", -(2**63)),
        ("bigint", 2**63 - 1),
        ("boolean", True),
        ("boolean", False),
        ("double precision", 0.1),
        ("double precision", -1e300),
        ("bytea", b"\0\xff\\x"),
        ("bytea", b""),
        ("text[]", ["a", 'b"', "c\\", "", "NULL", "{,}"]),
        ("bigint[]", [1, None, -3]),
        ("text[]", []),
    ],
)
@pytest.mark.parametrize("binary", [False, True])
def test_what_is_sent_comes_back_as_it_was(pipe, type_, value, binary):
    with pipe:
        assert pipe.send(f"SELECT %(value)s::{type_}", {"value": value}, binary=binary).rows() == [(value,)]


def test_a_parameter_may_be_given_as_the_database_writes_it(pipe):
    with pipe:
        result = pipe.send("SELECT %(n)s::bigint, %(n)s::bigint + %(one)s", {"n": Binary(b"\0" * 7 + b"\7"), "one": 1})
        assert result.row() == (7, 8)


def test_a_text_that_the_database_would_cut_is_refused(pipe):
    with pipe:
        with pytest.raises(psycopg.DataError, match="NUL"):
            pipe.send("SELECT %(a)s::text", {"a": "before\0after"})
        assert pipe.send("SELECT 1").row() == (1,)


def test_what_the_database_does_not_keep_is_refused(pipe):
    with pipe, pytest.raises(TypeError, match="object"):
        pipe.send("SELECT %(a)s", {"a": object()})


def test_answers_are_read_in_any_order(pipe):
    with pipe:
        results = [pipe.send("SELECT %(n)s::bigint", {"n": number}) for number in range(5)]
        assert [result.row() for result in reversed(results)] == [(4,), (3,), (2,), (1,), (0,)]


def test_nobody_waits_before_an_answer_is_read(pipe):
    with pipe:
        slow, quick = pipe.send("SELECT pg_sleep(0.05)"), pipe.send("SELECT 1")
        assert slow.result is quick.result is None
        assert quick.row() == (1,)
        assert slow.result is not None


def test_a_statement_is_prepared_once(pipe):
    for _ in range(3):
        with pipe:
            assert pipe.send("SELECT 'once', %(a)s::text", {"a": "x"}).row() == ("once", "x")
    assert known(pipe) == 1


def test_only_so_many_statements_stay_prepared(pipe, monkeypatch):
    monkeypatch.setattr(pipeline, "_MAX_PREPARED", 5)
    for _ in range(2):
        with pipe:
            for number in range(12):
                assert pipe.send(f"SELECT {number}").row() == (number,)
    assert known(pipe) == 5


def test_a_transaction_begins_however_many_statements_are_prepared(pipe, monkeypatch):
    monkeypatch.setattr(pipeline, "_MAX_PREPARED", 5)
    for level in ("READ COMMITTED", "REPEATABLE READ", "READ COMMITTED", "REPEATABLE READ"):
        with pipe:
            pipe.send(f"BEGIN ISOLATION LEVEL {level}")
            for number in range(12):
                assert pipe.send(f"SELECT {number}").row() == (number,)
            pipe.send("ROLLBACK")
    assert known(pipe) == 5


def test_what_stood_behind_something_that_failed_is_prepared_when_it_is_sent_again(pipe):
    with pytest.raises(pg.DivisionByZero):
        sent(pipe, "SELECT 1 / %(a)s", "SELECT 'behind it'")
    with pipe:
        assert pipe.send("SELECT 'behind it'").row() == ("behind it",)
        assert pipe.send("SELECT 1 / %(a)s", {"a": 1}).row() == (1,)


def test_what_cannot_be_prepared_fails_each_time_in_the_same_way(pipe):
    for _ in range(2):
        with pytest.raises(pg.UndefinedTable), pipe:
            pipe.send("SELECT 1 FROM nowhere").row()


def test_who_reads_on_after_a_failure_is_told_that_there_is_no_answer(pipe):
    with pipe:
        pipe.send("SELECT 1 / %(a)s", {"a": 0})
        behind = pipe.send("SELECT 2")
        with pytest.raises(pg.DivisionByZero):
            behind.row()
        with pytest.raises(psycopg.OperationalError, match="not answered"):
            behind.row()


def test_an_error_of_ones_own_goes_before_one_of_the_server(pipe):
    def failing() -> None:
        with pipe:
            pipe.send("SELECT 1 / %(a)s", {"a": 0})
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        failing()
    assert pipe.connection.info.transaction_status == TransactionStatus.IDLE


def test_a_failed_transaction_leaves_a_connection_that_can_roll_back(pipe):
    with pytest.raises(pg.DivisionByZero):
        sent(pipe, "BEGIN", "SELECT 1 / %(a)s", "COMMIT")
    assert pipe.connection.info.transaction_status == TransactionStatus.INERROR
    pipe.connection.execute("ROLLBACK")
    with pipe:
        assert pipe.send("SELECT 1").row() == (1,)


def test_much_in_both_directions_at_once_does_not_block(pipe):
    """A side that does not read while it writes would block: more than both buffers hold goes each way."""
    long = "x" * 100_000
    with pipe:
        results = [pipe.send("SELECT repeat(%(text)s, 3)", {"text": long}) for _ in range(200)]
        assert [len(result.rows()[0][0]) for result in results] == [300_000] * 200


def test_a_connection_that_is_lost_is_told(pipe, postgres_book):
    with psycopg.connect(postgres_book[0], autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", (pipe.connection.info.backend_pid,))
    with pytest.raises(psycopg.OperationalError):
        sent(pipe, "SELECT 2")
    assert pipe.connection.closed


def test_an_interrupted_caller_does_not_wait(pipe, postgres_book):
    # Tests that run in the background may have this signal ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Timer(0.3, _thread.interrupt_main).start()
    try:
        with pytest.raises(KeyboardInterrupt), pipe:
            pipe.send("SELECT pg_sleep(60)").row()
    finally:
        signal.signal(signal.SIGINT, before)
    assert pipe.connection.closed
    with psycopg.connect(postgres_book[0], autocommit=True) as other:
        sleeping = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep(60)%' AND state = 'active'"
        assert other.execute(sleeping).fetchone() == (0,)


def test_a_connection_that_is_closed_under_what_was_sent_is_told(pipe):
    def closing() -> None:
        with pipe:
            pipe.send("SELECT 1")
            pipe.connection.close()

    with pytest.raises(psycopg.Error):
        closing()
