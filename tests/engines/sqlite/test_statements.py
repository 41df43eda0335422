"""Tests of statements for SQLite: numbered parameters, sequences among them, and the table that is changed."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

import pytest

from commonbook.engines.sqlite.statements import ANY_TABLE, bind, parse


@pytest.mark.parametrize(
    ("sql", "params", "bound"),
    [
        ("SELECT 1", {}, ("SELECT 1", [])),
        ("SELECT :a", {"a": 5}, ("SELECT ?1", [5])),
        ("SELECT :b, :a, :b", {"a": 1, "b": 2, "unused": 3}, ("SELECT ?1, ?2, ?1", [2, 1])),
        ("SELECT ':a', :a", {"a": 1}, ("SELECT ':a', ?1", [1])),
        ("SELECT 1 WHERE 1 IN :ids", {"ids": ()}, ("SELECT 1 WHERE 1 IN ()", [])),
        ("SELECT 1 WHERE 1 IN :ids", {"ids": [7]}, ("SELECT 1 WHERE 1 IN (?1)", [7])),
        (
            "SELECT :x WHERE 1 IN :ids OR 2 IN :ids OR :y",
            {"x": 1, "ids": (1, 2, 3, 4, 5), "y": 0},
            (
                "SELECT ?1 WHERE 1 IN (?2, ?3, ?4, ?5, ?6, ?7) OR 2 IN (?2, ?3, ?4, ?5, ?6, ?7) OR ?8",
                [1, 1, 2, 3, 4, 5, 5, 0],
            ),
        ),
    ],
)
def test_parameters_are_numbered_and_sequences_padded(
    sql: str, params: Mapping[str, object], bound: tuple[str, list[object]]
):
    text, values = bind(sql, params)
    assert (text, list(values)) == bound
    sqlite3.connect(":memory:").execute(text, values).fetchall()


def test_a_value_that_is_missing_is_an_error():
    with pytest.raises(KeyError, match="b"):
        bind("SELECT :a, :b", {"a": 1})


@pytest.mark.parametrize(
    ("sql", "table"),
    [
        ("SELECT id FROM memory", ""),
        ("\n  PRAGMA data_version", ""),
        ("INSERT INTO memory (id) VALUES (:id)", "memory"),
        ("INSERT INTO memory(id) VALUES (:id)", "memory"),
        ("\n  UPDATE place SET space = :space", "place"),
        ("DELETE FROM link", "link"),
        ("WITH old AS (SELECT 1) DELETE FROM link", ANY_TABLE),
    ],
)
def test_a_statement_tells_the_table_that_it_changes(sql: str, table: str):
    assert parse(sql).changed_table == table
