"""Parse a memory's Markdown file and render it, preserving every byte that a person wrote.

The canonical file is `---`, one line for each field, `---`, an empty line, the text, a newline. `Document.layout` has
the deviations of a file from it (CRLF, comments, mappings, another order, no final newline). So rendering an
unchanged document gives the same bytes again, and rendering a changed one touches only the lines of the changed fields.

Nothing that a person wrote into a field is an error, nor is it written over. A value that is not in our form is the
person's own. Where the name of a field is taken so, ours has the prefix `commonbook_`.

A first line `---` opens front matter, and is not a horizontal rule, in three cases:

- the first line below it that is neither blank nor a comment looks like a field (`name: value`);
- some line begins with `id: `, so that a merge conflict is never mistaken for prose;
- only blanks and comments stand before the closing line.

Any other file is plain text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeAlias

from commonbook.core.markdown.front_matter import (
    FIELDS,
    FILE_NAMES,
    KNOWN_FIELDS,
    LIST_FIELDS,
    NOTICE_FIELDS,
    PREFIX,
    READ_NAMES,
    ROW_FIELDS,
    Document,
    Unread,
    read_metadata,
    read_time,
    write_property,
)
from commonbook.errors import BadFile, BadTime, TooLarge
from commonbook.ports.files import QuotedText, Yaml, YamlField
from commonbook.values.memory import MAX_FRONT_BYTES, MAX_TEXT_BYTES, NO_METADATA

_Values: TypeAlias = dict[str, Any]
"""The values of the known fields, by name; None or () for a field that is absent."""

_FileField: TypeAlias = tuple[str, object, int]
"""A field of a file: its name, its value, and its line counted from 0."""


class Dialect(NamedTuple):
    """How to read front matter that is not in canonical form: YAML, and times as people write them.

    `read_time(field, value)` returns a moment in UTC, or raises ValueError or BadTime.
    """

    yaml: Yaml
    read_time: Callable[[str, str], datetime]


class _Layout(NamedTuple):
    """The deviations of a file from the canonical form; None means no deviation.

    `absent` are the fields, of those that every memory has, that the file does not have.
    """

    bom: bool = False
    eol: str = "\n"
    opening: str | None = None
    front: str | None = None
    closing: str | None = None
    gap: str | None = None
    end: str | None = None
    absent: str = ""

    def dump(self) -> str:
        """Return the deviations as JSON; "" if there are none."""
        if self == _CANONICAL:
            return ""
        deviations = {name: value for name, value in self._asdict().items() if value != getattr(_CANONICAL, name)}
        return json.dumps(deviations, ensure_ascii=False)


_CANONICAL: Final = _Layout()


def line_end(layout: str) -> str:
    """Return how the lines of a file end, by its layout."""
    return _parse_layout(layout).eol


def parse(data: bytes, dialect: Dialect) -> Document:
    """Parse a Markdown file; raises BadFile, with line and reason, if it is malformed."""
    content = _decode(data)
    bom = content.startswith("\ufeff")
    content = content[bom:]
    split = _split(content)
    if split is None:
        eol = "\r\n" if content[: content.find("\n") + 1].endswith("\r\n") else "\n"
        end = _break_after(content, eol)
        text = _require_text_size(content.removesuffix(end))
        layout = _Layout(bom=bom, eol=eol, end=_deviation(eol, end), absent=" ".join(ROW_FIELDS))
        return Document(**_EMPTY, text=text, layout=layout.dump(), has_front=False)
    opening, raw, closing, rest = split
    eol = "\r\n" if opening.endswith("\r\n") else "\n"
    front, bytes_of_front = _read_front(raw, eol, dialect)
    gap = _break_before(rest, eol)
    rest = rest.removeprefix(gap)
    end = _break_after(rest, eol)
    layout = _Layout(
        bom=bom,
        eol=eol,
        opening=_deviation("---" + eol, opening),
        front=bytes_of_front,
        closing=_deviation("---" + eol, closing),
        gap=_deviation(eol, gap),
        end=_deviation(eol, end),
        absent=" ".join(field for field in ROW_FIELDS if front.values[field] is None),
    )
    return Document(
        **front.values,
        text=_require_text_size(rest.removesuffix(end)),
        layout=layout.dump(),
        has_front=True,
        updated=front.updated,
        unread=front.unread,
    )


def absent_fields(layout: str) -> frozenset[str]:
    """Return the fields that a file does not have, of those that every memory has."""
    return frozenset(_parse_layout(layout).absent.split()) if layout else frozenset()


def with_absent_fields(layout: str, absent: Iterable[str]) -> str:
    """Return a layout of a file that does not have these fields."""
    return _parse_layout(layout)._replace(absent=" ".join(field for field in ROW_FIELDS if field in absent)).dump()


def require_read(document: Document, fields: Collection[str]) -> None:
    """Raise BadFile if the value of one of these fields could not be read."""
    for unread in document.unread:
        if unread.field in fields:
            raise BadFile(
                f"line {unread.line}: `{unread.name}` must be {KNOWN_FIELDS[unread.field].must}",
                fix="correct the field, or remove it; docs/FRONT-MATTER.md shows how each one is written",
            )


@lru_cache(maxsize=16)
def _parse_layout(layout: str) -> _Layout:
    # The files of a folder are mostly of a few layouts, and each is asked for several times.
    return _Layout(**json.loads(layout)) if layout else _CANONICAL


_values_of_fields: Final = attrgetter(*FIELDS)


def render(document: Document, dialect: Dialect) -> bytes:
    """Return a document as a file; raises TooLarge when its fields exceed the limit of front matter."""
    layout = _parse_layout(document.layout)
    eol, text = layout.eol, document.text
    bom = "\ufeff" if layout.bom else ""
    # A line break that the layout omits is needed where the next parse would else take one of the text's own for it.
    end = _canonical_or(eol, layout.end)
    if _break_after(text[-2:] + end, eol) != end:
        end = eol
    if not document.has_front:
        return f"{bom}{text}{end}".encode()
    gap = _canonical_or(eol, layout.gap)
    if _break_before(gap + text[:2], eol) != gap:
        gap = eol
    values = dict(zip(FIELDS, _values_of_fields(document), strict=True))
    if document.kind != "notice":
        values.update(dict.fromkeys(NOTICE_FIELDS))
    front = _render_front(values, eol) if layout.front is None else _edit_front(layout.front, values, eol, dialect)
    if _exceeds(front, MAX_FRONT_BYTES):
        raise TooLarge(
            f"the fields of this memory take more than {MAX_FRONT_BYTES} bytes of front matter",
            fix="take out some of its links, or of the fields added by hand",
        )
    closing = _canonical_or("---" + eol, layout.closing)
    if not closing.endswith("\n") and (gap or text or end):
        closing += eol
    return f"{bom}{_canonical_or('---' + eol, layout.opening)}{front}{closing}{gap}{text}{end}".encode()


def add_fields(data: bytes, fields: Mapping[str, Sequence[str]], dialect: Dialect) -> bytes:
    """Return a file with the lines of further fields at the end of its front matter.

    A field that the file has already stays as it is, unless it is empty.
    """
    content = _decode(data)
    bom = "\ufeff" if content.startswith("\ufeff") else ""
    split = _split(content.removeprefix(bom))
    opening, raw, closing, rest = split or ("---\n", "", "---\n", content.removeprefix(bom))
    eol = "\r\n" if opening.endswith("\r\n") else "\n"
    present = _yaml_fields(raw, dialect)
    filled = {field.name for field in present if field.value not in (None, "")}
    # The line of the opening `---` comes first, so that line numbers are right for the fields.
    kept = [opening, *raw.splitlines(keepends=True)]
    for field in present:
        if field.name in fields.keys() - filled:
            kept[field.first_line : field.end_line] = [""] * (field.end_line - field.first_line)
    added = "".join(line + eol for name, lines in fields.items() if name not in filled for line in lines)
    return f"{bom}{''.join(kept)}{added}{closing}{rest}".encode()


# --- the file, its front matter and its text


def _decode(data: bytes) -> str:
    if not data:
        raise BadFile("line 1: the file is empty", fix="write the memory into it, or delete the file")
    try:
        content = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadFile(f"line {line}: the file is not valid UTF-8", fix="save the file as UTF-8 text") from error
    if (nul := content.find("\0")) >= 0:
        line = content.count("\n", 0, nul) + 1
        raise BadFile(f"line {line}: the file holds a NUL byte", fix="save the file as UTF-8 text")
    return content


def _split(content: str) -> tuple[str, str, str, str] | None:
    """Return opening line, front matter, closing line and the rest; None if there is no front matter."""
    opening = _OPENING.match(content)
    if opening is None:
        return None
    closing = _CLOSING.search(content, opening.end())
    raw = content[opening.end() : closing.start() if closing else None]
    if not _looks_like_fields(raw[:MAX_FRONT_BYTES], closed=closing is not None):
        return None
    if closing is None:
        raise BadFile(
            "line 1: the front matter that begins here is never closed",
            fix="put a line `---` below the last field; or, if line 1 is a horizontal rule, an empty line above it",
        )
    if _exceeds(raw, MAX_FRONT_BYTES):
        raise BadFile(
            f"line 1: the front matter has more than {MAX_FRONT_BYTES} bytes",
            fix="move long fields from the front matter into the text",
        )
    return opening[0], raw, closing[0], content[closing.end() :]


def _looks_like_fields(raw: str, *, closed: bool) -> bool:
    lines = (line.strip() for line in raw.splitlines())
    first = next((line for line in lines if line and not line.startswith("#")), None)
    if first is None:
        return closed
    return bool(_FIELD_LIKE.match(first) or _OUR_ID.search(raw))


def _break_before(rest: str, eol: str) -> str:
    return eol if rest.startswith(eol) else "\n" if rest.startswith("\n") else ""


def _break_after(text: str, eol: str) -> str:
    return eol if text.endswith(eol) else "\n" if text.endswith("\n") else ""


def _deviation(canonical: str, actual: str) -> str | None:
    return None if actual == canonical else actual


def _canonical_or(canonical: str, deviation: str | None) -> str:
    return canonical if deviation is None else deviation


def _exceeds(text: str, limit: int) -> bool:
    # No character has more than four bytes, so a short text need not be encoded.
    return len(text) * 4 > limit and len(text.encode()) > limit


def _require_text_size(text: str) -> str:
    if _exceeds(text, MAX_TEXT_BYTES):
        raise BadFile(f"line 1: the text has more than {MAX_TEXT_BYTES} bytes", fix="split the file into several")
    return text


# --- front matter to values


class _Front(NamedTuple):
    """Front matter as read: the values of the known fields, and the name under which the file has each of them."""

    values: _Values
    names: Mapping[str, str]
    unread: tuple[Unread, ...] = ()
    updated: datetime | None = None


def _yaml_fields(raw: str, dialect: Dialect) -> list[YamlField]:
    # The empty line replaces the opening `---`, so that line numbers are right for the file.
    return dialect.yaml.fields("\n" + raw)


def _read_front(raw: str, eol: str, dialect: Dialect) -> tuple[_Front, str | None]:
    """Return the front matter as read, and its bytes if it is not canonical.

    Canonical front matter has an id: without one the fields are a person's own, and ours will stand behind them. It is
    read without a YAML parser. This quick reading is careless, so its values are accepted only if rendering them gives
    the same bytes.
    """
    plain = raw.replace(eol, "\n")
    try:
        front = _read_fields(_quick_fields(plain), dialect)
        if _render_front(front.values, "\n") == plain and raw.count(eol) == raw.count("\n"):
            return front, None if front.values["id"] else _deviation("", raw)
    except ValueError:
        pass  # not canonical: YAML decides
    front = _read_fields(_file_fields(_yaml_fields(raw, dialect)), dialect)
    return front, _deviation(_render_front(front.values, eol) if front.values["id"] else "", raw)


def _quick_fields(raw: str) -> Iterator[_FileField]:
    lists: dict[str, list[object]] = {}
    items: list[object] = []
    for line in raw.split("\n")[:-1]:
        name, colon, value = line.partition(": ")
        if line.startswith("  - "):
            items.append(_quick_value(line[4:]))
        elif line[:-1] in LIST_FIELDS:
            items = lists[line[:-1]] = []
        elif colon:
            yield _quick_scalar(name), _quick_value(value), 0
        else:
            raise ValueError(name)
    yield from ((name, entries, 0) for name, entries in lists.items())


def _quick_value(value: str) -> object:
    if value[:1] == "[":
        return [_quick_scalar(item) for item in _FLOW_ITEM.findall(value[1:-1])]
    return _quick_scalar(value)


def _quick_scalar(value: str) -> str:
    return QuotedText(json.loads(value)) if value[:1] == '"' else value


def _read_fields(fields: Iterable[_FileField], dialect: Dialect) -> _Front:
    """Return the known fields with their values; one whose value is not in our form is the person's own."""
    by_name = {name: (value, line) for name, value, line in fields}
    values, names, unread = dict(_EMPTY), dict[str, str](), list[Unread]()
    for name in [name for name in READ_NAMES if name in by_name]:
        field, (value, line) = READ_NAMES[name], by_name[name]
        if value is None or value == "":
            names.setdefault(field, name)
            continue
        try:
            read = _read_value(field, value, dialect)
        except (ValueError, BadTime):
            unread.append(Unread(field, name, line + 1))
            continue
        if values[field] == _EMPTY[field]:
            values[field], names[field] = read, name
    if values["kind"] != "notice":
        values.update(dict.fromkeys(NOTICE_FIELDS))
    given: dict[str, object] = {name: value for name, (value, _) in by_name.items()}
    values["metadata"] = read_metadata(given)
    return _Front(values, names, tuple(unread), _read_updated(given.get("updated"), dialect))


def _read_value(field: str, value: object, dialect: Dialect) -> object:
    read = KNOWN_FIELDS[field].read
    return read(value) if read else read_time(field, value, dialect.read_time)


def _read_updated(value: object, dialect: Dialect) -> datetime | None:
    try:
        return read_time("updated", value, dialect.read_time) if value else None
    except (ValueError, BadTime):
        return None


def _file_fields(fields: Iterable[YamlField]) -> Iterator[_FileField]:
    return ((field.name, field.value, field.first_line) for field in fields)


# --- values to front matter


def _render_front(values: Mapping[str, Any], eol: str) -> str:
    # Most fields are absent; a number or a text may be one that counts as false.
    present = [(field, value) for field, value in values.items() if value or isinstance(value, (str, int, float))]
    front = "".join([_render_field(FILE_NAMES[field], field, value) for field, value in present])
    return front if eol == "\n" else front.replace("\n", eol)


def _render_field(name: str, field: str, value: Any) -> str:  # noqa: ANN401 - each field has a type of its own
    # Nothing else is compared with metadata, which costs more than the line.
    is_empty = value is None or (not value and isinstance(value, (tuple, Mapping)))
    if is_empty or field == "metadata":
        return "" if is_empty else KNOWN_FIELDS[field].write(value)
    return f"{name}:{KNOWN_FIELDS[field].write(value)}\n"


def _edit_front(raw: str, values: _Values, eol: str, dialect: Dialect) -> str:
    """Replace, remove and insert the lines of the fields that changed; leave all other bytes alone.

    A field that the file does not have yet is inserted behind the id, with which the fields of ours begin; the id
    itself at the end.
    """
    fields = {field.name: field for field in _yaml_fields(raw, dialect)}
    before = _read_fields(_file_fields(fields.values()), dialect)
    names = dict(before.names)
    if before.values["id"] is None and PREFIX + "id" not in fields:
        # An empty `id` is the person's own, to be filled or not.
        names.pop("id", None)
    replaced: dict[str, str] = {}
    inserted: dict[str, str] = {}
    for field in FIELDS:
        if values[field] == before.values[field] or field == "metadata":
            continue
        if field in names:
            replaced[names[field]] = _render_field(names[field], field, values[field])
        else:
            name = FILE_NAMES[field]
            inserted[field] = _render_field(PREFIX + name if name in fields else name, field, values[field])
    old, new = _properties(before.values), _properties(values)
    for name in [name for name in {**old, **new} if old.get(name) != new.get(name)]:
        if name in fields:
            replaced[name] = new.get(name, "")
        else:
            inserted["metadata"] = inserted.get("metadata", "") + new[name]
    lines = [line + "\n" for line in f"\n{raw}".split("\n")[:-1]]
    for name, rendered in replaced.items():
        first, end = fields[name].first_line, fields[name].end_line
        lines[first:end] = [rendered.replace("\n", eol)] + [""] * (end - first - 1)
    _insert(lines, inserted, {field: fields[name] for field, name in names.items()}, eol)
    return "".join(lines)[1:]


def _properties(values: _Values) -> dict[str, str]:
    """Return the line of each field of metadata."""
    return {name: write_property(name, value) for name, value in values["metadata"].items()}


def _insert(lines: list[str], inserted: Mapping[str, str], present: Mapping[str, YamlField], eol: str) -> None:
    """Add the lines of new fields to our lines that the file has, in one order; at the end if it has none."""
    place = len(lines)
    first_of_ours = present["id"].first_line if "id" in present else place
    for field in FIELDS:
        if field in inserted:
            lines[place - 1] += inserted[field].replace("\n", eol)
        elif field in present and present[field].first_line >= first_of_ours:
            place = present[field].end_line


_OPENING: Final = re.compile(r"---[ \t]*\r?\n")
_CLOSING: Final = re.compile(r"^(?:---|\.\.\.)[ \t]*\r?(?:\n|\Z)", re.MULTILINE)
_FIELD_LIKE: Final = re.compile(r"(?!-\s).*?:(?:\s|$)")
_OUR_ID: Final = re.compile(r"^(?:commonbook_)?id:[ \t]", re.MULTILINE)
_FLOW_ITEM: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[^", ][^,]*')
_EMPTY: Final[_Values] = {
    **{name: () if name in ("tags", *LIST_FIELDS) else None for name in FIELDS},
    "metadata": NO_METADATA,
}
