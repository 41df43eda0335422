"""Command line arguments of grants, API keys, logins, and trust in project files."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from commonbook.model.spaces import ROLES

if TYPE_CHECKING:
    Add = Callable[[Any, str, str], argparse.ArgumentParser]
    """Adds an action of a command, with the common options."""


def grant_arguments(to: argparse.ArgumentParser, actions: Callable[[Any], Any], add: Add) -> None:
    """Add the arguments of `grant`."""
    of_grant = actions(to)
    grant = _principal(
        add(of_grant, "add", "let a principal read, write or administer a space and all spaces below it")
    )
    grant.add_argument("place", metavar="SPACE", help="the space")
    grant.add_argument(
        "role", metavar="ROLE", choices=ROLES, help=f"{', '.join(ROLES)}: each includes the roles before it"
    )
    grant.add_argument("--expires", metavar="TIME", help="when it ends")
    add(of_grant, "list", "list your grants and those that you administer, of all spaces or on --space")
    revoke = _principal(add(of_grant, "revoke", "remove a grant; grants on spaces above stay"))
    revoke.add_argument("place", metavar="SPACE", help="the space")


def key_arguments(to: argparse.ArgumentParser, actions: Callable[[Any], Any], add: Add) -> None:
    """Add the arguments of `key`."""
    of_key = actions(to)
    create = _principal(
        add(of_key, "create", "create an API key; its secret is shown once; --space is where it writes by default")
    )
    create.add_argument("--label", default="", metavar="TEXT", help="a note on its purpose")
    create.add_argument(
        "--limit", action="append", metavar="SPACE=ROLE", help="limit the key to this space and role (repeatable)"
    )
    create.add_argument("--expires", metavar="TIME", help="when it ends")
    create.add_argument(
        "--login-url",
        metavar="URL",
        help="the server of the line with `commonbook login`; default: COMMONBOOK_URL, or one that runs on this home",
    )
    add(of_key, "list", "list the keys, without their secrets")
    revoke = add(of_key, "revoke", "revoke an API key")
    revoke.add_argument("key", metavar="KEY", help="the id of the key, or its first or last digits")


def login_arguments(to: argparse.ArgumentParser) -> None:
    """Add the arguments of `login`."""
    to.add_argument("address", metavar="URL", help="the address of the server; several with commas between them")
    to.add_argument(
        "code", metavar="CODE", nargs="?", help="the login code that `key create` has printed; default: from input"
    )
    to.add_argument("--allow-http", action="store_true", help="send the key without encryption to another machine")


def sign_in_arguments(to: argparse.ArgumentParser) -> None:
    """Add the arguments of `sign-in`."""
    to.add_argument(
        "address",
        metavar="URL",
        nargs="?",
        help="the address of the server in the link; default: that of a server that runs on this home",
    )
    to.add_argument("--open", action="store_true", help="open the link in the browser of this machine")


def trust_arguments(to: argparse.ArgumentParser) -> None:
    """Add the arguments of `trust`."""
    to.add_argument("file", metavar="FILE", nargs="?", help="a `.commonbook.toml` or its folder; default: the nearest")
    to.add_argument("--no-longer", action="store_true", help="do not trust it any more")


def _principal(command: argparse.ArgumentParser) -> argparse.ArgumentParser:
    command.add_argument("principal", metavar="PRINCIPAL", help="user:NAME or agent:NAME")
    return command
