"""Stores new memories and reflections, all or none of a batch, in one transaction.

An idempotency key makes a retry safe: a draft whose key was used before gets its first receipt again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from commonbook.core.access import permissions
from commonbook.core.markdown import front_matter
from commonbook.core.tables import links, memories
from commonbook.core.text import masking, space_names, titles, user_times, validation
from commonbook.core.write import idempotency, store_version
from commonbook.core.write.context import WriteContext
from commonbook.core.write.store_version import log_new_memory, new_memory
from commonbook.core.write.transaction import logging_refusal, write
from commonbook.errors import BadInput, BadText, BadTime
from commonbook.ports.database import RetryTransaction
from commonbook.ports.engines import Engines
from commonbook.runtime import CACHED_TEXTS, compress
from commonbook.subjects.reasoning import link_checks
from commonbook.values import encoding
from commonbook.values.ids import format_time, new_id
from commonbook.values.memory import NO_METADATA, UNSET, Changes, Draft, Receipt
from commonbook.values.request import RequestContext
from commonbook.values.spaces import Space
from commonbook.values.stored_memory import StoredLink, StoredMemory, receipt_of

_Result = TypeVar("_Result")
_Spaces: TypeAlias = tuple[Space, Space]
"""The space that a draft names, and the one that its memory goes into."""

# --- reflecting


def reflect(engines: Engines, caller: RequestContext, draft: Draft, *, on: Sequence[str]) -> Receipt:
    """Store a reflection, with a `reflects_on` link to each memory that it was reasoned from."""
    if not on:
        raise BadInput("a reflection is on something", fix="name the memories that it was reasoned from")
    reflected = tuple(("reflects_on", memory_id) for memory_id in on)
    return remember_one(engines, caller, draft._replace(kind="reflection", links=(*draft.links, *reflected)))


# --- remember


def remember(engines: Engines, caller: RequestContext, drafts: Sequence[Draft]) -> list[Receipt]:
    """Store new memories, all or none, and return their receipts in the same order."""
    return _remember(engines, caller, drafts, _remember_all)


def remember_one(engines: Engines, caller: RequestContext, draft: Draft) -> Receipt:
    """Store a new memory and return its receipt."""
    return _remember(engines, caller, [draft], lambda ctx, checked: _remember_all(ctx, checked)[0])


def _remember(
    engines: Engines,
    caller: RequestContext,
    drafts: Sequence[Draft],
    operation: Callable[[WriteContext, Sequence[_MaskedDraft]], _Result],
) -> _Result:
    checked = []
    for index, draft in enumerate(drafts):
        with validation.error_item(index):
            checked.append(_mask(_validate(draft)))
    if engines.db.compresses_texts:
        _compress_texts(checked)
    superseded = (old for draft in checked for old in _superseded(draft.sent))
    with logging_refusal(engines, caller.actor, "supersede", superseded):
        return write(engines, caller, lambda ctx: operation(ctx, checked))


def _superseded(draft: Draft) -> list[str]:
    named = [target for relation, target in draft.links if relation == "supersedes"]
    return [*named, draft.replaces] if draft.replaces else named


def _remember_all(ctx: WriteContext, drafts: Sequence[_MaskedDraft]) -> list[Receipt]:
    receipts: list[Receipt] = []
    added: list[StoredMemory] = []
    # Spaces are created in a fixed order, so that two transactions that create the same ones cannot deadlock.
    named = [draft.sent.space or space_names.PERSONAL for draft in drafts]
    chosen: dict[str, _Spaces] = {}
    for index in sorted(range(len(drafts)), key=named.__getitem__):
        if named[index] not in chosen:
            with validation.error_item(index):
                chosen[named[index]] = store_version.space_for_new_memory(ctx, named[index])
    for index, draft in enumerate(drafts):
        with validation.error_item(index):
            receipt, memory = _remember_one(ctx, draft, chosen[named[index]])
        receipts.append(receipt)
        if memory is not None:
            added.append(memory)
    ctx.enqueue_files(added, are_new=True)
    return receipts


def _remember_one(ctx: WriteContext, masked: _MaskedDraft, spaces: _Spaces) -> tuple[Receipt, StoredMemory | None]:
    """Store one memory without its file; or return the first receipt of its key and no memory."""
    draft, (named, space) = masked.sent, spaces
    if draft.key is None:
        return _store(ctx, masked, space)
    # The space that was named: a repeat is one also if the space is under review since.
    key, content = idempotency.StoredKey(named.id, ctx.actor.principal, draft.key), _fingerprint(ctx, draft)
    if not idempotency.claim(ctx.tx, key, content):
        answer = idempotency.find(ctx.tx, key, content, sent=draft.key)
        if answer is None:
            raise RetryTransaction
        first: Receipt = encoding.decode(Receipt, json.loads(answer))
        return first._replace(new=False), None
    receipt, memory = _store(ctx, masked, space)
    idempotency.store(ctx.tx, key, content, encoding.dumps(receipt).decode())
    return receipt, memory


def _store(ctx: WriteContext, masked: _MaskedDraft, space: Space) -> tuple[Receipt, StoredMemory]:
    """Store a new memory in a space; its receipt names a memory that the caller may read with the same text."""
    memory = require_ordered_times(_new_memory(ctx, masked.stored, space))
    if linked := store_version.approved_links(memory):
        link_checks.require_valid_links(ctx, memory, linked)
    duplicate = memories.find_same_text(ctx.tx, permissions.without_proposals(ctx.readable), memory.text)
    (memory,) = memories.add(ctx.tx, ctx.engines.keys, [memory])
    links.add(ctx.tx, space.id, memory.links)
    if memory.links:
        ctx.note_reasoning_change(None, memory)
    log_new_memory(ctx, memory, "remember", **_logged_links(memory))
    receipt = receipt_of(memory, new=True)
    return receipt._replace(duplicate_of=duplicate, masked=masked.masked), memory


def _new_memory(ctx: WriteContext, draft: Draft, space: Space) -> StoredMemory:
    memory_id = new_id()
    wanted = [*draft.links, *([("supersedes", draft.replaces)] if draft.replaces else [])]
    if space.holds_proposals:
        wanted = [(store_version.proposed_relation(relation), target) for relation, target in wanted]
    return new_memory(
        ctx,
        memory_id=memory_id,
        space=space,
        how="remember",
        title=draft.title or "",
        text=draft.text,
        links=resolve_links(ctx, memory_id, wanted),
        **{name: getattr(draft, name) for name in _CHECKS},
        **parsed_times(ctx, draft),
    )


def require_ordered_times(memory: StoredMemory) -> StoredMemory:
    """Return the memory, or refuse one whose validity ends before it begins."""
    if memory.valid_from and memory.valid_until and memory.valid_until < memory.valid_from:
        raise BadInput("valid_until is before valid_from", fix="exchange the two")
    return memory


def resolve_links(ctx: WriteContext, source: str, wanted: Iterable[tuple[str, str]]) -> tuple[StoredLink, ...]:
    """Return links to existing memories, with the content hash of each target."""
    wanted = tuple(wanted)
    if not wanted:
        return ()
    ctx.lock((target for _, target in wanted))
    resolved = {}
    for relation, target in wanted:
        memory = memories.find(ctx.tx, ctx.readable, target)
        if memory is None or memory.deleted is not None:
            raise permissions.no_memory(target)
        if relation == "supersedes":
            permissions.require_writable(ctx.actor, memory, ctx.writable, ctx.spaces)
        resolved[relation, target] = StoredLink(source, relation, target, memory.content_hash)
    return tuple(resolved.values())


def _logged_links(memory: StoredMemory) -> dict[str, object]:
    return {"links": [[link.relation, link.target] for link in memory.links]} if memory.links else {}


# --- drafts


class _MaskedDraft(NamedTuple):
    """A draft as it was sent, by which a repeat is recognised, and as it will be stored, without its secrets."""

    sent: Draft
    stored: Draft
    masked: int


def _validate(draft: Draft) -> Draft:
    """Return the draft normalized, or refuse it, as far as that needs no data of the book."""
    text = validation.validate_text(draft.text)
    title = validation.validate_title(draft.title) if draft.title else ""
    if not title and not text.strip():
        raise BadText("there is nothing to remember", fix="give a text, or at least a title")
    return draft._replace(
        text=text,
        title=title or titles.derive_title(text),
        space=space_names.require_space_name(draft.space or space_names.PERSONAL),
        links=tuple(
            (validation.validate_new_relation(relation), validation.validate_memory_id(target))
            for relation, target in draft.links
        ),
        replaces=validation.validate_memory_id(draft.replaces) if draft.replaces else None,
        key=validation.validate_key(draft.key) if draft.key is not None else None,
        **checked_fields(draft),
    )


_CHECKS: Final[Mapping[str, Callable[[Any], object]]] = {
    "kind": validation.validate_kind,
    "tags": validation.validate_tags,
    "importance": validation.validate_importance,
    "metadata": lambda fields: front_matter.require_metadata(NO_METADATA if fields is None else fields),
}
"""The fields that are stored as a caller gives them, and the check of each."""

_TIME_FIELDS: Final = ("occurred", "valid_from", "valid_until", "expires")


def checked_fields(given: Draft | Changes) -> dict[str, Any]:
    """Return the given fields that are stored as they are, or refuse them."""
    return {name: check(getattr(given, name)) for name, check in _CHECKS.items() if getattr(given, name) is not UNSET}


def parsed_times(ctx: WriteContext, given: Draft | Changes) -> dict[str, Any]:
    """Return the given times; those without a zone are in the zone of the home."""
    values = {name: getattr(given, name) for name in _TIME_FIELDS}
    return {name: ctx.parse_time(name, value) for name, value in values.items() if value is not UNSET}


def _mask(sent: Draft) -> _MaskedDraft:
    """Remove what must not be stored: secrets and private parts."""
    if not sent.mask:
        return _MaskedDraft(sent, sent, 0)
    text, in_text = masking.mask(sent.text)
    title, in_title = sent.title or "", 0
    if title == titles.derive_title(sent.text):
        title = titles.derive_title(text)
    else:
        title, in_title = masking.mask_title(title)
    fields, in_fields = masking.mask_metadata(sent.metadata)
    tags, in_tags = masking.mask_tags(sent.tags)
    masked = in_text + in_title + in_fields + in_tags
    stored = sent._replace(text=text, title=title, metadata=fields, tags=tags) if masked else sent
    return _MaskedDraft(sent, stored, masked)


def _compress_texts(drafts: Sequence[_MaskedDraft]) -> None:
    """Compress the texts of drafts before the lock of the writers is taken.

    The transaction finds the results in the cache of `compress`, as many as have room there.
    """
    for draft in drafts[:CACHED_TEXTS]:
        compress(draft.stored.text)


def _fingerprint(ctx: WriteContext, draft: Draft) -> str:
    """Return a keyed hash of the draft: it recognizes a repeat, and the text cannot be guessed from it.

    Fields with their default value are left out, so that a field added in a later version changes no stored hash. The
    space is part of the idempotency key already, by its id, which a rename does not change.
    """
    times = {name: _normalize_time(ctx, name, getattr(draft, name)) for name in _TIME_FIELDS}
    title = None if draft.title == titles.derive_title(draft.text) else draft.title
    fields = {**draft._asdict(), "title": title, "metadata": dict(draft.metadata), **times}
    default = Draft("")._asdict()
    hashed = {name: fields[name] for name in fields if name not in ("key", "space") and fields[name] != default[name]}
    return ctx.engines.keys.keyed_hash(json.dumps(hashed, sort_keys=True))


def _normalize_time(ctx: WriteContext, name: str, value: datetime | str | None) -> str | None:
    """Return one spelling of a time; relative words such as `yesterday` stay, since a repeat comes later."""
    if value is None:
        return None
    try:
        return format_time(user_times.parse_user_time(value, zone=ctx.engines.zone, edge=user_times.field_edge(name)))
    except BadTime:
        return " ".join(str(value).lower().split())
