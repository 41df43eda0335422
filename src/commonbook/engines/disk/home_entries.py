"""Lists everything in a home, with the reason why a scan skips an entry: hidden, ignored, a link or unreadable."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterator
from typing import Final

from commonbook.engines.disk.ignore_file import IgnorePatterns
from commonbook.model.spaces import SPACE_FILE
from commonbook.ports.files import HomeEntry

_OWN_FOLDER: Final = ".commonbook"
_OWN_IGNORE_FILE: Final = "_invalidations/.gitignore"
"""The program writes it itself, in the folder of the notices."""


def home_entries(home: str, ignored: IgnorePatterns) -> Iterator[HomeEntry]:
    """Yield every file of a home by path, and every entry that a scan skips; a skipped folder is one entry."""
    folders = [(home, "")]
    while folders:
        folder, prefix = folders.pop()
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError as error:
            yield HomeEntry(prefix, f"the folder cannot be read: {error.strerror}")
            continue
        for entry in entries:
            path = unicodedata.normalize("NFC", prefix + entry.name)
            is_folder = entry.is_dir(follow_symlinks=False)
            reason = _reason(entry, path, ignored, is_folder=is_folder)
            if path == _OWN_FOLDER or path.endswith(_OWN_IGNORE_FILE):
                continue
            if is_folder and reason is None:
                folders.append((entry.path, f"{prefix}{entry.name}/"))
            else:
                shown = os.fsencode(path).decode("utf-8", "backslashreplace")
                yield HomeEntry(f"{shown}/" if is_folder else shown, reason)


def _reason(entry: os.DirEntry[str], path: str, ignored: IgnorePatterns, *, is_folder: bool) -> str | None:
    if entry.name[0] == "." and entry.name != SPACE_FILE:
        return "it is hidden: its name begins with a dot"
    if os.fsencode(path).decode("utf-8", "replace") != path:
        return "its name is not UTF-8"
    if entry.is_symlink():
        return "it is a link"
    if ignored.folder(path) if is_folder else ignored.file(path):
        return "it is ignored: `.commonbookignore` names it, or it is the folder of Obsidian's templates"
    if not is_folder and not entry.is_file(follow_symlinks=False):
        return "it is no regular file"
    return None
