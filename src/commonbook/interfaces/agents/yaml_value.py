"""Edits of one value in a YAML file as text: every other byte stays, and the edit can be undone to the byte.

A former value is kept in a comment at the end of its line. If another program writes the file anew, the comment is
lost; then the value is emptied.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final, NamedTuple

import yaml

from commonbook.errors import BadInput
from commonbook.interfaces.agents import marked_text
from commonbook.interfaces.agents.marked_text import TOML

_WAS: Final = "  # commonbook: was "
_ADDED: Final = "  # commonbook: added"
_NOTHING: Final = "(nothing)"


class YamlValue(NamedTuple):
    """A value of a mapping below a key of the whole file, such as `provider` below `memory`."""

    section: str
    key: str
    value: str

    def made(self, text: str) -> str:
        """Return the text with the value."""
        before = _load(text)
        section = before.get(self.section)
        if isinstance(section, dict) and section.get(self.key) == self.value:
            return text
        changed = self._changed(text) if self.section in before else self._appended(text)
        others = {**(section or {})} if isinstance(section, (dict, type(None))) else {}
        with suppress(BadInput):
            if _load(changed) == {**before, self.section: {**others, self.key: self.value}}:
                return changed
        raise self._unknown()

    def undone(self, text: str) -> str:
        """Return the text without the value."""
        section = _load(text).get(self.section)
        if not isinstance(section, dict) or section.get(self.key) != self.value:
            return text
        shorter = marked_text.without_block(text, TOML)
        if shorter != text:
            return shorter
        name, found = _member(yaml.compose(text), self.section)
        label, scalar = _member(found, self.key)
        start, end = scalar.start_mark.index, scalar.end_mark.index
        line_end = _line_end(text, end)
        line = text[:line_end]
        if line.endswith(_ADDED):
            # The line of our own, with the indentation of the next one.
            return text[: label.start_mark.index] + text[line_end:].lstrip("\r\n").lstrip(" ")
        mark = line.rfind(_WAS, end)
        if mark >= 0:
            former = text[mark + len(_WAS) : line_end]
            if found.flow_style and text[found.start_mark.index : found.end_mark.index] == self._alone():
                kept = "" if former == _NOTHING else f" {former}"
                return f"{text[: name.end_mark.index]}:{kept}{text[found.end_mark.index : mark]}{text[line_end:]}"
            kept = f"{text[: label.end_mark.index]}:" if former == _NOTHING else text[:start] + former
            return kept + text[end:mark] + text[line_end:]
        entry = f"{self.key}: {self.value}"
        inside = text[found.start_mark.index + 1 :]
        if found.flow_style and inside.startswith(entry):
            rest = inside[len(entry) :].removeprefix(", ")
            return text[: found.start_mark.index + 1] + rest
        return f"{text[:start]}''{text[end:]}"

    def _appended(self, text: str) -> str:
        return marked_text.with_block(text, TOML, f"{self.section}:\n  {self.key}: {self.value}")

    def _changed(self, text: str) -> str:
        name, found = _member(yaml.compose(text), self.section)
        if isinstance(found, yaml.MappingNode):
            label, scalar = _member(found, self.key)
            if scalar is None:
                return self._inserted(text, found)
            if scalar.start_mark.index == scalar.end_mark.index:
                at = label.end_mark.index + 1
                line_end = _line_end(text, at)
                return f"{text[:at]} {self.value}{text[at:line_end]}{_WAS}{_NOTHING}{text[line_end:]}"
            return self._replaced(text, scalar.start_mark.index, scalar.end_mark.index)
        if _load(text)[self.section] is not None:
            raise self._unknown()
        end = max(found.end_mark.index, name.end_mark.index + 1)
        former = text[name.end_mark.index + 1 : end].strip() or _NOTHING
        line_end = _line_end(text, name.end_mark.index)
        end = min(end, line_end)
        return f"{text[: name.end_mark.index]}: {self._alone()}{text[end:line_end]}{_WAS}{former}{text[line_end:]}"

    def _alone(self) -> str:
        return f"{{{self.key}: {self.value}}}"

    def _replaced(self, text: str, start: int, end: int) -> str:
        former, line_end = text[start:end], _line_end(text, end)
        if "\n" in former:
            raise self._unknown()
        return f"{text[:start]}{self.value}{text[end:line_end]}{_WAS}{former}{text[line_end:]}"

    def _inserted(self, text: str, mapping: yaml.MappingNode) -> str:
        entry = f"{self.key}: {self.value}"
        if mapping.flow_style:
            at = mapping.start_mark.index + 1
            return f"{text[:at]}{entry}{', ' if mapping.value else ''}{text[at:]}"
        first = mapping.value[0][0].start_mark
        return f"{text[: first.index]}{entry}{_ADDED}\n{' ' * first.column}{text[first.index :]}"

    def _unknown(self) -> BadInput:
        return BadInput(
            f"{self.section}.{self.key} is written in a way that is not changed here",
            fix=f"set {self.section}.{self.key} to {self.value} yourself, and try again",
        )


def _load(text: str) -> dict[str, Any]:
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise BadInput("it is not YAML", fix=f"correct the file, and try again: {error}") from error
    if found is not None and not isinstance(found, dict):
        raise BadInput("it is not a mapping", fix="correct the file, and try again")
    return found or {}


def _member(node: Any, key: str) -> tuple[Any, Any]:  # noqa: ANN401 - nodes of YAML
    for name, value in node.value:
        if name.value == key:
            return name, value
    return None, None


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    end = len(text) if end < 0 else end
    return end - 1 if text[end - 1 : end] == "\r" else end
