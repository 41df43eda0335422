"""The metrics of a book: figures about pending work that a monitoring system watches, read in one transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from commonbook.model.reports import Metrics
from commonbook.tables import copies, file_journal, jobs, memories, sessions, spaces
from commonbook.text import space_names

if TYPE_CHECKING:
    from commonbook.model.spaces import Space
    from commonbook.ports.engines import Engines, RecallService


def read_metrics(engines: Engines, recall_service: RecallService) -> Metrics:
    """Return the figures of the whole book."""
    index_lag = recall_service.pending_changes(engines)
    with engines.db.reading() as tx:
        every = spaces.get_all(tx)
        notice_spaces = {id_: space for id_, space in every.items() if _holds_notices(space)}
        waiting, failed = jobs.counts(tx, every)
        due_since = jobs.due_since(tx, engines.clock.now())
        return Metrics(
            unsettled_messages=sessions.counts(tx, every)[2],
            waiting_jobs=waiting,
            failed_jobs=failed,
            queue_age_seconds=max(0.0, (engines.clock.now() - due_since).total_seconds()) if due_since else 0.0,
            stale_copies=copies.count_outdated(tx),
            open_notices=memories.counts(tx, notice_spaces)[0].get("notice", 0),
            index_lag=index_lag,
            pending_files=len(file_journal.pending(tx)),
        )


def _holds_notices(space: Space) -> bool:
    return space.name.rpartition("/")[2] == space_names.INVALIDATIONS
