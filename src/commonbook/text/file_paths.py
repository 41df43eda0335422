"""Paths of memory files in a home: the path of a new file, its path after a move, and the space of a path."""

from __future__ import annotations

import re
from datetime import datetime

from commonbook.text.space_names import INVALIDATIONS, MAX_LEVELS, PERSONAL, SYSTEM_PARTS, is_legal


def memory_path(space: str, created: datetime, slug: str, memory_id: str, *, taken: bool = False) -> str:
    """Return the path of a new memory's file: space, month, slug and the random tail of its id."""
    tail = memory_id.replace("-", "")[-12 if taken else -8 :]
    return f"{space}/{created:%Y-%m}/{slug}--{tail}.md"


def moved_path(path: str, old: str, new: str) -> str:
    """Return the new path of a file when its space moves from `old` to `new`: the rest of its path stays.

    Folders below the deepest level of a space would become spaces at a higher level: then only the file's name stays.
    """
    rest = path.removeprefix(old + "/")
    moved = f"{new}/{rest}"
    return moved if space_of(moved) == new else f"{new}/{rest.rpartition('/')[2]}"


def with_slug(path: str, slug: str, memory_id: str) -> str:
    """Return the path with another slug before the tail of the id; a name that a person gave the file stays."""
    folder, _, name = path.rpartition("/")
    ending = re.search(r"--([0-9a-f]{8,12})(-[0-9]+)?\.md\Z", name)
    if ending is None or not memory_id.replace("-", "").endswith(ending[1]):
        return path
    return f"{folder}/{slug}--{ending[1]}.md"


def space_of(path: str) -> str:
    """Return the space of a file: the leading legal and system parts of its path, else personal."""
    legal: list[str] = []
    for part in path.split("/")[:-1]:
        # A space at the deepest level has notices too.
        is_full = len(legal) == MAX_LEVELS and part != INVALIDATIONS
        if is_full or not (is_legal(part) or part in SYSTEM_PARTS) or legal[-1:] == [INVALIDATIONS]:
            break
        legal.append(part)
    return "/".join(legal) or PERSONAL
