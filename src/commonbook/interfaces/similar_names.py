"""Guesses which known name a mistyped one was meant to be, by the similarity of their letters (difflib)."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a question that names the most similar known name, to end a message with, or an empty text."""
    # Only a call that has failed needs it.
    import difflib

    found = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {found[0]!r}?" if found else ""
