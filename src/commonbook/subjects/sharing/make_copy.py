"""Copies a memory into another space, bound to its source: at most one copy for each root and space."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from commonbook.core.markdown import transcript
from commonbook.core.tables import copies, links, memories
from commonbook.core.write import rewound_messages, store_version
from commonbook.core.write.context import WriteContext
from commonbook.core.write.store_version import identity_fields
from commonbook.errors import BadInput, Conflict
from commonbook.ports.database import RetryTransaction
from commonbook.subjects.sharing import freshness
from commonbook.values.ids import new_id
from commonbook.values.memory import LAZY, LIVE, MODES, Refresh
from commonbook.values.sharing import ShareReceipt
from commonbook.values.spaces import Space
from commonbook.values.stored_memory import StoredCopyInfo, StoredLink, StoredMemory


def make_copy(
    ctx: WriteContext,
    source: StoredMemory,
    to: Space,
    refresh: Refresh,
    *,
    requested_by: str | None = None,
    **payload: object,
) -> ShareReceipt:
    """Copy a memory into a space as the acting principal, or return the existing copy; `payload` goes into the log.

    If another principal requested the share, that is the sharer, and the acting one has approved it.
    """
    require_shareable(source)
    existing = existing_copy(ctx, source, to)
    if existing is not None:
        return _receipt(existing, source, new=False)
    copy = _new_copy(ctx, require_given(ctx, source), to, refresh, requested_by)
    if ctx.engines.folder.keeps_files:
        # An unusable path is refused before anything is written.
        ctx.engines.folder.require_place(copy.path)
    if not copies.bind(ctx.tx, copy):
        # A concurrent transaction, of another machine, bound its copy first: return that one.
        existing = existing_copy(ctx, source, to)
        if existing is not None:
            return _receipt(existing, source, new=False)
        # That copy was unshared again in between.
        raise RetryTransaction
    (copy,) = memories.add(ctx.tx, ctx.engines.keys, [copy])
    links.add(ctx.tx, to.id, copy.links)
    ctx.log_memory(copy, "share", source.id, source_revision=source.revision, refresh=refresh, **payload)
    ctx.enqueue_files([copy])
    return _receipt(copy, source, new=True)


def require_shareable(source: StoredMemory) -> None:
    """Refuse a memory that cannot be shared: a notice, and one that is only proposed."""
    store_version.require_approved(source)
    if source.kind == "notice":
        raise BadInput(
            "a notice cannot be shared: it concerns one memory of its space", fix="share the memory that it names"
        )


def existing_copy(ctx: WriteContext, source: StoredMemory, to: Space) -> StoredMemory | None:
    """Return the live memory that stands for a root in a space: the root itself, or its copy."""
    target = {to.id: to}
    root = memories.find(ctx.tx, target, source.root)
    if root is not None and root.deleted is None:
        return root
    copy_id = copies.of_root(ctx.tx, source.root, to.id)
    copy = memories.find(ctx.tx, target, copy_id) if copy_id else None
    return copy if copy is not None and copy.deleted is None else None


def _new_copy(
    ctx: WriteContext, source: StoredMemory, to: Space, refresh: Refresh, requested_by: str | None
) -> StoredMemory:
    copy_id = new_id()
    principal = ctx.actor.principal
    approved_by = principal if requested_by not in (None, principal) else None
    return source._replace(
        **identity_fields(ctx, memory_id=copy_id, space=to, title=source.title, how="share"),
        links=(StoredLink(copy_id, "shared_from", source.id, source.content_hash),),
        session=None,
        session_space=None,
        shared=StoredCopyInfo(refresh, source.root, requested_by or principal, ctx.tx.now, approved_by=approved_by),
        decisions=(),
        supersede_reasons=(),
        message_lines=(),
    )


def _receipt(memory: StoredMemory, source: StoredMemory, *, new: bool) -> ShareReceipt:
    return ShareReceipt(
        id=memory.id,
        source=source.id,
        space=memory.space.name,
        new=new,
        refresh=memory.shared.mode if memory.shared else None,
        revision=memory.revision,
    )


def require_mode(refresh: str) -> Refresh:
    """Return a refresh mode, or refuse an unknown one."""
    if refresh not in MODES:
        raise BadInput(f"{refresh!r} is not a refresh mode", fix=f"use one of {', '.join(MODES)}")
    return refresh


def locked_memories(ctx: WriteContext, ids: Sequence[str]) -> list[StoredMemory]:
    """Lock memories until the transaction ends, and return those that exist, in the order of the ids."""
    ctx.lock(ids)
    by_id = memories.get_many(ctx.tx, ctx.spaces, ids)
    return [by_id[id_] for id_ in ids if id_ in by_id]


_FOLLOWING: Final = (LIVE, LAZY)


class GivenWords(NamedTuple):
    """A source as its copies take it over, None if all of its messages were rewound; and the modes that do so at once.

    A lazy copy mostly waits until it is opened. But a rewind removes words from recall at once.
    """

    source: StoredMemory | None
    modes: tuple[str, ...] = (LIVE,)


def of_source(ctx: WriteContext, source: StoredMemory) -> GivenWords:
    """Return the words that a source gives; a copy that follows an episode gives no rewound message either.

    A snapshot, and a copy that was edited or detached, has words of its own.
    """
    if source.shared is None:
        has_messages = source.session is not None
    else:
        has_messages = source.shared.mode in _FOLLOWING and not freshness.was_edited(source)
    rewound = rewound_messages.rewound_in(ctx.tx, ctx.spaces, source) if has_messages else frozenset()
    if not rewound:
        return GivenWords(source)
    text = transcript.without(source.text, rewound)
    if text == source.text or text is None:
        return GivenWords(source if text else None, _FOLLOWING)
    return GivenWords(store_version.with_hashes(ctx, source._replace(text=text)), _FOLLOWING)


def require_given(ctx: WriteContext, source: StoredMemory) -> StoredMemory:
    """Return a source as a copy takes it over; Conflict if all of its messages were rewound."""
    given = of_source(ctx, source).source
    if given is None:
        raise Conflict(
            f"all messages of the episode {source.id} were rewound",
            fix="`commonbook session show` still has them; append again what should stay, and share that",
        )
    return given
