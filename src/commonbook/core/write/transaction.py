"""The write transaction: runs an operation, finalizes its changes, commits them, and has their files written.

The steps of a write, in order:

1. The operation runs; it changes rows and records each change (`WriteContext.log`).
2. `Engines.before_finalize` completes its changes, once for each actor (`compose.book`).
3. `finalize` locks each touched space, checks again that names and permissions are as the operation read them, numbers
   the changes, and appends them to the signed log of each space.
4. The database commits. `RetryTransaction`, raised anywhere before, starts again at step 1. On SQLite nothing can
   change meanwhile, so nothing raises it.
5. `Engines.after_commit` writes the files. Until it has, the file journal keeps them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial

from commonbook.core.access import permissions
from commonbook.core.access import permissions as access_permissions
from commonbook.core.log import chain
from commonbook.core.tables import changes, copies, home, memories, rate_counts, spaces, supersession
from commonbook.core.tables.rate_counts import MAX_LOGGED_REFUSALS
from commonbook.core.write import idempotency
from commonbook.core.write.context import HOME_SPACE, ForeignWrite, Pending, WriteContext
from commonbook.errors import CommonbookError, NotAllowed, NotFound
from commonbook.ports.database import Reading, Result, RetryTransaction, Transaction
from commonbook.ports.engines import Engines
from commonbook.ports.files import FilesToWrite
from commonbook.values.reports import Change
from commonbook.values.request import RequestContext
from commonbook.values.spaces import Actor, Space, SpaceScope
from commonbook.values.stored_memory import StoredMemory


def write(
    engines: Engines, caller: RequestContext, operation: Callable[[WriteContext], Result], *, counted: bool = True
) -> Result:
    """Run an operation as one atomic write; on return it is durable, logged and written to its files.

    It counts against the rate limit of the actor, unless it is not `counted`. With an idempotency key, its result is
    stored as the answer; a repeat raises `Repeated` and counts for nothing.
    """
    return write_all(engines, (caller.actor,), _for_one_caller(caller, operation, counted=counted))


def _for_one_caller(
    caller: RequestContext, operation: Callable[[WriteContext], Result], *, counted: bool = True
) -> Callable[[Sequence[WriteContext]], Result]:
    def run_counted(ctx: WriteContext) -> Result:
        if counted:
            count_write(ctx)
        return operation(ctx)

    def run(contexts: Sequence[WriteContext]) -> Result:
        (ctx,) = contexts
        return run_counted(ctx) if caller.key is None else idempotency.answer_once(ctx, caller, run_counted)

    return run


def count_write(ctx: WriteContext) -> None:
    """Count a write of the actor; raise TooMany above its limit."""
    permissions.count_use(ctx.tx, ctx.actor, rate_counts.WRITE)


def write_all(
    engines: Engines,
    actors: Sequence[Actor],
    operation: Callable[[Sequence[WriteContext]], Result],
    *,
    patient: bool = True,
) -> Result:
    """Run an operation of several actors as one atomic write, with a context for each of them.

    The operation counts the write of each actor itself (`count_write`), so that the refusal of one stops no other.

    If it is not `patient`, it raises Busy as soon as a lock takes more than a moment.
    """
    result, tx, files = _commit(engines, actors, operation, patient=patient)
    # The change is committed: a file that cannot be written now stays in the journal, and `status` counts it.
    with suppress(OSError, CommonbookError):
        engines.after_commit(engines, tx, files)
    return result


def commit(
    engines: Engines, caller: RequestContext, operation: Callable[[WriteContext], Result]
) -> tuple[Result, Transaction, FilesToWrite]:
    """Run an operation and commit it, without `Engines.after_commit`.

    Return its result, its transaction, and the files that are still to be written. The journal keeps them until then.
    """
    return _commit(engines, (caller.actor,), _for_one_caller(caller, operation))


def _commit(
    engines: Engines,
    actors: Sequence[Actor],
    operation: Callable[[Sequence[WriteContext]], Result],
    *,
    patient: bool = True,
) -> tuple[Result, Transaction, FilesToWrite]:
    def run(tx: Transaction) -> tuple[Result, Transaction, FilesToWrite]:
        engines.keys.require_expected()
        all_spaces = spaces.LazySpaces(tx)
        permissions = {actor: access_permissions.PermissionSnapshot(tx, actor) for actor in actors}
        contexts = [
            WriteContext(
                tx=tx, engines=engines, actor=actors[0], permissions=permissions, spaces=all_spaces, pending=Pending()
            )
        ]
        contexts += map(contexts[0].beside, actors[1:])
        result = operation(contexts)
        for ctx in contexts:
            engines.before_finalize(ctx)
        finalize(contexts)
        return result, tx, contexts[0].pending.files_to_write

    return engines.db.write(run, patient=patient)


def finalize(contexts: Sequence[WriteContext]) -> None:
    """Finalize the write: lock the log of each touched space, number and log its changes, and check for races.

    From the lock until the commit nobody else writes to these spaces. Two things that the operation read are checked
    under the lock, and raise RetryTransaction if they changed meanwhile:

    - The names of the spaces: the operation built paths from them.
    - The permissions of the actors: no entry may follow the revocation of the right that it was made with, or the
      beginning of a review.

    Spaces are locked in the order of their ids, against deadlocks, and when all other work is done.
    """
    ctx = contexts[0]
    tx = ctx.tx
    by_space: dict[str, list[Change]] = {}
    for change in tx.recorded:
        by_space.setdefault(change.space, []).append(change)
    if ctx.pending.validity_changed:
        tx.touched.update(dict.fromkeys(affected_by(tx, ctx.spaces, ctx.pending.validity_changed)))
    touched = _spaces_of_touched(tx) if tx.touched else {}
    touched_spaces = sorted({*by_space, *touched.values()})
    last_entries = chain.lock(tx, touched_spaces)
    if _has_changed_spaces(contexts, by_space):
        raise RetryTransaction
    if any(snapshot.read_again().lost_permissions_since(snapshot) for snapshot in ctx.permissions.values()):
        raise RetryTransaction
    home.require_not_moved(tx)
    for space in touched_spaces:
        subjects = dict.fromkeys(change.subjects[0] for change in by_space.get(space, ()) if change.subjects)
        subjects.update(
            dict.fromkeys(subject for subject, space_of_subject in touched.items() if space_of_subject == space)
        )
        if subjects:
            changes.assign_numbers(tx, space, tuple(subjects))
    for space, changed in sorted(by_space.items()):
        end = last_entries.get(space, chain.BEGINNING)
        seq, digest = chain.append(tx, ctx.engines.keys, space, changed, end=end)
        if space in last_entries:
            # We hold the lock of this log: a later search for the entry waits until this transaction has ended.
            tx.commit_check = partial(chain.is_logged, space=space, seq=seq, digest=digest)


def _spaces_of_touched(tx: Transaction) -> dict[str, str]:
    """Return the space of each subject that is numbered as changed without a log entry of its own."""
    touched = {subject: space for subject, space in tx.touched.items() if space is not None}
    return touched | memories.spaces_of(tx, sorted(subject for subject, space in tx.touched.items() if space is None))


def _has_changed_spaces(contexts: Sequence[WriteContext], by_space: Mapping[str, Sequence[Change]]) -> bool:
    """Tell whether a space whose memories changed has another name now, or others than the owner are under review now.

    If an actor is not the owner, its permissions depend on the names of all spaces that changed.
    """
    ctx = contexts[0]
    is_owner = all(access_permissions.is_owner(ctx.actor) for ctx in contexts)
    named = [id_ for id_, changed in by_space.items() if not is_owner or any(change.subjects for change in changed)]
    now = spaces.get_all(ctx.tx) if not is_owner else spaces.get_many(ctx.tx, named) if named else {}
    both = [(ctx.spaces[id_], space) for id_, space in now.items() if id_ in ctx.spaces]
    return any(
        (space.id in named and space.name != before.name) or (not is_owner and space.review and not before.review)
        for before, space in both
    )


def affected_by(tx: Reading, spaces: SpaceScope, changed: Iterable[StoredMemory]) -> set[str]:
    """Return the memories that these supersede, all copies of either, what those copies supersede, and so on.

    A memory may be given in two states, before and after a change. Those given are not returned themselves, unless they
    affect each other. All copies are found at once, however many: only their numbers of changes are written. Deleted
    copies are among them, since the copies below a deleted one are tied through it.
    """
    affected: set[str] = set()
    level = list(changed)
    while level:
        superseded = supersession.predecessors_of(tx, spaces, level)
        sources = {memory.id for memory in level} | superseded
        copied = copies.tied_to(tx, spaces, sorted(sources))
        level = [copy for id_, copy in copied.items() if id_ not in affected]
        affected |= superseded | copied.keys()
    return affected


@contextmanager
def logging_refusal(engines: Engines, actor: Actor, verb: str, ids: Iterable[str]) -> Iterator[None]:
    """If the block raises NotAllowed or NotFound, log the refused attempt in the spaces of these memories.

    Also log attempts on memories named by the error; for a notice, log the attempt on its dependent. The attempt counts
    as a write of the actor, whether there are such memories or not: the write of the block itself was rolled back with
    its count.
    """
    try:
        yield
    except (NotAllowed, NotFound) as error:
        if wanted := (*ids, *(error.aimed_at if isinstance(error, NotAllowed) else ())):
            # If the home is full or busy, the caller still gets the refusal and not that error.
            with suppress(CommonbookError):
                write(engines, RequestContext(actor), partial(_note_refusals, verb=verb, ids=wanted))
        raise


def _note_refusals(ctx: WriteContext, *, verb: str, ids: Sequence[str]) -> None:
    if permissions.is_owner(ctx.actor):
        return
    writable = ctx.writable
    aimed_at = memories.get_many(ctx.tx, ctx.spaces, sorted(set(ids)))
    notices = {memory.id: memory.notice.dependent for memory in aimed_at.values() if memory.notice}
    if notices:
        ids = [notices.get(id_, id_) for id_ in ids]
        aimed_at = memories.get_many(ctx.tx, ctx.spaces, sorted(set(ids)))
    refused = [(memory.space, memory.id) for memory in aimed_at.values() if memory.space.id not in writable]
    refused += [(ctx.system_space(HOME_SPACE), id_) for id_ in sorted(set(ids) - aimed_at.keys())]
    # The counts are locked in the order of the spaces, against deadlocks.
    for space, memory_id in sorted(refused, key=lambda attempt: (attempt[0].id, attempt[1])):
        _note_refusal(ctx, space, verb=verb, memory=memory_id)


def _note_refusal(ctx: WriteContext, space: Space, *, verb: str, memory: str) -> None:
    refusals = rate_counts.count_refusal(ctx.tx, space=space.id, principal=ctx.actor.principal)
    refused = ctx.because(ForeignWrite.REFUSAL)
    former = {"not_logged": refusals.not_logged, "in_hour": refusals.former_hour} if refusals.not_logged else {}
    if refusals.number <= MAX_LOGGED_REFUSALS:
        refused.log(space, "refused", (), verb=verb, memory=memory, **former)
    elif refusals.number == MAX_LOGGED_REFUSALS + 1:
        # The number of those that follow is in the first entry of a later hour.
        refused.log(space, "refused.more", (), logged=MAX_LOGGED_REFUSALS, in_hour=refusals.hour)
