"""Names of spaces: their rules, the names of the system, and which space lies below which."""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from commonbook.errors import BadSpaceName
from commonbook.values.spaces import PROPOSED

PERSONAL: Final = "personal"
SHARED_BETWEEN: Final = "_between"
"""The folder above the spaces that two principals share."""

INVALIDATIONS: Final = "_invalidations"
"""The folder of a space's notices, below the space."""

BESIDE_SPACE: Final = (INVALIDATIONS, PROPOSED)
"""The folders below each space that the system uses, for notices and for proposals; they are known by their names."""

SYSTEM_PARTS: Final = frozenset({SHARED_BETWEEN, *BESIDE_SPACE})
"""Parts of names that only the system uses."""

MAX_LEVELS: Final = 7
_LEGAL: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}\Z")
_MONTH: Final = re.compile(r"[0-9]{4}-[0-9]{2}\Z")
_FIX: Final = "use up to 7 parts joined by '/', each of a-z, 0-9, '.', '_', '-' and beginning with a letter or digit"


def is_legal(part: str) -> bool:
    """Return whether one part of a space's name is legal; a month is not, since it is a folder of files."""
    return bool(_LEGAL.match(part)) and not _MONTH.match(part) and ".." not in part and not part.endswith(".md")


def require_query_name(name: str) -> str:
    """Return the name of a space to read, which may be one of the system's, or raise BadSpaceName."""
    own = reviewed_space(name.removesuffix(f"/{INVALIDATIONS}"))
    require_space_name("/".join(part.removeprefix("_") for part in own.split("/")))
    return name


# Only names that are right are cached: each write asks for the same few.
@lru_cache(maxsize=64)
def require_space_name(name: str) -> str:
    """Return the name, or raise BadSpaceName with the rule that it breaks."""
    if is_whole_tree(name):
        raise BadSpaceName(f"{name!r} means a space and all below it; one space is needed", fix="leave out the final /")
    parts = name.split("/")
    if len(parts) > MAX_LEVELS:
        raise BadSpaceName(f"space {name!r} has {len(parts)} levels, at most {MAX_LEVELS} are allowed", fix=_FIX)
    for part in parts:
        if part.startswith("_"):
            raise BadSpaceName(f"space {name!r}: names that begin with '_' are the system's", fix=_FIX)
        if _MONTH.match(part):
            raise BadSpaceName(f"space {name!r}: {part} is the name of a month's folder", fix=_FIX)
        if not is_legal(part):
            raise BadSpaceName(f"{name!r} is not the name of a space", fix=_FIX)
    return name


def is_whole_tree(name: str) -> bool:
    """Return whether a name means a space and all below it, as in filters: it ends with one slash."""
    return name.endswith("/") and all(is_legal(part) for part in name[:-1].split("/"))


def require_new_name(name: str) -> str:
    """Return the name of a space that is about to be made, or refuse it."""
    from commonbook.core.text import masking  # noqa: PLC0415 - a recall makes no space

    return masking.require_no_secret(require_space_name(name), "name of the space")


def is_month(part: str) -> bool:
    """Return whether a part of a path is the name of a month's folder."""
    return bool(_MONTH.match(part))


def has_folder(name: str) -> bool:
    """Return whether a space has a folder in a home: all but the system's own without memories."""
    top = name.partition("/")[0]
    return not top.startswith("_") or top == SHARED_BETWEEN


def has_space_file(name: str) -> bool:
    """Return whether a file marks the folder of a space; folders of notices and proposals are known by their names."""
    return has_folder(name) and not is_beside_space(name)


def is_beside_space(name: str) -> bool:
    """Return whether a space holds what the system keeps beside another space: its notices or proposals."""
    return name.rpartition("/")[2] in BESIDE_SPACE


def proposals_of(name: str) -> str:
    """Return the name of the space with the memories that are proposed to a space."""
    return f"{name}/{PROPOSED}"


def reviewed_space(name: str) -> str:
    """Return the name of the space to which the memories of a space are proposed; of any other space its own name."""
    return name.removesuffix(f"/{PROPOSED}")


def shared_between(first: str, second: str) -> str:
    """Return the name of the space that only these two principals share."""
    both = " ".join(sorted((first, second)))
    return f"{SHARED_BETWEEN}/{blake2b(both.encode(), digest_size=8).hexdigest()}"


def is_shared_by_two(name: str) -> bool:
    """Return whether a name belongs to a space that only two principals share."""
    top, _, rest = name.partition("/")
    return top == SHARED_BETWEEN and is_legal(rest)


def is_system(name: str) -> bool:
    """Return whether a space is one of the system's own."""
    return any(part.startswith("_") for part in name.split("/"))


def is_within(name: str, top: str) -> bool:
    """Return whether the space `name` is `top` or lies below it."""
    return name == top or name.startswith(top + "/")
