"""Derive a title for a text or a file that has none, and a slug for a file name from a title."""

from __future__ import annotations

import posixpath
import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from commonbook.model.memory import MAX_TITLE
from commonbook.text import validation

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
