"""Guesses which known name a mistyped one was meant to be, by the similarity of their letters (difflib)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from commonbook.runtime.lazy_modules import LazyModule

if TYPE_CHECKING:
    import difflib
else:
    # Only a call that has failed needs it.
    difflib = LazyModule("difflib")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a question that names the most similar known name, to end a message with, or an empty text."""
    found = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {found[0]!r}?" if found else ""
