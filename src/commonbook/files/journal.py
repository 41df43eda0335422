"""The file journal: writes pending files after a commit, and takes in what a person saved meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from commonbook.errors import Busy, DiskFull
from commonbook.files import write_out
from commonbook.model.spaces import FILESYSTEM_ACTOR
from commonbook.ports.engines import Parts
from commonbook.runtime.batches import in_batches
from commonbook.runtime.lazy_modules import LazyModule
from commonbook.tables import files, memories
from commonbook.tables.files import Carried

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


def write_committed(parts: Parts, contents: Mapping[str, bytes | None]) -> None:
    """Write the files of a committed change, and apply what a person saved to them meanwhile.

    `contents` has the files by the ids of their memories; None stands for a file to remove.
    """
    for _ in range(_ROUNDS):
        if not contents:
            return
        done = write_out.carry_out(parts, contents)
        strike_off(parts, done.done)
        if not done.typed:
            return
        # A person's save came out of the exchange: it becomes the newest revision, or an earlier one in the history.
        _, contents = transaction.commit(parts, FILESYSTEM_ACTOR, partial(hand_edits.typed, found=done.typed))
        write_out.drop(parts, done.typed)


def strike_off(parts: Parts, carried: Sequence[Carried]) -> None:
    """Strike what was carried out off the journal, without waiting for the disk or insisting.

    The change itself is durable: whoever looks next would find the files right, and strike them off then.
    """
    if carried:
        with suppress(Busy, DiskFull):
            parts.db.write(partial(files.strike_off, carried=carried), durable=False)


def settle_journal(parts: Parts) -> None:
    """Carry out what is in the journal, and what a crash left half way."""
    found = write_out.leftovers(parts)
    if found:
        transaction.write(parts, FILESYSTEM_ACTOR, partial(hand_edits.typed, found=found))
        write_out.drop(parts, found)
    with parts.db.reading() as tx:
        waiting = files.pending(tx)
    for some in in_batches(waiting, _BATCH):
        done = write_out.carry_out(parts, dict.fromkeys(some), again=True)
        strike_off(parts, done.done)
        if done.typed or done.stale:
            transaction.write(parts, FILESYSTEM_ACTOR, partial(_settle, done=done))
            write_out.drop(parts, done.typed)


def _settle(ctx: WriteContext, done: write_out.CarriedOut) -> None:
    """Take in what was typed, and issue anew what another version of this program would have written otherwise."""
    hand_edits.typed(ctx, done.typed)
    stale = tuple(files.journal(ctx.tx, done.stale))
    ctx.issue(memories.several(ctx.tx, ctx.spaces, stale).values())
