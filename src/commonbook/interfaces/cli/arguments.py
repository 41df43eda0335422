"""What can be typed: the commands of the command line and their options."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from commonbook.interfaces.cli.parser import Parser, amount, number, seconds
from commonbook.interfaces.cli.sharing_rule_arguments import (
    approve_arguments,
    limit_arguments,
    pending_arguments,
    request_arguments,
    rules_arguments,
)
from commonbook.model.invalidation import VERDICTS
from commonbook.model.memory import MODES
from commonbook.model.spaces import ROLES
from commonbook.version import __version__

_OF_SEVERAL_SPACES: Final = ("recall",)
_WITH_VALUE: Final = ("--home", "--space", "--as")


def parser(typed: Sequence[str] | None = None) -> Parser:
    """Return the parser of the whole command line, or of as much of it as what was typed needs.

    A parser for every command takes as long to make as the book to open.
    """
    top = Parser(
        prog="commonbook",
        description="A memory for people and their agents: Markdown files, one durable book over them, a signed log.",
        epilog="`commonbook COMMAND --help` explains a command. The home is --home, else COMMONBOOK_HOME, "
        "else ~/commonbook.",
    )
    top.add_argument("--version", action="version", version=f"commonbook {__version__}")
    _everywhere(top, home=None, space=None, actor=None, json=False, no_color=False)
    commands = top.add_subparsers(
        dest="command", metavar="COMMAND", required=True, title="commands", prog="commonbook", parser_class=Parser
    )
    named = _command_in(typed or ())
    for name, (summary, add) in _COMMANDS.items():
        if name == named or named not in _COMMANDS:
            add(_command(commands, name, summary))
    return top


def _command_in(typed: Sequence[str]) -> str | None:
    """Return the first word that is neither an option nor the value of one."""
    words = iter(typed)
    for word in words:
        if word in _WITH_VALUE:
            next(words, None)
        elif not word.startswith("-"):
            return word
    return None


def _everywhere(to: argparse.ArgumentParser, *, several: bool = False, **defaults: object) -> None:
    """Add the options that stand before or behind the command; behind it, what is not given must not undo.

    With `several`, more than one space can be named, as `spaces`.
    """

    def default(name: str) -> object:
        return defaults.get(name, argparse.SUPPRESS)

    group = to.add_argument_group("everywhere")
    group.add_argument("--home", metavar="DIR", default=default("home"), help="the folder with the Markdown")
    if several:
        summary = "a space, with a final / all below (repeatable); else the one meant here, and personal"
        group.add_argument("--space", metavar="SPACE", dest="spaces", action="append", default=[], help=summary)
    else:
        summary = "the space; with a final / all below"
        group.add_argument("--space", metavar="SPACE", default=default("space"), help=summary)
    group.add_argument(
        "--as", metavar="PRINCIPAL", dest="actor", default=default("actor"), help="act as somebody else, who may less"
    )
    group.add_argument("--json", action="store_true", default=default("json"), help="print JSON, errors too")
    group.add_argument("--no-color", action="store_true", default=default("no_color"), help="no colour on a terminal")


def _command(commands: argparse._SubParsersAction[Parser], name: str, summary: str) -> Parser:
    made = commands.add_parser(name, help=summary, description=summary)
    _everywhere(made, several=name in _OF_SEVERAL_SPACES)
    return made


def _actions(to: Parser) -> argparse._SubParsersAction[Parser]:
    return to.add_subparsers(dest="action", metavar="ACTION", required=True, title="actions", prog=to.prog)


# --- the commands


def _remember(to: Parser) -> None:
    _text(to)
    _fields(to)
    to.add_argument("--link", action="append", default=[], metavar="RELATION:ID", help="a link to another (repeatable)")
    to.add_argument("--replaces", metavar="ID", help="the memory that this one supersedes")
    to.add_argument("--key", help="an idempotency key: sent again, it is stored once")
    to.add_argument(
        "--batch", metavar="FILE", help="a file of JSON lines (or -), each an object with the fields of a memory"
    )


def _edit(to: Parser) -> None:
    _id(to)
    _text(to)
    _fields(to, takes_away=" (none takes it away)")
    to.add_argument("--add-tag", action="append", default=[], metavar="TAG", help="one tag more (repeatable)")
    to.add_argument("--remove-tag", action="append", default=[], metavar="TAG", help="one tag less (repeatable)")
    _expected(to)


def _move(to: Parser) -> None:
    _id(to)
    to.add_argument("to", metavar="SPACE", help="where it goes")
    _expected(to)


def _delete(to: Parser) -> None:
    to.add_argument("ids", metavar="ID", nargs="*", help=_ID_HELP)
    _filter(to)
    to.add_argument("--dry-run", action="store_true", help="only say which")
    to.add_argument("--yes", action="store_true", help="do not ask")
    _expected(to)


def _link(to: Parser) -> None:
    _id(to)
    to.add_argument("relation", metavar="RELATION", help="such as related_to, derived_from, contradicts or supersedes")
    to.add_argument("target", metavar="OTHER", help="the id of the other memory")


def _list(to: Parser) -> None:
    _filter(to)
    to.add_argument("--deleted", action="store_true", help="those that were deleted")
    to.add_argument("--limit", type=int, default=50, metavar="N", help="how many (50)")
    to.add_argument("--after", metavar="CURSOR", help="go on behind a page: its `next`")


def _recall(to: Parser) -> None:
    to.add_argument("query", metavar="QUERY", nargs="*", help="the question; - reads it from standard input")
    to.add_argument("-k", type=int, default=10, metavar="N", help="at most so many hits (10)")
    _filter(to)
    to.add_argument("--as-of", metavar="TIME", help="what was valid at this time, in today's words")
    to.add_argument("--min-score", type=float, metavar="0..2", help="nothing that answers less well")
    to.add_argument("--budget-tokens", type=int, metavar="N", help="no more than a prompt of so many tokens can take")
    to.add_argument(
        "--include",
        action="append",
        default=[],
        metavar="WHAT",
        help="also superseded, expired or notices, or several with commas (repeatable)",
    )
    to.add_argument("--explain", action="store_true", help="show what each score is made of, and where the time went")


def _history(to: Parser) -> None:
    _id(to)
    to.add_argument(
        "--diff", action=argparse.BooleanOptionalAction, default=True, help="show what each revision changed"
    )


def _space(to: Parser) -> None:
    actions = _actions(to)
    _command(actions, "list", "list the spaces")
    _command(actions, "create", "make a space").add_argument("name", metavar="NAME")
    rename = _command(actions, "rename", "give a space, and all below it, another name")
    rename.add_argument("old", metavar="OLD")
    rename.add_argument("new", metavar="NEW")
    _command(actions, "which", "say which space is meant here when none is named")
    depth = _command(actions, "depth", "show or set how deep reflections may stand on each other in a space")
    depth.add_argument("name", metavar="NAME")
    depth.add_argument("depth", metavar="N", nargs="?", help="1 to 10; `default` goes by the space above it again")


def _session(to: Parser) -> None:
    actions = _actions(to)
    append = _of_session(actions, "append", "add messages to a session; the first one begins it")
    append.add_argument(
        "text",
        metavar="TEXT",
        nargs="?",
        help="the text; - reads it, or JSON lines with a text each, from standard input",
    )
    append.add_argument("--role", help="who speaks: user (if not given), assistant, system, tool or another plain word")
    append.add_argument("--author", metavar="NAME", help="who that is; else you, or agent: and the role")
    append.add_argument("--time", metavar="TIME", help="when it was said; else now")
    append.add_argument("--client-id", metavar="ID", help="your id of the message: sent again, it is stored once")
    append.add_argument("--jsonl", action="store_true", help=f"read JSON lines, each an object with {_MESSAGE_FIELDS}")
    append.add_argument("--parent", metavar="SESSION", help="of a new session: the one that it goes on from")
    append.add_argument("--tag", action="append", default=[], metavar="TAG", help="of a new session (repeatable)")
    switch = _command(actions, "switch", "settle a session and go on in another")
    switch.add_argument("old", metavar="OLD", help="the session that ends here")
    switch.add_argument("new", metavar="NEW", help="the session that begins or is resumed")
    switch.add_argument("--reason", choices=_REASONS, default="new", metavar="WHY", help=f"{', '.join(_REASONS)} (new)")
    switch.add_argument("--tag", action="append", default=[], metavar="TAG", help="of a new session (repeatable)")
    rewind = _of_session(actions, "rewind", "take back every message behind one")
    rewind.add_argument("after", metavar="AFTER", help="the last message that stays: its number (0 for none) or id")
    _of_session(actions, "close", "settle everything in a session and close it; a later message opens it again")
    _of_session(actions, "flush", "settle everything in a session now")
    show = _of_session(actions, "show", "show the messages of a session")
    show.add_argument("--after", type=number, default=0, metavar="N", help="those behind message N")
    show.add_argument("--limit", type=int, metavar="N", help="how many (100; with --jsonl, all)")
    show.add_argument("--jsonl", action="store_true", help="print JSON lines, a message each")
    sessions = _command(actions, "list", "list the newest sessions, of all spaces or of --space")
    sessions.add_argument("--limit", type=int, default=50, metavar="N", help="how many (50)")


def _of_session(actions: argparse._SubParsersAction[Parser], name: str, summary: str) -> Parser:
    made = _command(actions, name, summary)
    made.add_argument(
        "session", metavar="SESSION", help="a session's id, of your choice: 1 to 200 characters, no blanks"
    )
    return made


_MESSAGE_FIELDS: Final = "text, role, author, time and client_id"
_REASONS: Final = ("new", "reset", "resume", "branch", "compress")


def _worker(to: Parser) -> None:
    how_long = to.add_mutually_exclusive_group()
    how_long.add_argument("--once", action="store_true", help="do what is due now, and end")
    how_long.add_argument(
        "--every", type=seconds, default=1.0, metavar="SECONDS", help="how often to look for work (1); Ctrl-C ends it"
    )
    to.add_argument("--retry", action="store_true", help="first let what failed for good be tried again")


def _import(to: Parser) -> None:
    to.add_argument("folder", metavar="FOLDER", help="such as an Obsidian vault")
    to.add_argument("--dry-run", action="store_true", help="only say what would be done")


def _export(to: Parser) -> None:
    to.add_argument("target", metavar="TARGET", help="a folder, or an archive (.zip, .tar.gz)")


def _migrate(to: Parser) -> None:
    to.add_argument("to", metavar="TO", help="a database (postgresql://…) or the folder of a new home")


def _reindex(to: Parser) -> None:
    to.add_argument("--anew", action="store_true", help="throw the index away and make it from nothing")


def _doctor(to: Parser) -> None:
    to.add_argument("--accept", action="store_true", help="delete the memories whose files are gone")


def _audit(to: Parser) -> None:
    actions = _actions(to)
    _command(actions, "verify", "walk the log of --space, or of all spaces, and find what was changed in it")
    entries = _command(actions, "list", "list the entries of a space's log")
    entries.add_argument("--after", type=number, default=0, metavar="N", help="those behind number N")
    entries.add_argument("--limit", type=amount, default=100, metavar="N", help="how many (100)")
    keys = _command(actions, "keys", "make the keys for a book on PostgreSQL, once for all its servers")
    keys.add_argument("folder", metavar="FOLDER", help="where they go; give it to each server as COMMONBOOK_KEYS")


def _completion(to: Parser) -> None:
    to.add_argument("shell", choices=("bash", "zsh", "tcsh"), help="your shell")


def _nothing(_to: Parser) -> None:
    pass


# --- sharing


def _share(to: Parser) -> None:
    to.add_argument("ids", metavar="ID", nargs="+", help=_ID_HELP)
    target = to.add_mutually_exclusive_group(required=True)
    target.add_argument("--to", metavar="SPACE", help="the space that gets a copy of each")
    target.add_argument("--with", metavar="PRINCIPAL", dest="principal", help="the one who gets it, and nobody else")
    _refresh_mode(to)


def _pull(to: Parser) -> None:
    _id(to)
    to.add_argument("--to", metavar="SPACE", help="the space that gets the copy; else the one meant here")
    _refresh_mode(to)


def _refresh_mode(to: Parser) -> None:
    to.add_argument(
        "--refresh",
        choices=MODES,
        default=MODES[0],
        metavar="HOW",
        help="live: follows its source at once (if not given); lazy: when it is read; snapshot: never",
    )


def _lineage(to: Parser) -> None:
    _id(to)
    to.add_argument("--depth", type=int, metavar="N", help="at most so many steps back and forth, up to 32 (32)")


# --- reasoning


def _reflect(to: Parser) -> None:
    _text(to)
    to.add_argument(
        "--on", action="append", default=[], metavar="ID", help="what it was reasoned from (repeatable, at least one)"
    )
    to.add_argument("--title", help="the title; else the text's first line")
    to.add_argument("--tag", action="append", default=[], metavar="TAG", help="a tag, or several (repeatable)")
    to.add_argument("--importance", type=float, metavar="0..1", help="how much it matters")
    to.add_argument("--occurred", metavar="TIME", help="when it happened")
    to.add_argument("--key", help="an idempotency key: sent again, it is stored once")


def _supersede(to: Parser) -> None:
    to.add_argument("id", metavar="OLD", help=_ID_HELP)
    to.add_argument("--by", metavar="NEW", required=True, help="the memory that holds instead")
    to.add_argument("--reason", default="", metavar="TEXT", help="why: everybody who is told reads it")


def _reinstate(to: Parser) -> None:
    to.add_argument("id", metavar="OLD", help=_ID_HELP)
    to.add_argument("--by", metavar="ID", help="only this one no longer supersedes it; else none does")


def _inbox(to: Parser) -> None:
    to.add_argument("--expired", action="store_true", help="notices that have expired too")
    to.add_argument("--limit", type=int, metavar="N", help="how many (100; on a terminal all, one by one)")
    to.add_argument("--after", metavar="CURSOR", help="go on behind a page: its `next`")


def _triage(to: Parser) -> None:
    to.add_argument("id", metavar="ID", help="a notice, or a memory with all its doubts")
    to.add_argument(
        "verdict", metavar="VERDICT", choices=VERDICTS, help="keep, retract, supersede (--by) or dismiss (the notice)"
    )
    to.add_argument("--note", default="", metavar="TEXT", help="why: it stays with the memory")
    to.add_argument("--by", metavar="ID", help="with supersede: the memory that holds instead")


# --- rights


def _grant(to: Parser) -> None:
    actions = _actions(to)
    add = _of_principal(actions, "add", "let a principal read, write or administer a space and all below it")
    add.add_argument("place", metavar="SPACE", help="the space")
    add.add_argument("role", metavar="ROLE", choices=ROLES, help=f"{', '.join(ROLES)}: each may what those before may")
    add.add_argument("--expires", metavar="TIME", help="when it ends")
    _command(actions, "list", "list the grants that are yours or yours to decide, of all spaces or on --space")
    revoke = _of_principal(actions, "revoke", "take a grant away; what is granted above the space stays")
    revoke.add_argument("place", metavar="SPACE", help="the space")


def _key(to: Parser) -> None:
    actions = _actions(to)
    create = _of_principal(actions, "create", "make an API key; its secret is shown this once")
    create.add_argument("--label", default="", metavar="TEXT", help="what it is for")
    create.add_argument(
        "--limit", action="append", metavar="SPACE=ROLE", help="the key opens just this, and no more (repeatable)"
    )
    create.add_argument("--expires", metavar="TIME", help="when it ends")
    _command(actions, "list", "list the keys, without their secrets")
    revoke = _command(actions, "revoke", "let a key open nothing from now on")
    revoke.add_argument("key", metavar="KEY", help="the id of the key, or its first or last digits")


def _of_principal(actions: argparse._SubParsersAction[Parser], name: str, summary: str) -> Parser:
    made = _command(actions, name, summary)
    made.add_argument("principal", metavar="PRINCIPAL", help="user:NAME or agent:NAME")
    return made


# --- options that several commands share


def _id(to: Parser) -> None:
    to.add_argument("id", metavar="ID", help=_ID_HELP)


def _text(to: Parser) -> None:
    to.add_argument("text", metavar="TEXT", nargs="?", help="the text; - reads it from standard input")
    to.add_argument("--file", metavar="FILE", help="read the text from a file")


def _fields(to: Parser, *, takes_away: str = "") -> None:
    to.add_argument("--title", help="the title; else the text's first line")
    to.add_argument("--kind", help="note, fact, preference, decision, procedure, episode or reflection")
    to.add_argument("--tag", action="append", metavar="TAG", help="a tag, or several with commas (repeatable)")
    to.add_argument("--importance", metavar="0..1", help=f"how much it matters{takes_away}")
    for name, summary in _TIMES:
        to.add_argument(f"--{name}", metavar="TIME", help=f"{summary}{takes_away}")


_ID_HELP: Final = "an id, its first or last digits, or its file's name"
_TIMES: Final = (
    ("occurred", "when it happened"),
    ("valid-from", "from when on it is true"),
    ("valid-until", "until when it is true"),
    ("expires", "when it may be left out"),
)


def _filter(to: Parser) -> None:
    to.add_argument("--tag", action="append", default=[], metavar="TAG", help="with this tag (repeatable: with all)")
    to.add_argument("--kind", action="append", default=[], metavar="KIND", help="of this kind (repeatable: of any)")
    to.add_argument("--since", metavar="TIME", help="that happened, or else were made, at this time or later")
    to.add_argument("--until", metavar="TIME", help="… or before")


def _expected(to: Parser) -> None:
    to.add_argument("--expected-version", type=number, metavar="N", help="only if the memory is at this version")


_WAYS: Final[Mapping[str, Any]] = {"actions": _actions, "add": _command}

_COMMANDS: Final[Mapping[str, tuple[str, Callable[[Parser], None]]]] = {
    "remember": ("store a new memory", _remember),
    "recall": ("find what answers a question, best first; without one, the newest", _recall),
    "show": ("show one memory", _id),
    "edit": ("change a memory; on a terminal, without anything else, in your editor", _edit),
    "move": ("move a memory into another space", _move),
    "delete": ("delete memories, by id or by what they have in common", _delete),
    "list": ("list memories, newest first, of all spaces or of --space", _list),
    "history": ("show what a memory said before, and who changed it", _history),
    "link": ("link a memory to another", _link),
    "unlink": ("take a link away", _link),
    "share": ("copy memories into another space, tied to their sources", _share),
    "pull": ("copy a memory of others into a space of your own, tied to its source", _pull),
    "unshare": ("remove a copy", _id),
    "refresh": ("let a copy say what its source says now", _id),
    "detach": ("end the tie between a copy and its source", _id),
    "adopt": ("let a copy that was edited here say what its source says again", _id),
    "lineage": ("show where a memory came from, and what was copied from it", _lineage),
    "copies": ("list the copies of a memory, and theirs", _id),
    "rules": ("list, add and remove what a space takes in from others", partial(rules_arguments, **_WAYS)),
    "request": ("ask a space to take a memory in", request_arguments),
    "pending": ("list what waits to be shared until somebody agrees, in all spaces or in --space", pending_arguments),
    "approve": ("agree to a request", approve_arguments),
    "reject": ("refuse a request, or take your own back", approve_arguments),
    "limit": ("list and set how often principals may share and ask", partial(limit_arguments, **_WAYS)),
    "reflect": ("store what was reasoned from other memories", _reflect),
    "supersede": ("let a memory supersede another, and tell everybody who rests on that", _supersede),
    "reinstate": ("take back that a memory was superseded", _reinstate),
    "dependents": ("show what rests on a memory, directly or through others", _id),
    "inbox": ("go through what is in doubt, one by one on a terminal; elsewhere, list it", _inbox),
    "triage": ("decide about a memory that is in doubt", _triage),
    "session": ("append, show, switch, rewind and settle sessions of messages", _session),
    "space": ("list, create and rename spaces, and say how deep reflections may go", _space),
    "grant": ("let others read, write or administer spaces", _grant),
    "key": ("make, list and revoke API keys", _key),
    "import": ("take in a folder of Markdown files", _import),
    "export": ("write a space, or all of them, as a folder or an archive", _export),
    "migrate": ("move the whole book to a database server, or into a home", _migrate),
    "rebuild": ("make anew what only serves search", _nothing),
    "reindex": ("bring the index up to date now, instead of with the next recall", _reindex),
    "doctor": ("look at everything and say what is wrong", _doctor),
    "status": ("show numbers, what is pending and what is wrong", _nothing),
    "worker": ("settle sessions into episodes as it becomes due", _worker),
    "audit": ("verify and read the signed log", _audit),
    "completion": ("print a script that completes commands in your shell", _completion),
}
