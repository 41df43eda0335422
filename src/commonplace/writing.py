"""The one writing transaction: a story at a desk, sealed, committed, and its files carried out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final, TypeAlias

from commonplace import (
    audit,
    carry,
    changes,
    files,
    following,
    grants,
    home,
    memories,
    notices,
    rights,
    spaces,
    takein,
    taking,
)
from commonplace.desk import Ahead, Desk
from commonplace.errors import Busy, CommonplaceError, DiskFull, NotAllowed, NotFound
from commonplace.files import Carried
from commonplace.model import FILESYSTEM, Change
from commonplace.ports import Overtaken, Parts, Told, Transaction

# A person who saves just while we write is taken in at once; one who saves all the time, by the next look.
_ROUNDS: Final = 5


def write(parts: Parts, actor: str, story: Callable[[Desk], Told], *, expecting: str | None = None) -> Told:
    """Let a story happen whole or not at all; when this returns it is durable, logged, and in its files.

    `expecting` is the space that it will probably be about, and no other.
    """
    told, wanted = _commit(parts, actor, story, expecting)
    # The change is made: what the files cannot follow now stays in the journal, and `status` counts it.
    with suppress(OSError, CommonplaceError):
        _follow(parts, wanted)
    return told


@contextmanager
def logging_refusal(parts: Parts, actor: str, verb: str, ids: Iterable[str]) -> Iterator[None]:
    """Write into the log of each of these memories' spaces that somebody tried what it may not do there."""
    try:
        yield
    except (NotAllowed, NotFound):
        if wanted := tuple(ids):
            # A home that is full or busy does not turn the refusal into another one.
            with suppress(CommonplaceError):
                write(parts, actor, partial(_note_refusal, verb=verb, ids=wanted))
        raise


def _note_refusal(desk: Desk, *, verb: str, ids: Sequence[str]) -> None:
    writable = desk.writable
    for memory_id in ids:
        memory = memories.find(desk.tx, desk.spaces, memory_id)
        if memory is not None and memory.space.id not in writable:
            desk.log(memory.space, "refused", (), verb=verb, memory=memory_id)


def _follow(parts: Parts, wanted: Mapping[str, bytes | None]) -> None:
    """Bring the files up to what was committed, and take in what a person typed meanwhile."""
    for _ in range(_ROUNDS):
        if not wanted:
            return
        done = carry.carry_out(parts, wanted)
        strike_off(parts, done.done)
        if not done.typed:
            return
        # What a person typed while we wrote came out of the exchange: it goes into the history, or on top.
        _, wanted = _commit(parts, FILESYSTEM, partial(takein.typed, found=done.typed))
        carry.drop(parts, done.typed)


def _commit(
    parts: Parts, actor: str, story: Callable[[Desk], Told], expecting: str | None = None
) -> tuple[Told, dict[str, bytes | None]]:
    # Whoever has rights on some spaces only has them by the names of all.
    first = expecting if rights.is_owner(actor) else None

    def whole(tx: Transaction) -> tuple[Told, dict[str, bytes | None]]:
        desk = Desk(tx, parts, actor, spaces.Everything(tx, first), {}, {}, {}, {}, {})
        granted = _granted(desk)
        told = story(desk)
        following.spread(desk)
        notices.spread(desk)
        taking.take(desk)
        seal(desk, granted)
        return told, desk.carry

    return parts.db.write(whole)


_Granted: TypeAlias = Callable[[], list[tuple[str, str]]]


def seal(desk: Desk, granted: _Granted) -> None:
    """Number and log everything that the story recorded, space by space in the order of their ids.

    From the first line on nobody else writes to these spaces. One that was renamed since the story began had the story
    write paths of its old name; and the log of a space must not tell of somebody who wrote behind its own revocation.
    """
    tx = desk.tx
    by_space: dict[str, list[Change]] = {}
    for change in tx.recorded:
        by_space.setdefault(change.space, []).append(change)
    touched = {subject: space for subject, space in tx.touched.items() if space is not None}
    touched |= memories.places(tx, sorted(subject for subject, space in tx.touched.items() if space is None))
    concerned = sorted({*by_space, *touched.values()})
    # Asked in one breath, so that others wait for these spaces no longer than they must.
    asked = desk.ahead.get(tuple(concerned))
    if asked is None or not asked.ends():
        # What the story wrote goes off before this: whoever has to wait has done everything else by then.
        asked = _asked(tx, concerned)
    names, still = _names(desk, by_space), _still_granted(desk, granted)
    # Whatever can be is done before anybody waits: nothing of it happens while others are kept from these spaces.
    for space in concerned:
        subjects = dict.fromkeys(change.subjects[0] for change in by_space.get(space, ()) if change.subjects)
        subjects.update(dict.fromkeys(memory for memory, place in touched.items() if place == space))
        if subjects:
            changes.number(tx, space, tuple(subjects))
    worded = {space: audit.worded(changed) for space, changed in by_space.items()}
    ends = asked.ends()
    if any(desk.spaces[space].name != name for space, name in names().items()) or not set(granted()) <= set(still()):
        raise Overtaken
    home.require_here(asked.whereabouts())
    for space, changed in sorted(by_space.items()):
        end = ends.get(space, audit.BEGINNING)
        seq, digest = audit.append(tx, desk.parts.keys, space, changed, wording=worded[space], end=end)
        if space in ends:
            # Its chain is held: whoever looks for this entry later waits until this has ended.
            tx.proof = partial(audit.is_logged, space=space, seq=seq, digest=digest)


def ask_ahead(desk: Desk, space: str) -> None:
    """Hold a space for the seal already, where a story will change this one, and nothing else, as far as one knows.

    So nobody waits for it in the end; if the story changes more, the seal asks for all of it again. If another holds
    it, so does the seal: held from here on, it would be held while the story is told, which others wait for.
    """
    if desk.tx.locking:
        desk.ahead[space,] = _asked(desk.tx, (space,), if_free=True)


def _asked(tx: Transaction, spaces_: Sequence[str], *, if_free: bool = False) -> Ahead:
    return Ahead(audit.holding(tx, spaces_, if_free=if_free), home.whereabouts(tx))


def _names(desk: Desk, by_space: Mapping[str, Sequence[Change]]) -> Callable[[], dict[str, str]]:
    """Ask for the names of the spaces in which memories were written; where only one writes, they stay.

    Whoever has rights on some spaces only has them by their names, whatever is written there.
    """
    if not desk.tx.locking:
        return dict
    some = not rights.is_owner(desk.actor)
    wanted = (space for space, changed in by_space.items() if some or any(change.subjects for change in changed))
    return spaces.names(desk.tx, sorted(wanted))


def _granted(desk: Desk) -> _Granted:
    """Ask what is granted to the actor; the owner needs nothing granted, and where only one writes, it stays."""
    if rights.is_owner(desk.actor) or not desk.tx.locking:
        return list
    return grants.held(desk.tx, str(desk.actor))


def _still_granted(desk: Desk, granted: _Granted) -> _Granted:
    """Ask what is granted to the actor now, unless the story itself is about that."""
    own = any(change.payload.get("principal") == desk.actor for change in desk.tx.recorded)
    return granted if own else _granted(desk)


def strike_off(parts: Parts, carried: Sequence[Carried]) -> None:
    """Strike what was carried out off the journal, without waiting for the disk or insisting.

    The change itself is durable: whoever looks next would find the files right, and strike them off then.
    """
    if carried:
        with suppress(Busy, DiskFull):
            parts.db.write(partial(files.strike_off, carried=carried), durable=False)
