"""Files that are not taken in, and how to correct them: too large ones, conflicts, and others that do not parse.

- A conflict that a merge of git has left in a file waits until a person has settled it.
- The second version of a file that a sync program has left beside the first is not a note of its own. Syncthing,
  Dropbox, Nextcloud, ownCloud, Obsidian Sync and Resilio mark such a file in its name. iCloud and Google Drive only add
  a number, and OneDrive the name of a computer: such a name alone proves nothing.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator
from typing import Final

from commonbook.core.markdown.front_matter import Document
from commonbook.core.markdown.memory_conversion import parse_file
from commonbook.core.text import nearness
from commonbook.errors import BadFile
from commonbook.ports.engines import Engines
from commonbook.values.memory import MAX_FRONT_BYTES, MAX_TEXT_BYTES
from commonbook.values.stored_memory import StoredMemory

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
    """Return whether a file has nothing in it yet, as a note that was just made in Obsidian."""
    return not data.removeprefix(_BYTE_ORDER_MARK).strip()


def kind_of(trouble: str) -> str:
    """Return what a file with this trouble is called in findings."""
    if _is_merge_conflict(trouble):
        return "merge conflict"
    return "conflict copy" if _is_second_version(trouble) else "malformed file"


def fix_of(path: str, trouble: str, *, is_memory: bool) -> str:
    """Return how to correct a file with this trouble; a file that is not a memory yet need not become one."""
    if _is_second_version(trouble):
        return _fix_of_second_version(path, trouble)
    if _is_merge_conflict(trouble):
        return _fix_of_merge(path)
    if fix := _first_fix(_OTHER_FIXES, trouble):
        return fix
    return (_first_fix(_FIXES, trouble) or _FIX_FRONT_MATTER) + (_UNTIL_THEN if is_memory else _LEAVE_ALONE)


def _first_fix(fixes: tuple[tuple[str, str], ...], trouble: str) -> str | None:
    return next((fix for words, fix in fixes if words in trouble), None)


# --- merge conflicts

_NOT_SETTLED: Final = "a merge conflict of git is not settled yet"
_MARKERS: Final = re.compile(r"^<<<<<<< .*?^=======\r?$.*?^>>>>>>> ", re.MULTILINE | re.DOTALL)
_FENCED_CODE: Final = re.compile(r"^ {0,3}(```+|~~~+).*?(?:^ {0,3}\1|\Z)", re.MULTILINE | re.DOTALL)


def merge_reason(error: BadFile, data: bytes) -> str:
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


def _is_merge_conflict(trouble: str) -> bool:
    """Return whether a trouble is a merge conflict."""
    return _NOT_SETTLED in trouble


def _fix_of_merge(path: str) -> str:
    """Return how to settle a merge conflict."""
    file = shlex.quote(path)
    return (
        f"keep one side of each conflict in the file, or take one whole (`git checkout --ours {file}`, `git"
        f" checkout --theirs {file}`), then `git add {file}`; of lines with `@` or `mac:` either side will do"
    )


# --- second versions

_NEARLY: Final = 0.8
_SECOND_VERSION: Final = "it is a second version, made by a sync program, of "

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
    """Return the path of the file that a name with a number, or with a computer's name, may be a second version of."""
    return _original(path, _NUMBERED)


def _original(path: str, pattern: re.Pattern[str]) -> str | None:
    folder, slash, name = path.rpartition("/")
    match = pattern.fullmatch(name)
    return f"{folder}{slash}{match['stem']}{match['ending']}" if match else None


def conflict_reason(engines: Engines, path: str, data: bytes) -> str | None:
    """Return the trouble of a second version of a file that is there too; None for any other file."""
    original = marked_original(path)
    if original is not None and engines.folder.exists(original):
        return _SECOND_VERSION + original
    original = numbered_original(path)
    if original is not None and (id_ := _id_of(engines, data)) and id_ == _id_at(engines, original):
        return _SECOND_VERSION + original
    return None


def likely_conflicts(engines: Engines, paths: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the notes that may be a second version, by their name with a number and their words, and of which file.

    Such a name proves nothing, so that they are memories of their own: a person decides.
    """
    for path in sorted(paths):
        original = numbered_original(path)
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


def _is_second_version(trouble: str) -> bool:
    """Return whether a trouble is a second version of a file."""
    return trouble.startswith(_SECOND_VERSION)


def _fix_of_second_version(path: str, trouble: str) -> str:
    """Return how to settle a second version, from the trouble of its file."""
    copy, original = shlex.quote(path), shlex.quote(trouble.removeprefix(_SECOND_VERSION))
    return (
        f"in the home: `diff {original} {copy}` compares them; copy what is missing into the first, then"
        f" `rm {copy}`; or `mv {copy} {original}` to take the second as it is"
    )
