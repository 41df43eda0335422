"""The write transaction: runs an operation, finalizes its changes, commits them, and has their files written.

The steps of a write, in order:

1. The operation runs; it changes rows and records each change (`WriteContext.log`).
2. `Engines.before_finalize` completes its changes, once for each actor (`compose.book`).
3. `finalize` numbers the changes of each touched space, checks again that names and permissions are as the operation
   read them, where others may have written meanwhile, and appends the changes to the signed log of each space.
4. The database commits. `RetryTransaction`, raised anywhere before, starts again at step 1. On SQLite nothing can
   change meanwhile, so nothing raises it.
5. `Engines.after_commit` writes the files. Until it has, the file journal keeps them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial

from commonbook.core.access import permissions
from commonbook.core.access import permissions as access_permissions
from commonbook.core.log import chain
from commonbook.core.tables import changes, copies, home, memories, rate_counts, spaces, supersession
from commonbook.core.tables.rate_counts import MAX_LOGGED_REFUSALS
from commonbook.core.write import idempotency
from commonbook.core.write.context import HOME_SPACE, ForeignWrite, LogLocks, Pending, WriteContext
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
    expected_spaces: Sequence[str] = (),
) -> Result:
    """Run an operation of several actors as one atomic write, with a context for each of them.

    The operation counts the write of each actor itself (`count_write`), so that the refusal of one stops no other.

    `expected_spaces` are the ids of the spaces that the operation will probably use: if it uses no others, only these
    are read.
    """
    result, tx, files = _commit(engines, actors, operation, expected_spaces)
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
    expected_spaces: Sequence[str] = (),
) -> tuple[Result, Transaction, FilesToWrite]:
    # A grant covers the spaces below its own by name, so permissions of others than the owner need all spaces.
    expected = expected_spaces if all(map(access_permissions.is_owner, actors)) else ()

    def run(tx: Transaction) -> tuple[Result, Transaction, FilesToWrite]:
        all_spaces = spaces.LazySpaces(tx, expected)
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

    return engines.db.write(run)


def finalize(contexts: Sequence[WriteContext]) -> None:
    """Finalize the write: lock the log of each touched space, number and log its changes, and check for races.

    From the lock until the commit nobody else writes to these spaces. Two things that the operation read are checked
    under the lock, and raise RetryTransaction if they changed meanwhile:

    - The names of the spaces: the operation built paths from them.
    - The permissions of the actors: no entry may follow the revocation of the right that it was made with, or the
      beginning of a review.

    Spaces are locked in the order of their ids, against deadlocks. Queries are sent first and waited for later, so that
    the locks are held for as few round trips as possible.
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
    locks = ctx.pending.early_locks_on(touched_spaces)
    if locks is None:
        # The statements of the operation were sent before this: if we wait for a lock, all other work is done.
        locks = _request_locks(tx, touched_spaces)
    names = _request_names(contexts, by_space)
    # Where only one transaction writes at a time, permissions cannot change meanwhile.
    permissions = list(ctx.permissions.values()) if tx.has_concurrent_writers else []
    current_permissions = [snapshot.read_again() for snapshot in permissions]
    reviewed = _request_reviewed(contexts)
    # Everything that needs no answer is done before the first wait, not while others wait for these spaces.
    for space in touched_spaces:
        subjects = dict.fromkeys(change.subjects[0] for change in by_space.get(space, ()) if change.subjects)
        subjects.update(
            dict.fromkeys(subject for subject, space_of_subject in touched.items() if space_of_subject == space)
        )
        if subjects:
            changes.assign_numbers(tx, space, tuple(subjects))
    serialized = {space: chain.serialized_changes(changed) for space, changed in by_space.items()}
    last_entries = locks.last_entries()
    if _has_changed_spaces(ctx, names(), reviewed()):
        raise RetryTransaction
    if any(now.lost_permissions_since(earlier) for now, earlier in zip(current_permissions, permissions, strict=True)):
        raise RetryTransaction
    home.require_not_moved(locks.migration_facts())
    for space, changed in sorted(by_space.items()):
        end = last_entries.get(space, chain.BEGINNING)
        seq, digest = chain.append(tx, ctx.engines.keys, space, changed, serialized=serialized[space], end=end)
        if space in last_entries:
            # We hold the lock of this log: a later search for the entry waits until this transaction has ended.
            tx.commit_check = partial(chain.is_logged, space=space, seq=seq, digest=digest)


def _spaces_of_touched(tx: Transaction) -> dict[str, str]:
    """Return the space of each subject that is numbered as changed without a log entry of its own."""
    touched = {subject: space for subject, space in tx.touched.items() if space is not None}
    return touched | memories.spaces_of(tx, sorted(subject for subject, space in tx.touched.items() if space is None))


def _request_reviewed(contexts: Sequence[WriteContext]) -> Callable[[], set[str]]:
    """Request which spaces are under review now, if that decides what an actor may do and can change meanwhile."""
    tx = contexts[0].tx
    if not tx.has_concurrent_writers or all(access_permissions.is_owner(ctx.actor) for ctx in contexts):
        return set
    return spaces.reviewed_deferred(tx)


def _has_changed_spaces(ctx: WriteContext, names: Mapping[str, str], reviewed: Collection[str]) -> bool:
    """Tell whether a space has another name than the operation has read, or is under review only now."""
    if any(ctx.spaces[space].name != name for space, name in names.items()):
        return True
    return any(ctx.spaces[space].review is None for space in reviewed if space in ctx.spaces)


def lock_early(ctx: WriteContext, wanted: Sequence[str]) -> Callable[[], Collection[str]]:
    """Lock spaces for `finalize` in advance, if the operation is expected to change these and no others.

    This saves the wait in `finalize`; if the operation changes other spaces too, `finalize` requests all locks again.
    A space that another transaction has locked is left out: waiting for it here would hold the other locks during the
    whole operation. The returned function waits, and returns the spaces that were locked.
    """
    if not ctx.tx.has_concurrent_writers:
        return lambda: wanted
    locks = _request_locks(ctx.tx, wanted, if_free=True)
    ctx.pending.early_locks.append(locks)
    return locks.last_entries


def _request_locks(tx: Transaction, spaces_: Sequence[str], *, if_free: bool = False) -> LogLocks:
    return LogLocks(chain.lock_deferred(tx, spaces_, if_free=if_free), home.moved_deferred(tx))


def _request_names(
    contexts: Sequence[WriteContext], by_space: Mapping[str, Sequence[Change]]
) -> Callable[[], dict[str, str]]:
    """Request the present names of the spaces in which subjects were written; none where names cannot change meanwhile.

    If an actor is not the owner, every changed space is checked: its permissions depend on the names.
    """
    tx = contexts[0].tx
    if not tx.has_concurrent_writers:
        return dict
    any_granted = not all(access_permissions.is_owner(ctx.actor) for ctx in contexts)
    wanted = (space for space, changed in by_space.items() if any_granted or any(change.subjects for change in changed))
    return spaces.names_deferred(tx, sorted(wanted))


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
