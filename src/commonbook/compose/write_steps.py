"""The steps that complete every write in its transaction, before the changes are finalized.

`compose` hands them to the write transaction, which must not know the subjects that they belong to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from commonbook.runtime.lazy_modules import LazyModule
from commonbook.write.context import WriteContext

if TYPE_CHECKING:
    from commonbook.reasoning import notices
    from commonbook.sharing import apply_rules, propagate
else:
    # Most writes of sessions leave nothing for these.
    apply_rules = LazyModule("commonbook.sharing.apply_rules")
    notices = LazyModule("commonbook.reasoning.notices")
    propagate = LazyModule("commonbook.sharing.propagate")


def complete_changes(ctx: WriteContext) -> None:
    """Complete the changes of an operation in its transaction, until no step has left anything for another.

    The order matters, since each step may add to what the later ones look at:
    1. Copies take over the changed texts of their sources. That may apply hand edits of the copies' files, which can
       change what other memories depend on.
    2. Notices are brought up to date with what depends on superseded or deleted memories. That may apply the hand edit
       of a dependent's file: its copies follow in the next round.
    3. Sharing rules look at every memory that the operation and the first two steps have written. A copy that a rule
       makes is new: no other copy takes its text over yet, and nothing depends on it.
    """
    while True:
        if ctx.pending.changed_texts:
            propagate.propagate_to_copies(ctx)
        if ctx.pending.reasoning_changed:
            notices.update_notices(ctx)
        if ctx.pending.changed_ids:
            apply_rules.apply_rules(ctx)
        if not ctx.pending.is_incomplete:
            return
