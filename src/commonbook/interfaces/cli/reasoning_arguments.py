"""Command line arguments of `supersede`, `reinstate`, `inbox` and `triage`."""

from __future__ import annotations

import argparse

from commonbook.interfaces.cli.parser import ID_HELP
from commonbook.model.invalidation import VERDICTS


def supersede_arguments(to: argparse.ArgumentParser) -> None:
    """Add the arguments of `supersede`."""
    to.add_argument("id", metavar="OLD", help=ID_HELP)
    to.add_argument("--by", metavar="NEW", required=True, help="the memory that takes its place")
    to.add_argument("--reason", default="", metavar="TEXT", help="the reason; everybody who gets a notice reads it")


def reinstate_arguments(to: argparse.ArgumentParser) -> None:
    """Add the arguments of `reinstate`."""
    to.add_argument("id", metavar="OLD", help=ID_HELP)
    to.add_argument("--by", metavar="ID", help="only this memory no longer supersedes it; default: no memory does")


def inbox_arguments(to: argparse.ArgumentParser) -> None:
    """Add the arguments of `inbox`."""
    to.add_argument("--expired", action="store_true", help="also show expired notices")
    to.add_argument("--limit", type=int, metavar="N", help="how many (100; on a terminal all, one by one)")
    to.add_argument("--after", metavar="CURSOR", help="continue after a page: its `next`")


def triage_arguments(to: argparse.ArgumentParser) -> None:
    """Add the arguments of `triage`."""
    to.add_argument("id", metavar="ID", help="a notice, or a suspect memory with all its notices")
    to.add_argument(
        "verdict", metavar="VERDICT", choices=VERDICTS, help="keep, retract, supersede (--by) or dismiss (the notice)"
    )
    to.add_argument("--note", default="", metavar="TEXT", help="the reason; it is kept with the memory")
    to.add_argument("--by", metavar="ID", help="with supersede: the memory that takes its place")
