"""Names for memories: a title for a text that has none, and the words of a title for a file name."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_TITLE_LENGTH: Final = 72
_SLUG_LENGTH: Final = 48
_SLUG_BYTES: Final = 120
# More of a line than this cannot reach the title, whatever markup is taken out of it.
_LOOK_AT: Final = 1_000

_LINE: Final = re.compile(r"[^\r\n]+")
_FENCE: Final = re.compile(r"[ \t]*(?:`{3,}|~{3,})")
_LEADING_MARKUP: Final = re.compile(r"^(?:\s|>|#{1,6}(?=\s|$)|[-*+](?=\s|$)|\d{1,9}[.)](?=\s)|\[[ xX]\](?=\s))+")
_LINK: Final = re.compile(r"!?\[([^\[\]]*)\]\([^()]*\)")
_WIKI_LINK: Final = re.compile(r"!?\[\[(?:[^\[\]|]*\|)?([^\[\]|]*)\]\]")
_EMPHASIS: Final = re.compile(r"`|\*+(?=\S)|(?<=\S)\*+|(?<!\w)_+(?=\S)|(?<=\S)_+(?!\w)")
_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff]+")
_HAS_WORD: Final = re.compile(r"[^\W_]")
_NO_GAP: Final = str.maketrans("", "", "'\u2019`")


def title_from(text: str) -> str:
    """Make a title of the first line that says something, heading or not, without its markup."""
    for found in _LINE.finditer(text):
        line = found[0][:_LOOK_AT]
        if _FENCE.match(line):
            continue
        title = _without_markup(line)
        if _HAS_WORD.search(title):
            return _cut(title)
    return "Untitled"


def slug(title: str) -> str:
    """Make a part of a file name: lower-case words joined by `-`; letters that are not Latin stay as they are."""
    words = _words(title)
    name = ""
    for word in words:
        longer = f"{name}-{word}" if name else word
        if not _fits(longer):
            break
        name = longer
    if not name and words:
        # The first word alone is too long, as a Chinese sentence is: cut inside it.
        name = words[0][:_SLUG_LENGTH].encode()[:_SLUG_BYTES].decode(errors="ignore")
    return name or "memory"


def _without_markup(line: str) -> str:
    line = _LEADING_MARKUP.sub("", _CONTROLS.sub(" ", line))
    line = _WIKI_LINK.sub(r"\1", _LINK.sub(r"\1", line))
    return " ".join(_EMPHASIS.sub("", line).split())


def _cut(title: str) -> str:
    if len(title) <= _TITLE_LENGTH:
        return title
    head = title[:_TITLE_LENGTH]
    at = head.rfind(" ")
    # Text without blanks, or with one very early, is cut inside the word.
    head = head[:at] if at > _TITLE_LENGTH // 2 else head[:-1]
    return head.rstrip(" ,;:.-") + "…"


def _fits(name: str) -> bool:
    return len(name) <= _SLUG_LENGTH and len(name.encode()) <= _SLUG_BYTES


def _words(title: str) -> list[str]:
    kept: list[str] = []
    for char in unicodedata.normalize("NFKD", title.translate(_NO_GAP)).lower():
        if char.isalnum():
            kept.append(char)
        elif not unicodedata.category(char).startswith("M"):
            kept.append(" ")
        elif kept and not kept[-1].isascii():
            # An accent on a Latin letter is dropped; in other scripts the mark is part of the letter.
            kept.append(char)
    return unicodedata.normalize("NFC", "".join(kept)).split()
