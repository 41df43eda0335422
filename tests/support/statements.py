"""Records every statement that the driver sends to PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest


@contextmanager
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Record the statements of a block, each on one line, in the order of sending."""
    statements: list[str] = []

    def noting(plain):
        def noted(self, query, *args, **kwargs):
            statements.append(" ".join(str(query).split()))
            return plain(self, query, *args, **kwargs)

        return noted

    with monkeypatch.context() as patched:
        for name in ("execute", "executemany"):
            patched.setattr(psycopg.Cursor, name, noting(getattr(psycopg.Cursor, name)))
        yield statements
