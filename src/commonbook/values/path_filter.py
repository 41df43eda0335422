"""Selects files by the patterns of `--include` and `--exclude` of an import or export."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from commonbook.errors import BadInput


class PathFilter(NamedTuple):
    """Selects the files that match a pattern of `include`, if there are any, and none of `exclude`.

    A pattern without `/` matches the name of a file or folder at any depth, one with `/` a path from the top. A folder
    that matches stands for everything in it. `*` matches any characters, also `/`.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    @classmethod
    def of(cls, include: Sequence[str], exclude: Sequence[str]) -> PathFilter:
        """Return the filter of these lists; BadInput for a text in place of one."""
        if isinstance(include, str) or isinstance(exclude, str):
            raise BadInput("`include` and `exclude` are lists of patterns", fix='give a list, such as ["*.pdf"]')
        return cls(tuple(include), tuple(exclude))

    def takes(self, path: str) -> bool:
        """Return whether a file is selected."""
        return (not self.include or self.names(path)) and not _matches(path, self.exclude)

    def names(self, path: str) -> bool:
        """Return whether a pattern of `include` matches a file."""
        return _matches(path, self.include)


def _matches(path: str, patterns: tuple[str, ...]) -> bool:
    if not patterns:
        return False
    parts = path.split("/")
    prefixes = ["/".join(parts[: depth + 1]) for depth in range(len(parts))]
    for pattern in patterns:
        anywhere = pattern.removeprefix("**/").rstrip("/")
        if "/" not in anywhere:
            if any(fnmatchcase(part, anywhere) for part in parts):
                return True
        elif any(fnmatchcase(prefix, pattern.strip("/")) for prefix in prefixes):
            return True
    return False
