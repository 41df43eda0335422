"""Edits of JSON as text: one member or element is added, replaced or removed, and every other byte stays.

Comments and trailing commas, which some agents allow, are read and kept. An addition and its removal are inverse to the
byte. So that a removal knows whether it has made an empty container itself, a container that an addition makes has its
entries on lines of their own, and into an empty one that was there an entry is put right behind its bracket.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from commonbook.errors import BadInput

_SPACE: Final = re.compile(r"(?:[ \t\r\n]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*+"')
_WORD: Final = re.compile(r"[^\s,\]}/]+")
_MAX_DEPTH: Final = 50


class _Entry(NamedTuple):
    """A member of an object, with its key, or an element of an array; `comma` is the place of the comma behind it."""

    key: str | None
    start: int
    end: int
    value: _Node
    comma: int | None


class _Node(NamedTuple):
    """A value in a text; a container has entries."""

    start: int
    end: int
    value: Any
    entries: tuple[_Entry, ...] = ()

    def member(self, key: str) -> _Entry | None:
        return next((entry for entry in reversed(self.entries) if entry.key == key), None)


Matches = Callable[[Any], bool]


def parse(text: str) -> Any:  # noqa: ANN401 - any JSON
    """Return the value of a text with comments; of an empty one, an empty object."""
    return _root(text).value if text.strip() else {}


def set_member(text: str, path: Sequence[str], value: object) -> str:
    """Return the text with a member at a path of keys; objects on the way are made if they do not exist."""
    if not text.strip():
        return _pretty(_nested(path, value), "", text) + "\n"
    node = _root(text)
    for depth, key in enumerate(path):
        _require(node, dict, path[:depth])
        entry = node.member(key)
        if entry is None:
            return _added(text, node, key, _nested(path[depth + 1 :], value))
        node = entry.value
    if node.value == value:
        return text
    indent = _indent_at(text, node.start)
    return text[: node.start] + _pretty(value, indent, text) + text[node.end :]


def add_element(text: str, path: Sequence[str], value: object, *, matches: Matches) -> str:
    """Return the text with an element in the array at a path, in place of the first that matches."""
    node = _find(_root(text), path) if text.strip() else None
    if node is None:
        return set_member(text, path, [value])
    _require(node, list, path)
    entry = next((entry for entry in node.entries if matches(entry.value.value)), None)
    if entry is None:
        return _added(text, node, None, value)
    if entry.value.value == value:
        return text
    indent = _indent_at(text, entry.start)
    return text[: entry.start] + _pretty(value, indent, text) + text[entry.end :]


def remove_member(text: str, path: Sequence[str]) -> str:
    """Return the text without the member at a path, and without the objects that an addition made for it."""
    return _removed(text, path[:-1], lambda entry: entry.key == path[-1])


def remove_elements(text: str, path: Sequence[str], *, matches: Matches) -> str:
    """Return the text without the elements of an array that match, and without what an addition made for them."""
    while (shorter := _removed(text, path, lambda entry: matches(entry.value.value))) != text:
        text = shorter
    return text


# --- parsing


def _root(text: str) -> _Node:
    start = _skip(text, 0)
    node = _value(text, start, 0)
    if _skip(text, node.end) != len(text):
        raise _malformed(text, node.end)
    return node


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _value(text: str, at: int, depth: int) -> _Node:
    opening = text[at : at + 1]
    if depth > _MAX_DEPTH:
        raise _malformed(text, at)
    if opening in ("{", "["):
        return _container(text, at, depth)
    found = (_STRING if opening == '"' else _WORD).match(text, at)
    try:
        return _Node(at, found.end(), json.loads(found[0])) if found else _never(text, at)
    except ValueError:
        raise _malformed(text, at) from None


def _container(text: str, start: int, depth: int) -> _Node:
    is_object = text[start] == "{"
    entries: list[_Entry] = []
    at = _skip(text, start + 1)
    while text[at : at + 1] != ("}" if is_object else "]"):
        if entries and entries[-1].comma is None:
            raise _malformed(text, at)
        entries.append(_entry(text, at, depth, is_object=is_object))
        last = entries[-1]
        at = _skip(text, last.end if last.comma is None else last.comma + 1)
    value: Any = (
        {str(entry.key): entry.value.value for entry in entries}
        if is_object
        else [entry.value.value for entry in entries]
    )
    return _Node(start, at + 1, value, tuple(entries))


def _entry(text: str, start: int, depth: int, *, is_object: bool) -> _Entry:
    key, at = None, start
    if is_object:
        name = _value(text, start, depth)
        at = _skip(text, name.end)
        if not isinstance(name.value, str) or text[at : at + 1] != ":":
            raise _malformed(text, at)
        key, at = name.value, _skip(text, at + 1)
    node = _value(text, at, depth + 1)
    comma = _skip(text, node.end)
    return _Entry(key, start, node.end, node, comma if text[comma : comma + 1] == "," else None)


def _never(text: str, at: int) -> _Node:
    raise _malformed(text, at)


def _malformed(text: str, at: int) -> BadInput:
    return BadInput(f"it is not JSON, in line {text.count(chr(10), 0, at) + 1}", fix="correct the file, and try again")


def _require(node: _Node, kind: type, path: Sequence[str]) -> None:
    if not isinstance(node.value, kind):
        place = ".".join(path) or "the whole"
        raise BadInput(f"{place} is not {'an object' if kind is dict else 'a list'}", fix="correct the file")


def _find(node: _Node, path: Sequence[str]) -> _Node | None:
    for depth, key in enumerate(path):
        _require(node, dict, path[:depth])
        entry = node.member(key)
        if entry is None:
            return None
        node = entry.value
    return node


# --- additions


def _nested(path: Sequence[str], value: object) -> object:
    for key in reversed(path):
        value = {key: value}
    return value


def _added(text: str, node: _Node, key: str | None, value: object) -> str:
    label = "" if key is None else f"{json.dumps(key, ensure_ascii=False)}: "
    if not node.entries:
        indent = _indent_at(text, node.start)
        return text[: node.start + 1] + label + _pretty(value, indent, text) + text[node.start + 1 :]
    last = node.entries[-1]
    # A comment behind the last entry stays on its line.
    behind = _end_of_words(text, node.end - 1)
    indent = _indent_at(text, last.start)
    is_on_lines = "\n" in text[node.start : node.entries[0].start]
    gap = f"{_line_end(text)}{indent}" if is_on_lines else " "
    entry = f"{gap}{label}{_pretty(value, indent, text)}"
    if last.comma is not None:
        return f"{text[:behind]}{entry},{text[behind:]}"
    return f"{text[: last.end]},{text[last.end : behind]}{entry}{text[behind:]}"


def _end_of_words(text: str, at: int) -> int:
    """Return the place behind the last character before this place that is not white space."""
    return len(text[:at].rstrip())


def _pretty(value: object, indent: str, text: str) -> str:
    """Return a value in the style of a text: with its indentation and its ends of lines."""
    found = re.search(r"\n([ \t]+)\S", text)
    lines = json.dumps(value, ensure_ascii=False, indent=found[1] if found else "  ")
    return lines.replace("\n", _line_end(text) + indent)


def _line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _indent_at(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip())]


# --- removals


def _removed(text: str, within: Sequence[str], chosen: Callable[[_Entry], bool]) -> str:
    """Return the text without the last chosen entry of the container at a path."""
    if not text.strip():
        return text
    node = _find(_root(text), within)
    if node is None or not isinstance(node.value, (dict, list)):
        return text
    # The last first: additions were made in this order.
    at = next((number for number in reversed(range(len(node.entries))) if chosen(node.entries[number])), None)
    if at is None:
        return text
    entry = node.entries[at]
    if len(node.entries) == 1:
        return _without_only_entry(text, node, entry, within)
    before = _end_of_words(text, entry.start)
    if at < len(node.entries) - 1 or entry.comma is not None:
        end = entry.end if entry.comma is None else entry.comma + 1
        return text[:before] + text[end:]
    previous = node.entries[at - 1]
    comma = previous.end if previous.comma is None else previous.comma
    return text[:comma] + text[comma + 1 : before] + text[entry.end :]


def _without_only_entry(text: str, node: _Node, entry: _Entry, within: Sequence[str]) -> str:
    if "\n" in text[node.start : entry.start]:
        # An addition made this container.
        return remove_member(text, within) if within else ""
    end = entry.end if entry.comma is None else entry.comma + 1
    return text[: entry.start] + text[end:]
