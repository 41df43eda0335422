"""Finds the Markdown files of a home, and maps their paths in composed Unicode (NFC) to the names on the disk."""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections.abc import Callable
from fnmatch import translate
from glob import escape
from typing import Final

from commonbook.model.memory import MARKDOWN_ENDINGS
from commonbook.model.spaces import SPACE_FILE

_IGNORE_FILE: Final = ".commonbookignore"
_VAULT_SETTINGS: Final = ".obsidian/templates.json"
_OUR_ENDINGS: Final = (*MARKDOWN_ENDINGS, SPACE_FILE)
_NOT_UTF8: Final = "its name is not UTF-8"


class MarkdownTree:
    """The folders of a home and their Markdown files; paths are in composed Unicode (NFC)."""

    def __init__(self, home: str) -> None:
        """Use the folder `home`, which exists."""
        self._home = home
        self._prefix = os.path.join(home, "")
        self._disk_spelling: dict[str, str] = {}
        self._unreadable: dict[str, str] = {}

    def walk(self) -> dict[str, tuple[int, int]]:
        """Return size and time of every Markdown and space file, except other hidden and ignored files and links."""
        files: dict[str, tuple[int, int]] = {}
        ignored = self._read_ignore_file()
        self._unreadable.clear()
        folders = [(self._home, "")]
        while folders:
            folder, prefix = folders.pop()
            try:
                subfolders = self._list_folder(folder, prefix, files)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                self._unreadable[prefix] = f"the folder cannot be read: {error.strerror}"
                continue
            folders += [(os.path.join(folder, name), f"{prefix}{name}/") for name in subfolders]
            if ignored:
                folders = [place for place in folders if not ignored.folder(place[1][:-1])]
        if ignored:
            files = {path: status for path, status in files.items() if not ignored.file(path)}
        return files

    def _list_folder(self, folder: str, prefix: str, files: dict[str, tuple[int, int]]) -> list[str]:
        """Add the Markdown files and the space file of one folder to `files`; return the names of its subfolders."""
        subfolders = []
        # Relative to a descriptor the kernel resolves one name for each file, not a whole path.
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with os.scandir(descriptor) as entries:
                for entry in entries:
                    name = entry.name
                    if name[0] == "." and name != SPACE_FILE:
                        continue
                    if not name.isascii() and not _is_utf8(name):
                        self._unreadable[prefix + os.fsencode(name).decode("utf-8", "backslashreplace")] = _NOT_UTF8
                        continue
                    if name.endswith(_OUR_ENDINGS) and entry.is_file(follow_symlinks=False):
                        try:
                            status = entry.stat(follow_symlinks=False)
                        except FileNotFoundError:
                            continue
                        path = prefix + name
                        files[path if path.isascii() else self._compose(path)] = (
                            status.st_size,
                            status.st_mtime_ns,
                        )
                    elif entry.is_dir(follow_symlinks=False):
                        subfolders.append(name)
        finally:
            os.close(descriptor)
        return subfolders

    def _read_ignore_file(self) -> IgnorePatterns | None:
        """Return the patterns of the ignore file, and of the folder of Obsidian's templates; None if there are none."""
        lines = [self._read_or_empty(_IGNORE_FILE).decode("utf-8", "replace")]
        if templates := template_folder(self._read_or_empty(_VAULT_SETTINGS)):
            lines.append(folder_pattern(templates))
        return IgnorePatterns("\n".join(lines)) if any(lines) else None

    def _read_or_empty(self, path: str) -> bytes:
        try:
            with open(os.path.join(self._home, path), "rb") as file:
                return file.read()
        except (FileNotFoundError, NotADirectoryError, PermissionError, IsADirectoryError):
            return b""

    def _compose(self, path: str) -> str:
        """Return the path in NFC and remember its spelling on the disk."""
        if path.isascii():
            return path
        composed = unicodedata.normalize("NFC", path)
        if composed == path:
            return path
        composed_place, own_place = os.path.join(self._home, composed), os.path.join(self._home, path)
        if not os.path.lexists(composed_place):
            self._disk_spelling[composed] = path
            return composed
        # On a disk that normalises names, both spellings are one file; on any other they are two.
        return composed if os.path.lexists(own_place) and os.path.samefile(composed_place, own_place) else path

    def canonical_path(self, path: str) -> str:
        """Return the path as a walk would spell it."""
        return path if path.isascii() else self._compose(path)

    def spelling(self, folder: str) -> str:
        """Return the path of a folder as it is spelled on the disk, if one is there that differs by case alone."""
        spelled = ""
        for part in folder.split("/"):
            names = self._subfolders(spelled)
            similar = [name for name in names if name.lower() == part.lower()]
            spelled += (part if part in names else min(similar, default=part)) + "/"
        return spelled[:-1]

    def _subfolders(self, prefix: str) -> list[str]:
        try:
            with os.scandir(self.at(prefix[:-1]) if prefix else self._home) as entries:
                return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError:
            return []

    def at(self, path: str) -> str:
        """Return the absolute path, spelled as on the disk."""
        spelled = self._disk_spelling.get(path, path)
        return os.path.join(self._home, spelled) if spelled.startswith("/") else self._prefix + spelled

    def is_ours(self, path: str) -> bool:
        """Return whether a walk would include a file at this path."""
        return self.our_paths()(path)

    def our_paths(self) -> Callable[[str], bool]:
        """Return a function that answers `is_ours` for many paths, by the ignore file as it is now."""
        ignored = self._read_ignore_file()
        right_folders: set[str] = {""}

        def is_ours(path: str) -> bool:
            folder, _, name = path.rpartition("/")
            is_hidden = path[:1] == "/" or (name[:1] == "." and name != SPACE_FILE)
            if is_hidden or not path.endswith(_OUR_ENDINGS) or (ignored and ignored.file(path)):
                return False
            return is_right(folder) and not os.path.islink(self.at(path))

        def is_right(folder: str) -> bool:
            """Return whether a walk would enter a folder, and those above it."""
            if folder in right_folders:
                return True
            above, _, name = folder.rpartition("/")
            if not name or name[0] == "." or (ignored and ignored.folder(folder)) or os.path.islink(self.at(folder)):
                return False
            if not is_right(above):
                return False
            right_folders.add(folder)
            return True

        return is_ours

    def unreadable_paths(self) -> dict[str, str]:
        """Return the paths that the last walk could not read, with the reason."""
        return dict(self._unreadable)


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


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
    """Return the line of an ignore file that matches a folder of the home, with any characters in its name."""
    return f"/{escape(folder)}/"


def _matcher(patterns: list[str]) -> re.Pattern[str]:
    alternatives = [translate(pattern.lstrip("/")) for pattern in patterns if "/" in pattern]
    alternatives += [f"(?:.*/)?{translate(pattern)}" for pattern in patterns if "/" not in pattern]
    return re.compile("|".join(alternatives) or r"(?!)")
