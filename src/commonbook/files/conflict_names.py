"""Recognises the names that programs which synchronise folders give to the second version of a file.

Syncthing, Dropbox, Nextcloud, ownCloud, Obsidian Sync and Resilio mark such a file in its name. iCloud and Google Drive
only add a number, and OneDrive the name of a computer: such a name alone proves nothing.
"""

from __future__ import annotations

import re
from typing import Final

_MARKED: Final = re.compile(
    r"(?P<stem>.+?)(?:"
    r"\.sync-conflict-\d{8}-\d{6}(?:-[A-Z0-9]{7})?"  # Syncthing
    r"| \((?:[^()/]*[ '\u2019]s )?(?:case )?conflicted copy[^()/]*\)"  # Dropbox, Nextcloud, Obsidian Sync
    r"|_conflict-\d{8}-\d{6}"  # ownCloud
    r"|\.Conflict"  # Resilio
    r")(?P<ending>\.md)",
    re.IGNORECASE,
)
_NUMBERED: Final = re.compile(r"(?P<stem>.+?)(?: [2-9]| \([1-9]\)|-[A-Z][A-Z0-9-]*)(?P<ending>\.(?i:md))")


def marked_original(path: str) -> str | None:
    """Return the path of the file that a name marks as its second version, or None."""
    return _original(path, _MARKED)


def numbered_original(path: str) -> str | None:
    """Return the path of the file that a name with a number, or with that of a computer, may be the second of."""
    return _original(path, _NUMBERED)


def _original(path: str, pattern: re.Pattern[str]) -> str | None:
    folder, slash, name = path.rpartition("/")
    match = pattern.fullmatch(name)
    return f"{folder}{slash}{match['stem']}{match['ending']}" if match else None
