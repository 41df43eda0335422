"""Paths of files in a home: the path of a new file, its path after a move, and the space that a path lies in."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime

from commonbook.model.spaces import SPACE_FILE, Space
from commonbook.text.space_names import BESIDE_SPACE, MAX_LEVELS, PERSONAL, SYSTEM_PARTS, has_folder, is_legal


def memory_path(folder: str, created: datetime, slug: str, memory_id: str, *, taken: bool = False) -> str:
    """Return the path of a new memory's file: folder, month, slug and the random tail of its id."""
    tail = memory_id.replace("-", "")[-12 if taken else -8 :]
    return f"{folder}/{created.year:04}-{created.month:02}/{slug}--{tail}.md"


def moved_path(path: str, old: Space, new: Space, spaces: Iterable[Space]) -> str:
    """Return the new path of a file that moves from one space to another: the rest of its path stays.

    If a folder of the rest would be another one of the `spaces`, only the name of the file stays.
    """
    rest = path.removeprefix(old.base + "/")
    moved = f"{new.base}/{rest}"
    lies_in = space_at(moved, spaces)
    return moved if lies_in is not None and lies_in.id == new.id else f"{new.base}/{rest.rpartition('/')[2]}"


def with_slug(path: str, slug: str, memory_id: str) -> str:
    """Return the path with another slug before the tail of the id; a name that a person gave the file stays."""
    folder, _, name = path.rpartition("/")
    ending = re.search(r"--([0-9a-f]{8,12})(-[0-9]+)?\.md\Z", name)
    if ending is None or not memory_id.replace("-", "").endswith(ending[1]):
        return path
    return f"{folder}/{slug}--{ending[1]}.md"


# --- spaces


def space_file(folder: str) -> str:
    """Return the path of the space file of a folder; "" is the top of the home."""
    return f"{folder}/{SPACE_FILE}" if folder else SPACE_FILE


def is_below(path: str, folder: str) -> bool:
    """Return whether a file lies in a folder or below it."""
    return not folder or path.startswith(folder + "/")


def folders_above(path: str) -> list[str]:
    """Return the folders that a file lies in, the nearest first; the last one is "", the top of the home."""
    folders = []
    while path:
        path = path.rpartition("/")[0]
        folders.append(path)
    return folders


def space_at(path: str, spaces: Iterable[Space]) -> Space | None:
    """Return the space that a file lies in, by the nearest folder which is a space; None if there is none yet."""
    above = frozenset(folders_above(path))
    around = (space for space in spaces if space.folder in above and has_folder(space.name))
    return max(around, key=lambda space: len(space.folder), default=None)


def name_by_folders(path: str) -> str:
    """Return the name of the space that a file was in when every folder with a legal name was one, else personal."""
    legal: list[str] = []
    for part in path.split("/")[:-1]:
        # A space at the deepest level has notices and proposals too.
        is_full = len(legal) == MAX_LEVELS and part not in BESIDE_SPACE
        if is_full or not (is_legal(part) or part in SYSTEM_PARTS) or (legal and legal[-1] in BESIDE_SPACE):
            break
        legal.append(part)
    return "/".join(legal) or PERSONAL
