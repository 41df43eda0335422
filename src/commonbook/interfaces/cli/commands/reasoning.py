"""Commands of reasoning: reflect, supersede, reinstate, dependents, inbox, triage."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from commonbook.errors import BadInput, CommonbookError
from commonbook.interfaces.cli.arguments import (
    ID_HELP,
    add_id,
    add_list,
    add_no_mask,
    add_text,
    standard_input,
    tags,
    text_of,
)
from commonbook.interfaces.cli.commands import SPACE_TO_WRITE_HELP, command
from commonbook.interfaces.cli.output import is_terminal, memories, reasoning, sharing
from commonbook.values.invalidation import DISMISS, KEEP, RETRACT, SUPERSEDE, VERDICTS
from commonbook.values.sharing import ShareRequest

if TYPE_CHECKING:
    from commonbook.interfaces.cli.call import Call
    from commonbook.interfaces.cli.output import Output
    from commonbook.interfaces.cli.parser import Parser
    from commonbook.values.invalidation import Verdict
    from commonbook.values.reasoning import Inbox, InboxItem

_PAGE: Final = 100


def _reflect_arguments(to: Parser) -> None:
    add_text(to)
    add_no_mask(to)
    add_list(to, "--on", "ID", "a source of the reflection (repeatable, at least one)")
    to.add_argument("--title", help="the title; else the text's first line")
    add_list(to, "--tag", "TAG", "a tag, or several (repeatable)")
    to.add_argument("--importance", type=float, metavar="0..1", help="how much it matters")
    to.add_argument("--occurred", metavar="TIME", help="when it happened")
    to.add_argument("--key", help="an idempotency key: sent again, it is stored once")


@command("reflect", _reflect_arguments, space_help=SPACE_TO_WRITE_HELP)
def _reflect(call: Call) -> int:
    args = call.args
    text = text_of(args, piped=True)
    if text is None:
        raise BadInput("there is nothing to remember", fix="give a text, - for standard input, or --file")
    if not args.on:
        raise BadInput(
            "a reflection needs the memories that it was reasoned from",
            fix="name each with --on ID; `commonbook recall` finds them",
        )
    receipt = call.book.reflect(
        text,
        [call.resolve_id(part) for part in args.on],
        space=args.space,
        title=args.title,
        tags=tags(args.tag),
        importance=args.importance,
        occurred=args.occurred,
        key=args.key,
        mask=args.mask,
    )
    return call.print_answer(receipt, lambda out: memories.show_new(out, "Reflected", receipt))


def _supersede_arguments(to: Parser) -> None:
    to.add_argument("id", metavar="OLD", help=ID_HELP)
    to.add_argument("--by", metavar="NEW", required=True, help="the memory that takes its place")
    to.add_argument("--reason", default="", metavar="TEXT", help="the reason; everybody who gets a notice reads it")


@command("supersede", _supersede_arguments)
def _supersede(call: Call) -> int:
    args = call.args
    report = call.book.supersede(call.resolve_id(args.id), call.resolve_id(args.by), reason=args.reason)
    return call.print_answer(report, lambda out: reasoning.show_superseded(out, report))


def _reinstate_arguments(to: Parser) -> None:
    to.add_argument("id", metavar="OLD", help=ID_HELP)
    to.add_argument("--by", metavar="ID", help="only this memory no longer supersedes it; default: no memory does")


@command("reinstate", _reinstate_arguments)
def _reinstate(call: Call) -> int:
    args = call.args
    report = call.book.reinstate(call.resolve_id(args.id), by=call.resolve_id(args.by) if args.by is not None else None)
    return call.print_answer(report, lambda out: reasoning.show_reinstated(out, report))


@command("dependents", add_id)
def _dependents(call: Call) -> int:
    memory_id = call.resolve_id(call.args.id)
    dependents = call.book.dependents(memory_id)
    return call.print_answer(
        dependents, lambda out: reasoning.show_dependents(out, call.book.lineage(memory_id, depth=0), dependents)
    )


def _triage_arguments(to: Parser) -> None:
    to.add_argument("id", metavar="ID", help="a notice, or a suspect memory with all its notices")
    to.add_argument(
        "verdict", metavar="VERDICT", choices=VERDICTS, help="keep, retract, supersede (--by) or dismiss (the notice)"
    )
    to.add_argument("--note", default="", metavar="TEXT", help="the reason; it is kept with the memory")
    to.add_argument("--by", metavar="ID", help="with supersede: the memory that takes its place")


@command("triage", _triage_arguments)
def _triage(call: Call) -> int:
    args = call.args
    by = call.resolve_id(args.by) if args.by is not None else None
    report = call.book.triage(call.resolve_id(args.id), args.verdict, note=args.note, by=by)
    return call.print_answer(report, lambda out: reasoning.show_triage_report(out, report))


# --- the inbox


def _inbox_arguments(to: Parser) -> None:
    to.add_argument("--expired", action="store_true", help="also show expired notices")
    to.add_argument("--limit", type=int, metavar="N", help="how many (100; on a terminal all, one by one)")
    to.add_argument("--after", metavar="CURSOR", help="continue after a page: its `next`")


@command("inbox", _inbox_arguments)
def _inbox(call: Call) -> int:
    args = call.args
    if not args.json and is_terminal(sys.stdin) and is_terminal(sys.stdout):
        return _triage_interactively(call)
    limit = _PAGE if args.limit is None else args.limit
    page = call.book.inbox(space=args.space, expired=args.expired, limit=limit, after=args.after)
    return call.print_answer(page, lambda out: _show_inbox(call, out, page))


def _show_inbox(call: Call, out: Output, page: Inbox) -> None:
    if page.proposals:
        sharing.show_requests(out, page.proposals)
    if page.items or not page.proposals:
        reasoning.show_inbox(out, page, expired=not page.items and _any_expired(call))


def _any_expired(call: Call) -> bool:
    """Return whether there are expired notices that --expired would show."""
    args = call.args
    return not args.expired and bool(call.book.inbox(space=args.space, expired=True, after=args.after).items)


# --- the inbox on a terminal: one by one, with a decision about each

_NOTICES_AT_ONCE: Final = 50
_APPROVE: Final = "approve"
_REJECT: Final = "reject"
_NEXT: Final = "next"
_QUIT: Final = "quit"
_VERDICTS: Final[Mapping[str, Verdict]] = {verdict: verdict for verdict in (KEEP, RETRACT, SUPERSEDE, DISMISS)}
_CHOICES: Final = {word[0]: word for word in (*_VERDICTS, _NEXT, _QUIT)}
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


def _triage_interactively(call: Call) -> int:
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
        reasoning.show_empty_inbox(call.out, expired=_any_expired(call))
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
        limit = _NOTICES_AT_ONCE if args.limit is None else args.limit
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
            report = call.book.triage(item.id, _VERDICTS[choice], note=note, by=by)
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
    line = standard_input().readline()
    if not line:
        raise _InputClosed
    return line.decode(errors="replace").strip()
