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
    ids = [call.id(part) for part in args.ids]
    if args.principal is None:
        return _share_into(call, ids)
    if len(ids) > 1:
        raise BadInput("one memory at a time is shared with somebody", fix="repeat the command for each of them")
    said = call.book.share_with(ids[0], args.principal, refresh=args.refresh)
    return call.tell(json_values.sharings([said]), lambda out: lineage.sharings(out, "Shared", [said]))


def _share_into(call: Call, ids: list[str]) -> int:
    args = call.args
    if len(ids) == 1:
        # What is wrong with a single one is an error like any other, with its exit code.
        one = call.book.share(ids[0], args.to, refresh=args.refresh)
        return call.tell(json_values.sharings([one]), lambda out: lineage.sharings(out, "Shared", [one]))
    said = call.book.share_many(ids, args.to, refresh=args.refresh)
    return call.tell(
        json_values.sharings(said),
        lambda out: lineage.sharings(out, "Shared", said),
        ok=not any(one.error for one in said),
    )


def _pull(call: Call) -> int:
    args = call.args
    said = call.book.pull(call.id(args.id), args.to, refresh=args.refresh)
    return call.tell(json_values.sharing(said), lambda out: lineage.sharings(out, "Pulled", [said]))


def _unshare(call: Call) -> int:
    return _told(call, "Unshared", call.book.unshare(call.id(call.args.id)))


def _refresh(call: Call) -> int:
    return _told(call, "Refreshed", call.book.refresh(call.id(call.args.id)))


def _detach(call: Call) -> int:
    return _told(call, "Detached", call.book.detach(call.id(call.args.id)))


def _adopt(call: Call) -> int:
    return _told(call, "Adopted", call.book.adopt(call.id(call.args.id)))


def _told(call: Call, did: str, said: Receipt) -> int:
    return call.tell(json_values.receipt(said), lambda out: memories.receipt(out, did, said))


def _lineage(call: Call) -> int:
    args = call.args
    memory_id = call.id(args.id)
    said = call.book.lineage(memory_id) if args.depth is None else call.book.lineage(memory_id, depth=args.depth)
    return call.tell(json_values.lineage(said), lambda out: lineage.lineage(out, said))


def _copies(call: Call) -> int:
    memory_id = call.id(call.args.id)
    said = call.book.copies(memory_id)
    return call.tell(json_values.copies(memory_id, said), lambda out: lineage.copies(out, said))


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
