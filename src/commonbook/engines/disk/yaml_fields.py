"""Parses front matter from PyYAML's event stream.

No Python objects are constructed and aliases are refused, so a file can neither run code nor expand without limit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from commonbook.errors import BadFile
from commonbook.ports.files import QuotedText, YamlField

if TYPE_CHECKING:
    from yaml import CollectionStartEvent, Event, NodeEvent, ScalarEvent
    from yaml._yaml import Mark as CompiledMark
    from yaml.error import Mark


MAX_DEPTH: Final = 20
MAX_EVENTS: Final = 5_000

# YAML 1.1 ends a line here; YAML 1.2 and editors do not: line numbers would differ from the lines of the file.
_UNUSUAL_LINE_BREAK: Final = re.compile(r"\r(?!\n)|[\x85\u2028\u2029]")
_NULLS: Final = frozenset(("", "~", "null", "Null", "NULL"))


class PyYaml:
    """The Yaml port."""

    def __init__(self, *, compiled: bool = True) -> None:
        """Use libyaml if PyYAML was built with it and `compiled` is not False."""
        self._compiled = compiled

    def fields(self, text: str) -> list[YamlField]:
        """Return the top-level fields in order; raises BadFile for anything but a plain mapping."""
        import yaml  # Imported late: most files have fields that need no parser.

        if line_break := _UNUSUAL_LINE_BREAK.search(text):
            raise _bad_yaml(
                text.count("\n", 0, line_break.start()), "has a line break that editors do not show", "take it out"
            )
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader) if self._compiled else yaml.SafeLoader
        reader = _EventReader()
        try:
            for event in yaml.parse(text, Loader=loader):
                reader.read(event)
        except yaml.MarkedYAMLError as error:
            line, _ = _line_and_column(error.problem_mark or error.context_mark)
            raise _bad_yaml(line, f"is not YAML: {error.problem or error.context}", _FIX_SYNTAX) from error
        except yaml.reader.ReaderError as error:
            line = text.count("\n", 0, error.position)
            raise _bad_yaml(line, "holds a character that YAML does not allow", "take it out") from error
        except (yaml.YAMLError, ValueError, OverflowError) as error:  # PyYAML's own bugs, as for "\U99999999"
            raise _bad_yaml(reader.line, "is not YAML", _FIX_SYNTAX) from error
        return reader.fields


_FIX_SYNTAX: Final = 'correct that line; a value that begins with a special character or holds ": " needs quotes'
_FIX_LAYOUT: Final = "write one field a line, as `name: value`, from the beginning of the line"


def _bad_yaml(line: int, problem: str, fix: str) -> BadFile:
    return BadFile(f"line {line + 1}: the front matter {problem}", fix=fix)


def _line_and_column(mark: Mark | CompiledMark | None) -> tuple[int, int]:
    return (mark.line, mark.column) if mark else (0, 0)


class _OpenCollection:
    """A list or map that is not closed yet; the items of a map are keys and values in turn."""

    def __init__(self, *, is_map: bool, flow: bool) -> None:
        self.is_map, self.flow = is_map, flow
        self.items: list[object] = []

    def wants_key(self) -> bool:
        return self.is_map and len(self.items) % 2 == 0

    def value(self) -> object:
        if self.is_map:
            return dict(zip(self.items[::2], self.items[1::2], strict=True))
        return self.items


class _EventReader:
    """Builds fields from a sequence of events; the first open map is the front matter itself."""

    def __init__(self) -> None:
        self.fields: list[YamlField] = []
        self.line = self._column = self._end_line = self._events = 0
        self._open: list[_OpenCollection] = []
        self._names: dict[str, int] = {}

    def read(self, event: Event) -> None:
        self._events += 1
        self.line, self._column = _line_and_column(event.start_mark)
        if self._events > MAX_EVENTS:
            raise _bad_yaml(self.line, "has too many parts", "move long values from the front matter into the text")
        handlers: Mapping[str, Callable[[Any], None]] = {
            "DocumentStartEvent": self._start_document,
            "AliasEvent": self._refuse_alias,
            "ScalarEvent": self._add_scalar,
            "MappingStartEvent": self._start,
            "SequenceStartEvent": self._start,
            "MappingEndEvent": self._end,
            "SequenceEndEvent": self._end,
        }
        handler = handlers.get(type(event).__name__)
        if handler:
            handler(event)

    def _start_document(self, event: Any) -> None:  # noqa: ANN401 - the stubs do not know its attributes
        if event.explicit:
            raise _bad_yaml(self.line, "holds a second YAML document", "take out the line that begins with `---`")

    def _refuse_alias(self, _event: Event) -> None:
        raise _bad_yaml(self.line, "uses a YAML alias (`*name`)", "write the value out, or quote it")

    def _check_node(self, event: NodeEvent, tag: str | None) -> None:
        if event.anchor is not None:
            raise _bad_yaml(self.line, "uses a YAML anchor (`&name`)", "take the anchor out, or quote the value")
        if tag is not None:
            raise _bad_yaml(self.line, "uses a YAML tag (`!name`)", "take the tag out, or quote the value")

    def _add_scalar(self, event: ScalarEvent) -> None:
        self._check_node(event, event.tag)
        if not self._open:
            raise _bad_yaml(self.line, "is not a list of fields", _FIX_LAYOUT)
        is_null = not event.style and event.value in _NULLS
        if len(self._open) == 1 and self._open[0].wants_key():
            self._check_name(None if is_null else event.value)
        # A block scalar ends at the beginning of the line below it.
        last, column = _line_and_column(event.end_mark)
        self._extend_to(last if column == 0 and last > self.line else last + 1)
        self._add_value(None if is_null else QuotedText(event.value) if event.style else event.value)

    def _check_name(self, name: str | None) -> None:
        if self._column or name is None:
            raise _bad_yaml(self.line, "has a field that does not begin with its name", _FIX_LAYOUT)
        if name in self._names:
            raise _bad_yaml(
                self.line, f"has a field a second time (see line {self._names[name] + 1})", "keep one of them"
            )
        self._names[name] = self.line

    def _start(self, event: CollectionStartEvent) -> None:
        self._check_node(event, event.tag)
        is_map, is_flow = type(event).__name__ == "MappingStartEvent", bool(event.flow_style)
        if not self._open and (is_flow or not is_map):
            raise _bad_yaml(self.line, "is not a list of fields", _FIX_LAYOUT)
        if self._open and self._open[-1].wants_key():
            raise _bad_yaml(self.line, "has a list or map in place of a name", _FIX_LAYOUT)
        if len(self._open) >= MAX_DEPTH:
            raise _bad_yaml(self.line, f"is nested more than {MAX_DEPTH} deep", "write it flatter")
        self._open.append(_OpenCollection(is_map=is_map, flow=is_flow))

    def _end(self, event: Event) -> None:
        closed = self._open.pop()
        if closed.flow:  # a block's end mark lies at the next token, so its last line follows from its parts
            self._extend_to(_line_and_column(event.end_mark)[0] + 1)
        if self._open:
            self._add_value(closed.value())

    def _extend_to(self, line: int) -> None:
        self._end_line = max(self._end_line, line)

    def _add_value(self, value: object) -> None:
        collection = self._open[-1]
        if collection.wants_key() and value is None:
            value = ""
        collection.items.append(value)
        if len(self._open) == 1 and collection.wants_key():
            name = str(collection.items[-2])
            self.fields.append(YamlField(name, value, self._names[name], self._end_line))
