"""The Open Knowledge Format (OKF) v0.2: the front matter of a concept, read and written, and the listing of a folder.

A bundle is a folder of Markdown whose files have front matter with a `type`. `index.md` and `log.md` are reserved. A
reader of a bundle must accept every other field, so the fields of a home stay in the file, before the fields of OKF.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta, tzinfo
from typing import Final, NamedTuple
from urllib.parse import unquote

from commonbook.core.markdown.file_format import Dialect
from commonbook.core.markdown.front_matter import Document
from commonbook.core.text import titles
from commonbook.errors import BadTime
from commonbook.values.stored_memory import StoredMemory

VERSION: Final = "0.2"
INDEX: Final = "index.md"
VERSION_FIELD: Final = "okf_version"
RESERVED: Final = frozenset((INDEX, "log.md"))
"""The names of files that are no concepts."""

SOURCE_RELATIONS: Final = ("shared_from", "derived_from", "reflects_on")
"""The relations of links that say what a memory was made from."""

_CONFIRMING: Final = frozenset(("keep", "dismiss"))
_LINK_TEXT: Final = re.compile(r"([\\\[\]])")
_MAX_DESCRIPTION: Final = 160
_DEPRECATED: Final = "deprecated"
_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


class Concept(NamedTuple):
    """The content of the OKF fields of a memory."""

    memory: StoredMemory
    sources: Sequence[tuple[str, str, str | None]]
    """Of each source: its id, the path of its file in the bundle or its URN, and its title if it is in the bundle."""
    is_deprecated: bool
    stale_after: datetime | None


class ForeignConcept(NamedTuple):
    """The fields of OKF in the front matter of a concept that another program wrote, as far as they can be read.

    `sources` are the resources that it was made from. `written` is the time of its last change, and `ends` the last
    moment before it is stale.
    """

    sources: tuple[str, ...] = ()
    written: datetime | None = None
    is_deprecated: bool = False
    ends: datetime | None = None


def bundle_path(path: str, memory_id: str) -> str:
    """Return the path of a memory in a bundle: its path in the home, or one beside it if that name is reserved."""
    folder, name = posixpath.split(path)
    if name.lower() not in RESERVED:
        return path
    stem, extension = posixpath.splitext(name)
    return posixpath.join(folder, f"{stem}--{memory_id[-8:]}{extension}")


def actor(principal: str) -> str:
    """Return a principal in the convention of OKF: `human:alice` for a person, `reviewer/unknown` for an agent."""
    sort, _, name = principal.partition(":")
    return f"human:{name}" if sort == "user" else f"{name}/unknown"


def fields(concept: Concept, zone: tzinfo) -> dict[str, list[str]]:
    """Return the fields of OKF that a memory has, each with its lines."""
    memory = concept.memory
    lines = {
        "type": [f"type: {memory.kind}"],
        "title": [f"title: {_quoted(memory.title)}"],
        "generated": [f"generated: {{ by: {_quoted(actor(memory.revised_by))}, at: {_time(memory.revised_at)} }}"],
    }
    if concept.sources:
        lines["sources"] = ["sources:", *(line for source in concept.sources for line in _source(*source))]
    confirmed = [decision for decision in memory.decisions if decision.verdict in _CONFIRMING]
    if confirmed:
        events = (f"  - {{ by: {_quoted(actor(each.by))}, at: {_time(each.at)} }}" for each in confirmed)
        lines["verified"] = ["verified:", *events]
    if concept.is_deprecated:
        lines["status"] = [f"status: {_DEPRECATED}"]
    if concept.stale_after is not None:
        # A memory that holds for a whole day ends with its last microsecond: it is stale from the next day on.
        first_day = (concept.stale_after + timedelta(microseconds=1)).astimezone(zone)
        lines["stale_after"] = [f"stale_after: {first_day:%Y-%m-%d}"]
    return lines


def _source(memory_id: str, resource: str, title: str | None) -> list[str]:
    lines = [f"  - id: {memory_id}", f"    resource: {_quoted(resource)}"]
    return [*lines, f"    title: {_quoted(title)}"] if title else lines


def _quoted(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


# --- the concepts of others


def front_fields(layout: str, dialect: Dialect) -> dict[str, object]:
    """Return all fields of the front matter in the layout of a file; none if it has our fields and metadata alone."""
    front = json.loads(layout).get("front") if layout else None
    return {field.name: field.value for field in dialect.yaml.fields("\n" + front)} if front else {}


def read_concept(concept: StoredMemory | Document, dialect: Dialect) -> ForeignConcept:
    """Read the fields of OKF; a value that is not in its form means nothing here, and stays in the file."""
    front = {**concept.metadata, **front_fields(concept.layout, dialect)}
    generated = front.get("generated")
    # OKF v0.1 had `timestamp` in place of `generated.at`.
    written = generated.get("at") if isinstance(generated, dict) else front.get("timestamp")
    status, day = front.get("status"), front.get("stale_after")
    first_stale = _read_time(day, dialect) if isinstance(day, str) and _DAY.fullmatch(day.strip()) else None
    return ForeignConcept(
        sources=_resources(front.get("sources")),
        written=_read_time(written, dialect),
        is_deprecated=isinstance(status, str) and status.strip().lower() == _DEPRECATED,
        ends=first_stale - timedelta(microseconds=1) if first_stale else None,
    )


def _read_time(value: object, dialect: Dialect) -> datetime | None:
    try:
        return dialect.read_time("generated", value) if isinstance(value, str) else None
    except (ValueError, BadTime):
        return None


def _resources(sources: object) -> tuple[str, ...]:
    entries = sources if isinstance(sources, list) else [sources]
    resources = (entry.get("resource") if isinstance(entry, dict) else entry for entry in entries)
    return tuple(dict.fromkeys(each.strip() for each in resources if isinstance(each, str) and each.strip()))


def concept_path(resource: str, *, origin: str, paths: Mapping[str, object]) -> str | None:
    """Return the file of the bundle that a resource names in the concept `origin`, or None.

    `/path.md` is a path from the root. Any other path is relative to the concept, else from the root, as in
    `references/policy.md`. The ending may be missing: it is not a part of the id of a concept.
    """
    path = unquote(resource.partition("#")[0])
    from_here = () if path.startswith("/") else (posixpath.join(posixpath.dirname(origin), path),)
    tried = (*from_here, path.lstrip("/"))
    for place in map(posixpath.normpath, tried):
        for found in (place, f"{place}.md"):
            if found in paths:
                return found
    return None


# --- the listings


class Entry(NamedTuple):
    """A memory as the listing of its folder names it."""

    path: str
    title: str
    description: str


def describe(memory: StoredMemory) -> str:
    """Return one line about a memory: the first line of its text, unless that is its title."""
    line = titles.derive_title(memory.text)
    return "" if line == memory.title else line[:_MAX_DESCRIPTION]


def indexes(entries: Iterable[Entry]) -> dict[str, str]:
    """Return the text of `index.md` of every folder, by its path; the root names the version of OKF."""
    concepts: dict[str, list[Entry]] = {"": []}
    folders: dict[str, set[str]] = {"": set()}
    for entry in entries:
        folder = posixpath.dirname(entry.path)
        concepts.setdefault(folder, []).append(entry)
        while folder:
            parent = posixpath.dirname(folder)
            folders.setdefault(parent, set()).add(folder)
            folder = parent
    return {
        posixpath.join(folder, INDEX): _index(folder, concepts.get(folder, []), folders.get(folder, set()))
        for folder in sorted({*concepts, *folders})
    }


def _index(folder: str, entries: Sequence[Entry], folders: set[str]) -> str:
    parts: list[str] = [] if folder else [f'---\n{VERSION_FIELD}: "{VERSION}"\n---\n']
    if folders:
        lines = (f"* [{_label(posixpath.basename(each))}]({_target(each)}/)" for each in sorted(folders))
        parts.append("# Folders\n\n" + "\n".join(lines) + "\n")
    if entries or not folders:
        lines = (_line(entry) for entry in sorted(entries))
        parts.append(f"# {_label(posixpath.basename(folder)) or 'Memories'}\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def _line(entry: Entry) -> str:
    line = f"* [{_label(entry.title)}]({_target(entry.path)})"
    return f"{line} - {entry.description}" if entry.description else line


def _label(text: str) -> str:
    return _LINK_TEXT.sub(r"\\\1", text)


def _target(path: str) -> str:
    """Return the last part of a path as a relative address; the characters that end one are escaped."""
    name = posixpath.basename(path)
    return "".join(f"%{ord(char):02X}" if char in " ()<>%" else char for char in name)
