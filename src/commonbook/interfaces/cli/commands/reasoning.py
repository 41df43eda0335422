"""The commands of what rests on what: reflect, supersede, reinstate, dependents, inbox and triage."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from commonbook.errors import BadInput
from commonbook.interfaces import json_values
from commonbook.interfaces.cli.commands.inbox import any_expired
from commonbook.interfaces.cli.input import text as input_text
from commonbook.interfaces.cli.output import memories, reasoning
from commonbook.model.ids import format_time
from commonbook.model.reasoning import Dependent, Inbox, InboxItem, MemoryReference, SupersedeReport

if TYPE_CHECKING:
    from commonbook.interfaces.cli.call import Call, Command


_PAGE: Final = 100


def _reflect(call: Call) -> int:
    args = call.args
    text = input_text.text_of(args, piped=True)
    if text is None:
        raise BadInput("there is nothing to remember", fix="give a text, - for standard input, or --file")
    said = call.book.reflect(
        text,
        [call.id(part) for part in args.on],
        space=args.space,
        title=args.title,
        tags=input_text.tags(args.tag),
        importance=args.importance,
        occurred=args.occurred,
        key=args.key,
    )
    if not said.new:
        return call.tell(json_values.receipt(said), lambda out: memories.repeated(out, said))
    return call.tell(json_values.receipt(said), lambda out: memories.receipt(out, "Reflected", said))


def _supersede(call: Call) -> int:
    args = call.args
    said = call.book.supersede(call.id(args.id), call.id(args.by), reason=args.reason)
    return call.tell(said._asdict(), lambda out: reasoning.superseded(out, said))


def _reinstate(call: Call) -> int:
    args = call.args
    said = call.book.reinstate(call.id(args.id), by=call.id(args.by) if args.by is not None else None)
    return call.tell(_reinstated(said), lambda out: reasoning.reinstated(out, said))


def _dependents(call: Call) -> int:
    memory_id = call.id(call.args.id)
    said = call.book.dependents(memory_id)
    return call.tell(
        {"id": memory_id, "dependents": [_dependent(one) for one in said]},
        lambda out: reasoning.dependents(out, call.book.lineage(memory_id, depth=0), said),
    )


def _inbox(call: Call) -> int:
    args = call.args
    if not args.json and input_text.is_terminal(sys.stdin) and input_text.is_terminal(sys.stdout):
        from commonbook.interfaces.cli.commands.inbox import go_through

        return go_through(call)
    limit = _PAGE if args.limit is None else args.limit
    said = call.book.inbox(space=args.space, expired=args.expired, limit=limit, after=args.after)
    return call.tell(_told(said), lambda out: reasoning.inbox(out, said, expired=not said.items and any_expired(call)))


def _triage(call: Call) -> int:
    args = call.args
    by = call.id(args.by) if args.by is not None else None
    said = call.book.triage(call.id(args.id), args.verdict, note=args.note, by=by)
    return call.tell(said._asdict(), lambda out: reasoning.triaged(out, said))


COMMANDS: Final[Mapping[str, Command]] = {
    "reflect": _reflect,
    "supersede": _supersede,
    "reinstate": _reinstate,
    "dependents": _dependents,
    "inbox": _inbox,
    "triage": _triage,
}


# --- as JSON


def _reinstated(said: SupersedeReport) -> dict[str, Any]:
    return {**said._asdict(), "by": said.by or None}


def _dependent(said: Dependent) -> dict[str, Any]:
    return {**said._asdict(), "path": list(said.path)}


def _told(said: Inbox) -> dict[str, Any]:
    return {"notices": [_waiting(one) for one in said.items], "next": said.next}


def _waiting(said: InboxItem) -> dict[str, Any]:
    return {
        **said._asdict(),
        "dependent": _mention(said.dependent),
        "invalidated": _mention(said.invalidated),
        "invalidating": _mention(said.invalidating) if said.invalidating else None,
        "at": format_time(said.at),
        "expires": json_values.time_or_none(said.expires),
        "path": list(said.path),
    }


def _mention(said: MemoryReference) -> dict[str, Any]:
    return {**said._asdict(), "deleted": json_values.time_or_none(said.deleted)}
