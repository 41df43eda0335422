"""Finds the Markdown files of a home, and maps their paths to the names that the disk has for them."""

from __future__ import annotations

import os
import unicodedata
from typing import Final

from commonbook.engines.disk.ignore_file import Ignored

_IGNORE_FILE: Final = ".commonbookignore"
_NO_TEXT: Final = "its name is not UTF-8"


class MarkdownTree:
    """The folders of a home and the Markdown files in them, by their paths in Unicode's composed form (NFC)."""

    def __init__(self, home: str) -> None:
        """Use the folder `home`, which exists."""
        self._home = home
        self._spelling: dict[str, str] = {}
        self._odd: dict[str, str] = {}

    def walk(self) -> dict[str, tuple[int, int]]:
        """Return every Markdown file that is ours to look at: no hidden ones, no links, nothing ignored."""
        found: dict[str, tuple[int, int]] = {}
        ignored = self._ignored()
        self._odd.clear()
        folders = [(self._home, "")]
        while folders:
            folder, prefix = folders.pop()
            try:
                below = self._visit(folder, prefix, found)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                self._odd[prefix] = f"the folder cannot be read: {error.strerror}"
                continue
            folders += [(os.path.join(folder, name), f"{prefix}{name}/") for name in below]
            if ignored:
                folders = [place for place in folders if not ignored.folder(place[1][:-1])]
        if ignored:
            found = {path: status for path, status in found.items() if not ignored.file(path)}
        return found

    def _visit(self, folder: str, prefix: str, found: dict[str, tuple[int, int]]) -> list[str]:
        """Note the Markdown files of one folder and return the names of the folders in it."""
        below = []
        # Through a descriptor the system looks up one name for each file, not a whole path.
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with os.scandir(descriptor) as entries:
                for entry in entries:
                    name = entry.name
                    if name[0] == ".":
                        continue
                    if not name.isascii() and not _is_text(name):
                        self._odd[prefix + os.fsencode(name).decode("utf-8", "backslashreplace")] = _NO_TEXT
                        continue
                    if name.endswith(".md") and entry.is_file(follow_symlinks=False):
                        try:
                            status = entry.stat(follow_symlinks=False)
                        except FileNotFoundError:
                            continue
                        path = prefix + name
                        found[path if path.isascii() else self._spell(path)] = (status.st_size, status.st_mtime_ns)
                    elif entry.is_dir(follow_symlinks=False):
                        below.append(name)
        finally:
            os.close(descriptor)
        return below

    def _ignored(self) -> Ignored | None:
        try:
            with open(os.path.join(self._home, _IGNORE_FILE), encoding="utf-8", errors="replace") as file:
                return Ignored(file.read())
        except (FileNotFoundError, PermissionError, IsADirectoryError):
            return None

    def _spell(self, path: str) -> str:
        """Return the path in NFC and remember how the disk spells it."""
        if path.isascii():
            return path
        composed = unicodedata.normalize("NFC", path)
        if composed == path:
            return path
        there, here = os.path.join(self._home, composed), os.path.join(self._home, path)
        if not os.path.lexists(there):
            self._spelling[composed] = path
            return composed
        # A disk that takes both forms for one name has one file; any other has two.
        return composed if os.path.lexists(here) and os.path.samefile(there, here) else path

    def known_as(self, path: str) -> str:
        """Return how a walk would spell this path."""
        return path if path.isascii() else self._spell(path)

    def at(self, path: str) -> str:
        """Return the place on the disk, spelled as the disk has it."""
        return os.path.join(self._home, self._spelling.get(path, path))

    def is_ours(self, path: str) -> bool:
        """Tell whether a walk would return this path if it were a file."""
        parts = path.split("/")
        if not path.endswith(".md") or any(not part or part[0] == "." for part in parts):
            return False
        above = ["/".join(parts[:depth]) for depth in range(1, len(parts))]
        ignored = self._ignored()
        if ignored and (ignored.file(path) or any(ignored.folder(folder) for folder in above)):
            return False
        return not any(os.path.islink(self.at(place)) for place in [*above, path])

    def odd(self) -> dict[str, str]:
        """Return what the last walk could not look at, and why."""
        return dict(self._odd)


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
