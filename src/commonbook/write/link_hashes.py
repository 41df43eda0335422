"""Translates what links from files remember of their targets: revision numbers, and hashes of another home.

A program of an earlier version wrote revision numbers. Both become content hashes of this home, as far as the targets
are known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from commonbook.markdown import keyed_hashes
from commonbook.model.stored_memory import UNKNOWN_HASH, is_revision_number
from commonbook.tables import links, memories, revisions

if TYPE_CHECKING:
    from commonbook.model.memory import Revision
    from commonbook.model.spaces import SpaceScope
    from commonbook.model.stored_memory import StoredLink, StoredMemory
    from commonbook.ports.database import Reading
    from commonbook.ports.keys import Keys
    from commonbook.write.context import WriteContext


def with_known_hashes(
    tx: Reading, keys: Keys, spaces: SpaceScope, memory: StoredMemory, *, own: int | None = None
) -> StoredMemory:
    """Return a memory whose links have hashes of this home, as far as these spaces have the targets.

    `own` is the revision at which a copy had the words of its source, as an earlier program recorded it.
    """
    to_translate = [link for link in memory.links if _can_be_translated(keys, memory, link)]
    if not to_translate:
        return memory
    targets = memories.get_headers(tx, spaces, sorted({link.target for link in to_translate}))
    translated = [
        link._replace(target_hash=_translated(tx, keys, memory, link, targets.get(link.target), own))
        if link in to_translate
        else link
        for link in memory.links
    ]
    return memory._replace(links=tuple(translated))


def confirm_incoming(ctx: WriteContext, target: StoredMemory) -> None:
    """Translate what links to a memory remember of it, now that it is here; they came from files before it.

    A file with hashes of another home is left alone: it may belong to a clone, which would write its own again.
    """
    keys = ctx.engines.keys
    incoming = links.incoming_any_space(ctx.tx, [target.id], relations=None)
    unknown = {link.source for link in incoming if link.target_hash and _is_unknown(keys, link.target_hash)}
    for memory in memories.get_many(ctx.tx, ctx.spaces, sorted(unknown)).values():
        confirmed = with_known_hashes(ctx.tx, keys, {target.space.id: target.space}, memory)
        if confirmed != memory:
            memories.replace_hashes(ctx.tx, keys, [confirmed])
            links.replace(ctx.tx, confirmed.space.id, confirmed)
            if any(link.target_hash and is_revision_number(link.target_hash) for link in memory.links):
                ctx.enqueue_files([confirmed])


def _can_be_translated(keys: Keys, memory: StoredMemory, link: StoredLink) -> bool:
    """Tell whether a link remembers something that is not a hash of this home.

    What an imported copy took over stays unknown. Else anybody could have a guess about an unreadable memory imported
    as a copy of it, and learn from its freshness whether the guess is right.
    """
    is_claim = link == memory.source and memory.shared is not None and memory.shared.claimed
    return link.target_hash is not None and _is_unknown(keys, link.target_hash) and not is_claim


def _is_unknown(keys: Keys, target_hash: str) -> bool:
    return is_revision_number(target_hash) or keyed_hashes.is_foreign(keys, target_hash)


def _translated(
    tx: Reading, keys: Keys, memory: StoredMemory, link: StoredLink, target: StoredMemory | None, own: int | None
) -> str | None:
    if link.target_hash and not is_revision_number(link.target_hash):
        # It is not known which words these were. A link is taken as confirmed, a copy has to prove what it took over.
        return target.content_hash if target is not None and link != memory.source else link.target_hash
    if target is None:
        return link.target_hash
    past = _own_revision(tx, memory, own) if link == memory.source else None
    if past is not None:
        return keyed_hashes.content_hash(keys, target.id, past.title, past.text)
    return _hash_of_revision(tx, keys, target, int(link.target_hash or 0))


def _own_revision(tx: Reading, copy: StoredMemory, own: int | None) -> StoredMemory | Revision | None:
    """Return a copy as it was when it had the words of its source."""
    if own is None or own == copy.revision:
        return copy if own is not None else None
    return revisions.find(tx, copy, own)


def _hash_of_revision(tx: Reading, keys: Keys, target: StoredMemory, revision: int) -> str:
    """Return the content hash of a memory at a revision; `UNKNOWN_HASH` if that text is not known."""
    if revision == target.revision:
        return target.content_hash
    past = revisions.find(tx, target, revision)
    return keyed_hashes.content_hash(keys, target.id, past.title, past.text) if past else UNKNOWN_HASH
