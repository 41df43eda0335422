"""Recognises the second version of a file that a program which synchronises folders has left beside the first.

Syncthing, Dropbox, Nextcloud, ownCloud, Obsidian Sync and Resilio mark such a file in its name. iCloud and Google Drive
only add a number, and OneDrive the name of a computer: such a name alone proves nothing. A second version is no note
of its own: it stays what it is until a person has settled which of the two counts.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Final

from commonbook.errors import BadFile
from commonbook.markdown.memory_conversion import parse_file
from commonbook.text import nearness

if TYPE_CHECKING:
    from commonbook.ports.engines import Engines

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
    """Return the path of the file that a name with a number, or with that of a computer, may be the second of."""
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


def is_second_version(trouble: str) -> bool:
    """Tell whether a trouble is that of a second version."""
    return trouble.startswith(_SECOND_VERSION)


def fix_of(path: str, trouble: str) -> str:
    """Return how to settle a second version, from the trouble of its file."""
    copy, original = shlex.quote(path), shlex.quote(trouble.removeprefix(_SECOND_VERSION))
    return (
        f"in the home: `diff {original} {copy}` compares them; copy what is missing into the first, then"
        f" `rm {copy}`; or `mv {copy} {original}` to take the second as it is"
    )
