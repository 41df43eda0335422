"""The commands of sharing: share, pull, unshare, refresh, detach, adopt, lineage and copies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from commonbook.errors import BadInput
from commonbook.interfaces import json_values
from commonbook.interfaces.cli.output import lineage, memories

if TYPE_CHECKING:
    from commonbook.interfaces.cli.call import Call, Command
    from commonbook.model.memory import Receipt


def _share(call: Call) -> int:
    args = call.args
    ids = [call.resolve_id(part) for part in args.ids]
    if args.principal is None:
        return _share_into(call, ids)
    if len(ids) > 1:
        raise BadInput("--with shares one memory at a time", fix="repeat the command for each of them")
    receipt = call.book.share_with(ids[0], args.principal, refresh=args.refresh)
    return call.print_answer(
        json_values.share_receipts_json([receipt]), lambda out: lineage.show_share_receipts(out, "Shared", [receipt])
    )


def _share_into(call: Call, ids: list[str]) -> int:
    args = call.args
    if len(ids) == 1:
        # For a single memory, a failure is an error with its own exit code.
        receipt = call.book.share(ids[0], args.to, refresh=args.refresh)
        return call.print_answer(
            json_values.share_receipts_json([receipt]),
            lambda out: lineage.show_share_receipts(out, "Shared", [receipt]),
        )
    receipts = call.book.share_many(ids, args.to, refresh=args.refresh)
    return call.print_answer(
        json_values.share_receipts_json(receipts),
        lambda out: lineage.show_share_receipts(out, "Shared", receipts),
        ok=not any(receipt.error for receipt in receipts),
    )


def _pull(call: Call) -> int:
    args = call.args
    receipt = call.book.pull(call.resolve_id(args.id), args.to, refresh=args.refresh)
    return call.print_answer(
        json_values.share_receipt_json(receipt), lambda out: lineage.show_share_receipts(out, "Pulled", [receipt])
    )


def _unshare(call: Call) -> int:
    receipt = call.book.unshare(call.resolve_id(call.args.id))
    # The file of the copy is gone, so only programs get its path.
    row = (receipt.id, receipt.space, receipt.path, str(receipt.version))
    return call.print_answer(
        json_values.receipt_json(receipt),
        lambda out: out.report(f"Unshared {out.name(receipt.id)}: removed from {receipt.space}", [row]),
    )


def _refresh(call: Call) -> int:
    copy_id, mode = call.resolve_id(call.args.id), call.args.mode
    if mode is not None:
        return _print_receipt(call, f"Set to {mode}", call.book.set_refresh(copy_id, mode))
    return _print_receipt(call, "Refreshed", call.book.refresh(copy_id))


def _detach(call: Call) -> int:
    return _print_receipt(call, "Detached", call.book.detach(call.resolve_id(call.args.id)))


def _adopt(call: Call) -> int:
    return _print_receipt(call, "Adopted", call.book.adopt(call.resolve_id(call.args.id)))


def _print_receipt(call: Call, verb: str, receipt: Receipt) -> int:
    return call.print_answer(json_values.receipt_json(receipt), lambda out: memories.show_receipt(out, verb, receipt))


def _lineage(call: Call) -> int:
    args = call.args
    memory_id = call.resolve_id(args.id)
    tree = call.book.lineage(memory_id) if args.depth is None else call.book.lineage(memory_id, depth=args.depth)
    return call.print_answer(json_values.lineage_json(tree), lambda out: lineage.show_lineage(out, tree))


def _copies(call: Call) -> int:
    memory_id = call.resolve_id(call.args.id)
    copies = call.book.copies(memory_id)
    return call.print_answer(json_values.copies_json(memory_id, copies), lambda out: lineage.show_copies(out, copies))


COMMANDS: Final[Mapping[str, Command]] = {
    "share": _share,
    "pull": _pull,
    "unshare": _unshare,
    "refresh": _refresh,
    "detach": _detach,
    "adopt": _adopt,
    "lineage": _lineage,
    "copies": _copies,
}
