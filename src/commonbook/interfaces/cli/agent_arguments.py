"""Command line arguments of `install` and `uninstall`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from commonbook.interfaces.cli.parser import Parser


def install_arguments(to: argparse.ArgumentParser) -> None:
    """Add the arguments of `install`."""
    to.add_argument("client", metavar="CLIENT", nargs="?", help="the agent; --list shows all")
    to.add_argument("--list", action="store_true", help="list the agents, and where they have the book")
    _scope(to)
    to.add_argument(
        "--no-permissions",
        action="store_false",
        dest="permissions",
        help="do not allow the harmless tools: the agent then asks before each call",
    )
    to.add_argument(
        "--no-hooks",
        action="store_false",
        dest="hooks",
        help="no hooks: conversations are not stored, and nothing is added to prompts",
    )
    to.add_argument(
        "--tool-output", action="store_true", help="hooks store the output of the agent's tools too, cut off if long"
    )
    to.add_argument(
        "--instructions",
        action="store_true",
        help="also add a block to CLAUDE.md, GEMINI.md or AGENTS.md of this folder",
    )
    to.add_argument("--program", metavar="PATH", help="the program of Hermes, if there are several or it is not found")
    _confirmation(to)


def uninstall_arguments(to: argparse.ArgumentParser) -> None:
    """Add the arguments of `uninstall`."""
    to.add_argument("client", metavar="CLIENT", help="the agent")
    _scope(to)
    _confirmation(to)


def _scope(to: argparse.ArgumentParser) -> None:
    to.add_argument(
        "--scope",
        choices=("user", "project"),
        default="user",
        help="for all projects of this user (default), or for the project in this folder",
    )


def _confirmation(to: argparse.ArgumentParser) -> None:
    to.add_argument("--dry-run", action="store_true", help="only show what would be changed")
    to.add_argument("--yes", action="store_true", help="do not ask for confirmation")


def show_arguments(to: Parser, add_id: Callable[[Parser], None]) -> None:
    """Add the arguments of `show`."""
    add_id(to)
    to.add_argument("--used", action="store_true", help="show which sessions and turns it was put into by hooks")


def hook_arguments(to: argparse.ArgumentParser) -> None:
    """Add the arguments of `hook`."""
    to.add_argument("client", metavar="CLIENT", help="the agent whose event is on standard input")
