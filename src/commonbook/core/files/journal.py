"""The file journal, a write-ahead journal: a transaction records the files to write, and they are written after it.

An entry leaves the journal when its file is durable, so files that a crash left unwritten are written by the next
process. A save that a person made to the same file meanwhile is found on writing, and is applied as a revision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from commonbook.core.files import hand_edits, write_out
from commonbook.core.tables import file_journal, memories
from commonbook.core.tables.file_journal import WrittenFile
from commonbook.core.write import transaction
from commonbook.errors import Busy, DiskFull
from commonbook.ports.database import Transaction
from commonbook.ports.engines import Engines
from commonbook.ports.files import FilesToWrite
from commonbook.runtime import in_batches
from commonbook.values.reports import Progress, no_progress
from commonbook.values.request import FILESYSTEM_CONTEXT

if TYPE_CHECKING:
    from commonbook.core.write.context import WriteContext

# A save made while we write is applied at once. If a person saves again and again, the next scan applies the rest.
_MAX_ROUNDS: Final = 5
_BATCH: Final = 200


def write_committed(engines: Engines, tx: Transaction, files: FilesToWrite) -> None:
    """Write the files of a committed change, and apply what a person saved to them meanwhile."""
    for _ in range(_MAX_ROUNDS):
        if not files:
            return
        report = _write(engines, files, committed=(tx, files))
        if not report.saves:
            return
        # The exchange displaced a person's save: it becomes the newest revision, or an earlier one in the history.
        _, tx, files = transaction.commit(
            engines,
            FILESYSTEM_CONTEXT,
            partial(hand_edits.apply_concurrent_saves, saves=report.saves),
        )
        write_out.drop(engines, report.saves)


def _write(
    engines: Engines,
    contents: Mapping[str, bytes | None],
    *,
    recovering: bool = False,
    committed: tuple[Transaction, FilesToWrite] | None = None,
) -> write_out.WriteOutReport:
    """Write files and mark them as done; report which saves a person made after another process had done the same."""
    report = write_out.write_out(engines, contents, recovering=recovering, committed=committed)
    done_before = {file.memory for file in report.done} - mark_done(engines, report.done)
    saves = tuple(save._replace(is_later=save.memory in done_before) for save in report.saves)
    return report._replace(saves=saves)


def mark_done(engines: Engines, written: Sequence[WrittenFile]) -> frozenset[str]:
    """Remove written files from the journal, without waiting for the disk, and not at all if the database is busy.

    The change itself is durable: the next run of the journal finds the files right, and removes the entries then.
    Return the memories whose entries were still in the journal.
    """
    if written:
        with suppress(Busy, DiskFull):
            return engines.db.write(partial(file_journal.mark_done, written=written), durable=False)
    return frozenset(file.memory for file in written)


def write_pending(engines: Engines, *, progress: Progress = no_progress) -> None:
    """Write all files of the journal, and apply saves that were displaced when a process crashed."""
    saves = write_out.saves_left_by_crash(engines)
    if saves:
        transaction.write(engines, FILESYSTEM_CONTEXT, partial(hand_edits.apply_concurrent_saves, saves=saves))
        write_out.drop(engines, saves)
    with engines.db.reading() as tx:
        waiting = file_journal.pending(tx)
    for number, batch in enumerate(in_batches(waiting, _BATCH)):
        progress("writing files", number * _BATCH + len(batch), len(waiting))
        report = _write(engines, dict.fromkeys(batch), recovering=True)
        if report.saves or report.stale:
            transaction.write(engines, FILESYSTEM_CONTEXT, partial(_apply_report, report=report))
            write_out.drop(engines, report.saves)


def _apply_report(ctx: WriteContext, report: write_out.WriteOutReport) -> None:
    """Apply displaced saves, and enqueue again the files that this version of the program renders differently."""
    hand_edits.apply_concurrent_saves(ctx, report.saves)
    stale = tuple(file_journal.journal_entries(ctx.tx, report.stale))
    ctx.enqueue_files(memories.get_many(ctx.tx, ctx.spaces, stale).values())
    ctx.enqueue_space_files(ctx.spaces[id_] for id_ in stale if id_ in ctx.spaces)
