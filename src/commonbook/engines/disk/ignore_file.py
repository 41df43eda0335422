"""What `.commonbookignore` names: a small part of the patterns that git knows."""

from __future__ import annotations

import re
from fnmatch import translate


class Ignored:
    """Patterns, one a line; `#` begins a comment, a final `/` means folders only.

    A pattern without another `/` matches a name anywhere, one with it matches from the home's root.
    """

    def __init__(self, text: str) -> None:
        """Read the patterns."""
        lines = [line.strip() for line in text.splitlines()]
        patterns = [line for line in lines if line and not line.startswith("#")]
        self._folders = _matcher([pattern.rstrip("/") for pattern in patterns])
        self._files = _matcher([pattern for pattern in patterns if not pattern.endswith("/")])

    def folder(self, path: str) -> bool:
        """Tell whether a folder, and so everything in it, is left alone."""
        return self._folders.match(path) is not None

    def file(self, path: str) -> bool:
        """Tell whether a file is left alone."""
        return self._files.match(path) is not None


def _matcher(patterns: list[str]) -> re.Pattern[str]:
    parts = [translate(pattern.lstrip("/")) for pattern in patterns if "/" in pattern]
    parts += [f"(?:.*/)?{translate(pattern)}" for pattern in patterns if "/" not in pattern]
    return re.compile("|".join(parts) or r"(?!)")
