"""Files that are not taken in: empty new notes, too large ones, others that do not parse; and how to correct them."""

from __future__ import annotations

from typing import Final

from commonbook.files import merge_conflicts, sync_conflicts
from commonbook.model.memory import MAX_FRONT_BYTES, MAX_TEXT_BYTES

MAX_FILE_BYTES: Final = MAX_TEXT_BYTES + MAX_FRONT_BYTES + 1024
TOO_LARGE: Final = f"the file has more than {MAX_TEXT_BYTES:,} bytes of text"
NOTHING_NEW: Final = "all of its messages are in other episodes already, since clients sent them again"
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_LEAVE_ALONE: Final = ", or let it be no memory, by a line with its path in .commonbookignore"
_UNTIL_THEN: Final = "; until then the memory is as it was before"
_SPLIT: Final = "split the file into several of at most 4 MiB"
_FIXES: Final = (
    ("not valid UTF-8", "save the file as UTF-8 (`iconv -f latin1 -t utf-8` converts a file in Latin-1)"),
    ("NUL byte", "save the file as UTF-8 text"),
    ("bytes of text", _SPLIT),
    ("the text has more than", _SPLIT),
    ("cannot be read", "give this user the right to read the file"),
)
_OTHER_FIXES: Final = (
    ("in other episodes already", "remove the file: the session has its messages"),
    ("the file is empty", "write the memory into it again, or delete the file"),
)
_FIX_FRONT_MATTER: Final = "correct the front matter (docs/FRONT-MATTER.md)"


def is_blank(data: bytes) -> bool:
    """Tell whether a file has nothing in it yet, as a note that was just made in Obsidian."""
    return not data.removeprefix(_BYTE_ORDER_MARK).strip()


def kind_of(trouble: str) -> str:
    """Return what a file with this trouble is called in findings."""
    if merge_conflicts.is_conflict(trouble):
        return "merge conflict"
    return "conflict copy" if sync_conflicts.is_second_version(trouble) else "malformed file"


def fix_of(path: str, trouble: str, *, is_memory: bool) -> str:
    """Return how to correct a file with this trouble; one that is no memory yet need not become one."""
    if sync_conflicts.is_second_version(trouble):
        return sync_conflicts.fix_of(path, trouble)
    if merge_conflicts.is_conflict(trouble):
        return merge_conflicts.fix_of(path)
    if fix := _first_fix(_OTHER_FIXES, trouble):
        return fix
    return (_first_fix(_FIXES, trouble) or _FIX_FRONT_MATTER) + (_UNTIL_THEN if is_memory else _LEAVE_ALONE)


def _first_fix(fixes: tuple[tuple[str, str], ...], trouble: str) -> str | None:
    return next((fix for words, fix in fixes if words in trouble), None)
