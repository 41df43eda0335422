"""Translates what links from files remember of their targets: hashes of another home become those of this one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from commonbook.markdown import keyed_hashes
from commonbook.tables import links, memories

if TYPE_CHECKING:
    from commonbook.model.spaces import SpaceScope
    from commonbook.model.stored_memory import StoredLink, StoredMemory
    from commonbook.ports.database import Reading
    from commonbook.ports.keys import Keys
    from commonbook.write.context import WriteContext


def with_known_hashes(tx: Reading, keys: Keys, spaces: SpaceScope, memory: StoredMemory) -> StoredMemory:
    """Return a memory whose links have hashes of this home, as far as these spaces have the targets.

    It is not known which words another home meant, so that a link is taken as confirmed. Not so that of a copy, which
    has to prove what it took over: else anybody could have a guess about an unreadable memory imported as a copy of
    it, and learn from its freshness whether the guess is right.
    """
    to_translate = [link for link in memory.links if _is_foreign(keys, link) and link != memory.source]
    if not to_translate:
        return memory
    targets = memories.get_headers(tx, spaces, sorted({link.target for link in to_translate}))
    translated = [
        link._replace(target_hash=targets[link.target].content_hash)
        if link in to_translate and link.target in targets
        else link
        for link in memory.links
    ]
    return memory._replace(links=tuple(translated))


def confirm_incoming(ctx: WriteContext, target: StoredMemory) -> None:
    """Translate what links to a memory remember of it, now that it is here; they came from files before it.

    Their files are left alone: they may belong to a clone, which would write its own hashes again.
    """
    keys = ctx.engines.keys
    incoming = links.incoming_any_space(ctx.tx, [target.id], relations=None)
    unknown = {link.source for link in incoming if _is_foreign(keys, link)}
    for memory in memories.get_many(ctx.tx, ctx.spaces, sorted(unknown)).values():
        confirmed = with_known_hashes(ctx.tx, keys, {target.space.id: target.space}, memory)
        if confirmed != memory:
            memories.replace_hashes(ctx.tx, keys, [confirmed])
            links.replace(ctx.tx, confirmed.space.id, confirmed)


def _is_foreign(keys: Keys, link: StoredLink) -> bool:
    return link.target_hash is not None and keyed_hashes.is_foreign(keys, link.target_hash)
