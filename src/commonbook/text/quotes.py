"""Double quotes in a query: the parts between them must occur."""

from __future__ import annotations

import re
from typing import Final

# A straight mark that opens stands before a word and not after one: 5" is a length.
_QUOTED: Final = re.compile(
    '(?<![0-9A-Za-z])["\uff02](?=\\S)([^"\uff02\n]+)(?<=\\S)["\uff02](?![0-9A-Za-z])'
    "|[\u201c\u201d\u201e]([^\u201c\u201d\u201e\n]+)[\u201c\u201d]"
    "|\u00ab([^\u00ab\u00bb\n]+)\u00bb|\u00bb([^\u00ab\u00bb\n]+)\u00ab"
    "|[\u300c\u300e]([^\u300c-\u300f\n]+)[\u300d\u300f]"
)
_MARKS: Final = re.compile('["\uff02\u201c\u201d\u201e\u00ab\u00bb\u300c-\u300f]')


def quoted_parts(text: str) -> list[str]:
    """Return the parts of a text in double quotes, each once; a mark without its pair is ignored."""
    parts = ("".join(filter(None, match.groups())).strip() for match in _QUOTED.finditer(text))
    return [part for part in dict.fromkeys(parts) if part]


def without_quotes(text: str) -> str:
    """Return a text without double quotes, for a query that nobody wrote as one: nothing in it must occur."""
    return _MARKS.sub(" ", text)
