"""Parse a memory's Markdown file and render it, preserving every byte that a person wrote.

The canonical file is `---`, one line for each field, `---`, an empty line, the text, a newline. `Document.layout` has
the deviations of a file from it (CRLF, comments, unknown fields, another order, no final newline). So rendering an
unchanged document gives the same bytes again, and rendering a changed one touches only the lines of the changed fields.

A first line `---` opens front matter, and is not a horizontal rule, in three cases:

- the first line below it that is neither blank nor a comment looks like a field (`name: value`);
- some line begins with `id: `, so that a merge conflict is never mistaken for prose;
- only blanks and comments stand before the closing line.

Any other file is plain text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeAlias

from commonbook.errors import BadFile, BadTime, TooLarge
from commonbook.markdown.front_matter import (
    FIELDS,
    KNOWN_FIELDS,
    LENIENT_FIELDS,
    LIST_FIELDS,
    NOTICE_FIELDS,
    Document,
    read_time,
)
from commonbook.model.memory import MAX_FRONT_BYTES, MAX_TEXT_BYTES
from commonbook.ports.files import Yaml, YamlField

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
    """The deviations of a file from the canonical form; None means no deviation."""

    bom: bool = False
    eol: str = "\n"
    opening: str | None = None
    front: str | None = None
    closing: str | None = None
    gap: str | None = None
    end: str | None = None

    def dump(self) -> str:
        """Return the deviations as JSON; "" if there are none."""
        if self == _CANONICAL:
            return ""
        deviations = {name: value for name, value in self._asdict().items() if value != getattr(_CANONICAL, name)}
        return json.dumps(deviations, ensure_ascii=False)


_CANONICAL: Final = _Layout()


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
        layout = _Layout(bom=bom, eol=eol, end=_deviation(eol, end))
        return Document(**_EMPTY, text=text, layout=layout.dump(), has_front=False)
    opening, raw, closing, rest = split
    eol = "\r\n" if opening.endswith("\r\n") else "\n"
    values, front = _read_front(raw, eol, dialect)
    gap = _break_before(rest, eol)
    rest = rest.removeprefix(gap)
    end = _break_after(rest, eol)
    layout = _Layout(
        bom=bom,
        eol=eol,
        opening=_deviation("---" + eol, opening),
        front=front,
        closing=_deviation("---" + eol, closing),
        gap=_deviation(eol, gap),
        end=_deviation(eol, end),
    )
    return Document(**values, text=_require_text_size(rest.removesuffix(end)), layout=layout.dump(), has_front=True)


def render(document: Document, dialect: Dialect) -> bytes:
    """Return a document as a file; raises TooLarge when its fields exceed the limit of front matter."""
    layout = _Layout(**json.loads(document.layout)) if document.layout else _CANONICAL
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
    values = {name: getattr(document, name) for name in FIELDS}
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
    # The line of the opening `---` comes first, so that the numbers of the lines are those of the fields.
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
    return next((mark for mark in (eol, "\n") if rest.startswith(mark)), "")


def _break_after(text: str, eol: str) -> str:
    return next((mark for mark in (eol, "\n") if text.endswith(mark)), "")


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


def _yaml_fields(raw: str, dialect: Dialect) -> list[YamlField]:
    # The empty line replaces the opening `---`, so that line numbers are those of the file.
    return dialect.yaml.fields("\n" + raw)


def _read_front(raw: str, eol: str, dialect: Dialect) -> tuple[_Values, str | None]:
    """Return the values of the fields, and the front matter itself if it is not canonical.

    Canonical front matter is read without a YAML parser. This quick reading is careless, so its values are accepted
    only if rendering them gives the same bytes.
    """
    try:
        values = _values(_quick_fields(raw.replace(eol, "\n")), dialect)
        if _render_front(values, eol) == raw:
            return values, None
    except (ValueError, BadFile):
        pass  # not canonical: YAML decides
    values = _values(_file_fields(_yaml_fields(raw, dialect)), dialect)
    return values, _deviation(_render_front(values, eol), raw)


def _quick_fields(raw: str) -> Iterator[_FileField]:
    lists: dict[str, list[object]] = {}
    items: list[object] = []
    for line in raw.split("\n")[:-1]:
        name, _, value = line.partition(": ")
        if name in KNOWN_FIELDS:
            yield name, _quick_value(value), 0
        elif line.startswith("  - "):
            items.append(_quick_value(line[4:]))
        elif line[:-1] in LIST_FIELDS:
            items = lists[line[:-1]] = []
        else:
            raise ValueError(name)
    yield from ((name, entries, 0) for name, entries in lists.items())


def _quick_value(value: str) -> object:
    if value[:1] == "[":
        return [_quick_value(item) for item in _FLOW_ITEM.findall(value[1:-1])]
    return json.loads(value) if value[:1] == '"' else value


def _values(fields: Iterable[_FileField], dialect: Dialect) -> _Values:
    """Return the values of the known fields; raises BadFile for a bad one, unless its name is lenient."""
    values = dict(_EMPTY)
    for name, value, line in fields:
        field = KNOWN_FIELDS.get(name)
        if field is None or value is None or value == "":
            continue
        try:
            values[name] = field.read(value) if field.read else read_time(name, value, dialect.read_time)
        except (ValueError, BadTime) as error:
            if name in LENIENT_FIELDS:
                continue
            raise BadFile(
                f"line {line + 1}: `{name}` must be {field.must}",
                fix="correct the field, or remove it; docs/FRONT-MATTER.md shows how each one is written",
                field=name,
                line=line + 1,
            ) from error
    if values["kind"] != "notice":
        values.update(dict.fromkeys(NOTICE_FIELDS))
    return values


def _file_fields(fields: Iterable[YamlField]) -> Iterator[_FileField]:
    return ((field.name, field.value, field.first_line) for field in fields)


# --- values to front matter


def _render_front(values: Mapping[str, Any], eol: str) -> str:
    front = "".join([_render_field(name, value) for name, value in values.items()])
    return front if eol == "\n" else front.replace("\n", eol)


def _render_field(name: str, value: Any) -> str:  # noqa: ANN401 - each field has its own type, which its writer knows
    return "" if value is None or value == () else f"{name}:{KNOWN_FIELDS[name].write(value)}\n"


def _edit_front(raw: str, values: _Values, eol: str, dialect: Dialect) -> str:
    """Replace, remove and insert the lines of the fields that changed; leave all other bytes alone."""
    fields = {field.name: field for field in _yaml_fields(raw, dialect)}
    before = _values(_file_fields(fields.values()), dialect)
    lines = [line + "\n" for line in f"\n{raw}".split("\n")[:-1]]
    changed = {
        name: _render_field(name, values[name]).replace("\n", eol) for name in FIELDS if values[name] != before[name]
    }
    for name in changed.keys() & fields.keys():
        first, end = fields[name].first_line, fields[name].end_line
        lines[first:end] = [changed[name]] + [""] * (end - first - 1)
    place = len(lines)
    for name in FIELDS:
        if name in fields:
            place = fields[name].end_line
        elif name in changed:
            lines[place - 1] += changed[name]
    return "".join(lines)[1:]


_OPENING: Final = re.compile(r"---[ \t]*\r?\n")
_CLOSING: Final = re.compile(r"^(?:---|\.\.\.)[ \t]*\r?(?:\n|\Z)", re.MULTILINE)
_FIELD_LIKE: Final = re.compile(r"(?!-\s).*?:(?:\s|$)")
_OUR_ID: Final = re.compile(r"^id:[ \t]", re.MULTILINE)
_FLOW_ITEM: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[^", ][^,]*')
_EMPTY: Final[_Values] = {name: () if name in ("tags", *LIST_FIELDS) else None for name in FIELDS}
