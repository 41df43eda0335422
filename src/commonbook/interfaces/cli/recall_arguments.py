"""Command line arguments of `recall`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from commonbook.interfaces.cli.parser import Parser


def recall_arguments(to: Parser, *, add_filter: Callable[[Parser], None]) -> None:
    """Add the arguments of `recall`; `add_filter` adds those that it shares with other commands."""
    to.add_argument("query", metavar="QUERY", nargs="*", help="the query; - reads it from standard input")
    to.add_argument("-k", type=int, metavar="N", help="at most N hits (10; 50 for a prompt)")
    add_filter(to)
    to.add_argument("--session", metavar="ID", help="only messages and episodes of this session")
    to.add_argument("--author", metavar="NAME", help="only what this author wrote, such as user:bob")
    to.add_argument("--as-of", metavar="TIME", help="only what was valid at this time, with the present texts")
    to.add_argument("--min-confidence", type=float, metavar="0..1", help="no hits below this chance to answer")
    to.add_argument("--budget-tokens", type=int, metavar="N", help="at most as many hits as fit into N tokens")
    to.add_argument(
        "--include",
        action="append",
        default=[],
        metavar="WHAT",
        help="also superseded, expired or notices, or several with commas (repeatable)",
    )
    to.add_argument(
        "--prompt", type=int, metavar="TOKENS", help="show what an agent would be given, in at most so many tokens"
    )
    to.add_argument("--explain", action="store_true", help="show the parts of each score, and the time of each step")
