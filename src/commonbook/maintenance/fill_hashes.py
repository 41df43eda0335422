"""Fills in the content hashes of a book that an earlier program wrote: once, when it is opened after the migration.

SQL cannot do it, since the hashes need the key of the book. The fact `hashes` of the home says how far it got: `rows`
when every row has its hashes and every link a hash in place of a revision number, `files` when the files that have
such lines were put into the journal too. Each part is one transaction, so a kill leaves it undone or done.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from commonbook.files import journal
from commonbook.model.memory import Memory
from commonbook.model.spaces import OWNER_ACTOR
from commonbook.ports.database import Transaction
from commonbook.ports.engines import Engines
from commonbook.tables import file_journal, home, links, memories, spaces
from commonbook.write import link_hashes
from commonbook.write.context import WriteContext
from commonbook.write.pending import Pending

_BATCH: Final = 500


def fill_rows(engines: Engines) -> None:
    """Fill in the hashes of all rows, unless another process did."""
    engines.db.write(partial(_fill_rows, engines=engines))


def write_files(engines: Engines) -> None:
    """Write the files that have new lines now; what people did to files was applied before."""
    engines.db.write(partial(_enqueue_files, engines=engines))
    journal.write_pending(engines)


def _fill_rows(tx: Transaction, engines: Engines) -> None:
    # Of two processes that open the book, the second waits here and finds it done.
    spaces.lock(tx)
    if "hashes" in home.facts(tx):
        return
    ctx = _context(tx, engines)
    own_revisions = _own_revisions(ctx)
    for batch, _, _ in _batches(ctx):
        memories.replace_hashes(tx, engines.keys, batch)
    for batch, after, last in _batches(ctx):
        translated = [_translated(ctx, memory, own_revisions.get(memory.id)) for memory in batch]
        memories.replace_hashes(tx, engines.keys, translated)
        links.derive(tx, batch[0].space.id, translated, after=after, last=last)
    home.record(tx, hashes=home.HASHES_IN_ROWS if engines.folder.keeps_files else home.HASHES_IN_FILES)


def _own_revisions(ctx: WriteContext) -> dict[str, int]:
    """Return the fifth word of the lines of copies: the revision at which each copy had the words of its source."""
    lines = {copy: line for space in ctx.spaces for copy, line in memories.copy_lines(ctx.tx, space).items()}
    return {copy: int(own) for copy, line in lines.items() for own in line.split(" ")[4:5]}


def _batches(ctx: WriteContext) -> Iterator[tuple[list[Memory], str, bool]]:
    """Yield all memories in batches, each with the id before it and whether it is the last of its space."""
    for space in ctx.spaces:
        after = ""
        while batch := memories.in_space(ctx.tx, ctx.spaces, space, after=after, limit=_BATCH):
            last = len(batch) < _BATCH
            yield batch, after, last
            after = batch[-1].id


def _translated(ctx: WriteContext, memory: Memory, own: int | None) -> Memory:
    """Return a memory whose links have hashes; `own` is the revision at which a copy had the words of its source."""
    numbered = (link._replace(target_hash=link.target_hash and str(link.target_hash)) for link in memory.links)
    memory = memory._replace(links=tuple(numbered))
    return link_hashes.with_known_hashes(ctx.tx, ctx.engines.keys, ctx.spaces, memory, own=own)


def _enqueue_files(tx: Transaction, engines: Engines) -> None:
    if home.facts(tx).get("hashes") == home.HASHES_IN_FILES:
        return
    ctx = _context(tx, engines)
    for batch, _, _ in _batches(ctx):
        ctx.enqueue_files([memory for memory in batch if _has_new_lines(memory) and _is_synced(tx, memory)])
        # The journal has the memories: what they say is read again when they are written.
        ctx.pending.files_to_write.clear()
    home.replace(tx, hashes=home.HASHES_IN_FILES)


def _has_new_lines(memory: Memory) -> bool:
    """Tell whether a file has hashes, MACs or the space of a session: no earlier program wrote them."""
    return memory.deleted is None and bool(memory.links or memory.shared or memory.decisions or memory.session_space)


def _is_synced(tx: Transaction, memory: Memory) -> bool:
    """Tell whether the file of a memory is in its place and can be read: a person may be correcting another one."""
    synced = file_journal.synced_file(tx, memory.path)
    return synced is not None and synced.memory == memory.id and synced.trouble is None


def _context(tx: Transaction, engines: Engines) -> WriteContext:
    # No memory changes its meaning, so nothing is logged.
    return WriteContext(
        tx=tx, engines=engines, actor=OWNER_ACTOR, permissions={}, spaces=spaces.get_all(tx), pending=Pending()
    )
