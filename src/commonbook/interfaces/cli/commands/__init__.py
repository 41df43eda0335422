"""The commands of the command line: each group is a module of this package, and is imported when it is called.

A function becomes a command by the decorator `command`, which says its arguments and what it needs.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from commonbook.interfaces.cli.parser import Parser
from commonbook.version import __version__

if TYPE_CHECKING:
    from commonbook.interfaces.cli.call import Call

    Run: TypeAlias = Callable[[Call], int]
    """Runs a command, and returns its exit code."""

BookNeed: TypeAlias = Literal["open", "if there", "none"]
"""Whether a command gets an open book: always, if there is one, or none, since it opens one itself or uses none."""

SPACE_HELP: Final = "the space; a final / adds all below it, and / alone means all that you may read"
SPACE_TO_WRITE_HELP: Final = "the space to write to; default: that of this project, else personal"
_OPTIONS_WITH_VALUE: Final = ("--home", "--url", "--space", "--as")


class Command(NamedTuple):
    """A command, or an action of one: its arguments, the function that runs it, and what it needs."""

    run: Run
    summary: str
    add_arguments: Callable[[Parser], object]
    book: BookNeed
    first_write: bool
    """Whether it makes the default home, or the tables of a named database; see `may_be_made`."""
    local: bool
    """Whether it uses files or processes of this machine, and no server."""
    space_help: str
    several_spaces: bool


def no_arguments(_to: Parser) -> None:
    """Add no arguments."""


def command(
    name: str,
    arguments: Callable[[Parser], object] = no_arguments,
    *,
    summary: str = "",
    book: BookNeed = "open",
    first_write: bool = False,
    local: bool = False,
    space_help: str = SPACE_HELP,
    several_spaces: bool = False,
) -> Callable[[Run], Run]:
    """Register a function as a command, such as `show`, or as an action of one, such as `session show`.

    The summary of an action stands here, the summary of a command in `INDEX`.
    """

    def register(run: Run) -> Run:
        says = summary or INDEX[name].summary
        _REGISTERED[name] = Command(run, says, arguments, book, first_write, local, space_help, several_spaces)
        return run

    return register


_REGISTERED: Final[dict[str, Command]] = {}
"""The commands of the modules that are imported, by name; actions by both words."""


class Entry(NamedTuple):
    """A line of the index: the module of a command, and its summary."""

    module: str
    summary: str


INDEX: Final[Mapping[str, Entry]] = {
    "remember": Entry("memories", "store a new memory"),
    "recall": Entry(
        "recall", "find memories and messages that answer a query, best first; without a query, the newest"
    ),
    "show": Entry("memories", "show one memory"),
    "edit": Entry("memories", "change a memory; on a terminal without other arguments, in your editor"),
    "move": Entry("memories", "move a memory into another space"),
    "delete": Entry("memories", "delete memories, by id or by a filter; on a terminal it asks first"),
    "undelete": Entry("memories", "bring a deleted memory back, with its history and links"),
    "list": Entry("memories", "list memories, newest first, of all spaces or of --space"),
    "history": Entry("memories", "show the revisions and deletions of a memory, and who changed it"),
    "link": Entry("memories", "link a memory to another"),
    "unlink": Entry("memories", "remove a link"),
    "links": Entry("memories", "list the links of a memory, in both directions"),
    "share": Entry("sharing", "copy memories into another space; the copies stay bound to their sources"),
    "pull": Entry("sharing", "copy a memory of others into a space of yours; the copy stays bound to its source"),
    "unshare": Entry("sharing", "remove a copy"),
    "refresh": Entry("sharing", "update a copy to its source now, or change when it follows"),
    "detach": Entry("sharing", "stop a copy from following its source"),
    "adopt": Entry("sharing", "give up the edits of a copy and follow its source again"),
    "lineage": Entry("sharing", "show the sources and the copies of a memory as a tree"),
    "copies": Entry("sharing", "list the copies of a memory, and their copies"),
    "rules": Entry("sharing", "list, add and remove rules that share memories of one space into another"),
    "request": Entry("sharing", "ask for a memory to be shared into a space"),
    "pending": Entry(
        "sharing", "list what waits for approval, of all spaces or of --space: share requests and proposals"
    ),
    "approve": Entry("sharing", "approve a request or a proposed memory"),
    "reject": Entry("sharing", "reject a request or proposal, or withdraw it"),
    "limit": Entry("access", "list and set how often principals may write, share, ask and recall"),
    "reflect": Entry("reasoning", "store a reflection: a memory that was reasoned from others"),
    "supersede": Entry("reasoning", "let a memory supersede another, whose dependents become suspect"),
    "reinstate": Entry("reasoning", "undo a supersede, or a retraction"),
    "dependents": Entry("reasoning", "show the memories that depend on a memory, directly or through others"),
    "inbox": Entry(
        "reasoning", "go through proposed and suspect memories, one by one on a terminal; elsewhere, list them"
    ),
    "triage": Entry("reasoning", "decide about a suspect memory"),
    "session": Entry("sessions", "append, show, switch, rewind and settle sessions of messages"),
    "space": Entry("spaces", "list, create and rename spaces, set the depth of reflections and the review"),
    "whoami": Entry("access", "show whom you act for, the default space, and your role on each space"),
    "grant": Entry("access", "let others use spaces"),
    "key": Entry("access", "create, list and revoke API keys"),
    "login": Entry("access", "save the key of a server on this machine, and make its book the default"),
    "use": Entry("access", "show or change the default book: a server, or a home of this machine"),
    "sign-in": Entry("access", "print a link that signs a browser in"),
    "trust": Entry("spaces", "let the `.commonbook.toml` of a git repository name the default space"),
    "init": Entry("setup", "make a folder of notes a home, as a space if --space names one; default: --home"),
    "import": Entry("transfer", "import a folder of Markdown files"),
    "export": Entry("transfer", "write a space, or all of them, as a folder or an archive"),
    "backup": Entry("transfer", "copy the whole home, with history, rights and keys, while it is in use"),
    "restore": Entry("transfer", "make a home of a backup, where there is none, and check it"),
    "migrate": Entry(
        "transfer", "move the whole book to a database server, or into a home; the old one becomes read-only"
    ),
    "database": Entry("maintenance", "make or drop the vector index of a large space on PostgreSQL"),
    "rebuild": Entry("maintenance", "rebuild all derived data from the files and the database"),
    "reindex": Entry("maintenance", "update the index now, not with the next recall"),
    "doctor": Entry("maintenance", "check everything and show what is wrong"),
    "status": Entry("maintenance", "show numbers, what is pending and what is wrong"),
    "serve": Entry("serve", "serve the book over HTTP, with a worker; Ctrl-C ends it"),
    "mcp": Entry("agents", "serve the book to an agent, over MCP on standard input and output"),
    "install": Entry(
        "install", "plug the book into an agent, such as claude-code, codex or gemini; shown first, and asked"
    ),
    "uninstall": Entry("install", "take the book out of an agent again"),
    "hook": Entry("agents", "handle one event of an agent"),
    "worker": Entry("serve", "run the jobs that are due, such as settling sessions into episodes"),
    "audit": Entry("maintenance", "verify and read the signed log"),
    "completion": Entry("setup", "print a script that completes commands in your shell"),
}
"""The index of commands, in the order of `commonbook --help`, which imports none of their modules."""


def command_of(args: argparse.Namespace) -> tuple[str, Command]:
    """Return the command of parsed arguments, with its name: one word, or two for an action."""
    name = f"{args.command} {args.action}" if "action" in args else args.command
    return name, _REGISTERED[name]


def make_parser(argv: Sequence[str] | None = None) -> Parser:
    """Return the parser of the whole command line, or only of the command in `argv`.

    Making the parsers of all commands takes as long as opening the book.
    """
    top = Parser(
        prog="commonbook",
        description="Long-term memory for people and their agents: Markdown files, a database and a signed log.",
        epilog="`commonbook COMMAND --help` explains a command. The book is that of --home or --url, else of "
        "COMMONBOOK_HOME or COMMONBOOK_URL, else the default (`commonbook use`), else ~/commonbook.",
    )
    top.add_argument("--version", action="version", version=f"commonbook {__version__}")
    _common_options(top, home=None, url=None, space=None, actor=None, json=False, no_color=False)
    commands = top.add_subparsers(
        dest="command", metavar="COMMAND", required=True, title="commands", prog="commonbook", parser_class=Parser
    )
    wanted = _command_name(argv or ())
    for name, entry in INDEX.items():
        if name == wanted or argv is None:
            _add_command(commands, name)
        elif wanted not in INDEX:
            # The list of all commands is shown, or a guess is made.
            commands.add_parser(name, help=entry.summary)
    return top


def _command_name(argv: Sequence[str]) -> str | None:
    """Return the first word that is neither an option nor the value of one."""
    words = iter(argv)
    for word in words:
        if word in _OPTIONS_WITH_VALUE:
            next(words, None)
        elif not word.startswith("-"):
            return word
    return None


def _add_command(commands: argparse._SubParsersAction[Parser], name: str) -> None:
    """Add the parser of a command, with the parsers of its actions."""
    entry = INDEX[name]
    import_module(f"{__name__}.{entry.module}")
    if name in _REGISTERED:
        _add_parser(commands, name, _REGISTERED[name])
        return
    parser = commands.add_parser(name, help=entry.summary, description=entry.summary)
    _common_options(parser)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, title="actions", prog=parser.prog)
    for full_name, action in _REGISTERED.items():
        if full_name.startswith(f"{name} "):
            _add_parser(actions, full_name.partition(" ")[2], action)


def _add_parser(to: argparse._SubParsersAction[Parser], name: str, command: Command) -> None:
    parser = to.add_parser(name, help=command.summary, description=command.summary)
    _common_options(parser, several=command.several_spaces, space_help=command.space_help)
    command.add_arguments(parser)


def _common_options(
    to: argparse.ArgumentParser, *, several: bool = False, space_help: str = SPACE_HELP, **defaults: object
) -> None:
    """Add the options that may stand before or after the command.

    After the command they have no defaults, which would overwrite the values given before it. With `several`, more than
    one space can be given, as `spaces`.
    """

    def default(name: str) -> object:
        return defaults.get(name, argparse.SUPPRESS)

    group = to.add_argument_group("options of all commands")
    group.add_argument("--home", metavar="DIR", default=default("home"), help="the folder with the Markdown files")
    group.add_argument("--url", metavar="URL", default=default("url"), help="a server, in place of a home")
    if several:
        group.add_argument("--space", metavar="SPACE", dest="spaces", action="append", default=[], help=space_help)
    else:
        group.add_argument("--space", metavar="SPACE", default=default("space"), help=space_help)
    group.add_argument(
        "--as",
        metavar="PRINCIPAL",
        dest="actor",
        default=default("actor"),
        help="act as another principal, with fewer rights",
    )
    group.add_argument("--json", action="store_true", default=default("json"), help="print JSON, errors too")
    group.add_argument("--no-color", action="store_true", default=default("no_color"), help="no colour on a terminal")
