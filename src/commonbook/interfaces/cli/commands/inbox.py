"""`inbox` on a terminal: what is in doubt, one by one, each with what can be done about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from commonbook.errors import CommonbookError
from commonbook.interfaces.cli.input import text
from commonbook.interfaces.cli.output import reasoning
from commonbook.model.invalidation import DISMISS, KEEP, RETRACT, SUPERSEDE

if TYPE_CHECKING:
    from commonbook.interfaces.cli.call import Call
    from commonbook.model.reasoning import InboxItem


_PAGE: Final = 50
_NEXT: Final = "next"
_QUIT: Final = "quit"
_CHOICES: Final = {word[0]: word for word in (KEEP, RETRACT, SUPERSEDE, DISMISS, _NEXT, _QUIT)}
_ASKED: Final = "[k]eep, [r]etract, [s]upersede, [d]ismiss, [n]ext or [q]uit? "
_HELP: Final = (
    "  k  keep: it still holds, as it stands\n"
    "  r  retract: it holds no longer\n"
    "  s  supersede: another memory holds instead\n"
    "  d  dismiss: what was said has nothing to do with it\n"
    "  n  next: decide another time\n"
    "  q  quit"
)


class _Gone(Exception):
    """Nobody is there to answer any more."""


def go_through(call: Call) -> int:
    """Show the notices one by one and do what is chosen; whenever it ends, what was decided stays decided."""
    chosen: list[str] = []
    seen = 0
    try:
        for one in _waiting(call):
            if seen:
                call.out.line("")
            seen += 1
            reasoning.notice(call.out, one, reasoning.titles(call.book, filter(None, one.path[1:-1])))
            chosen.append(_decide(call, one))
            if chosen[-1] == _QUIT:
                break
    except (_Gone, KeyboardInterrupt) as end:
        call.out.line("")
        _sum_up(call, chosen)
        if isinstance(end, KeyboardInterrupt):
            raise
        return 0
    if seen:
        _sum_up(call, chosen)
    else:
        reasoning.nothing(call.out, expired=any_expired(call))
    return 0


def _sum_up(call: Call, chosen: Sequence[str]) -> None:
    decided = sum(choice not in {_NEXT, _QUIT} for choice in chosen)
    call.out.note(f"{decided} decided")


def _waiting(call: Call) -> Iterator[InboxItem]:
    """Yield what waits: all of it, or with --limit one page."""
    args, after = call.args, call.args.after
    while True:
        limit = _PAGE if args.limit is None else args.limit
        page = call.book.inbox(space=args.space, expired=args.expired, limit=limit, after=after)
        yield from page.items
        after = page.next
        if after is None:
            return
        if args.limit is not None:
            call.out.note(f"there are more: --after {after}")
            return


def _decide(call: Call, said: InboxItem) -> str:
    """Ask until there is an answer that the book takes, and return what was chosen."""
    while True:
        choice = _chosen()
        if choice in (_NEXT, _QUIT):
            return choice
        typed = _ask("the id of what holds instead: ") if choice == SUPERSEDE else ""
        if choice == SUPERSEDE and not typed:
            continue
        note = _ask("a note (Enter for none): ")
        try:
            by = call.id(typed) if typed else None
            done = call.book.triage(said.id, choice, note=note, by=by)
        except CommonbookError as error:
            # Somebody else may have decided meanwhile, or it is not theirs to decide: they can go on with the next.
            call.out.line(error.message, "red")
            call.out.line(f"fix: {error.fix}")
            continue
        reasoning.triaged(call.out, done)
        return choice


def _chosen() -> str:
    while True:
        typed = _ask(_ASKED).lower()
        choice = _CHOICES.get(typed, typed)
        if choice in _CHOICES.values():
            return choice
        print(_HELP)


def _ask(question: str) -> str:
    """Return what somebody types on one line."""
    print(question, end="", flush=True)
    line = text.standard_input().readline()
    if not line:
        raise _Gone
    return line.decode(errors="replace").strip()


def any_expired(call: Call) -> bool:
    """Tell whether there are notices that were not asked for because they have expired."""
    args = call.args
    return not args.expired and bool(call.book.inbox(space=args.space, expired=True, after=args.after).items)
