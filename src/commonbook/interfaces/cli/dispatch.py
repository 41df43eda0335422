"""Dispatch: find the function of a command in a table and run it with an open book."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from commonbook.compose.book import may_be_made, open_book
from commonbook.errors import BadInput, NoHome
from commonbook.interfaces.cli.call import Call, Command

if TYPE_CHECKING:
    from argparse import Namespace

    from commonbook.book.book import Book
    from commonbook.settings.settings import Settings


_Commands: TypeAlias = Mapping[str, Command]


def run(args: Namespace) -> int:
    """Run the command of the parsed arguments, and return its exit code."""
    name = f"{args.command} {args.action}" if "action" in args else args.command
    command = _COMMANDS[name]()[name]
    call = Call(args)
    if args.url is not None and name not in _OPENS_BOOK_LATER:
        return _run_remotely(name, command, call)
    if name in _WITHOUT_BOOK | _OPENS_BOOK_LATER or (name in _WITHOUT_NEW_BOOK and not _has_book(call.settings)):
        return command(call)
    create = _is_first_write(name, args) and may_be_made(call.settings)
    with call.progress, _open(call, create=create) as book:
        call.report_migration(book.schema_migration)
        call.report_move(book.moved_to)
        call.book = _for_actor(book, call)
        return command(call)


def _open(call: Call, *, create: bool) -> Book:
    """Open the book of the home; COMMONBOOK_URL alone uses no server, so the error says what does."""
    try:
        return open_book(call.settings, create=create, progress=call.progress)
    except NoHome as error:
        from commonbook.settings.remote import RemoteSettings

        if RemoteSettings.load().url is not None:
            error.fix += '; `commonbook --url "$COMMONBOOK_URL"` uses the book of that server'
        raise


def _run_remotely(name: str, command: Command, call: Call) -> int:
    """Run a command on the book of a server; a remote book has the verbs that commands use."""
    if name in _LOCAL_ONLY:
        raise BadInput(f"`commonbook {name}` is about this machine, not about a server", fix="leave out --url")
    if call.args.actor is not None:
        raise BadInput("--as is for the owner of a home", fix="use an API key of that principal")
    from commonbook.compose.client import connect
    from commonbook.settings.remote import RemoteSettings

    with call.progress, connect(RemoteSettings.load(), call.args.url, space=call.settings.space) as book:
        call.book = cast("Book", book)
        return command(call)


def _is_first_write(name: str, args: Namespace) -> bool:
    """Tell whether a command can be the first write of a book; any other has nothing to do before that."""
    return name in _FIRST_WRITES and not getattr(args, "dry_run", False)


def _has_book(settings: Settings) -> bool:
    return settings.database is not None or os.path.exists(os.path.join(settings.home, ".commonbook", "state.db"))


def _for_actor(book: Book, call: Call) -> Book:
    """Return the book for the actor: the principal of a key, the principal of --as, or the owner."""
    if call.settings.key is not None:
        book = book.with_key(call.settings.key)
    return book if call.args.actor is None else book.acting_as(call.args.actor)


# --- command modules, each imported when one of its commands is run


def _memories() -> _Commands:
    from commonbook.interfaces.cli.commands import memories

    return memories.COMMANDS


def _sessions() -> _Commands:
    from commonbook.interfaces.cli.commands import sessions

    return sessions.COMMANDS


def _sharing() -> _Commands:
    from commonbook.interfaces.cli.commands import sharing

    return sharing.COMMANDS


def _sharing_rules() -> _Commands:
    from commonbook.interfaces.cli.commands import sharing_rules

    return sharing_rules.COMMANDS


def _reasoning() -> _Commands:
    from commonbook.interfaces.cli.commands import reasoning

    return reasoning.COMMANDS


def _access() -> _Commands:
    from commonbook.interfaces.cli.commands import access

    return access.COMMANDS


def _spaces() -> _Commands:
    from commonbook.interfaces.cli.commands import spaces

    return spaces.COMMANDS


def _worker() -> _Commands:
    from commonbook.interfaces.cli.commands import worker

    return worker.COMMANDS


def _serve() -> _Commands:
    from commonbook.interfaces.cli.commands import serve

    return serve.COMMANDS


def _agents() -> _Commands:
    from commonbook.interfaces.cli.commands import agents

    return agents.COMMANDS


def _maintenance() -> _Commands:
    from commonbook.interfaces.cli.commands import maintenance

    return maintenance.COMMANDS


def _init() -> _Commands:
    from commonbook.interfaces.cli.commands import init

    return init.COMMANDS


def _completion() -> _Commands:
    from commonbook.interfaces.cli.commands import completion

    return completion.COMMANDS


_COMMANDS: Final[Mapping[str, Callable[[], _Commands]]] = {
    **dict.fromkeys(("remember", "edit", "move", "delete", "undelete", "link", "unlink"), _memories),
    **dict.fromkeys(("recall", "show", "list", "links", "history"), _memories),
    **dict.fromkeys(("session append", "session switch", "session rewind", "session close"), _sessions),
    "session move": _sessions,
    **dict.fromkeys(("session flush", "session show", "session list"), _sessions),
    **dict.fromkeys(("share", "pull", "unshare", "refresh", "detach", "adopt", "lineage", "copies"), _sharing),
    **dict.fromkeys(("rules list", "rules add", "rules remove", "pending", "approve", "reject"), _sharing_rules),
    **dict.fromkeys(("request", "limit list", "limit set"), _sharing_rules),
    **dict.fromkeys(("reflect", "supersede", "reinstate", "dependents", "inbox", "triage"), _reasoning),
    **dict.fromkeys(("grant add", "grant list", "grant revoke", "key create", "key list", "key revoke"), _access),
    **dict.fromkeys(("login", "sign-in", "whoami"), _access),
    **dict.fromkeys(("space list", "space create", "space rename", "space which", "space depth"), _spaces),
    **dict.fromkeys(("space review", "trust"), _spaces),
    "worker": _worker,
    "serve": _serve,
    **dict.fromkeys(("mcp", "install", "uninstall", "hook"), _agents),
    **dict.fromkeys(("import", "export", "migrate", "rebuild", "reindex", "doctor", "status"), _maintenance),
    **dict.fromkeys(("audit verify", "audit list", "audit keys", "backup", "restore"), _maintenance),
    "database index": _maintenance,
    "init": _init,
    "completion": _completion,
}
_WITHOUT_BOOK: Final = frozenset(
    {"completion", "audit keys", "backup", "restore", "migrate", "database index", "init", "login", "serve"}
)
_OPENS_BOOK_LATER: Final = frozenset({"mcp", "install", "uninstall", "hook"})
"""Commands that open a book, or connect to a server, when they need it."""

_WITHOUT_NEW_BOOK: Final = frozenset({"space which"})
"""Commands that use the book if there is one, and make none."""

_LOCAL_ONLY: Final = _WITHOUT_BOOK | {"space which", "trust", "worker"}
"""Commands that use files or processes of this machine, and no server."""

_FIRST_WRITES: Final = frozenset(
    {
        "remember", "session append", "import", "space create", "grant add", "key create", "rules add", "limit set",
        "trust",
    }
)  # fmt: skip
"""The commands that make the default home, or the tables of a named database; see `may_be_made`."""
