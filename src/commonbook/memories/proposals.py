"""Proposed memories: lists those that wait for a decision, beside the requests to share and the notices.

They are shown to the people who may decide, and to the agent that proposed them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from commonbook.access import permissions, scope
from commonbook.model.memory import LIVE, Filter
from commonbook.model.sharing import ShareRequest
from commonbook.reasoning import inbox as notices
from commonbook.sharing import requests
from commonbook.tables import memories, sharing_requests, spaces
from commonbook.text import space_names, validation

if TYPE_CHECKING:
    from commonbook.model.reasoning import Inbox
    from commonbook.model.spaces import Actor, Space, SpaceScope
    from commonbook.model.stored_memory import StoredMemory
    from commonbook.ports.database import Reading
    from commonbook.ports.engines import Engines


def pending(engines: Engines, actor: Actor, *, space: str | None, decided: bool) -> tuple[ShareRequest, ...]:
    """Return the requests and proposals that the actor may decide or has made; with `decided`, also decided ones."""
    with engines.db.reading() as tx:
        all_spaces = spaces.get_all(tx)
        decides, proposals = _visible_proposals(tx, actor, all_spaces, space)
        if decided:
            into = sharing_requests.into_spaces(tx, decides, decided=True)
            proposals = [*(request for request in into if request.purpose == "proposal"), *proposals]
        administers = bool(decides.keys() & permissions.administered(tx, actor, all_spaces).keys())
    shares: tuple[ShareRequest, ...] = ()
    # A writer decides about proposals alone.
    if space is None or administers or not (decides or proposals):
        shares = requests.list_requests(engines, actor, space=space, decided=decided)
    # A memory that is proposed again waits, whatever was decided before.
    by_id = {request.id: request for request in (*shares, *proposals)}
    return tuple(by_id[id_] for id_ in sorted(by_id))


def inbox(engines: Engines, actor: Actor, *, space: str | None, expired: bool, limit: int, after: str | None) -> Inbox:
    """Return a page of the notices about memories that the actor may read; the first one with the newest proposals."""
    page = notices.inbox(engines, actor, space=space, expired=expired, limit=limit, after=after)
    if after is not None:
        return page
    with engines.db.reading() as tx:
        _, proposals = _visible_proposals(tx, actor, spaces.get_all(tx), space)
    return page._replace(proposals=tuple(reversed(proposals))[:limit])


def _visible_proposals(
    tx: Reading, actor: Actor, all_spaces: SpaceScope, name: str | None
) -> tuple[SpaceScope, list[ShareRequest]]:
    """Return the spaces among those that a name selects whose proposals the actor decides, and the visible proposals.

    These are the proposals to those spaces, and those that the actor has made itself.
    """
    selected = scope.select(tx, actor, name)
    to_space = {space_names.proposals_of(space.name): space for space in selected.values()}
    readable = permissions.readable(tx, actor, all_spaces)
    proposals = {id_: space for id_, space in readable.items() if space.name in to_space}
    writable = permissions.writable(tx, actor, all_spaces)
    decides = {to_space[space.name].id: to_space[space.name] for space in proposals.values()}
    decides = {id_: space for id_, space in decides.items() if id_ in writable}
    found = [
        request_of(memory, to_space[memory.space.name])
        for memory in _waiting(tx, proposals)
        if memory.author == actor.principal or to_space[memory.space.name].id in decides
    ]
    return decides, found


def _waiting(tx: Reading, proposals: SpaceScope) -> list[StoredMemory]:
    """Return the memories that wait in these spaces, the oldest first."""
    if not proposals:
        return []
    found: list[StoredMemory] = []
    cursor = None
    while batch := memories.page(tx, proposals, Filter(), after=cursor, limit=validation.MAX_PAGE):
        found += batch
        cursor = memories.cursor_position(batch[-1])
    return found[::-1]


def request_of(memory: StoredMemory, space: Space) -> ShareRequest:
    """Return a proposed memory as a request to accept it into a space."""
    return ShareRequest(
        id=memory.id,
        space=space.name,
        space_id=space.id,
        memory=memory.id,
        rule=None,
        refresh=LIVE,
        on_behalf_of=memory.author,
        requested_by=memory.author,
        requested_at=memory.created,
        title=memory.title,
        text=memory.text,
        purpose="proposal",
        version=memory.version,
    )
