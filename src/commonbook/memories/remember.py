"""Remembering, editing, moving, linking and deleting memories: each a story in one transaction."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from commonbook.errors import BadInput, BadText, BadTime
from commonbook.model.ids import format_time, new_id
from commonbook.model.memory import Draft, Link, Memory, Receipt, receipt_of
from commonbook.model.spaces import Actor, Space
from commonbook.ports.engines import Engines
from commonbook.reasoning import link_checks
from commonbook.tables import duplicates, idempotency, links, memories
from commonbook.text import dates, space_paths, titles, validation
from commonbook.write.context import WriteContext, no_memory
from commonbook.write.new_memory import new_memory
from commonbook.write.transaction import logging_refusal, write

# --- reflecting


def reflect(engines: Engines, actor: Actor, draft: Draft, *, on: Sequence[str]) -> Receipt:
    """Store a reflection on some memories."""
    if not on:
        raise BadInput("a reflection is on something", fix="name the memories that it was reasoned from")
    linked = tuple(("reflects_on", memory_id) for memory_id in on)
    return remember(engines, actor, [draft._replace(kind="reflection", links=(*draft.links, *linked))])[0]


_COMPARED: Final = 50
"""The receipts of so many memories at once name near duplicates; larger batches are imports, and nobody reads them."""

_TIMES: Final = ("occurred", "valid_from", "valid_until", "expires")

# --- remember


def remember(engines: Engines, actor: Actor, drafts: Sequence[Draft]) -> list[Receipt]:
    """Store new memories, all or none; a draft whose key was used before gets its first receipt again."""
    checked = []
    for at, draft in enumerate(drafts):
        with validation.error_item(at):
            checked.append(_checked(draft))
    with logging_refusal(engines, actor, "supersede", (old for draft in checked for old in _superseded(draft))):
        return write(engines, actor, lambda ctx: _remember_all(ctx, checked))


def _superseded(draft: Draft) -> list[str]:
    named = [target for relation, target in draft.links if relation == "supersedes"]
    return [*named, draft.replaces] if draft.replaces else named


def _checked(draft: Draft) -> Draft:
    """Return the draft with everything that can be decided without the book, or refuse it."""
    text = validation.validate_text(draft.text)
    title = validation.validate_title(draft.title) if draft.title else ""
    if not title and not text.strip():
        raise BadText("there is nothing to remember", fix="give a text, or at least a title")
    return draft._replace(
        text=text,
        title=title or titles.title_from(text),
        space=space_paths.require_space_name(draft.space or space_paths.PERSONAL),
        kind=validation.validate_kind(draft.kind),
        tags=validation.validate_tags(draft.tags),
        importance=validation.validate_importance(draft.importance),
        links=tuple(
            (validation.validate_new_relation(relation), validation.validate_memory_id(target))
            for relation, target in draft.links
        ),
        replaces=validation.validate_memory_id(draft.replaces) if draft.replaces else None,
        key=validation.validate_key(draft.key) if draft.key is not None else None,
    )


def _remember_all(ctx: WriteContext, drafts: Sequence[Draft]) -> list[Receipt]:
    receipts: list[Receipt] = []
    added: list[Memory] = []
    few = len(drafts) <= _COMPARED
    # Spaces are made in one order, so that no two who make the same ones wait for each other.
    for at in sorted(range(len(drafts)), key=lambda one: drafts[one].space or ""):
        with validation.error_item(at):
            ctx.space(drafts[at].space or space_paths.PERSONAL)
    for at, draft in enumerate(drafts):
        with validation.error_item(at):
            receipt, memory = _remember_one(ctx, draft, compare=few)
        receipts.append(receipt)
        if memory is not None:
            added.append(memory)
    ctx.enqueue_files(added)
    return receipts


def _remember_one(ctx: WriteContext, draft: Draft, *, compare: bool) -> tuple[Receipt, Memory | None]:
    """Store one memory, its file aside; or return the first receipt of its key and no memory."""
    space = ctx.space(draft.space or space_paths.PERSONAL)
    if draft.key is None:
        return _store(ctx, draft, space, compare=compare)
    asked = {
        "space": space.id,
        "principal": ctx.actor.principal,
        "key": draft.key,
        "content": _fingerprint(ctx, draft),
    }
    answer = idempotency.first_answer(ctx.tx, **asked)
    if answer is not None:
        return _receipt_from(answer)._replace(new=False), None
    receipt, memory = _store(ctx, draft, space, compare=compare)
    idempotency.claim(ctx.tx, **asked, answer=json.dumps(receipt._asdict()))
    return receipt, memory


def _store(ctx: WriteContext, draft: Draft, space: Space, *, compare: bool) -> tuple[Receipt, Memory]:
    memory = require_ordered_times(_new_memory(ctx, draft, space))
    link_checks.require_valid_links(ctx, memory, memory.links)
    duplicate = duplicates.same_text(ctx.tx, ctx.readable, memory.text)
    near = duplicates.near_text(ctx.tx, space, memory.text) if compare and space.id in ctx.readable else ()
    memories.add(ctx.tx, [memory])
    links.add(ctx.tx, space.id, memory.links)
    if memory.links:
        ctx.note_reasoning_change(None, memory)
    ctx.log_memory(memory, "remember", **_logged_links(memory))
    return receipt_of(memory, new=True)._replace(duplicate_of=duplicate, near=near), memory


def _new_memory(ctx: WriteContext, draft: Draft, space: Space) -> Memory:
    memory_id = new_id()
    wanted = [*draft.links, *([("supersedes", draft.replaces)] if draft.replaces else [])]
    return new_memory(
        ctx,
        memory_id=memory_id,
        space=space,
        how="remember",
        kind=draft.kind,
        title=draft.title or "",
        text=draft.text,
        tags=draft.tags,
        importance=draft.importance,
        links=resolve_links(ctx, memory_id, wanted),
        occurred=ctx.parse_time("occurred", draft.occurred),
        valid_from=ctx.parse_time("valid_from", draft.valid_from),
        valid_until=ctx.parse_time("valid_until", draft.valid_until),
        expires=ctx.parse_time("expires", draft.expires),
    )


def require_ordered_times(memory: Memory) -> Memory:
    """Return the memory, or refuse one whose validity ends before it begins."""
    if memory.valid_from and memory.valid_until and memory.valid_until < memory.valid_from:
        raise BadInput("valid_until is before valid_from", fix="exchange the two")
    return memory


def resolve_links(ctx: WriteContext, source: str, wanted: Iterable[tuple[str, str]]) -> tuple[Link, ...]:
    """Return links to memories that are there, with the revision that they have now."""
    wanted = tuple(wanted)
    ctx.lock((target for _, target in wanted))
    found = {}
    for relation, target in wanted:
        memory = memories.find(ctx.tx, ctx.readable, target)
        if memory is None or memory.deleted is not None:
            raise no_memory(target)
        if relation == "supersedes" and memory.space.id not in ctx.writable:
            raise no_memory(target)
        found[relation, target] = Link(source, relation, target, memory.revision)
    return tuple(found.values())


def _logged_links(memory: Memory) -> dict[str, object]:
    return {"links": [[link.relation, link.target] for link in memory.links]} if memory.links else {}


def _fingerprint(ctx: WriteContext, draft: Draft) -> str:
    """Return a keyed hash of everything that was asked, so that a repeat is known and nothing can be guessed.

    What stands at its default is left out, so that a field that comes later changes no hash of today. The space is
    part of the key already, by its id, which a rename does not change.
    """
    times = {name: _spelled(ctx, name, getattr(draft, name)) for name in _TIMES}
    title = None if draft.title == titles.title_from(draft.text) else draft.title
    asked = {**draft._asdict(), "title": title, **times}
    default = Draft("")._asdict()
    said = {name: asked[name] for name in asked if name not in ("key", "space") and asked[name] != default[name]}
    return ctx.engines.keys.keyed_hash(json.dumps(said, sort_keys=True))


def _spelled(ctx: WriteContext, name: str, value: datetime | str | None) -> str | None:
    """Return one spelling for all of a moment; words such as `yesterday` stay words, since a repeat comes later."""
    if value is None:
        return None
    try:
        return format_time(dates.read_time(value, zone=ctx.engines.zone, edge=dates.field_edge(name)))
    except BadTime:
        return " ".join(str(value).lower().split())


def _receipt_from(answer: str) -> Receipt:
    said = json.loads(answer)
    return Receipt(**{**said, "near": tuple(said["near"])})
