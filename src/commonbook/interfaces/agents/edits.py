"""Edits of one configuration file: each can be made, made again without effect, and undone."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

from commonbook.errors import BadInput
from commonbook.interfaces.agents import json_text, marked_text
from commonbook.interfaces.agents.marked_text import Marks


class Edit(Protocol):
    """An addition to a text."""

    def made(self, text: str) -> str:
        """Return the text with the addition."""
        ...

    def undone(self, text: str) -> str:
        """Return the text without the addition."""
        ...


class Member(NamedTuple):
    """A member of a JSON object, found by its path."""

    path: tuple[str, ...]
    value: object

    def made(self, text: str) -> str:
        """Return the text with the member."""
        return json_text.set_member(text, self.path, self.value)

    def undone(self, text: str) -> str:
        """Return the text without the member."""
        return json_text.remove_member(text, self.path)


class Element(NamedTuple):
    """An element of a JSON array, found by its value, or by a mark that its texts, put together, have in them."""

    path: tuple[str, ...]
    value: object
    mark: str | None = None

    def made(self, text: str) -> str:
        """Return the text with the element."""
        return json_text.add_element(text, self.path, self.value, matches=self._is_own)

    def undone(self, text: str) -> str:
        """Return the text without the element."""
        return json_text.remove_elements(text, self.path, matches=self._is_own)

    def _is_own(self, value: Any) -> bool:  # noqa: ANN401 - any JSON
        return bool(value == self.value) or (self.mark is not None and self.mark in " ".join(_texts(value)))


class Block(NamedTuple):
    """A marked block of a text file; in TOML it defines a table, which nobody else may define."""

    marks: Marks
    body: str
    table: tuple[str, ...] = ()

    def made(self, text: str) -> str:
        """Return the text with the block."""
        if self.table and _has_table(marked_text.without_block(text, self.marks), self.table):
            name = ".".join(self.table)
            raise BadInput(f"it has [{name}] already, which Commonbook did not write", fix="remove it, and try again")
        changed = marked_text.with_block(text, self.marks, self.body)
        if self.table:
            _parse_toml(changed)
        return changed

    def undone(self, text: str) -> str:
        """Return the text without the block."""
        return marked_text.without_block(text, self.marks)


def _texts(value: Any) -> Iterator[str]:  # noqa: ANN401 - any JSON
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)


def _has_table(text: str, table: tuple[str, ...]) -> bool:
    found: Any = _parse_toml(text)
    for key in table:
        if not isinstance(found, dict) or key not in found:
            return False
        found = found[key]
    return True


def _parse_toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"it is not TOML: {error}", fix="correct the file, and try again") from error
