"""The fields of front matter: the name, the allowed values, the reader and the writer of each."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeAlias, cast

from commonbook.core.text import metadata, validation
from commonbook.errors import BadInput
from commonbook.values.ids import UUID_PATTERN, format_time, parse_time
from commonbook.values.invalidation import CAUSES_WITHOUT_ID, REINSTATE, VERDICTS, Decision, SupersedeReason, Verdict
from commonbook.values.memory import (
    KINDS,
    MAX_METADATA,
    MAX_TAG,
    MAX_TAGS,
    MAX_TITLE,
    NO_METADATA,
    RELATIONS,
    Kind,
    Metadata,
    MetadataValue,
    Scalar,
)
from commonbook.values.stored_memory import StoredCopyInfo

LinkTo: TypeAlias = tuple[str, str, str | None]
"""A link in a file: relation, target, and the target's content hash."""


class Unread(NamedTuple):
    """A field whose name is one of ours and whose value is not: which field it would be, and its line in the file."""

    field: str
    name: str
    line: int


class Document(NamedTuple):
    """The content of a Markdown file; `layout` is "" when the file is exactly in canonical form.

    `updated` is read from files of others, and never written. `unread` are fields with a value that is not one of ours:
    they are the person's own.
    """

    id: str | None = None
    title: str | None = None
    kind: Kind | None = None
    tags: tuple[str, ...] = ()
    created: datetime | None = None
    updated: datetime | None = None
    occurred: datetime | None = None
    valid_from: datetime | None = None
    valid_until: datetime | None = None
    expires: datetime | None = None
    importance: float | None = None
    metadata: Metadata = NO_METADATA
    author: str | None = None
    links: tuple[LinkTo, ...] = ()
    text: str = ""
    layout: str = ""
    has_front: bool = False
    unread: tuple[Unread, ...] = ()
    session_id: str | None = None
    session_space: str | None = None
    shared: StoredCopyInfo | None = None
    dependent_id: str | None = None
    invalidated_id: str | None = None
    invalidating_id: str | None = None
    timestamp: datetime | None = None
    superseded_because: tuple[SupersedeReason, ...] = ()
    invalidations_triaged: tuple[Decision, ...] = ()
    messages: tuple[str, ...] = ()


def clean_title(title: str) -> str:
    """Return a title on one line, with single blanks between words."""
    return " ".join(title.split())


def clean_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """Return tags that `validate_tags` accepts: split at commas, without brackets, leading `#` and duplicates."""
    parts = (part for tag in tags for part in _BRACKETS.sub("", tag).split(","))
    cleaned = (_LEADING_HASHES.sub("", clean_title(part)) for part in parts)
    return tuple(dict.fromkeys(tag for tag in cleaned if tag))


# --- readers: from the value in a file


def _read_line(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError  # noqa: TRY004 - the caller turns every bad value into one BadFile
    line = clean_title(value)
    if _NOT_TEXT.search(line):
        raise ValueError
    return line


def read_time(name: str, value: object, otherwise: Callable[[str, str], datetime]) -> datetime:
    """Read a time in canonical form, or else with `otherwise`."""
    line = _read_line(value)
    if len(line) == len("2026-11-15T20:18:24.123456Z") and line[10] == "T" and line[-1] == "Z":
        return datetime.fromisoformat(line)
    return otherwise(name, line)


def _read_pattern(value: object, pattern: re.Pattern[str]) -> str:
    line = _read_line(value)
    if not pattern.fullmatch(line):
        raise ValueError
    return line


def _read_id(value: object) -> str:
    return _read_pattern(value, _UUID).lower()


def _read_title(value: object) -> str | None:
    line = _read_line(value)
    if len(line) > MAX_TITLE:
        raise ValueError
    return line or None


def _read_kind(value: object) -> str:
    return _read_pattern(value, _KIND).lower()


def _read_tags(value: object) -> tuple[str, ...]:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list):
        raise ValueError  # noqa: TRY004 - the caller turns every bad value into one BadFile
    tags = clean_tags(_read_line(item) for item in items if item is not None)
    if len(tags) > MAX_TAGS or any(len(tag) > MAX_TAG for tag in tags):
        raise ValueError
    return tags


def _read_importance(value: object) -> float:
    number = float(_read_line(value))
    if not 0 <= number <= 1:
        raise ValueError
    return number


def _read_author(value: object) -> str:
    return _read_pattern(value, _AUTHOR)


def _read_session(value: object) -> str:
    return _read_pattern(value, _SESSION)


def _read_shared(value: object) -> StoredCopyInfo:
    copy = StoredCopyInfo.parse(_read_line(value))
    approved_by = None if copy.approved_by is None else _read_author(copy.approved_by)
    return copy._replace(root=_read_id(copy.root), by=_read_author(copy.by), approved_by=approved_by)


def _read_links(value: object) -> tuple[LinkTo, ...]:
    if not isinstance(value, list):
        raise ValueError  # noqa: TRY004 - the caller turns every bad value into one BadFile
    return tuple(dict.fromkeys(_read_link(item) for item in value if item is not None))


def _read_link(value: object) -> LinkTo:
    word, _, target = _read_line(value).partition(" ")
    target, at, taken = target.strip().partition("@")
    relation = validation.parse_relation(word)
    if relation is None:
        raise ValueError
    return relation, _read_id(target), _read_pattern(taken, _HASH) if at else None


def _read_invalidating(value: object) -> str:
    return value if isinstance(value, str) and value in CAUSES_WITHOUT_ID else _read_id(value)


def _read_moment(value: object) -> datetime:
    return parse_time(_read_pattern(value, _STAMP))


def _read_decisions(value: object) -> tuple[Decision, ...]:
    if not isinstance(value, list):
        raise ValueError  # noqa: TRY004 - the caller leaves the fields of others alone
    return tuple(_parse_decision(_read_line(item)) for item in value)


def _read_lines(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError  # noqa: TRY004 - the caller leaves the fields of others alone
    return tuple(_read_pattern(item, _MESSAGE) for item in value)


def _parse_decision(line: str) -> Decision:
    """Parse a line that `_format_decision` wrote; raises ValueError for any other line."""
    verdict, invalidated, invalidating, by, at, *note = line.split(" ", 5)
    if verdict not in {*VERDICTS, REINSTATE}:
        raise ValueError(line)
    return Decision(
        cast("Verdict", verdict),
        _read_id(invalidated),
        _read_invalidating(invalidating),
        _read_author(by),
        _read_moment(at),
        "".join(note),
    )


def _format_decision(decision: Decision) -> str:
    words = (
        decision.verdict,
        decision.invalidated,
        decision.invalidating,
        decision.by,
        format_time(decision.at),
        decision.note,
    )
    return " ".join(words).rstrip()


def _read_because(value: object) -> tuple[SupersedeReason, ...]:
    if not isinstance(value, list):
        raise ValueError  # noqa: TRY004 - the caller leaves the fields of others alone
    parts = (_read_line(item).partition(" ") for item in value)
    return tuple(SupersedeReason(_read_id(superseded), why) for superseded, _, why in parts)


# --- writers: to the value in a file


def _write_as_is(value: str) -> str:
    return f" {value}"


def _write_title(title: str) -> str:
    return f" {_scalar(title, _PLAIN)}"


def _write_tags(tags: tuple[str, ...]) -> str:
    return f" [{', '.join([_scalar(tag, _PLAIN_IN_LIST) for tag in tags])}]"


def _scalar(value: str, plain: re.Pattern[str]) -> str:
    return value if plain.fullmatch(value) and value.lower() not in _RESERVED else _quoted(value)


def _quoted(value: str) -> str:
    """Quote as JSON, which is also YAML, and escape the characters that YAML does not allow."""
    return _NOT_YAML.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(value, ensure_ascii=False))


def _write_metadata(fields: Metadata) -> str:
    return "".join([write_property(name, value) for name, value in fields.items()])


def write_property(name: str, value: MetadataValue) -> str:
    """Return the line of one field of metadata."""
    if isinstance(value, str | int | float):
        written = _write_scalar(value, _PLAIN)
    else:
        written = f"[{', '.join([_write_scalar(each, _PLAIN_IN_LIST) for each in value])}]"
    return f"{_scalar(name, _PLAIN_IN_LIST)}: {written}\n"


def _write_scalar(value: Scalar, plain: re.Pattern[str]) -> str:
    if not isinstance(value, str):
        return json.dumps(value)
    return value if _DATE.fullmatch(value) else _scalar(value, plain)


def _write_shared(copy: StoredCopyInfo) -> str:
    return f" {copy.serialize()}"


def _write_number(number: float) -> str:
    return f" {number!r}".removesuffix(".0")


def _write_time(time: datetime) -> str:
    return f" {format_time(time)}"


def _write_links(links: tuple[LinkTo, ...]) -> str:
    return "".join(
        f"\n  - {relation} {target}" + ("" if taken is None else f"@{taken}") for relation, target, taken in links
    )


def _write_decisions(decisions: tuple[Decision, ...]) -> str:
    return "".join(f"\n  - {_quoted(_format_decision(decision))}" for decision in decisions)


def _write_lines(lines: tuple[str, ...]) -> str:
    return "".join(f"\n  - {_quoted(line)}" for line in lines)


def _write_because(reasons: tuple[SupersedeReason, ...]) -> str:
    return "".join(f"\n  - {_quoted(f'{reason.superseded} {reason.why}')}" for reason in reasons)


_BRACKETS: Final = re.compile(r"[\[\]{}]")
_LEADING_HASHES: Final = re.compile(r"^[\s#]+")
_NOT_TEXT: Final = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_UUID: Final = re.compile(UUID_PATTERN, re.IGNORECASE | re.ASCII)
_KIND: Final = re.compile("|".join(KINDS), re.IGNORECASE | re.ASCII)
_AUTHOR: Final = re.compile(r"(?:user|agent):[A-Za-z0-9][A-Za-z0-9._@-]*")
_SESSION: Final = re.compile(r"\S{1,200}")
_STAMP: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z")
_HASH: Final = re.compile(r"[0-9a-f]{16}")
_MESSAGE: Final = re.compile(rf"[0-9]+ mac:{_HASH.pattern}(?: \S+ \S+)?")
# Written without quotes: begins with a letter and has nothing with a meaning in YAML 1.1 or 1.2.
_PLAIN: Final = re.compile(r"""[^\W\d_](?:[\w .,;!?'"()/+&%=@\u2013\u2014\u2019-]*(?<! ))?""")
_PLAIN_IN_LIST: Final = re.compile(r"[^\W\d_](?:[\w ./+-]*(?<! ))?")
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:T[0-9]{2}:[0-9]{2}(?::[0-9]{2})?)?")
_RESERVED: Final = frozenset(("y", "n", "yes", "no", "true", "false", "on", "off", "null"))
_NOT_YAML: Final = re.compile(r"[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")


class Field(NamedTuple):
    """The allowed values of a field in words, its reader and its writer.

    Times are read by `read_time`, metadata by `read_metadata`.
    """

    must: str
    read: Callable[[object], Any] | None
    write: Callable[[Any], str]


_TIME: Final = Field("a date or time, such as 2026-05-01 or 2026-05-01T09:30:00Z", None, _write_time)
_SYSTEM_VALUE: Final = "as we wrote it: it is not for editing"
KNOWN_FIELDS: Final[Mapping[str, Field]] = {
    "id": Field("a UUID", _read_id, _write_as_is),
    "title": Field(f"a text of at most {MAX_TITLE} characters", _read_title, _write_title),
    "kind": Field(f"one of {', '.join(KINDS)}", _read_kind, _write_as_is),
    "tags": Field(f"a list of at most {MAX_TAGS} tags of {MAX_TAG} characters", _read_tags, _write_tags),
    "created": _TIME,
    "occurred": _TIME,
    "valid_from": _TIME,
    "valid_until": _TIME,
    "expires": _TIME,
    "importance": Field("a number from 0 to 1", _read_importance, _write_number),
    "metadata": Field("a field for each name", None, _write_metadata),
    "author": Field("a name such as user:alice or agent:reviewer", _read_author, _write_as_is),
    "session_id": Field("a session's id, without blanks", _read_session, _write_title),
    "session_space": Field(_SYSTEM_VALUE, _read_session, _write_title),
    "links": Field(
        f"a list of `relation id` or `relation id@hash`, with {', '.join(RELATIONS)} or a word of your own",
        _read_links,
        _write_links,
    ),
    "shared": Field(_SYSTEM_VALUE, _read_shared, _write_shared),
    "dependent_id": Field(_SYSTEM_VALUE, _read_id, _write_as_is),
    "invalidated_id": Field(_SYSTEM_VALUE, _read_id, _write_as_is),
    "invalidating_id": Field(_SYSTEM_VALUE, _read_invalidating, _write_as_is),
    "timestamp": Field(_SYSTEM_VALUE, _read_moment, _write_time),
    "superseded_because": Field(_SYSTEM_VALUE, _read_because, _write_because),
    "invalidations_triaged": Field(_SYSTEM_VALUE, _read_decisions, _write_decisions),
    "messages": Field(_SYSTEM_VALUE, _read_lines, _write_lines),
}
FIELDS: Final = tuple(KNOWN_FIELDS)
"""The names of the known fields, in canonical order."""
FILE_NAMES: Final = {**{name: name for name in FIELDS}, "kind": "type"}
"""The name under which a file has each field."""
PREFIX: Final = "commonbook_"
"""Stands before the name of a field of ours where a person uses that name for something else."""
READ_NAMES: Final[Mapping[str, str]] = {
    **{PREFIX + file_name: name for name, file_name in FILE_NAMES.items() if name != "metadata"},
    **{file_name: name for name, file_name in FILE_NAMES.items() if name != "metadata"},
    "kind": "kind",
    "date": "created",
}
"""The fields that the names in files are read as; of several names for one field, the first of this list counts."""
ROW_FIELDS: Final = ("title", "kind", "created", "author")
"""Fields that every memory has and a file need not have: without them, the row or a default counts."""
VERBATIM_FIELDS: Final = ("importance", "metadata", "occurred", "valid_from", "valid_until", "expires")
"""Optional fields that a person sets, and that a memory has with the same name and value."""
LIST_FIELDS: Final = ("links", "superseded_because", "invalidations_triaged", "messages")
"""Fields whose items stand on lines of their own below the name."""

NOTICE_FIELDS: Final = ("dependent_id", "invalidated_id", "invalidating_id", "timestamp")
"""Fields that only a notice has: in any other file they belong to somebody else."""


# --- metadata: the fields of a file that are not ours

OTHER_NAMES: Final = frozenset(("alias", "aliases", "permalink", "cssclass", "cssclasses", "publish", "updated"))
"""Names of fields that mean something else here or to Obsidian, in any case of letters."""


def read_metadata(fields: Mapping[str, object]) -> Metadata:
    """Return the metadata in the fields of a file: the first that may be metadata, up to the limit."""
    read: dict[str, MetadataValue] = {}
    for name, value in fields.items():
        if name not in READ_NAMES and value is not None and len(read) < MAX_METADATA:
            with suppress(BadInput):
                read |= require_metadata({name: _read_property(value)})
    return Metadata(read) if read else NO_METADATA


def _read_property(value: object) -> object:
    """Return the value of a field; without quotes it is a truth value or a number, if it looks like one."""
    if isinstance(value, list):
        return [_read_property(item) for item in value if item is not None]
    if type(value) is str:
        return metadata.parse_word(value)
    if isinstance(value, str):
        return clean_title(value) if "\n" in value else str(value)
    return value


def require_metadata(value: object) -> Metadata:
    """Return metadata, or refuse what is none, and names that a file has for something else."""
    fields = validation.validate_metadata(value)
    for name in fields:
        if name in READ_NAMES or name.lower() in OTHER_NAMES:
            raise BadInput(
                f"{name!r} is no metadata: it is a field of its own in the file of a memory",
                fix=f"choose another name, such as `my_{name}`; docs/FRONT-MATTER.md lists the fields",
            )
    return fields
