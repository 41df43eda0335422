"""Statements on their way to PostgreSQL: lists become arrays, and several without a result are sent as one."""

from collections.abc import Iterator

import psycopg
import pytest

from commonbook.engines.postgres.database import PostgresDatabase
from commonbook.engines.postgres.migrations import MIGRATIONS
from commonbook.engines.postgres.sql_dialect import PendingStatements
from commonbook.engines.process.clock import SystemClock
from commonbook.errors import CommonbookError
from tests.support.statements import recorded

ONE = "INSERT INTO one (a) VALUES (:a)"
TWO = "UPDATE two SET b = :b WHERE a = :a"
SEEN = "INSERT INTO seen (a) SELECT count(*) FROM one WHERE a > :a"


@pytest.fixture
def db(postgres_book: tuple[str, str]) -> Iterator[PostgresDatabase]:
    database = PostgresDatabase(postgres_book[0], migrations=MIGRATIONS, clock=SystemClock(), busy_seconds=20)
    with database.connection() as pooled:
        pooled.connection.execute("CREATE TABLE one (a BIGINT PRIMARY KEY); CREATE TABLE two (a BIGINT, b BIGINT)")
        pooled.connection.execute("CREATE TABLE seen (a BIGINT); INSERT INTO two VALUES (1, 0)")
    yield database
    database.close()
    with psycopg.connect(postgres_book[0], autocommit=True) as connection:
        connection.execute("DROP TABLE one, two, seen")


@pytest.mark.parametrize(
    "texts",
    [[], ["a"], ["a", "b", "a b"], ['"', "\\", 'a"b', "{", "}", ",", "NULL", "", " "], ["\n", "é", "%s", ":a", "'"]],
)
def test_a_list_of_any_texts_arrives_as_it_was(db, texts):
    with db.reading() as tx:
        assert tx.rows("SELECT CAST(:texts AS TEXT[])", texts=texts) == [(texts,)]
        assert tx.rows(
            "SELECT a FROM unnest(CAST(:texts AS TEXT[])) AS t (a) WHERE a IN :few", texts=texts, few=texts[:1]
        ) == [(text,) for text in texts[:1]]


def test_a_list_of_numbers_and_nothing_arrives_as_it_was(db):
    with db.reading() as tx:
        assert tx.rows("SELECT CAST(:some AS BIGINT[])", some=[1, None, 3]) == [([1, None, 3],)]


def test_what_has_nothing_to_do_with_each_other_goes_together(db, monkeypatch):
    def operation(tx):
        tx.run_many(ONE, [{"a": 5}])
        tx.run_many(TWO, [{"a": 1, "b": 7}])
        assert tx.rows("SELECT a, b FROM two") == [(1, 7)]
        return tx.rows("SELECT a FROM one")

    with recorded(monkeypatch) as statements:
        assert db.write(operation) == [(5,)]
    (sent,) = [one for one in statements if "INSERT INTO one" in one]
    assert sent.startswith("WITH done_0 AS (INSERT INTO one")
    assert "UPDATE two" in sent


def test_what_one_statement_changes_the_next_one_sees(db):
    def operation(tx):
        for number in range(3):
            tx.run_many(ONE, [{"a": 10 + number}])
            tx.run_many(SEEN, [{"a": 0}])
        return tx.rows("SELECT a FROM seen ORDER BY a")

    assert db.write(operation) == [(1,), (2,), (3,)]


def test_what_a_later_statement_changes_an_earlier_one_sees_as_it_was(db, monkeypatch):
    def operation(tx):
        tx.run_many(SEEN, [{"a": 0}])
        tx.run_many("UPDATE one SET a = a - 100 WHERE a > :a", [{"a": 0}])
        return tx.rows("SELECT a FROM seen")

    db.write(lambda tx: tx.run_many(ONE, [{"a": 20}]))
    with recorded(monkeypatch) as statements:
        assert db.write(operation) == [(1,)]
    assert any("INSERT INTO seen" in one and "UPDATE one" in one for one in statements)


def test_what_is_kept_to_be_sent_is_sent_before_the_end(db):
    db.write(lambda tx: tx.run_many(ONE, [{"a": 99}]))
    with db.reading() as tx:
        assert tx.rows("SELECT a FROM one") == [(99,)]


def test_what_goes_wrong_in_one_of_them_undoes_all(db):
    def operation(tx):
        tx.run_many(TWO, [{"a": 1, "b": 3}])
        tx.run_many("INSERT INTO seen (a) VALUES (CAST(:a AS TEXT) :: BIGINT)", [{"a": "no number"}])

    with pytest.raises(CommonbookError):
        db.write(operation)
    with db.reading() as tx:
        assert tx.rows("SELECT b FROM two") == [(0,)]


@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        (ONE, TWO, True),
        (ONE, ONE, False),
        (ONE, SEEN, False),
        (SEEN, ONE, True),
        (TWO, SEEN, True),
        ("INSERT INTO one (a) VALUES (:a) ON CONFLICT (a) DO UPDATE SET a = 1", TWO, True),
        (TWO, "SELECT a FROM one", False),
        ("LOCK TABLE one", TWO, False),
        ("DELETE FROM one WHERE a = :a", SEEN, False),
        ("UPDATE one SET a = 1", "INSERT INTO seen SELECT a FROM two JOIN one USING (a)", False),
    ],
)
def test_only_statements_that_do_not_see_each_other_go_together(first, second, together):
    unsent = PendingStatements()
    assert unsent.takes(first)
    unsent.add(first, {})
    assert unsent.takes(second) is together
