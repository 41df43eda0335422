"""The commands of what rests on what: reflect, supersede, reinstate, dependents, inbox and triage."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from commonbook.doors import doubts, intake, jsons, showing
from commonbook.doubt import Dependent, Inbox, Mention, Superseded, Waiting
from commonbook.errors import BadInput
from commonbook.model import stamp

if TYPE_CHECKING:
    from commonbook.doors.call import Call, Command

_PAGE: Final = 100


def _reflect(call: Call) -> int:
    args = call.args
    text = intake.text_of(args, piped=True)
    if text is None:
        raise BadInput("there is nothing to remember", fix="give a text, - for standard input, or --file")
    said = call.book.reflect(
        text,
        [call.id(part) for part in args.on],
        space=args.space,
        title=args.title,
        tags=intake.tags(args.tag),
        importance=args.importance,
        occurred=args.occurred,
        key=args.key,
    )
    if not said.new:
        return call.tell(jsons.receipt(said), lambda out: showing.repeated(out, said))
    return call.tell(jsons.receipt(said), lambda out: showing.receipt(out, "Reflected", said))


def _supersede(call: Call) -> int:
    args = call.args
    said = call.book.supersede(call.id(args.id), call.id(args.by), reason=args.reason)
    return call.tell(said._asdict(), lambda out: doubts.superseded(out, said))


def _reinstate(call: Call) -> int:
    args = call.args
    said = call.book.reinstate(call.id(args.id), by=call.id(args.by) if args.by is not None else None)
    return call.tell(_reinstated(said), lambda out: doubts.reinstated(out, said))


def _dependents(call: Call) -> int:
    memory_id = call.id(call.args.id)
    said = call.book.dependents(memory_id)
    return call.tell(
        {"id": memory_id, "dependents": [_dependent(one) for one in said]},
        lambda out: doubts.dependents(out, call.book.lineage(memory_id, depth=0), said),
    )


def _inbox(call: Call) -> int:
    args = call.args
    if not args.json and intake.is_terminal(sys.stdin) and intake.is_terminal(sys.stdout):
        from commonbook.doors.inbox import go_through

        return go_through(call)
    limit = _PAGE if args.limit is None else args.limit
    said = call.book.inbox(space=args.space, expired=args.expired, limit=limit, after=args.after)
    return call.tell(_told(said), lambda out: doubts.inbox(out, said, expired=not said.items and any_expired(call)))


def any_expired(call: Call) -> bool:
    """Tell whether there are notices that were not asked for because they have expired."""
    args = call.args
    return not args.expired and bool(call.book.inbox(space=args.space, expired=True, after=args.after).items)


def _triage(call: Call) -> int:
    args = call.args
    by = call.id(args.by) if args.by is not None else None
    said = call.book.triage(call.id(args.id), args.verdict, note=args.note, by=by)
    return call.tell(said._asdict(), lambda out: doubts.triaged(out, said))


COMMANDS: Final[Mapping[str, Command]] = {
    "reflect": _reflect,
    "supersede": _supersede,
    "reinstate": _reinstate,
    "dependents": _dependents,
    "inbox": _inbox,
    "triage": _triage,
}


# --- as JSON


def _reinstated(said: Superseded) -> dict[str, Any]:
    return {**said._asdict(), "by": said.by or None}


def _dependent(said: Dependent) -> dict[str, Any]:
    return {**said._asdict(), "path": list(said.path)}


def _told(said: Inbox) -> dict[str, Any]:
    return {"notices": [_waiting(one) for one in said.items], "next": said.next}


def _waiting(said: Waiting) -> dict[str, Any]:
    return {
        **said._asdict(),
        "dependent": _mention(said.dependent),
        "invalidated": _mention(said.invalidated),
        "invalidating": _mention(said.invalidating) if said.invalidating else None,
        "at": stamp(said.at),
        "expires": jsons.time_or_none(said.expires),
        "path": list(said.path),
    }


def _mention(said: Mention) -> dict[str, Any]:
    return {**said._asdict(), "deleted": jsons.time_or_none(said.deleted)}
