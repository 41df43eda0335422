"""What each revision of a memory changed."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from itertools import pairwise

from commonbook.model import Revision


def diffs_of(revisions: Sequence[Revision]) -> list[str | None]:
    """Return a unified diff for every revision against the one before; the first has none."""
    first: list[str | None] = [None] * len(revisions[:1])
    return first + [_diff(before, after) for before, after in pairwise(revisions)]


def _diff(before: Revision, after: Revision) -> str:
    lines = difflib.unified_diff(_lines(before.text), _lines(after.text), _name(before), _name(after), lineterm="")
    # A new title alone leaves the text as it is: the names of both sides then are the whole diff.
    return "\n".join(lines) or f"--- {_name(before)}\n+++ {_name(after)}"


def _lines(text: str) -> list[str]:
    return text.split("\n")


def _name(revision: Revision) -> str:
    return f"revision {revision.revision}: {revision.title}"
