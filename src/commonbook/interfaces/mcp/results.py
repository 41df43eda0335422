"""Results for models: the values of a book as JSON without what is empty, and the same result as an outline in words.

A client hands on either the structure or the text of a result. So the text is made of the structure, and has all of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from commonbook.values import prompts
from commonbook.values.encoding import encode
from commonbook.values.memory import Memory, Receipt

if TYPE_CHECKING:
    from commonbook.values.hit import Hit
    from commonbook.values.prompts import Stretch
    from commonbook.values.recall import RecallResult
    from commonbook.verbs import Verbs

_BUDGET_TOKENS: Final = 4000
"""A recall of this size stays in the conversation of every client."""

_LEFT_OUT: Final = frozenset({"path", "durable", "session_space"})
"""Fields that tell a model nothing that it could use."""

_USUAL: Final = {"masked": 0, "copies": 0, "proposed": False, "rewound": False, "searchable": True}
"""Fields that are left out while they have this value."""

_WAITS: Final = "proposed: it waits for the approval of a person, and is not recalled before"


def structure(value: object) -> dict[str, Any]:
    """Return a result of the book as JSON, without fields that are empty or tell a model nothing."""
    fields: dict[str, Any] = _compact(encode(value))
    return {**fields, "note": _WAITS} if isinstance(value, Receipt) and value.proposed else fields


def _compact(value: Any) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(value, Mapping):
        kept = {name: _compact(field) for name, field in value.items() if name not in _LEFT_OUT}
        return {name: field for name, field in kept.items() if not _is_empty(name, field)}
    return [_compact(item) for item in value] if isinstance(value, list) else value


def _is_empty(name: str, field: object) -> bool:
    return field is None or field in ("", [], {}) or (name in _USUAL and field == _USUAL[name])


def memory_fields(memory: Memory) -> dict[str, Any]:
    """Return the fields of a memory; its text is there also if it is empty."""
    links = [{"relation": link.relation, "target": link.target} for link in memory.links]
    return {**structure(memory), **({"links": links} if links else {}), "text": memory.text}


def recall(book: Verbs, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the hits of a recall with these arguments, and its notes, if there are any.

    Without a budget, there are as many hits as a conversation can take; without a confidence, only likely ones.
    """
    budget = arguments.get("budget_tokens", _BUDGET_TOKENS)
    others = {name: value for name, value in arguments.items() if name != "budget_tokens"}
    result: RecallResult = book.recall(**others)
    hits = result.hits if "min_confidence" in arguments else result.answering
    stretches: dict[str, list[Stretch]] = {}
    for stretch in prompts.fit(hits, budget, lambda hit: outline(_hit_fields(hit, ""))):
        stretches.setdefault(stretch.hit.passage_id, []).append(stretch)
    beyond = len(hits) - len(stretches)
    notes = [*result.notes, *([f"{beyond} more hits, which repeat these or are beyond the budget"] if beyond else [])]
    return {"hits": [_hit_fields(found[0].hit, _text(found)) for found in stretches.values()], "notes": notes}


def _text(stretches: Sequence[Stretch]) -> str:
    """Return the texts of a hit in order; of a message, only authors begin a line."""
    return "\n".join(each.text for each in sorted(stretches, key=lambda stretch: stretch.offset)).lstrip()


def _hit_fields(hit: Hit, text: str) -> dict[str, Any]:
    """Return a hit with its author and origin, and with the marks that say whether it still holds."""
    return structure(
        {
            "id": hit.id,
            "type": hit.type,
            "kind": hit.kind if hit.type == "memory" else None,
            "memory": hit.memory if hit.memory != hit.id else None,
            "title": prompts.title_of(hit),
            "text": text,
            "author": hit.author,
            "space": hit.space,
            "session": hit.session,
            "seq": hit.seq,
            "time": hit.occurred or hit.created,
            "tags": hit.tags,
            "confidence": round(hit.confidence, 2),
            "marks": hit.marks,
            "suspect": hit.suspect or None,
            "superseded_by": hit.superseded_by,
            "freshness": hit.freshness,
            "successor": hit.successor,
            "shared_by": hit.shared.by if hit.shared else None,
            "also_in": [place.space for place in hit.also_in],
        }
    )


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
