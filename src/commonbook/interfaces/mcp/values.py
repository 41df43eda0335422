"""Results for models: the JSON values of a book without what is empty, and the same result as an outline in words.

A client hands on either the structure or the text of a result. So the text is made of the structure, and has all of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from commonbook.interfaces import json_values

if TYPE_CHECKING:
    from commonbook.model.memory import Memory, Receipt

_LEFT_OUT: Final = frozenset(
    {"path", "revised_at", "revised_by", "revised_how", "durable", "target_hash", "source_hash"}
)
"""Fields that tell a model nothing that it could use."""

_LEFT_OUT_IF_ZERO: Final = frozenset({"masked", "copies", "proposed"})


_WAITS: Final = "proposed: it waits for the approval of a person, and is not recalled before"


def compact(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return JSON without empty fields, and without those that tell a model nothing."""
    if isinstance(value, Mapping):
        kept = {name: compact(field) for name, field in value.items() if name not in _LEFT_OUT}
        return {name: field for name, field in kept.items() if not _is_empty(name, field)}
    if isinstance(value, (list, tuple)):
        return [compact(item) for item in value]
    return value


def _is_empty(name: str, field: object) -> bool:
    return field is None or field in ("", [], {}) or (name in _LEFT_OUT_IF_ZERO and field == 0)


def receipt_value(receipt: Receipt) -> dict[str, Any]:
    """Return the receipt of a write."""
    fields: dict[str, Any] = compact(json_values.receipt_json(receipt))
    fields.pop("searchable")
    if receipt.proposed:
        fields["note"] = _WAITS
    return fields


def memory_value(memory: Memory) -> dict[str, Any]:
    """Return a memory; its text is there also if it is empty."""
    return {**compact(json_values.memory_json(memory)), "text": memory.text}


def outline(value: Any) -> str:  # noqa: ANN401 - any JSON
    """Return JSON as indented lines; a text of several lines is indented too, so that it ends where its lines do."""
    return "\n".join(_lines(value, ""))


def _lines(value: Any, indent: str) -> Iterator[str]:  # noqa: ANN401 - any JSON
    if isinstance(value, Mapping):
        for name, field in value.items():
            yield from _field(f"{indent}{name}:", field, indent)
    elif isinstance(value, list):
        for item in value:
            lines = list(_lines(item, indent + "  "))
            first = lines[0][len(indent) + 2 :] if lines else ""
            yield f"{indent}- {first}"
            yield from lines[1:]
    else:
        yield from (indent + line for line in _word(value).split("\n"))


def _field(label: str, field: Any, indent: str) -> Iterator[str]:  # noqa: ANN401 - any JSON
    if isinstance(field, (Mapping, list)):
        yield label if field else f"{label} none"
        yield from _lines(field, indent + "  ")
    elif "\n" in (word := _word(field)):
        yield f"{label} |"
        yield from (f"{indent}  {line}" for line in word.split("\n"))
    else:
        yield f"{label} {word}"


def _word(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    # Other ends of lines than this one would let a text begin a line of its own.
    return "\n".join(str(value).splitlines()) if isinstance(value, str) else str(value)
