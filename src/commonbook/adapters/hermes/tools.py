"""Tools for the model: recall and remember. There are only two, because every turn pays for them in tokens."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from commonbook.core.text import masking, recall_fence
from commonbook.errors import BadInput, CommonbookError, NotAllowed, SpaceExists
from commonbook.values import prompts
from commonbook.values.hit import Hit

if TYPE_CHECKING:
    from commonbook.service.book import Book
    from commonbook.values.memory import Receipt


RECALL: Final = "commonbook_recall"
REMEMBER: Final = "commonbook_remember"
_MAX_TOKENS: Final = 4000
_WAITS: Final = (
    "Staged for approval (memory.write_approval is on). Not stored yet: tell the user that"
    " `hermes commonbook pending` shows it, and `hermes commonbook approve {id}` or `reject {id}` decides."
)

SCHEMAS: Final[list[dict[str, Any]]] = [
    {
        "name": RECALL,
        "description": "Search long-term memory: past conversations, facts, preferences, decisions.",
        "parameters": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "What you want to know"},
                "limit": {
                    "type": "integer",
                    "description": "Maximum number of passages (8)",
                    "minimum": 1,
                    "maximum": 30,
                },
            },
            "required": ["query"],
        },
    },
    {
        "name": REMEMBER,
        "description": "Store a fact, preference or decision for later conversations. Turns are stored by themselves.",
        "parameters": {
            "type": "object",
            "properties": {
                "text": {"type": "string", "description": "One thing worth knowing, complete in itself"},
                "kind": {"type": "string", "enum": ["note", "fact", "preference", "decision", "procedure"]},
                "tags": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["text"],
        },
    },
]


def recall(book: Book, args: Mapping[str, Any], spaces: Sequence[str], session: str | None) -> dict[str, Any]:
    """Return passages for a query of the model, fenced as data; nothing of a session that is in its prompt."""
    limit = args.get("limit", 8)
    if not isinstance(limit, int) or isinstance(limit, bool):
        raise BadInput("limit is not a number", fix="leave it out, or give one from 1 to 30")
    query = _require_text(args, "query")
    result = book.recall(query, spaces=spaces, k=max(1, min(limit, 30)), exclude_session=session)
    count, recalled = fenced(result.answering, result.fence, _MAX_TOKENS)
    return {"count": count, "recalled": recalled}


def remember(book: Book, args: Mapping[str, Any], session: str, space: str) -> dict[str, Any]:
    """Store a memory for the model; the same text in the same session is stored once."""
    return {"id": _store(book, args, session, space).id, "stored": True}


def propose(book: Book, args: Mapping[str, Any], session: str, space: str, agent: str) -> dict[str, Any]:
    """Propose a memory in the name of the agent: it is in no recall until the owner of the book approves it."""
    with suppress(SpaceExists):
        book.create_space(space)
    if not any(grant.principal == agent and grant.space.name == space for grant in book.grants(space=space)):
        book.grant(agent, space, "writer")
    receipt = _store(book.acting_as(agent, within=[space], proposing=True), args, session, space)
    return {"id": receipt.id, "stored": False, "proposed": True, "message": _WAITS.format(id=receipt.id)}


def _store(book: Book, args: Mapping[str, Any], session: str, space: str) -> Receipt:
    text = masking.mask(recall_fence.unfence_any(_require_text(args, "text"))).text
    kind, tags = args.get("kind") or "note", args.get("tags") or ()
    if not isinstance(kind, str) or not isinstance(tags, Sequence) or isinstance(tags, str):
        raise BadInput("kind is not a word, or tags are not a list", fix="see the tool's parameters")
    identity = json.dumps([session, text, kind, list(map(str, tags))])
    key = f"hermes:{sha256(identity.encode('utf-8', 'replace')).hexdigest()[:32]}"
    all_tags = ["hermes", *map(str, tags)]
    return book.remember(text, kind=kind, tags=all_tags, space=space, key=key)  # type: ignore[arg-type]  # the book checks it


def needs_approval(args: Mapping[str, Any]) -> bool:
    """Let Hermes' write approval decide about a memory: in its terminal it asks at once, elsewhere it has to wait.

    Raise NotAllowed if the person has denied it. A Hermes without write approval stores at once.
    """
    try:
        gate = importlib.import_module("tools.write_approval")
    except ImportError:
        return False
    text = masking.mask(recall_fence.unfence_any(_require_text(args, "text"))).text
    decision = gate.evaluate_gate(gate.MEMORY, inline_summary="remember in Commonbook", inline_detail=text)
    if decision.blocked:
        raise NotAllowed(decision.message, fix="do not store it in another way")
    return not decision.allow


def _require_text(args: Mapping[str, Any], name: str) -> str:
    value = args.get(name)
    if not isinstance(value, str) or not value.strip():
        raise BadInput(f"there is no {name}", fix=f"give a {name}")
    return value


def fenced(hits: Sequence[Hit], tag: str, max_tokens: int) -> tuple[int, str]:
    """Return how many hits fit into a prompt, and these with their origins, fenced as data."""
    stretches = prompts.fit(hits, max_tokens - prompts.FENCE_TOKENS, prompts.heading_of)
    return sum(not each.offset for each in stretches), prompts.block(stretches, tag, prompts.heading_of)


def failure(error: CommonbookError) -> str:
    """Return an error as the answer of a tool."""
    return json.dumps({"error": error.message, "fix": error.fix}, ensure_ascii=False)
