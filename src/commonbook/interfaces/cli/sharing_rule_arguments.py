"""Command line arguments of sharing rules, share requests and rate limits."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from commonbook.interfaces.cli.parser import ID_HELP
from commonbook.model.memory import MODES

if TYPE_CHECKING:
    Add = Callable[[Any, str, str], argparse.ArgumentParser]
    """Adds a command, or an action of a command, with the common options."""


_REFRESH_HELP: Final = (
    "when the copy follows its source: live (at once), lazy (when it is opened) or snapshot (by `refresh`)"
)


def rules_arguments(to: argparse.ArgumentParser, actions: Callable[[Any], Any], add: Add) -> None:
    """Add the arguments of `rules`."""
    of_rules = actions(to)
    add(of_rules, "list", "list the rules into and from your spaces, or those of --space")
    new = add(of_rules, "add", "let --space take in the memories that another space writes from now on")
    new.add_argument("source", metavar="FROM", help="the space whose memories are shared")
    new.add_argument("--kind", action="append", default=[], metavar="KIND", help="of this kind (repeatable: of any)")
    new.add_argument("--tag", action="append", default=[], metavar="TAG", help="with this tag (repeatable: with all)")
    new.add_argument("--importance", type=float, metavar="0..1", help="with at least this importance")
    new.add_argument("--approval", action="store_true", help="only after an admin of the space approves")
    new.add_argument("--refresh", choices=MODES, default=MODES[0], help=_REFRESH_HELP)
    add(of_rules, "remove", "remove a rule; the copies that it made stay").add_argument(
        "id", metavar="ID", help="its id, or its first or last digits"
    )


def pending_arguments(to: argparse.ArgumentParser) -> None:
    """Add the arguments of `pending`."""
    to.add_argument("--decided", action="store_true", help="also list decided requests")


def approve_arguments(to: argparse.ArgumentParser) -> None:
    """Add the arguments of `approve`."""
    reject_arguments(to)
    to.add_argument("--expected-version", type=int, metavar="N", help="only if the memory has this version")


def reject_arguments(to: argparse.ArgumentParser) -> None:
    """Add the arguments of `reject`."""
    to.add_argument("id", metavar="ID", help="a request or a proposed memory: its id, first or last digits, or title")
    to.add_argument("--note", default="", help="the reason")


def refresh_arguments(to: argparse.ArgumentParser, add_id: Callable[[Any], Any]) -> None:
    """Add the arguments of `refresh`: a copy, and the mode that it gets."""
    add_id(to)
    to.add_argument(
        "--mode",
        choices=MODES,
        metavar="HOW",
        help="change when the copy follows its source from now on: live (at once), lazy (when opened) or snapshot",
    )


def request_arguments(to: argparse.ArgumentParser) -> None:
    """Add the arguments of `request`."""
    to.add_argument("id", metavar="ID", help=ID_HELP)
    to.add_argument("to", metavar="SPACE", help="the space to share it into")
    to.add_argument("--refresh", choices=MODES, default=MODES[0], help=_REFRESH_HELP)


def limit_arguments(to: argparse.ArgumentParser, actions: Callable[[Any], Any], add: Add) -> None:
    """Add the arguments of `limit`."""
    of_limits = actions(to)
    add(of_limits, "list", "list the rate limits")
    new = add(of_limits, "set", "set how many times a minute an action is allowed")
    new.add_argument("what", metavar="ACTION", help="write, share, request or recall")
    new.add_argument("per_minute", metavar="N", help="how many a minute; `none` removes the limit")
    new.add_argument(
        "--principal", metavar="NAME", help="the principal; default: everybody without a limit of their own"
    )
