"""The steps that complete every write: in its transaction before the changes are finalized, and after the commit.

`compose` hands them to the write transaction, which must not know the subjects that they belong to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from commonbook.files import journal
from commonbook.reasoning import notices
from commonbook.sharing import apply_rules, propagate
from commonbook.write.context import step

if TYPE_CHECKING:
    from commonbook.ports.engines import AfterCommit, BeforeFinalize

BEFORE_FINALIZE: Final[tuple[BeforeFinalize, ...]] = (
    step(propagate.propagate_to_copies),
    step(notices.update_notices),
    step(apply_rules.apply_rules),
)
"""The steps of every write that run in its transaction, behind the operation, before its changes are finalized.

The order matters, since each step may add to what the later ones look at:
1. Copies take over the changed texts of their sources. That may apply hand edits of the copies' files, which can change
   what other memories depend on.
2. Notices are brought up to date with what depends on superseded or deleted memories.
3. Sharing rules look at every memory that the operation and the first two steps have written. A copy that a rule makes
   is new: no other copy takes its text over yet, and nothing depends on it.
"""

AFTER_COMMIT: Final[AfterCommit] = journal.write_committed
"""The step of every write that runs when its transaction is committed."""
