"""Layout of entries of the signed log: for people with titles and details, in a pipe exactly as they are stored."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from commonbook.interfaces.cli.output.plain import Cell, Output
from commonbook.model.ids import UUID_PATTERN

if TYPE_CHECKING:
    from commonbook.model.reports import LogEntry

_MEMORY_DETAILS: Final = ("memory", "superseded")
"""The details that are the id of another memory."""

_SUCCESSOR: Final = "by"
"""The detail that is the id of the memory which supersedes the others."""

_DETAILS: Final = (
    "seq", "to", "parent", "principal", "role", "expires", "key", "name", "old", "new", "folder", "depth", "review",
    "what", "per_minute", "verb", "how", "reason", "verdict", "fields", "refresh", "rule", "request", "kinds", "tags",
    "approval", "proposed_by", "messages",
)  # fmt: skip
"""The details that tell a person what was done. Hashes and version numbers are for programs: `--json` has all."""

_MAX_MEMORIES: Final = 5
"""The number of memories that are named in one entry."""


def show_stored(out: Output, entries: Sequence[LogEntry]) -> None:
    """Show entries as they are stored, for programs."""
    headers = ("seq", "time", "actor", "action", "subjects", "hash")
    out.table(
        headers,
        [(str(entry.seq), entry.time, entry.actor, entry.action, entry.subjects, entry.hash[:16]) for entry in entries],
    )


def show_for_people(out: Output, entries: Sequence[LogEntry], titles: Mapping[str, str]) -> None:
    """Show who did what, when, to which memory; `titles` has those that the reader may read."""
    headers = ("no.", "when", "who", "action", "what")
    rows = [
        (str(entry.seq), _moment(out, entry.time), entry.actor, entry.action, _subject(out, entry, titles))
        for entry in entries
    ]
    out.table(headers, rows)


def memory_ids(entries: Iterable[LogEntry]) -> set[str]:
    """Return the ids of the memories that entries name."""
    return {id_ for entry in entries for id_ in (*_memory_ids(entry), *_successors(entry))}


def _memory_ids(entry: LogEntry) -> list[str]:
    """Return the ids of the memories that an entry names, each once, its subjects first."""
    payload = _payload(entry)
    named = (*_parsed(entry.subjects, list), *(payload.get(name) for name in _MEMORY_DETAILS))
    return list(dict.fromkeys(id_ for id_ in named if _is_id(id_)))[:_MAX_MEMORIES]


def _successors(entry: LogEntry) -> list[str]:
    successor = _payload(entry).get(_SUCCESSOR)
    return [successor] if isinstance(successor, str) and _is_id(successor) else []


def _is_id(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(UUID_PATTERN, value, re.ASCII) is not None


def _subject(out: Output, entry: LogEntry, titles: Mapping[str, str]) -> Cell:
    """Return the memories that an entry names, by id and title, and its details."""
    memories = ", ".join(_named(out, _memory_ids(entry), titles))
    if successor := ", ".join(_named(out, _successors(entry), titles)):
        memories = f"{memories} by {successor}".lstrip()
    details = ", ".join(_details(out, entry))
    return f"{memories} ({details})" if memories and details else memories or details


def _named(out: Output, ids: Iterable[str], titles: Mapping[str, str]) -> Iterator[str]:
    """Yield ids with their titles; a copy and its source have the same title, which is given once."""
    before = ""
    for id_ in ids:
        title = titles.get(id_, "")
        yield f"{out.name(id_)} {title}" if title and title != before else out.name(id_)
        before = title


def _details(out: Output, entry: LogEntry) -> Iterator[str]:
    payload = _payload(entry)
    if session := payload.get("session"):
        yield f"session {session}"
    if first := payload.get("first"):
        last = payload.get("last")
        yield f"message {first}" if first == last else f"messages {first} to {last}"
    for name in _DETAILS:
        value = payload.get(name)
        if value not in (None, "", [], False, entry.action):
            label = name.replace("_", " ")
            yield label if value is True else f"{label} {_detail(out, value)}"


def _detail(out: Output, value: object) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value))
    return out.name(str(value)) if _is_id(value) else str(value)


def _payload(entry: LogEntry) -> dict[str, Any]:
    return dict(_parsed(entry.payload, dict))


def _parsed(text: str, kind: type[list[Any]] | type[dict[str, Any]]) -> Any:  # noqa: ANN401 - a list or a mapping
    """Return JSON of this kind; an empty value for anything else, since a forged entry is listed too."""
    try:
        value = json.loads(text)
    except ValueError:
        return kind()
    return value if isinstance(value, kind) else kind()


def _moment(out: Output, time: str) -> str:
    """Format the time of an entry; one that is no time, as it stands."""
    try:
        return out.moment(datetime.fromisoformat(time))
    except (ValueError, TypeError):
        return time
