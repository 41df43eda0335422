"""Matches paths against `.commonbookignore`, which has a small part of the patterns of `.gitignore`.

The templates of an Obsidian vault are left alone too: they are forms to fill in.
"""

from __future__ import annotations

import json
import re
import unicodedata
from fnmatch import translate
from glob import escape


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


def template_folder(settings: bytes) -> str:
    """Return the folder of templates that the settings of an Obsidian vault name; "" if they name none."""
    if not settings:
        return ""
    try:
        values = json.loads(settings)
    except ValueError:
        return ""
    folder = values.get("folder") if isinstance(values, dict) else None
    return unicodedata.normalize("NFC", folder).strip("/") if isinstance(folder, str) else ""


def folder_pattern(folder: str) -> str:
    """Return the line of an ignore file that matches a folder of the home, whatever characters it has."""
    return f"/{escape(folder)}/"


def _matcher(patterns: list[str]) -> re.Pattern[str]:
    alternatives = [translate(pattern.lstrip("/")) for pattern in patterns if "/" in pattern]
    alternatives += [f"(?:.*/)?{translate(pattern)}" for pattern in patterns if "/" not in pattern]
    return re.compile("|".join(alternatives) or r"(?!)")
