"""Runs an operation in a transaction that a dry run rolls back."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from commonbook.files import scan
from commonbook.files.scan import Result_co
from commonbook.model.request import RequestContext
from commonbook.write.transaction import write

if TYPE_CHECKING:
    from commonbook.model.spaces import Actor
    from commonbook.ports.engines import Engines
    from commonbook.write.context import WriteContext


class _Rollback(Exception):
    """Raised to roll back the transaction of a dry run."""


def write_unless_dry(
    engines: Engines, actor: Actor, operation: scan.ScanAwareOperation[Result_co], *, dry_run: bool
) -> Result_co:
    """Run an operation in a transaction, which a dry run rolls back; return its result."""
    if not dry_run:
        return scan.write_with_scan(engines, RequestContext(actor), operation)
    results: list[Result_co] = []

    def roll_back(ctx: WriteContext) -> None:
        results.append(operation(ctx, scanned=True))
        raise _Rollback

    with suppress(_Rollback):
        write(engines, RequestContext(actor), roll_back)
    return results[-1]
