"""Rebuild: make the derived rows (tags, marks, hashes, links, copies) again, and read every Markdown file again."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from commonbook.files import scan
from commonbook.log import chain
from commonbook.model.request import FILESYSTEM_CONTEXT
from commonbook.tables import copies, file_journal, links, memories, spaces
from commonbook.write.transaction import write

if TYPE_CHECKING:
    from commonbook.model.reports import Progress, SyncReport
    from commonbook.ports.engines import Engines
    from commonbook.write.context import WriteContext

_BATCH: Final = 500


def rebuild(engines: Engines, *, progress: Progress) -> SyncReport:
    """Make all derived rows again in batches, then scan all files; other processes may write meanwhile."""
    with engines.db.reading() as tx:
        all_spaces = spaces.get_all(tx)
        kinds, deleted, _ = memories.counts(tx, all_spaces)
    total, done = sum(kinds.values()) + deleted, 0
    for space in all_spaces:
        after: str | None = ""
        while after is not None:
            after, count = write(engines, FILESYSTEM_CONTEXT, partial(_derive, space=space, after=after))
            done += count
            progress("deriving", done, max(done, total))
    write(engines, FILESYSTEM_CONTEXT, lambda ctx: file_journal.force_read(ctx.tx))
    return scan.scan(engines, progress=progress)


def _derive(ctx: WriteContext, space: str, after: str) -> tuple[str | None, int]:
    """Derive for a batch of memories; return the last id, or None at the end, and the size of the batch."""
    chain.lock(ctx.tx, [space])
    batch = memories.in_space(ctx.tx, ctx.spaces, space, after=after, limit=_BATCH)
    last = len(batch) < _BATCH
    memories.derive(ctx.tx, ctx.engines.keys, space, batch, after=after, last=last)
    links.derive(ctx.tx, space, batch, after=after, last=last)
    copies.derive(ctx.tx, space, batch, after=after, last=last)
    return (None if last else batch[-1].id), len(batch)
