"""Supersession: which live memories supersede others, by one rule for marks, copies, invalidations and the index.

It owns no table: it reads the links `supersedes` of the table `link`.

A memory is superseded by every live memory but itself that has a link `supersedes` to it. Where a single one is named,
it is the newest: ids sort by the time they were made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from commonbook.model.memory import Link, Memory
from commonbook.model.spaces import SpaceScope
from commonbook.ports.database import Reading
from commonbook.tables import links, memories

_RELATIONS: Final = ("supersedes",)

Superseding = Mapping[str, Sequence[Memory]]
"""The live memories that supersede each memory that is superseded, by its id; without their texts."""


def request_links(tx: Reading, spaces: SpaceScope, ids: Sequence[str]) -> Callable[[], list[Link]]:
    """Send the query for the links that supersede these memories; the result is read by calling what is returned."""
    return links.incoming_deferred(tx, spaces, ids, relations=_RELATIONS)


def superseding(
    tx: Reading,
    spaces: SpaceScope,
    ids: Sequence[str],
    *,
    anywhere: bool = False,
    requested: Callable[[], list[Link]] | None = None,
) -> Superseding:
    """Return the live memories of the given spaces that supersede these memories.

    To show a memory to an actor, give the spaces that it may read: memories elsewhere are neither counted nor named.
    To store or decide something for everybody, give all spaces.

    `anywhere` is for a writer that decides who is notified, and may miss nothing: `spaces` are all that the transaction
    knows, and RetryTransaction is raised if a memory is in a space that was made since. `requested` is the result of
    `request_links` for the same memories, where the query was sent earlier.
    """
    if anywhere:
        incoming = links.incoming_any_space(tx, ids, relations=_RELATIONS)
        sources = memories.get_headers_any_space(tx, spaces, _source_ids(incoming))
    else:
        incoming = (requested or request_links(tx, spaces, ids))()
        sources = memories.get_headers(tx, spaces, _source_ids(incoming))
    live: dict[str, list[Memory]] = {}
    for link in incoming:
        source = sources.get(link.source)
        if source is not None and source.deleted is None and link.source != link.target:
            live.setdefault(link.target, []).append(source)
    return live


def newest(superseding: Superseding) -> dict[str, str]:
    """Return the id of the newest memory that supersedes each."""
    return {target: max(memory.id for memory in sources) for target, sources in superseding.items()}


def _source_ids(incoming: Sequence[Link]) -> list[str]:
    return sorted({link.source for link in incoming})
