"""Commonbook: long-term memory for AI agents, kept as Markdown that people can read and edit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from commonbook.version import __version__

if TYPE_CHECKING:
    import os

    from commonbook.book import Book

__all__ = ["__version__", "open"]


def open(home: str | os.PathLike[str] | None = None, *, space: str | None = None) -> Book:  # noqa: A001 - the name is the point
    """Open a book: the home named here, or the address of a PostgreSQL server; made if it is not there.

    If nothing is named, COMMONBOOK_DATABASE, else COMMONBOOK_HOME, else `~/commonbook`.
    """
    from commonbook.compose import open_book
    from commonbook.settings import Settings

    return open_book(Settings.load(home, space=space))
