"""Files that are not taken in: empty new notes, second versions that a sync leaves, merge conflicts, too large ones.

A sync program that finds two versions of a file keeps the second one beside it. That is no note of its own: it stays
what it is until a person has settled which of the two counts.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Final

from commonbook.errors import BadFile
from commonbook.files import conflict_names
from commonbook.markdown.memory_conversion import parse_file
from commonbook.model.memory import MAX_FRONT_BYTES, MAX_TEXT_BYTES
from commonbook.text import nearness

if TYPE_CHECKING:
    from commonbook.markdown.front_matter import Document
    from commonbook.model.memory import Memory
    from commonbook.ports.engines import Engines

MAX_FILE_BYTES: Final = MAX_TEXT_BYTES + MAX_FRONT_BYTES + 1024
TOO_LARGE: Final = f"the file has more than {MAX_TEXT_BYTES:,} bytes of text"
NOTHING_NEW: Final = "all of its messages are in other episodes already, since clients sent them again"
_NEARLY: Final = 0.8
_CONFLICT: Final = "it is a second version, made by a sync program, of "
_MERGE_CONFLICT: Final = "a merge conflict of git is not settled yet"
_CONFLICT_MARKERS: Final = re.compile(r"^<<<<<<< .*?^=======\r?$.*?^>>>>>>> ", re.MULTILINE | re.DOTALL)
_FENCED_CODE: Final = re.compile(r"^ {0,3}(```+|~~~+).*?(?:^ {0,3}\1|\Z)", re.MULTILINE | re.DOTALL)
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_FIXES: Final = (
    ("not valid UTF-8", "save the file as UTF-8: `iconv -f latin1 -t utf-8` converts a file in Latin-1"),
    ("NUL byte", "save the file as UTF-8 text, or take it out of the home if it is none"),
    ("bytes of text", "split the file into several of at most 4 MiB, or take it out of the home"),
    ("the text has more than", "split the file into several of at most 4 MiB, or take it out of the home"),
    ("cannot be read", "give this user the right to read the file, or take it out of the home"),
    ("in other episodes already", "remove the file: the session has its messages"),
    ("the file is empty", "write the memory into it again, or delete the file"),
)
_FIX_FRONT_MATTER: Final = "correct the front matter (docs/FRONT-MATTER.md), or take the file out of the home"


def is_blank(data: bytes) -> bool:
    """Tell whether a file has nothing in it yet, as a note that was just made in Obsidian."""
    return not data.removeprefix(_BYTE_ORDER_MARK).strip()


def conflict_reason(engines: Engines, path: str, data: bytes) -> str | None:
    """Return the trouble of a second version of a file that is there too; None for any other file."""
    original = conflict_names.marked_original(path)
    if original is not None and engines.folder.exists(original):
        return _CONFLICT + original
    original = conflict_names.numbered_original(path)
    if original is not None and (id_ := _id_of(engines, data)) and id_ == _id_at(engines, original):
        return _CONFLICT + original
    return None


def likely_conflicts(engines: Engines, paths: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the notes that may be a second version, by their name with a number and their words, and of which file.

    Such a name proves nothing, so that they are memories of their own: a person decides.
    """
    for path in sorted(paths):
        original = conflict_names.numbered_original(path)
        if original is None or original not in paths:
            continue
        texts = _text_at(engines, path), _text_at(engines, original)
        if nearness.says_nearly_the_same(*texts, at_least=_NEARLY):
            yield path, original


def fix_of_likely(path: str, original: str) -> str:
    """Return how to settle a note that may be a second version."""
    copy, first = shlex.quote(path), shlex.quote(original)
    return (
        f"in the home: `diff {first} {copy}` compares them; copy what is missing into the first, then `rm {copy}`;"
        " or give it another name, if it is a note of its own"
    )


def _text_at(engines: Engines, path: str) -> str:
    try:
        data = engines.folder.read(path)
        return "" if data is None else parse_file(data, engines).text
    except (BadFile, OSError):
        return ""


def _id_at(engines: Engines, path: str) -> str | None:
    try:
        data = engines.folder.read(path)
    except OSError:
        return None
    return None if data is None else _id_of(engines, data)


def _id_of(engines: Engines, data: bytes) -> str | None:
    try:
        return parse_file(data, engines).id
    except BadFile:
        return None


def with_reason(error: BadFile, data: bytes) -> str:
    """Return why a file does not parse: the conflict that a merge has left in it, if there is one."""
    conflict = _CONFLICT_MARKERS.search(data.decode(errors="replace"))
    return f"line {_line_of(conflict)}: {_MERGE_CONFLICT}" if conflict else str(error)


def require_merged(document: Document, memory: Memory | None) -> None:
    """Raise BadFile if a merge has left a conflict in the text of a file.

    A text of a memory may show the marks of a conflict, in code or because it was stored so: they are no conflict.
    """
    is_known_text = document.id is not None if memory is None else _merge_conflict(memory.text) is not None
    conflict = None if is_known_text else _merge_conflict(document.text)
    if conflict is not None:
        raise BadFile(f"{_MERGE_CONFLICT}, in line {_line_of(conflict)} of the text")


def _merge_conflict(text: str) -> re.Match[str] | None:
    if "<<<<<<< " not in text or ">>>>>>> " not in text:
        return None
    without_code = _FENCED_CODE.sub(lambda code: "\n" * code[0].count("\n"), text)
    return _CONFLICT_MARKERS.search(without_code)


def _line_of(match: re.Match[str]) -> int:
    return match.string.count("\n", 0, match.start()) + 1


def kind_of(trouble: str) -> str:
    """Return what a file with this trouble is called in findings."""
    if _MERGE_CONFLICT in trouble:
        return "merge conflict"
    return "conflict copy" if is_conflict(trouble) else "malformed file"


def is_conflict(trouble: str) -> bool:
    """Tell whether a trouble is that of a second version."""
    return trouble.startswith(_CONFLICT)


def fix_of(path: str, trouble: str) -> str:
    """Return how to correct a file with this trouble."""
    if is_conflict(trouble):
        copy, original = shlex.quote(path), shlex.quote(trouble.removeprefix(_CONFLICT))
        return (
            f"in the home: `diff {original} {copy}` compares them; copy what is missing into the first, then"
            f" `rm {copy}`; or `mv {copy} {original}` to take the second as it is"
        )
    if _MERGE_CONFLICT in trouble:
        file = shlex.quote(path)
        return (
            f"keep one side of each conflict in the file, or take one whole (`git checkout --ours {file}`, `git"
            f" checkout --theirs {file}`), then `git add {file}`; of lines with `@` or `mac:` either side will do"
        )
    return next((fix for words, fix in _FIXES if words in trouble), _FIX_FRONT_MATTER)
