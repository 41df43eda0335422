"""Derive a title for a text or a file that has none, and a slug for a file name from a title.

Paths of files in a home: the path of a new file, its path after a move, and the space that a path lies in.
"""

from __future__ import annotations

import posixpath
import re
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Final

from commonbook.core.text import validation
from commonbook.core.text.space_names import BESIDE_SPACE, MAX_LEVELS, PERSONAL, SYSTEM_PARTS, has_folder, is_legal
from commonbook.values.memory import MAX_TITLE
from commonbook.values.spaces import SPACE_FILE, Space

_MAX_TITLE_CHARS: Final = 72
_MAX_SLUG_CHARS: Final = 48
_MAX_SLUG_BYTES: Final = 120
# The rest of a longer line is ignored: it cannot reach the title, even without the markup.
_MAX_LINE_CHARS: Final = 1_000

_GENERIC_NAMES: Final = frozenset({"index", "readme"})
_TAIL: Final = re.compile(r"--([0-9a-f]{8,12})(?:-[0-9]+)?\Z")

_LINE: Final = re.compile(r"[^\r\n]+")
_FENCE: Final = re.compile(r"[ \t]*(?:`{3,}|~{3,})")
_LEADING_MARKUP: Final = re.compile(r"^(?:\s|>|#{1,6}(?=\s|$)|[-*+](?=\s|$)|\d{1,9}[.)](?=\s)|\[[ xX]\](?=\s))+")
_LINK: Final = re.compile(r"!?\[([^\[\]]*)\]\([^()]*\)")
_WIKI_LINK: Final = re.compile(r"!?\[\[(?:[^\[\]|]*\|)?([^\[\]|]*)\]\]")
_EMPHASIS: Final = re.compile(r"`|\*+(?=\S)|(?<=\S)\*+|(?<!\w)_+(?=\S)|(?<=\S)_+(?!\w)")
_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff]+")
_HAS_WORD: Final = re.compile(r"[^\W_]")
_JOINING: Final = str.maketrans("", "", "'\u2019`")
_ASCII_WORDS: Final = {code: chr(code).lower() if chr(code).isalnum() else " " for code in range(128)} | {
    ord("'"): "",
    ord("`"): "",
}
"""The characters of titles in ASCII, as `_words` writes them."""


# A write asks for the title of one text several times.
@lru_cache(maxsize=4)
def derive_title(text: str) -> str:
    """Return the first line with a word in it, heading or not, without its markup and cut to length."""
    for match in _LINE.finditer(text):
        line = match[0][:_MAX_LINE_CHARS]
        if _FENCE.match(line):
            continue
        title = _without_markup(line)
        if _HAS_WORD.search(title):
            return _cut(title)
    return "Untitled"


def title_of_note(path: str, memory_id: str, text: str) -> str:
    """Return the title of a file that names none: its name, as in Obsidian; if we made the name, the first line."""
    stem = " ".join(posixpath.splitext(posixpath.basename(path))[0].split())
    if (
        not stem
        or stem.lower() in _GENERIC_NAMES
        or not validation.is_plain_line(stem)
        or _is_made_by_us(stem, memory_id)
    ):
        return derive_title(text)
    return stem[:MAX_TITLE]


def _is_made_by_us(stem: str, memory_id: str) -> bool:
    tail = _TAIL.search(stem)
    return tail is not None and memory_id.replace("-", "").endswith(tail[1])


def slug(title: str) -> str:
    """Return a part of a file name: lower-case words joined by `-`; letters that are not Latin stay."""
    words = _words(title)
    name = "-".join(words)
    if name.isascii():
        # So many bytes as characters: the words that are whole in the first of them.
        name = name if len(name) <= _MAX_SLUG_CHARS else name[: _MAX_SLUG_CHARS + 1].rpartition("-")[0]
    else:
        name = _first_words(words)
    if not name and words:
        # The first word alone is too long, as a Chinese sentence is: cut inside it.
        name = words[0][:_MAX_SLUG_CHARS].encode()[:_MAX_SLUG_BYTES].decode(errors="ignore")
    return name or "memory"


def _first_words(words: Sequence[str]) -> str:
    """Return as many of the words as fit into a part of a file name."""
    name = ""
    for word in words:
        longer = f"{name}-{word}" if name else word
        if len(longer) > _MAX_SLUG_CHARS or len(longer.encode()) > _MAX_SLUG_BYTES:
            break
        name = longer
    return name


def _without_markup(line: str) -> str:
    line = _LEADING_MARKUP.sub("", _CONTROLS.sub(" ", line))
    # Most lines have none of these signs, which is faster to tell than what the patterns find.
    if "[" in line:
        line = _WIKI_LINK.sub(r"\1", _LINK.sub(r"\1", line))
    if "`" in line or "*" in line or "_" in line:
        line = _EMPHASIS.sub("", line)
    return " ".join(line.split())


def _cut(title: str) -> str:
    if len(title) <= _MAX_TITLE_CHARS:
        return title
    head = title[:_MAX_TITLE_CHARS]
    at = head.rfind(" ")
    # Text without blanks, or with one very early, is cut inside the word.
    head = head[:at] if at > _MAX_TITLE_CHARS // 2 else head[:-1]
    return head.rstrip(" ,;:.-") + "…"


def _words(title: str) -> list[str]:
    if title.isascii():
        return title.translate(_ASCII_WORDS).split()
    chars: list[str] = []
    for char in unicodedata.normalize("NFKD", title.translate(_JOINING)).lower():
        if char.isalnum():
            chars.append(char)
        elif not unicodedata.category(char).startswith("M"):
            chars.append(" ")
        elif chars and not chars[-1].isascii():
            # An accent on a Latin letter is dropped; in other scripts the mark is part of the letter.
            chars.append(char)
    return unicodedata.normalize("NFC", "".join(chars)).split()


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
