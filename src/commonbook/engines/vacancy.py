"""Whether a database of a server is vacant: asked before anything is made in it, and changing nothing."""

from __future__ import annotations

from contextlib import closing

import psycopg

from commonbook.engines.postgres_lines import Lines, typed


def is_vacant(address: str, *, busy_seconds: float) -> bool:
    """Tell whether a database has no table but those that every database has."""
    with closing(Lines(address, most=1, wait=busy_seconds)) as lines, lines.line() as line:
        try:
            found = line.connection.execute(
                "SELECT 1 FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema') LIMIT 1"
            ).fetchone()
        except psycopg.Error as error:
            raise typed(error) from error
    return found is None
