"""The write transaction: it runs an operation, finalizes and commits its changes, and has their files written.

The steps between the operation and `seal` (`Parts.before_seal`) and the step behind the commit (`Parts.after_commit`)
are handed in. `compose` lists them, and says why they run in that order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial

from commonbook.access import permissions as access_permissions
from commonbook.errors import CommonbookError, NotAllowed, NotFound
from commonbook.log import chain
from commonbook.model.reports import Change
from commonbook.model.spaces import Actor
from commonbook.ports.database import Result, RetryTransaction, Transaction
from commonbook.ports.engines import Engines
from commonbook.tables import changes, home, memories, spaces
from commonbook.write.context import WriteContext
from commonbook.write.pending import EarlyLocks, Pending


def write(engines: Engines, actor: Actor, operation: Callable[[WriteContext], Result]) -> Result:
    """Let a story happen whole or not at all; when this returns it is durable, logged, and in its files."""
    return write_all(engines, (actor,), _for_one_actor(operation))


def _for_one_actor(operation: Callable[[WriteContext], Result]) -> Callable[[Sequence[WriteContext]], Result]:
    return lambda contexts: operation(contexts[0])


def write_all(
    engines: Engines,
    actors: Sequence[Actor],
    operation: Callable[[Sequence[WriteContext]], Result],
    *,
    expecting: Sequence[str] = (),
) -> Result:
    """Let what several do happen in one transaction, whole or not at all: the story has a desk for each of them.

    `expecting` are the spaces that it will probably be about, and no others.
    """
    told, files = _commit(engines, actors, operation, expecting)
    # The change is made: a file that cannot be written now stays in the journal, and `status` counts it.
    with suppress(OSError, CommonbookError):
        engines.after_commit(engines, files)
    return told


def commit(
    engines: Engines, actor: Actor, operation: Callable[[WriteContext], Result]
) -> tuple[Result, dict[str, bytes | None]]:
    """Run an operation and commit it, without the step behind the commit.

    Return its result, and the files that are left to write: their contents by the ids of their memories, None for a
    file to remove. The journal has them until they are written.
    """
    return _commit(engines, (actor,), _for_one_actor(operation))


@contextmanager
def logging_refusal(engines: Engines, actor: Actor, verb: str, ids: Iterable[str]) -> Iterator[None]:
    """Write into the log of each of these memories' spaces that somebody tried what it may not do there."""
    try:
        yield
    except (NotAllowed, NotFound):
        if wanted := tuple(ids):
            # A home that is full or busy does not turn the refusal into another one.
            with suppress(CommonbookError):
                write(engines, actor, partial(_note_refusal, verb=verb, ids=wanted))
        raise


def _note_refusal(ctx: WriteContext, *, verb: str, ids: Sequence[str]) -> None:
    writable = ctx.writable
    for memory_id in ids:
        memory = memories.find(ctx.tx, ctx.spaces, memory_id)
        if memory is not None and memory.space.id not in writable:
            ctx.log(memory.space, "refused", (), verb=verb, memory=memory_id)


def _commit(
    engines: Engines,
    actors: Sequence[Actor],
    operation: Callable[[Sequence[WriteContext]], Result],
    expecting: Sequence[str] = (),
) -> tuple[Result, dict[str, bytes | None]]:
    # Whoever has rights on some spaces only has them by the names of all.
    first = expecting if all(map(access_permissions.is_owner, actors)) else ()

    def whole(tx: Transaction) -> tuple[Result, dict[str, bytes | None]]:
        there = spaces.LazySpaces(tx, first)
        permissions = {actor: access_permissions.PermissionSnapshot(tx, actor) for actor in actors}
        contexts = [
            WriteContext(
                tx=tx, engines=engines, actor=actors[0], permissions=permissions, spaces=there, pending=Pending()
            )
        ]
        contexts += map(contexts[0].beside, actors[1:])
        told = operation(contexts)
        for ctx in contexts:
            for step in engines.before_seal:
                step(ctx)
        finalize(contexts)
        return told, contexts[0].pending.files_to_write

    return engines.db.write(whole)


def finalize(contexts: Sequence[WriteContext]) -> None:
    """Number and log everything that the story recorded, space by space in the order of their ids.

    From the first line on nobody else writes to these spaces. One that was renamed since the story began had the story
    write paths of its old name; and the log of a space must not tell of somebody who wrote behind its own revocation.
    """
    ctx = contexts[0]
    tx = ctx.tx
    by_space: dict[str, list[Change]] = {}
    for change in tx.recorded:
        by_space.setdefault(change.space, []).append(change)
    touched = {subject: space for subject, space in tx.touched.items() if space is not None}
    touched |= memories.spaces_of(tx, sorted(subject for subject, space in tx.touched.items() if space is None))
    concerned = sorted({*by_space, *touched.values()})
    # Asked in one breath, so that others wait for these spaces no longer than they must.
    asked = ctx.pending.early_locks_on(concerned)
    if asked is None:
        # What the story wrote goes off before this: whoever has to wait has done everything else by then.
        asked = _request_locks(tx, concerned)
    names = _names(contexts, by_space)
    # Where only one writes, rights stay as they are.
    permissions = [held for held in ctx.permissions.values() if tx.for_update]
    still = [held.now() for held in permissions]
    # Whatever can be is done before anybody waits: nothing of it happens while others are kept from these spaces.
    for space in concerned:
        subjects = dict.fromkeys(change.subjects[0] for change in by_space.get(space, ()) if change.subjects)
        subjects.update(dict.fromkeys(memory for memory, place in touched.items() if place == space))
        if subjects:
            changes.assign_numbers(tx, space, tuple(subjects))
    worded = {space: chain.serialized_changes(changed) for space, changed in by_space.items()}
    ends = asked.ends()
    if any(ctx.spaces[space].name != name for space, name in names().items()):
        raise RetryTransaction
    if any(now.is_less_than(before) for now, before in zip(still, permissions, strict=True)):
        raise RetryTransaction
    home.require_not_moved(asked.whereabouts())
    for space, changed in sorted(by_space.items()):
        end = ends.get(space, chain.BEGINNING)
        seq, digest = chain.append(tx, ctx.engines.keys, space, changed, wording=worded[space], end=end)
        if space in ends:
            # Its chain is held: whoever looks for this entry later waits until this has ended.
            tx.commit_check = partial(chain.is_logged, space=space, seq=seq, digest=digest)


def lock_early(ctx: WriteContext, wanted: Sequence[str]) -> Callable[[], Collection[str]]:
    """Hold spaces for the seal already, where a story will change these, and no others, as far as one knows.

    So nobody waits for them in the end; if the story changes others, the seal asks for all of it again. One that
    another holds is left out, which what is returned finds out: waited for here, it would be held while the story is
    told, which others wait for.
    """
    if not ctx.tx.for_update:
        return lambda: wanted
    asked = _request_locks(ctx.tx, wanted, if_free=True)
    ctx.pending.early_locks.append(asked)
    return asked.ends


def _request_locks(tx: Transaction, spaces_: Sequence[str], *, if_free: bool = False) -> EarlyLocks:
    return EarlyLocks(chain.lock_deferred(tx, spaces_, if_free=if_free), home.moved_deferred(tx))


def _names(contexts: Sequence[WriteContext], by_space: Mapping[str, Sequence[Change]]) -> Callable[[], dict[str, str]]:
    """Ask for the names of the spaces in which memories were written; where only one writes, they stay.

    Whoever has rights on some spaces only has them by their names, whatever is written there.
    """
    tx = contexts[0].tx
    if not tx.for_update:
        return dict
    some = not all(access_permissions.is_owner(ctx.actor) for ctx in contexts)
    wanted = (space for space, changed in by_space.items() if some or any(change.subjects for change in changed))
    return spaces.names_deferred(tx, sorted(wanted))
