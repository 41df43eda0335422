"""Generic query plans on PostgreSQL use an index, however many rows there are."""

from __future__ import annotations

import re

import psycopg
import pytest

import commonbook
from commonbook.values.session import NewMessage

MESSAGES = 20_000
FILL = """
    INSERT INTO message (space, session, seq, id, role, author, text, time, client_id, sent, masked, episode)
    SELECT space, session, n, 'm' || n, role, author, text, time, 'c' || n, sent, masked, 'e' || n / 20
    FROM message, generate_series(2, %(many)s) AS n WHERE session = 'long' AND seq = 1
"""


@pytest.fixture
def statements(monkeypatch):
    """The prepared statements that are sent, as the server gets them."""
    statements: dict[str, None] = {}
    execute = psycopg.Connection.execute

    def executing(connection, statement, *arguments, prepare=None, **options):
        if prepare:
            statements[_numbered(statement)] = None
        return execute(connection, statement, *arguments, prepare=prepare, **options)

    monkeypatch.setattr(psycopg.Connection, "execute", executing)
    return statements


def _numbered(statement: str) -> str:
    names = dict.fromkeys(re.findall(r"%\((\w+)\)s", statement))
    for number, name in enumerate(names, 1):
        statement = statement.replace(f"%({name})s", f"${number}")
    return statement.replace("%%", "%")


@pytest.mark.parametrize("analysed", [False, True])
def test_nothing_reads_all_messages_of_a_long_session(postgres_book, monkeypatch, statements, analysed):
    address, keys = postgres_book
    monkeypatch.setenv("COMMONBOOK_KEYS", keys)
    with commonbook.open(address) as book, psycopg.connect(address, autocommit=True) as connection:
        book.append("long", ["the first"], space="team")
        connection.execute(FILL, {"many": MESSAGES})
        connection.execute("UPDATE session SET last = %s WHERE id = 'long'", (MESSAGES,))
        if analysed:
            connection.execute("ANALYZE")
        statements.clear()
        for size in (1, 30):
            book.append("long", [NewMessage(f"a heron {at}", client_id=f"{size}-{at}") for at in range(size)])
        book.settle("long")
        book.recall("heron", spaces=["team"])
        book.recall("", spaces=["team"])
        book.reindex(anew=True)
        plans = {sql: _plan(connection, sql) for sql in statements if "message" in sql and sql.startswith("SELECT")}
        assert len(plans) > 5
        for sql, plan in plans.items():
            assert "Seq Scan on message" not in plan, sql
            if "client_id = " in sql:
                assert "message_by_client" in plan, plan


def _plan(connection: psycopg.Connection, sql: str) -> str:
    rows = connection.execute(f"EXPLAIN (GENERIC_PLAN) {sql}".encode()).fetchall()
    return "\n".join(row[0] for row in rows)
