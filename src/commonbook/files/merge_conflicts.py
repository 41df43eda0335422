"""Recognises a conflict that a merge of git has left in a file: the file waits until a person has settled it."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Final

from commonbook.errors import BadFile

if TYPE_CHECKING:
    from commonbook.markdown.front_matter import Document
    from commonbook.model.stored_memory import StoredMemory

_NOT_SETTLED: Final = "a merge conflict of git is not settled yet"
_MARKERS: Final = re.compile(r"^<<<<<<< .*?^=======\r?$.*?^>>>>>>> ", re.MULTILINE | re.DOTALL)
_FENCED_CODE: Final = re.compile(r"^ {0,3}(```+|~~~+).*?(?:^ {0,3}\1|\Z)", re.MULTILINE | re.DOTALL)


def with_reason(error: BadFile, data: bytes) -> str:
    """Return why a file does not parse: the conflict that a merge has left in it, if there is one."""
    conflict = _MARKERS.search(data.decode(errors="replace"))
    return f"line {_line_of(conflict)}: {_NOT_SETTLED}" if conflict else str(error)


def require_merged(document: Document, memory: StoredMemory | None) -> None:
    """Raise BadFile if a merge has left a conflict in the text of a file.

    A text of a memory may show the marks of a conflict, in code or because it was stored so: they are no conflict.
    """
    is_known_text = document.id is not None if memory is None else _merge_conflict(memory.text) is not None
    conflict = None if is_known_text else _merge_conflict(document.text)
    if conflict is not None:
        raise BadFile(f"{_NOT_SETTLED}, in line {_line_of(conflict)} of the text")


def _merge_conflict(text: str) -> re.Match[str] | None:
    if "<<<<<<< " not in text or ">>>>>>> " not in text:
        return None
    without_code = _FENCED_CODE.sub(lambda code: "\n" * code[0].count("\n"), text)
    return _MARKERS.search(without_code)


def _line_of(match: re.Match[str]) -> int:
    return match.string.count("\n", 0, match.start()) + 1


def is_conflict(trouble: str) -> bool:
    """Tell whether a trouble is that of a merge conflict."""
    return _NOT_SETTLED in trouble


def fix_of(path: str) -> str:
    """Return how to settle a merge conflict."""
    file = shlex.quote(path)
    return (
        f"keep one side of each conflict in the file, or take one whole (`git checkout --ours {file}`, `git"
        f" checkout --theirs {file}`), then `git add {file}`; of lines with `@` or `mac:` either side will do"
    )
