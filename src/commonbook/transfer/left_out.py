"""Names what an export leaves out: it is in the database alone, and `migrate` moves it."""

from __future__ import annotations

from commonbook.model.spaces import SpaceScope
from commonbook.ports.database import Reading
from commonbook.tables import api_keys, grants, memories, rate_limits, revisions, sharing_requests, sharing_rules


def left_out(tx: Reading, chosen: SpaceScope, *, edited_messages: int, whole: bool) -> tuple[str, ...]:
    """Return what an export of these spaces leaves out, with numbers; `whole` is an export of all spaces.

    Of messages that were edited in their episodes, the words that they had before are left out.
    """
    if not chosen:
        return ()
    _, deleted, _ = memories.counts(tx, chosen)
    requests = [sharing_requests.into_spaces(tx, chosen, decided=decided) for decided in (False, True)]
    counts = [
        (revisions.count(tx, chosen), "past revision", "past revisions"),
        (edited_messages, "earlier text of a message", "earlier texts of messages"),
        (deleted, "deleted memory", "deleted memories"),
        (len(grants.on_spaces(tx, chosen)), "grant", "grants"),
        (sum(sharing_rules.count(tx, space) for space in chosen), "sharing rule", "sharing rules"),
        (len({request.id for page in requests for request in page}), "share request", "share requests"),
    ]
    if whole:
        limits = [limit for limit in rate_limits.get_all(tx) if limit.set_by]
        counts += [
            (len(api_keys.get_all(tx)), "API key", "API keys"),
            (len(limits), "rate limit", "rate limits"),
        ]
    named = [f"{count:,} {one if count == 1 else many}" for count, one, many in counts if count]
    return (*named, "the signed log")
