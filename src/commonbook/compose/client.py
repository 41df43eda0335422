"""The composition root of the remote client: wires a client to the outbox file of this machine."""

from __future__ import annotations

import os
from contextlib import closing
from typing import TYPE_CHECKING, Final

from commonbook.engines.process.clock import SystemClock
from commonbook.errors import CommonbookError
from commonbook.model.reports import Finding, OutboxStatus
from commonbook.settings.default_space import default_space

if TYPE_CHECKING:
    from commonbook.client.client import Client, Mask
    from commonbook.engines.sqlite.outbox import OutboxFile
    from commonbook.ports.keys import Clock
    from commonbook.ports.outbox import Transport
    from commonbook.settings.settings import Settings


_MAX_NAMED_MESSAGES: Final = 20
"""At most so many refused messages become findings; all are counted."""


def open_client(
    settings: Settings,
    transport: Transport,
    *,
    clock: Clock | None = None,
    background: bool = True,
    senders: int = 4,
    answer_seconds: float = 15.0,
) -> Client:
    """Make a client that sends through this transport; messages are masked and stored in the outbox first."""
    from commonbook.text.masking import clean_for_storage

    return open_outbox(
        settings.outbox,
        transport,
        mask=clean_for_storage,
        clock=clock,
        space=default_space(settings),
        busy_seconds=settings.busy_seconds,
        background=background,
        senders=senders,
        answer_seconds=answer_seconds,
    )


def _outbox(settings: Settings, clock: Clock) -> OutboxFile:
    from commonbook.engines.sqlite.outbox import OutboxFile

    return OutboxFile(settings.outbox, clock=clock, busy_seconds=settings.busy_seconds)


def outbox_status(settings: Settings, clock: Clock) -> OutboxStatus:
    """Return the status of this machine's outbox, if there is one; an error becomes a finding and is not raised."""
    if not os.path.exists(settings.outbox):
        return OutboxStatus()
    from commonbook.ports.outbox import REFUSED

    try:
        with closing(_outbox(settings, clock)) as outbox:
            counts, refused = outbox.counts(), outbox.held(REFUSED, limit=_MAX_NAMED_MESSAGES)
    except CommonbookError as error:
        return OutboxStatus(findings=(Finding("outbox", settings.outbox, error.message, error.fix),))
    findings = [
        Finding(
            what="refused message",
            where=f"message {message.id} of the outbox, session {message.session} in {message.context.space}",
            why=message.reason,
            fix="correct the cause, then let the client `retry` it, or `discard` it",
        )
        for message in refused
    ]
    return OutboxStatus(*counts, tuple(findings))


def open_outbox(
    path: str,
    transport: Transport,
    *,
    mask: Mask,
    space: str,
    clock: Clock | None = None,
    busy_seconds: float = 5.0,
    background: bool = True,
    senders: int = 4,
    answer_seconds: float = 15.0,
) -> Client:
    """Make a client whose outbox is this file, created if it does not exist, and send its messages.

    `space` is the space of messages that name none.
    """
    from commonbook.client.client import Client
    from commonbook.engines.sqlite.outbox import OutboxFile

    clock = clock or SystemClock()
    return Client(
        transport,
        OutboxFile(path, clock=clock, busy_seconds=busy_seconds),
        mask=mask,
        clock=clock,
        space=space,
        background=background,
        senders=senders,
        answer_seconds=answer_seconds,
    )
