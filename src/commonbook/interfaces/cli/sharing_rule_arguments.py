"""Arguments of the commands about sharing rules, requests and rate limits."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from commonbook.model.memory import MODES

if TYPE_CHECKING:
    from commonbook.interfaces.cli.commands.sharing_rules import Add


_REFRESH_HELP: Final = "live (follows its source), lazy (when it is read) or snapshot (never)"


# --- what can be typed


def rules_arguments(to: argparse.ArgumentParser, actions: Callable[[Any], Any], add: Add) -> None:
    """The options of `rules`."""
    of_rules = actions(to)
    add(of_rules, "list", "list the rules into and from your spaces, or those of --space")
    new = add(of_rules, "add", "let --space take in from now on what another space writes")
    new.add_argument("source", metavar="FROM", help="the space to take from")
    new.add_argument("--kind", action="append", default=[], metavar="KIND", help="of this kind (repeatable: of any)")
    new.add_argument("--tag", action="append", default=[], metavar="TAG", help="with this tag (repeatable: with all)")
    new.add_argument("--importance", type=float, metavar="0..1", help="at least so important")
    new.add_argument("--approval", action="store_true", help="only once an admin of the space agrees")
    new.add_argument("--refresh", choices=MODES, default=MODES[0], help=_REFRESH_HELP)
    add(of_rules, "remove", "remove a rule; what it took in stays").add_argument("id", metavar="ID")


def pending_arguments(to: argparse.ArgumentParser) -> None:
    """The options of `pending`."""
    to.add_argument("--decided", action="store_true", help="what was decided too")


def approve_arguments(to: argparse.ArgumentParser) -> None:
    """The options of `approve` and `reject`."""
    to.add_argument("id", metavar="ID", help="the id of a request, or its first or last digits")
    to.add_argument("--note", default="", help="why")


def request_arguments(to: argparse.ArgumentParser) -> None:
    """The options of `request`."""
    to.add_argument("id", metavar="ID", help="an id, its first or last digits, or its file's name")
    to.add_argument("to", metavar="SPACE", help="the space that is to take it in")
    to.add_argument("--refresh", choices=MODES, default=MODES[0], help=_REFRESH_HELP)


def limit_arguments(to: argparse.ArgumentParser, actions: Callable[[Any], Any], add: Add) -> None:
    """The options of `limit`."""
    of_limits = actions(to)
    add(of_limits, "list", "list how often principals may do something")
    new = add(of_limits, "set", "set how often a minute something may be done")
    new.add_argument("what", metavar="ACTION", help="share or request")
    new.add_argument("per_minute", metavar="N", help="how often a minute; `none` takes the limit away")
    new.add_argument("--principal", metavar="NAME", help="by whom; else by everybody without a limit of its own")
