"""Matches paths against `.commonbookignore`, which has a small part of the patterns of `.gitignore`."""

from __future__ import annotations

import re
from fnmatch import translate


class IgnorePatterns:
    """The patterns of an ignore file, one a line; `#` begins a comment, a final `/` matches only folders.

    A pattern without another `/` matches a name at any depth; one with it matches from the root of the home.
    """

    def __init__(self, text: str) -> None:
        """Parse the patterns."""
        lines = [line.strip() for line in text.splitlines()]
        patterns = [line for line in lines if line and not line.startswith("#")]
        self._folders = _matcher([pattern.rstrip("/") for pattern in patterns])
        self._files = _matcher([pattern for pattern in patterns if not pattern.endswith("/")])

    def folder(self, path: str) -> bool:
        """Return whether a folder, and so everything in it, is ignored."""
        return self._folders.match(path) is not None

    def file(self, path: str) -> bool:
        """Return whether a file is ignored."""
        return self._files.match(path) is not None


def _matcher(patterns: list[str]) -> re.Pattern[str]:
    alternatives = [translate(pattern.lstrip("/")) for pattern in patterns if "/" in pattern]
    alternatives += [f"(?:.*/)?{translate(pattern)}" for pattern in patterns if "/" not in pattern]
    return re.compile("|".join(alternatives) or r"(?!)")
