"""Open notices: which memories wait for a decision, and about which invalidations.

A memory is suspect if a notice about it is open. So nobody has to walk up a chain of reasoning to mark what is read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Final, NamedTuple

from commonbook.model.invalidation import ENDED, Invalidation, Notice
from commonbook.model.spaces import SpaceScope
from commonbook.model.stored_memory import StoredLink, StoredMemory
from commonbook.ports.database import Reading
from commonbook.tables import copies, links, memories

NOTICE_RELATION: Final = "related_to"
"""The relation of the link from a notice to the memory that it is about."""


class OpenNotice(NamedTuple):
    """A notice that is not settled: the memory, without its text, and its content."""

    memory: StoredMemory
    notice: Notice


def about(tx: Reading, spaces: SpaceScope, dependents: Sequence[str]) -> dict[str, list[OpenNotice]]:
    """Return the open notices about some memories, by the id of each; `spaces` are all that the transaction knows."""
    related = _from_notices(links.incoming_any_space(tx, dependents, relations=(NOTICE_RELATION,)))
    headers = memories.get_headers_any_space(tx, spaces, sorted({link.source for link in related}))
    wanted = frozenset(link.target for link in related)
    found: dict[str, list[OpenNotice]] = {}
    for memory in headers.values():
        if memory.notice is not None and memory.notice.dependent in wanted and is_open(memory):
            found.setdefault(memory.notice.dependent, []).append(OpenNotice(memory, memory.notice))
    return found


def keys_about(tx: Reading, dependents: Sequence[str]) -> dict[str, set[tuple[str, str]]]:
    """Return the keys of the invalidations that open notices about some memories tell of, by the id of each."""
    return keys_among(tx, links.incoming_any_space(tx, dependents, relations=(NOTICE_RELATION,)))


def keys_among(tx: Reading, incoming: Iterable[StoredLink]) -> dict[str, set[tuple[str, str]]]:
    """Return the same from links to the memories, which were read before."""
    related = _from_notices(incoming)
    notices = memories.get_notices(tx, sorted({link.source for link in related}))
    wanted = frozenset(link.target for link in related)
    found: dict[str, set[tuple[str, str]]] = {}
    for id_, notice in notices.items():
        if notice.dependent in wanted and _has_own_id(id_, notice):
            found.setdefault(notice.dependent, set()).add(notice.key)
    return found


def is_open(memory: StoredMemory) -> bool:
    """Tell whether a memory is a notice that is not settled; id and link must be those that we would give it.

    Somebody may have edited its file while the database was lost.
    """
    notice = memory.notice
    if notice is None or memory.deleted is not None or not _has_own_id(memory.id, notice):
        return False
    return any((link.relation, link.target) == (NOTICE_RELATION, notice.dependent) for link in memory.links)


def doubted_by(memory: StoredMemory) -> str | None:
    """Return the memory that is suspect because this one is an open notice about it; None if it is no such notice.

    It is suspect unless it has a decision of its own. About a successor that has ended, nothing is suspect.
    """
    notice = memory.notice
    return notice.dependent if notice is not None and notice.invalidating != ENDED and is_open(memory) else None


def _has_own_id(id_: str, notice: Notice) -> bool:
    return id_ == notice_id(notice.dependent, Invalidation(*notice.key))


def notice_id(dependent: str, cause: Invalidation) -> str:
    """Return the id of the notice about a dependent and an invalidation: a hash, the same on every machine."""
    digits = sha256(f"{dependent} {cause.invalidated} {cause.invalidating}".encode()).hexdigest()
    return f"{digits[:8]}-{digits[8:12]}-8{digits[13:16]}-a{digits[17:20]}-{digits[20:32]}"


def _from_notices(incoming: Iterable[StoredLink]) -> list[StoredLink]:
    # Many other memories may be related to one: the ids of notices look different.
    return [link for link in incoming if link.relation == NOTICE_RELATION and _is_notice_id(link.source)]


def _is_notice_id(id_: str) -> bool:
    """Tell whether an id has the form of `notice_id`, and not that of other memories: a UUID of version 7."""
    return id_[14:15] == "8" and id_[19:20] == "a"


def open_causes(
    memory: StoredMemory,
    sources: Mapping[str, StoredMemory],
    noticed: Mapping[str, Collection[tuple[str, str]]],
    endings: Mapping[str, Iterable[Invalidation]],
) -> set[tuple[str, str]]:
    """Return the keys of the invalidations that wait for a decision about a memory.

    A copy inherits those of its source, unless they were decided at the copy or at the source. `sources` are those
    along the tie, `noticed` the keys of the open notices about all of them, `endings` their successors that have ended.
    """
    undecided: set[tuple[str, str]] = set()
    for member in reversed(copies.chain_of(memory, sources)):
        inherited = {key for key in undecided if member.id not in key}
        own = noticed.get(member.id, ())
        undecided = (inherited | {*own} | {ending.key for ending in endings.get(member.id, ())}) - member.settled_causes
    return undecided
