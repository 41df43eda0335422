"""The file journal: writes pending files after a commit, and takes in what a person saved meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from commonbook.errors import Busy, DiskFull
from commonbook.files import write_out
from commonbook.model.spaces import FILESYSTEM_ACTOR
from commonbook.ports.engines import Engines
from commonbook.runtime.batches import in_batches
from commonbook.runtime.lazy_modules import LazyModule
from commonbook.tables import files, memories
from commonbook.tables.files import WrittenFile

if TYPE_CHECKING:
    from commonbook.files import hand_edits
    from commonbook.write import transaction
    from commonbook.write.context import WriteContext
else:
    # A home with an empty journal is opened without the modules that write.
    hand_edits = LazyModule("commonbook.files.hand_edits")
    transaction = LazyModule("commonbook.write.transaction")


# A save made while we write is applied at once. Of a person who saves all the time, the next scan applies the rest.
_ROUNDS: Final = 5
_BATCH: Final = 200


def write_committed(engines: Engines, contents: Mapping[str, bytes | None]) -> None:
    """Write the files of a committed change, and apply what a person saved to them meanwhile.

    `contents` has the files by the ids of their memories; None stands for a file to remove.
    """
    for _ in range(_ROUNDS):
        if not contents:
            return
        done = write_out.write_out(engines, contents)
        mark_done(engines, done.done)
        if not done.typed:
            return
        # A person's save came out of the exchange: it becomes the newest revision, or an earlier one in the history.
        _, contents = transaction.commit(
            engines, FILESYSTEM_ACTOR, partial(hand_edits.apply_concurrent_saves, found=done.typed)
        )
        write_out.drop(engines, done.typed)


def mark_done(engines: Engines, carried: Sequence[WrittenFile]) -> None:
    """Strike what was carried out off the journal, without waiting for the disk or insisting.

    The change itself is durable: whoever looks next would find the files right, and strike them off then.
    """
    if carried:
        with suppress(Busy, DiskFull):
            engines.db.write(partial(files.mark_done, carried=carried), durable=False)


def work_off(engines: Engines) -> None:
    """Carry out what is in the journal, and what a crash left half way."""
    found = write_out.leftovers(engines)
    if found:
        transaction.write(engines, FILESYSTEM_ACTOR, partial(hand_edits.apply_concurrent_saves, found=found))
        write_out.drop(engines, found)
    with engines.db.reading() as tx:
        waiting = files.pending(tx)
    for some in in_batches(waiting, _BATCH):
        done = write_out.write_out(engines, dict.fromkeys(some), again=True)
        mark_done(engines, done.done)
        if done.typed or done.stale:
            transaction.write(engines, FILESYSTEM_ACTOR, partial(_settle, done=done))
            write_out.drop(engines, done.typed)


def _settle(ctx: WriteContext, done: write_out.WriteOutReport) -> None:
    """Take in what was typed, and issue anew what another version of this program would have written otherwise."""
    hand_edits.apply_concurrent_saves(ctx, done.typed)
    stale = tuple(files.journal_entries(ctx.tx, done.stale))
    ctx.enqueue_files(memories.get_many(ctx.tx, ctx.spaces, stale).values())
