"""The command `recall`: find memories and messages, or show what an agent would be given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from commonbook.core.settings.settings import PERSONAL
from commonbook.errors import BadInput
from commonbook.interfaces.cli.arguments import add_filter, add_list, filter_of, read_standard_input
from commonbook.interfaces.cli.commands import command
from commonbook.interfaces.cli.output import hits

if TYPE_CHECKING:
    from argparse import Namespace

    from commonbook.interfaces.cli.call import Call
    from commonbook.interfaces.cli.output import Output
    from commonbook.interfaces.cli.parser import Parser

_MAX_HITS: Final = 10
_MAX_PROMPT_HITS: Final = 50
_SPACE_HELP: Final = (
    "a space (repeatable); a final / adds all below it, and / alone means all that you may read; "
    "default: that of this project, and personal"
)


def _arguments(to: Parser) -> None:
    to.add_argument("query", metavar="QUERY", nargs="*", help="the query; - reads it from standard input")
    to.add_argument("-k", type=int, metavar="N", help="at most N hits (10; 50 for a prompt)")
    add_filter(to)
    to.add_argument("--session", metavar="ID", help="only messages and episodes of this session")
    to.add_argument("--exclude-session", metavar="ID", help="no messages or episodes of this session")
    to.add_argument("--exclude-last", type=int, metavar="N", help="leave out only its last N messages")
    to.add_argument("--author", metavar="NAME", help="only what this author wrote, such as user:bob")
    to.add_argument("--as-of", metavar="TIME", help="only what was valid at this time, with the present texts")
    to.add_argument("--min-confidence", type=float, metavar="0..1", help="no hits below this chance to answer")
    to.add_argument("--budget-tokens", type=int, metavar="N", help="at most as many hits as fit into N tokens")
    add_list(to, "--include", "WHAT", "also superseded, expired, notices or wishes; several with commas (repeatable)")
    to.add_argument(
        "--prompt", type=int, metavar="TOKENS", help="show what an agent would be given, in at most so many tokens"
    )
    to.add_argument("--explain", action="store_true", help="show the parts of each score, and the time of each step")


@command("recall", _arguments, space_help=_SPACE_HELP, several_spaces=True)
def _recall(call: Call) -> int:
    args = call.args
    if args.prompt is not None and args.prompt < 1:
        raise BadInput(f"a prompt of {args.prompt} tokens has room for nothing", fix="give at least 1")
    selection = filter_of(args)
    spaces = ([args.space] if args.space else []) + args.spaces
    result = call.book.recall(
        _query_text(args.query),
        spaces=spaces,
        k=_max_hits(args),
        kinds=selection.kinds,
        tags=selection.tags,
        session=args.session,
        exclude_session=args.exclude_session,
        exclude_last=args.exclude_last,
        author=args.author,
        metadata=selection.metadata,
        since=selection.since,
        until=selection.until,
        as_of=args.as_of,
        min_confidence=args.min_confidence,
        budget_tokens=args.budget_tokens,
        include=[name.strip() for value in args.include for name in value.split(",")] + ["wishes"] * bool(args.prompt),
        explain=args.explain,
        progress=call.progress,
    )
    where = " and ".join(spaces or dict.fromkeys((call.book.default_space, PERSONAL)))
    notes = call.notes_on_spaces(spaces) if spaces and not result.hits else []
    answer = {**result._asdict(), "notes": (*result.notes, *notes)}
    prompt = None if args.prompt is None else result.as_prompt(max_tokens=args.prompt)
    if prompt is not None:
        answer["prompt"] = prompt

    def show(out: Output) -> None:
        if prompt is not None:
            hits.show_prompt(out, prompt, result, where)
        else:
            for wish in result.wishes:
                out.body(wish.line)
            budgeted, limit = args.budget_tokens is not None, args.min_confidence
            hits.show_recall_result(
                out, result, where=where, explain=args.explain, min_confidence=limit, budgeted=budgeted
            )
        for note in (*notes, *(() if result.hits else call.wider_searches(spaces))):
            out.note(note)

    return call.print_answer(answer, show)


def _max_hits(args: Namespace) -> int:
    """Return how many hits are wanted; a prompt is filled better with more."""
    default = _MAX_HITS if args.prompt is None else _MAX_PROMPT_HITS
    return default if args.k is None else int(args.k)


def _query_text(words: list[str]) -> str:
    return read_standard_input() if words == ["-"] else " ".join(words)
