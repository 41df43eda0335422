"""The file of a session in an export: what the session is, a line for each message, and the words that no episode has.

docs/TRANSCRIPTS.md describes the format. A long session has several files, the parts. Values in the front matter are
JSON, which is YAML too. A message whose words are in the file of its episode has only its line here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any, Final, NamedTuple

from commonbook.core.markdown.transcript import TranscriptMessage
from commonbook.core.markdown.transcript import parse as parse_transcript
from commonbook.core.markdown.transcript import render as render_transcript
from commonbook.core.text import titles
from commonbook.errors import BadFile
from commonbook.values.ids import format_time, parse_time

FOLDER: Final = "_sessions"
"""The folder of a space in which an export puts the files of its sessions."""

_NAME: Final = "commonbook_session"
_BEGINNING: Final = re.compile(rb"(?:\xef\xbb\xbf)?---[ \t]*\r?\n" + _NAME.encode() + rb":")
_FRONT: Final = re.compile(
    r"\ufeff?---[ \t]*\r?\n(?P<front>.*?)^---[ \t]*\r?$\n?(?P<body>.*)", re.DOTALL | re.MULTILINE
)
_FIELD: Final = re.compile(r"(?P<name>[a-z_]+):[ \t]*(?P<value>.*)")
_FIELDS: Final = frozenset({_NAME, "created", "closed", "tags", "parent", "parent_space", "messages", "part"})
_LOG: Final = "log"
_FIX: Final = "export the session again; these files are not made for editing"


class MessageLine(NamedTuple):
    """A message of a session without its words; `episode` is the memory that it was settled in.

    The words of an `edited` one are not those that were sent under its client id.
    """

    seq: int
    id: str
    episode: str | None = None
    client_id: str | None = None
    masked: int = 0
    rewound: datetime | None = None
    edited: bool = False


class SessionPart(NamedTuple):
    """One file of a session. `messages` is the number of messages in all parts; `words` are those in this file."""

    id: str
    created: datetime
    closed: datetime | None
    tags: tuple[str, ...]
    parent: str | None
    parent_space: str | None
    messages: int
    part: int = 1
    lines: tuple[MessageLine, ...] = ()
    words: tuple[TranscriptMessage, ...] = ()


def path_of(folder: str, session_id: str, part: int) -> str:
    """Return the path of a part in an export; the hash tells sessions apart whose names have the same slug."""
    digest = sha256(session_id.encode()).hexdigest()[:8]
    number = f"-{part}" if part > 1 else ""
    return f"{folder}/{FOLDER}/{titles.slug(session_id)}--{digest}{number}.md"


def is_session_file(data: bytes) -> bool:
    """Return whether a file belongs to a session."""
    return _BEGINNING.match(data) is not None


# --- writing


def render(part: SessionPart) -> bytes:
    """Return the content of the file of a part."""
    fields: dict[str, object] = {
        _NAME: part.id,
        "created": format_time(part.created),
        "closed": format_time(part.closed) if part.closed else None,
        "tags": list(part.tags) or None,
        "parent": part.parent,
        "parent_space": part.parent_space,
        "messages": part.messages,
        "part": part.part,
    }
    front = [f"{name}: {_json(value)}" for name, value in fields.items() if value is not None]
    lines = [f"- {_json(_values(line))}" for line in part.lines]
    text = "\n".join(["---", *front, f"{_LOG}:", *lines, "---", "", render_transcript(part.words), ""])
    return text.encode()


def _values(line: MessageLine) -> list[object]:
    optional = {
        "episode": line.episode,
        "client_id": line.client_id,
        "masked": line.masked or None,
        "rewound": format_time(line.rewound) if line.rewound else None,
        "edited": line.edited or None,
    }
    return [line.seq, line.id, {name: value for name, value in optional.items() if value is not None}]


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


# --- reading


def parse(data: bytes) -> SessionPart:
    """Parse the file of a part; BadFile if it is none."""
    try:
        match = _FRONT.match(data.decode())
        if match is None:
            raise ValueError("it has no front matter")
        return _part(*_fields(match["front"].splitlines()), words=parse_transcript(match["body"]).messages)
    except (ValueError, TypeError, KeyError) as error:
        raise BadFile(f"the file of a session does not parse: {error}", fix=_FIX) from error


def _fields(lines: Sequence[str]) -> tuple[dict[str, Any], list[Any]]:
    fields: dict[str, Any] = {}
    rows: list[Any] = []
    for line in lines:
        if line.startswith("- "):
            rows.append(json.loads(line[2:]))
        elif match := _FIELD.fullmatch(line.rstrip()):
            # Fields of others are left alone: in a home, a file gets an id.
            if match["name"] in _FIELDS:
                fields[match["name"]] = json.loads(match["value"])
        elif line.strip():
            raise ValueError(f"{line[:40]!r} is not one of its lines")
    return fields, rows


def _part(fields: dict[str, Any], rows: list[Any], *, words: tuple[TranscriptMessage, ...]) -> SessionPart:
    return SessionPart(
        id=_text(fields[_NAME]),
        created=parse_time(_text(fields["created"])),
        closed=parse_time(_text(fields["closed"])) if fields.get("closed") else None,
        tags=tuple(map(_text, fields.get("tags") or ())),
        parent=_text(fields["parent"]) if fields.get("parent") else None,
        parent_space=_text(fields["parent_space"]) if fields.get("parent_space") else None,
        messages=_number(fields["messages"]),
        part=_number(fields["part"]),
        lines=tuple(_lines(rows)),
        words=words,
    )


def _lines(rows: list[Any]) -> Iterator[MessageLine]:
    for seq, message_id, values in rows:
        rewound = values.get("rewound")
        yield MessageLine(
            seq=_number(seq),
            id=_text(message_id),
            episode=_text(values["episode"]) if "episode" in values else None,
            client_id=_text(values["client_id"]) if "client_id" in values else None,
            masked=_number(values.get("masked", 0)),
            rewound=parse_time(_text(rewound)) if rewound else None,
            edited=values.get("edited") is True,
        )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 10**15:
        raise TypeError(f"{value!r} is no number")
    return value
