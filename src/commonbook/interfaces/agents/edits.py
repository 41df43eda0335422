"""Edits of one configuration file: each can be made, made again without effect, and undone by its meaning."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol

from commonbook.errors import BadInput


class Edit(Protocol):
    """An addition to a text."""

    def made(self, text: str) -> str:
        """Return the text with the addition."""
        ...

    def undone(self, text: str) -> str:
        """Return the text without the addition."""
        ...


# --- JSON


class Member(NamedTuple):
    """A member of a JSON object, found by its path."""

    path: tuple[str, ...]
    value: object

    def made(self, text: str) -> str:
        """Return the text with the member; one with comments keeps them."""
        if parse_json(text) == _with_value(parse_json(text), self.path, self.value):
            return text
        if _is_plain(text):
            return _written(text, _with_value(parse_json(text), self.path, self.value))
        return self._inserted(self.undone(text))

    def undone(self, text: str) -> str:
        """Return the text without the member; objects that become empty go too, but for those beside comments."""
        before = parse_json(text)
        if before == (expected := _without_value(before, self.path)):
            return text
        return _written(text, expected) if _is_plain(text) else self._cut(text)

    def _inserted(self, text: str) -> str:
        """Return a text with comments, and the member as the first one of its object."""
        before, strict = parse_json(text), _strict(text)
        depth = 1 if self.path[0] in before and len(self.path) > 1 else 0
        found = re.search(rf'"{re.escape(self.path[0])}"\s*:\s*\{{' if depth else r"\{", strict)
        at = found.end() if found else 0
        indent = _unit(text) * (depth + 1)
        value = json.dumps(_with_value({}, self.path[depth + 1 :], self.value), indent=_unit(text))
        comma = "" if strict[at:].lstrip().startswith("}") else ","
        entry = f'\n{indent}"{self.path[depth]}": {value.replace(chr(10), chr(10) + indent)}{comma}'
        return _require_json(text[:at] + entry + text[at:], _with_value(before, self.path, self.value))

    def _cut(self, text: str) -> str:
        """Return a text with comments, without the member."""
        before, strict = parse_json(text), _strict(text)
        *way, name = self.path
        others = {key: value for key, value in _value_at(before, way).items() if key != name}
        for found in re.finditer(rf'"{re.escape(name)}"\s*:\s*', strict):
            with suppress(ValueError, BadInput):
                end = _DECODER.raw_decode(strict, found.end())[1]
                head = text[: found.start()].rstrip(" \t").removesuffix("\n")
                return _require_json(head + re.sub(r"\A\s*,", "", text[end:]), _with_value(before, way, others))
        raise _unknown_json()


class Element(NamedTuple):
    """An element of a JSON array, found by its value, or by a mark that its texts, put together, have in them."""

    path: tuple[str, ...]
    value: object
    mark: str | None = None

    def made(self, text: str) -> str:
        """Return the text with the element, once."""
        before = parse_json(text)
        array = _value_at(before, self.path) or []
        if [each for each in array if self._is_own(each)] == [self.value]:
            return text
        kept = [each for each in array if not self._is_own(each)]
        return self._changed(text, _with_value(before, self.path, [*kept, self.value]))

    def undone(self, text: str) -> str:
        """Return the text without the element, and without the array and objects that become empty."""
        before = parse_json(text)
        array = _value_at(before, self.path)
        kept = [each for each in array or [] if not self._is_own(each)]
        if not isinstance(array, list) or kept == array:
            return text
        return self._changed(text, _with_value(before, self.path, kept) if kept else _without_value(before, self.path))

    def _changed(self, text: str, value: object) -> str:
        if not _is_plain(text):
            raise _unknown_json()
        return _written(text, value)

    def _is_own(self, value: Any) -> bool:  # noqa: ANN401 - any JSON
        return bool(value == self.value) or (self.mark is not None and self.mark in " ".join(_texts(value)))


def _texts(value: Any) -> Iterator[str]:  # noqa: ANN401 - any JSON
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)


_STRING: Final = r'"(?:[^"\\]|\\.)*+"'
_COMMENT: Final = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?\*/", re.DOTALL)
_LAST_COMMA: Final = re.compile(rf"{_STRING}|,(?=\s*[}}\]])")
_INDENT: Final = re.compile(r"\n([ \t]+)[^ \t\r\n]")
_DECODER: Final = json.JSONDecoder()


def parse_json(text: str) -> Any:  # noqa: ANN401 - any JSON
    """Return the value of a JSON text, perhaps with comments and trailing commas; an empty object of an empty one."""
    try:
        return json.loads(_strict(text)) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        raise BadInput(f"it is not JSON, in line {line}", fix="correct the file, and try again") from error


def _strict(text: str) -> str:
    """Return the text with blanks in place of comments and trailing commas."""

    def blank(found: re.Match[str]) -> str:
        return found[0] if found[0].startswith('"') else re.sub(r"[^\r\n]", " ", found[0])

    return _LAST_COMMA.sub(blank, _COMMENT.sub(blank, text))


def _is_plain(text: str) -> bool:
    """Return whether a text has neither comments nor trailing commas, so that it can be written as a whole."""
    return _strict(text) == text


def _written(text: str, value: object) -> str:
    """Return a value as JSON in the layout of a text; an empty object as an empty text, so that its file goes."""
    if not value:
        return ""
    is_ascii = "\\u" in text or text.isascii()
    indent = _unit(text) if "\n" in text.strip() or not text.strip() else None
    lines = json.dumps(value, indent=indent, ensure_ascii=is_ascii)
    end = "\n" if text.endswith("\n") or not text else ""
    return _require_json((lines + end).replace("\n", "\r\n" if "\r\n" in text else "\n"), value)


def _require_json(text: str, value: object) -> str:
    if parse_json(text) != value:
        raise _unknown_json()
    return text


def _unknown_json() -> BadInput:
    return BadInput("it has comments, or is written in a way that is not changed here", fix="add or remove it yourself")


def _unit(text: str) -> str:
    found = _INDENT.search(text)
    return found[1] if found else "  "


def _value_at(document: Any, path: Sequence[str]) -> Any:  # noqa: ANN401 - any JSON
    """Return the value at a path of keys, None if there is none; refuse another type than an object on the way."""
    for depth, key in enumerate(path):
        if not isinstance(document, dict):
            name = ".".join(path[:depth]) or "the whole file"
            raise BadInput(f"{name} is not an object", fix="correct the file, and try again")
        if key not in document:
            return None
        document = document[key]
    return document


def _with_value(document: Any, path: Sequence[str], value: object) -> Any:  # noqa: ANN401 - any JSON
    """Return a document with a value at a path; objects on the way are made."""
    if not path:
        return value
    _value_at(document, path)
    return {**document, path[0]: _with_value(document.get(path[0], {}), path[1:], value)}


def _without_value(document: Any, path: Sequence[str]) -> Any:  # noqa: ANN401 - any JSON
    """Return a document without the value at a path, and without the objects on the way that become empty."""
    if _value_at(document, path) is None:
        return document
    left = {} if len(path) == 1 else _without_value(document[path[0]], path[1:])
    return {key: left if key == path[0] else value for key, value in document.items() if key != path[0] or left}


# --- marked blocks


class Marks(NamedTuple):
    """The lines around a block, as comments of the file's language."""

    begin: str
    end: str

    def pattern(self) -> re.Pattern[str]:
        """Return a pattern of a block with the empty line before it."""
        begin, end = map(re.escape, self)
        return re.compile(rf"\n?(?P<block>^{begin}$.*?^{end})$\n?", re.DOTALL | re.MULTILINE)


HASH: Final = Marks("# commonbook: begin", "# commonbook: end")
"""For TOML and YAML."""
MARKDOWN: Final = Marks("<!-- commonbook: begin -->", "<!-- commonbook: end -->")


class Block(NamedTuple):
    """A marked block of a text file; in TOML it defines a table, which nobody else may define."""

    marks: Marks
    body: str
    table: tuple[str, ...] = ()

    def made(self, text: str) -> str:
        """Return the text with the block; a block that is there is replaced in its place."""
        if self.table and _has_table(self.undone(text), self.table):
            name = ".".join(self.table)
            raise BadInput(f"it has [{name}] already, which Commonbook did not write", fix="remove it, and try again")
        block = f"{self.marks.begin}\n{self.body.rstrip()}\n{self.marks.end}"
        found = self.marks.pattern().search(text)
        if found:
            changed = text[: found.start("block")] + block + text[found.end("block") :]
        else:
            changed = f"{text}\n{block}\n" if text else f"{block}\n"
        if self.table:
            _parse_toml(changed)
        return changed

    def undone(self, text: str) -> str:
        """Return the text without the block."""
        found = self.marks.pattern().search(text)
        return text if found is None else text[: found.start()] + text[found.end() :]


def _has_table(text: str, table: tuple[str, ...]) -> bool:
    found: Any = _parse_toml(text)
    for key in table:
        if not isinstance(found, dict) or key not in found:
            return False
        found = found[key]
    return True


def _parse_toml(text: str) -> Mapping[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"it is not TOML: {error}", fix="correct the file, and try again") from error
