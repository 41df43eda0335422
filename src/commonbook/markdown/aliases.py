"""Reads the further names of a note from its front matter: `aliases`, `alias`, and the `permalink` of basic-memory.

The fields are the person's own: they are read here and never written. A name is one line, so no YAML parser is needed:
a value may be one name, a list in brackets, or a list with one name a line, with or without quotes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

MAX_ALIASES: Final = 50
MAX_ALIAS_CHARS: Final = 300

_FIELD: Final = re.compile(
    r"^([\"']?)(?:aliases|alias|permalink)\1[ \t]*:(?=[ \t]|$)(.*(?:\n(?:[ \t].*|-(?:[ \t].*)?|)$)*)",
    re.MULTILINE | re.IGNORECASE,
)
_QUOTED: Final = r'"(?:[^"\\]|\\.)*"|' + r"'(?:[^']|'')*'"
_QUOTED_NAME: Final = re.compile(_QUOTED)
_NAME_IN_BRACKETS: Final = re.compile(rf"{_QUOTED}|[^,\[\]\"'\s][^,\[\]]*")
_COMMENT: Final = re.compile(r"(?:^|[ \t])#.*")
_NO_NAMES: Final = frozenset(("", "null", "~"))


def aliases(front: str) -> tuple[str, ...]:
    """Return the names in the front matter of a file, each once."""
    values = (match[2].strip() for match in _FIELD.finditer(front.replace("\r\n", "\n")))
    names = (" ".join(name.split()) for value in values for name in _names(value))
    unique = dict.fromkeys(name for name in names if name not in _NO_NAMES and len(name) <= MAX_ALIAS_CHARS)
    return tuple(unique)[:MAX_ALIASES]


def _names(value: str) -> Iterator[str]:
    if value.startswith("["):
        inside = _COMMENT.sub("", value.replace("\n", " ")) if "]" not in value.partition("\n")[0] else value
        yield from (_name(match[0]) for match in _NAME_IN_BRACKETS.finditer(inside[1:].partition("]")[0]))
    elif value == "-" or value.startswith(("- ", "-\t")):
        lines = (line.strip() for line in value.split("\n"))
        yield from (_name(line[1:].strip()) for line in lines if line.startswith("-"))
    elif not value.startswith(("{", "|", ">", "&", "*")):
        name = _name(value.partition("\n")[0])
        yield name
        # Obsidian reads one text with commas as several names.
        if not _QUOTED_NAME.match(value) and "," in name:
            yield from name.split(",")


def _name(text: str) -> str:
    quoted = _QUOTED_NAME.match(text)
    if quoted is None:
        return _COMMENT.sub("", text).strip()
    if text.startswith("'"):
        return quoted[0][1:-1].replace("''", "'")
    try:
        return str(json.loads(quoted[0]))
    except ValueError:
        return quoted[0][1:-1]
