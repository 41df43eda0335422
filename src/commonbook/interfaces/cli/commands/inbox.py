"""`inbox` on a terminal: show the proposals and notices one by one and ask for a decision about each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final, cast

from commonbook.errors import CommonbookError
from commonbook.interfaces.cli.input import text
from commonbook.interfaces.cli.output import reasoning
from commonbook.model.invalidation import DISMISS, KEEP, RETRACT, SUPERSEDE
from commonbook.model.sharing import ShareRequest

if TYPE_CHECKING:
    from commonbook.interfaces.cli.call import Call
    from commonbook.model.invalidation import Verdict
    from commonbook.model.reasoning import InboxItem


_PAGE: Final = 50
_APPROVE: Final = "approve"
_REJECT: Final = "reject"
_NEXT: Final = "next"
_QUIT: Final = "quit"
_CHOICES: Final = {word[0]: word for word in (KEEP, RETRACT, SUPERSEDE, DISMISS, _NEXT, _QUIT)}
_QUESTION: Final = "[k]eep, [r]etract, [s]upersede, [d]ismiss, [n]ext or [q]uit? "
_PROPOSAL_CHOICES: Final = {word[0]: word for word in (_APPROVE, _REJECT, _NEXT, _QUIT)}
_PROPOSAL_QUESTION: Final = "[a]pprove, [r]eject, [n]ext or [q]uit? "
_PROPOSAL_HELP: Final = (
    "  a  approve: it is a memory of the space from now on\n"
    "  r  reject: it is deleted\n"
    "  n  next: decide later\n"
    "  q  quit"
)
_HELP: Final = (
    "  k  keep: it is still valid as it is\n"
    "  r  retract: it is no longer valid\n"
    "  s  supersede: another memory takes its place\n"
    "  d  dismiss: the notice does not concern it\n"
    "  n  next: decide later\n"
    "  q  quit"
)


class _InputClosed(Exception):
    """Standard input has ended, so there are no more answers."""


def triage_interactively(call: Call) -> int:
    """Show the notices one by one and apply each decision at once; an interruption keeps the earlier ones."""
    choices: list[str] = []
    shown = 0
    try:
        for item in _waiting_items(call):
            if shown:
                call.out.line("")
            shown += 1
            choices.append(_decide_proposal(call, item) if isinstance(item, ShareRequest) else _decide(call, item))
            if choices[-1] == _QUIT:
                break
    except (_InputClosed, KeyboardInterrupt) as end:
        call.out.line("")
        _print_summary(call, choices)
        if isinstance(end, KeyboardInterrupt):
            raise
        return 0
    if shown:
        _print_summary(call, choices)
    else:
        reasoning.show_empty_inbox(call.out, expired=any_expired(call))
    return 0


def _print_summary(call: Call, choices: Sequence[str]) -> None:
    decided = sum(choice not in {_NEXT, _QUIT} for choice in choices)
    call.out.note(f"{decided} decided")


def _waiting_items(call: Call) -> Iterator[InboxItem | ShareRequest]:
    """Yield the waiting proposals that the actor may decide, then the notices: all of them, or a page with --limit."""
    args, after = call.args, call.args.after
    if after is None:
        waiting = (request for request in call.book.pending(space=args.space) if request.purpose == "proposal")
        yield from islice((request for request in waiting if request.requested_by != call.book.actor), args.limit)
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


def _decide_proposal(call: Call, proposal: ShareRequest) -> str:
    """Show a proposed memory, and ask until the book accepts a decision; return the choice."""
    reasoning.show_proposal(call.out, proposal)
    while True:
        choice = _ask_choice(_PROPOSAL_QUESTION, _PROPOSAL_CHOICES, _PROPOSAL_HELP)
        if choice in (_NEXT, _QUIT):
            return choice
        note = _ask("a note (Enter for none): ")
        try:
            if choice == _APPROVE:
                # The memory that was shown, and not what somebody has made of it since.
                decided = call.book.approve(proposal.id, note=note, expected_version=proposal.version)
            else:
                decided = call.book.reject(proposal.id, note=note)
        except CommonbookError as error:
            _show_error(call, error)
            continue
        call.out.line(f"{decided.state.capitalize()}: {call.out.name(decided.memory)}")
        return choice


def _show_error(call: Call, error: CommonbookError) -> None:
    """Show a refusal: somebody else may have decided meanwhile, or the actor has no right to; the next item follows."""
    call.out.line(error.message, "red")
    call.out.line(f"fix: {error.fix}")


def _decide(call: Call, item: InboxItem) -> str:
    """Show a notice, and ask until the book accepts a decision; return the choice."""
    reasoning.show_notice(call.out, item, reasoning.titles(call.book, filter(None, item.path[1:-1])))
    while True:
        choice = _ask_choice(_QUESTION, _CHOICES, _HELP)
        if choice in (_NEXT, _QUIT):
            return choice
        successor = _ask("the id of the memory that takes its place: ") if choice == SUPERSEDE else ""
        if choice == SUPERSEDE and not successor:
            continue
        note = _ask("a note (Enter for none): ")
        try:
            by = call.resolve_id(successor) if successor else None
            report = call.book.triage(item.id, cast("Verdict", choice), note=note, by=by)
        except CommonbookError as error:
            _show_error(call, error)
            continue
        reasoning.show_triage_report(call.out, report)
        return choice


def _ask_choice(question: str, choices: Mapping[str, str], explanation: str) -> str:
    while True:
        answer = _ask(question).lower()
        choice = choices.get(answer, answer)
        if choice in choices.values():
            return choice
        print(explanation)


def _ask(question: str) -> str:
    """Return the next line of standard input."""
    print(question, end="", flush=True)
    line = text.standard_input().readline()
    if not line:
        raise _InputClosed
    return line.decode(errors="replace").strip()


def any_expired(call: Call) -> bool:
    """Tell whether there are expired notices that --expired would show."""
    args = call.args
    return not args.expired and bool(call.book.inbox(space=args.space, expired=True, after=args.after).items)
