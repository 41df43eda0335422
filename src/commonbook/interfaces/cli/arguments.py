"""Command line arguments: all commands and their options."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from commonbook.interfaces.cli.parser import ID_HELP, SPACE_HELP, SPACE_HELP_OF, Parser, amount, number, seconds
from commonbook.model.memory import MODES
from commonbook.runtime.lazy_modules import LazyModule
from commonbook.version import __version__

if TYPE_CHECKING:
    from commonbook.interfaces.cli import (
        access_arguments,
        agent_arguments,
        reasoning_arguments,
        server_arguments,
        sharing_rule_arguments,
        transfer_arguments,
    )
else:
    # Most commands are not about rights or rules.
    access_arguments = LazyModule("commonbook.interfaces.cli.access_arguments")
    agent_arguments = LazyModule("commonbook.interfaces.cli.agent_arguments")
    reasoning_arguments = LazyModule("commonbook.interfaces.cli.reasoning_arguments")
    server_arguments = LazyModule("commonbook.interfaces.cli.server_arguments")
    sharing_rule_arguments = LazyModule("commonbook.interfaces.cli.sharing_rule_arguments")
    transfer_arguments = LazyModule("commonbook.interfaces.cli.transfer_arguments")

_WITH_SEVERAL_SPACES: Final = ("recall", "install")
_OPTIONS_WITH_VALUE: Final = ("--home", "--url", "--space", "--as")


def parser(argv: Sequence[str] | None = None) -> Parser:
    """Return the parser of the whole command line, or only of the command in `argv`.

    Making the parsers of all commands takes as long as opening the book.
    """
    top = Parser(
        prog="commonbook",
        description="Long-term memory for people and their agents: Markdown files, a database and a signed log.",
        epilog="`commonbook COMMAND --help` explains a command. The home is --home, else COMMONBOOK_HOME, "
        "else ~/commonbook.",
    )
    top.add_argument("--version", action="version", version=f"commonbook {__version__}")
    _common_options(top, home=None, url=None, space=None, actor=None, json=False, no_color=False)
    commands = top.add_subparsers(
        dest="command", metavar="COMMAND", required=True, title="commands", prog="commonbook", parser_class=Parser
    )
    wanted = _command_name(argv or ())
    for name, (summary, add) in _COMMANDS.items():
        if name == wanted or wanted not in _COMMANDS:
            add(_command(commands, name, summary))
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


def _command(commands: argparse._SubParsersAction[Parser], name: str, summary: str) -> Parser:
    command = commands.add_parser(name, help=summary, description=summary)
    _common_options(command, several=name in _WITH_SEVERAL_SPACES, space_help=SPACE_HELP_OF.get(name, SPACE_HELP))
    return command


def _actions(to: Parser) -> argparse._SubParsersAction[Parser]:
    return to.add_subparsers(dest="action", metavar="ACTION", required=True, title="actions", prog=to.prog)


# --- the commands


def _remember(to: Parser) -> None:
    _text(to)
    _fields(to)
    _no_mask(to)
    to.add_argument(
        "--link", action="append", default=[], metavar="RELATION:ID", help="a link to another memory (repeatable)"
    )
    to.add_argument("--replaces", metavar="ID", help="the memory that this one supersedes")
    to.add_argument("--key", help="an idempotency key: sent again, it is stored once")
    to.add_argument(
        "--batch", metavar="FILE", help="a file of JSON lines (or -), each an object with the fields of a memory"
    )


def _edit(to: Parser) -> None:
    _id(to)
    _text(to)
    _fields(
        to,
        clears=" (none clears it)",
        tag="these tags in place of all others: one, or several with commas (repeatable)",
        meta="set this metadata, keep the rest; NAME= removes it, none removes all",
    )
    to.add_argument("--add-tag", action="append", default=[], metavar="TAG", help="add a tag (repeatable)")
    to.add_argument("--remove-tag", action="append", default=[], metavar="TAG", help="remove a tag (repeatable)")
    _no_mask(to)
    to.add_argument("--to-revision", type=number, metavar="N", help="go back to the title and text of revision N")
    _expected(to)


def _move(to: Parser) -> None:
    _id(to)
    to.add_argument("to", metavar="SPACE", help="the space to move it to")
    _expected(to)


def _delete(to: Parser) -> None:
    to.add_argument("ids", metavar="ID", nargs="*", help=ID_HELP)
    _filter(to)
    to.add_argument("--dry-run", action="store_true", help="only show which memories would be deleted")
    to.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    _expected(to)


def _link(to: Parser) -> None:
    _id(to)
    to.add_argument("relation", metavar="RELATION", help="such as related_to, derived_from, contradicts or supersedes")
    to.add_argument("target", metavar="OTHER", help="the other memory, in the same way")


def _list(to: Parser) -> None:
    _filter(to)
    to.add_argument("--deleted", action="store_true", help="list deleted memories")
    to.add_argument("--limit", type=int, default=50, metavar="N", help="how many (50)")
    to.add_argument("--after", metavar="CURSOR", help="continue after a page: its `next`")


def _recall(to: Parser) -> None:
    from commonbook.interfaces.cli.recall_arguments import recall_arguments

    recall_arguments(to, add_filter=_filter)


def _history(to: Parser) -> None:
    _id(to)
    to.add_argument(
        "--diff", action=argparse.BooleanOptionalAction, default=True, help="show what each revision changed"
    )


def _space(to: Parser) -> None:
    actions = _actions(to)
    _command(actions, "list", "list the spaces")
    _command(actions, "create", "create a space").add_argument("name", metavar="NAME")
    rename = _command(actions, "rename", "rename a space, and all spaces below it")
    rename.add_argument("old", metavar="OLD")
    rename.add_argument("new", metavar="NEW")
    _command(actions, "which", "show the default space of this folder")
    depth = _command(actions, "depth", "show or set how many levels deep reflections may be in a space")
    depth.add_argument("name", metavar="NAME")
    depth.add_argument("depth", metavar="N", nargs="?", help="1 to 10; `default` inherits it from the space above")
    review = _command(actions, "review", "show or set whose memories wait for approval in a space and below it")
    review.add_argument("name", metavar="NAME")
    review.add_argument("review", metavar="WHOSE", nargs="?", choices=("agents", "none"), help="agents, or none")


def _session(to: Parser) -> None:
    actions = _actions(to)
    append = _session_command(actions, "append", "add messages to a session; the first message creates it")
    append.add_argument(
        "text",
        metavar="TEXT",
        nargs="?",
        help="the text; - reads it, or JSON lines with a text each, from standard input",
    )
    append.add_argument("--role", help="the role: user (default), assistant, system, tool or another word")
    append.add_argument("--author", metavar="NAME", help="the author; default: you, or agent:ROLE")
    append.add_argument("--time", metavar="TIME", help="the time of the message; default: now")
    append.add_argument(
        "--client-id", metavar="ID", help="your own id of the message: a repeat with it is not stored again"
    )
    append.add_argument("--jsonl", action="store_true", help=f"read JSON lines, each an object with {_MESSAGE_FIELDS}")
    append.add_argument("--parent", metavar="SESSION", help="the parent of a new session, in the same space")
    append.add_argument("--tag", action="append", default=[], metavar="TAG", help="of a new session (repeatable)")
    switch = _command(actions, "switch", "settle a session and continue in another")
    switch.add_argument("old", metavar="OLD", help="the session to settle")
    switch.add_argument("new", metavar="NEW", help="the session to create or resume")
    switch.add_argument("--reason", choices=_REASONS, default="new", metavar="WHY", help=f"{', '.join(_REASONS)} (new)")
    switch.add_argument("--to-space", metavar="SPACE", help="the space of NEW, if it is another one")
    switch.add_argument("--tag", action="append", default=[], metavar="TAG", help="of a new session (repeatable)")
    rewind = _session_command(actions, "rewind", "rewind a session: remove all messages after one")
    rewind.add_argument("after", metavar="AFTER", help="the last message to keep: its number (0 for none) or id")
    _session_command(actions, "close", "settle everything in a session and close it; a later message opens it again")
    move = _session_command(actions, "move", "move a session with its messages and episodes into another space")
    move.add_argument("to", metavar="TO", help="the new space; --space is the present one")
    _session_command(actions, "flush", "settle everything in a session now")
    show = _session_command(actions, "show", "show the messages of a session")
    show.add_argument("--after", type=number, default=0, metavar="N", help="only messages after number N")
    show.add_argument("--limit", type=int, metavar="N", help="how many (100; with --jsonl, all)")
    show.add_argument("--jsonl", action="store_true", help="print JSON lines, one message each")
    sessions = _command(actions, "list", "list the newest sessions, of all spaces or of --space")
    sessions.add_argument("--limit", type=int, default=50, metavar="N", help="how many (50)")


def _session_command(actions: argparse._SubParsersAction[Parser], name: str, summary: str) -> Parser:
    command = _command(actions, name, summary)
    command.add_argument(
        "session", metavar="SESSION", help="its id, chosen by you: 1 to 200 characters, no blanks; unique in its space"
    )
    return command


_MESSAGE_FIELDS: Final = "text, role, author, time and client_id"
_REASONS: Final = ("new", "reset", "resume", "branch", "compress")


def _init(to: Parser) -> None:
    to.add_argument("folder", metavar="DIR", nargs="?", help="the folder; it is created if it does not exist")
    to.add_argument("--dry-run", action="store_true", help="only show what would be done")
    to.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    to.add_argument("--trust", action="store_true", help="use the database, keys and settings that the folder brings")


def _reindex(to: Parser) -> None:
    to.add_argument("--anew", action="store_true", help="delete the index and build it again")


def _doctor(to: Parser) -> None:
    to.add_argument("--accept", action="store_true", help="delete the memories whose files were removed")


def _audit(to: Parser) -> None:
    actions = _actions(to)
    _command(actions, "verify", "verify the hash chain and the signatures of the log of --space, or of all spaces")
    entries = _command(actions, "list", "list the entries of a space's log")
    entries.add_argument("--after", type=number, default=0, metavar="N", help="only entries after number N")
    entries.add_argument("--limit", type=amount, default=100, metavar="N", help="how many (100)")
    keys = _command(actions, "keys", "create the signing keys for a book on PostgreSQL, once for all its servers")
    keys.add_argument(
        "folder", metavar="FOLDER", help="the folder for the keys; every server needs it as COMMONBOOK_KEYS"
    )


def _database(to: Parser) -> None:
    index = _command(_actions(to), "index", "search a space by a vector index, in place of comparing all its vectors")
    index.add_argument("name", metavar="SPACE", help="a space of more than 200,000 passages")
    index.add_argument("--drop", action="store_true", help="drop the index: all vectors are compared again")


def _completion(to: Parser) -> None:
    to.add_argument("shell", choices=("bash", "zsh", "tcsh"), help="your shell")


def _no_arguments(_to: Parser) -> None:
    pass


# --- sharing


def _share(to: Parser) -> None:
    to.add_argument("ids", metavar="ID", nargs="+", help=ID_HELP)
    target = to.add_mutually_exclusive_group(required=True)
    target.add_argument("--to", metavar="SPACE", help="the space that gets a copy of each")
    target.add_argument(
        "--with", metavar="PRINCIPAL", dest="principal", help="the only principal who may read the copy"
    )
    _refresh_mode(to)


def _pull(to: Parser) -> None:
    _id(to)
    to.add_argument("--to", metavar="SPACE", help="the space that gets the copy; default: the space of this project")
    _refresh_mode(to)


def _refresh_mode(to: Parser) -> None:
    to.add_argument(
        "--refresh",
        choices=MODES,
        default=MODES[0],
        metavar="HOW",
        help="when the copy follows its source: live (at once; default), lazy (when opened) or snapshot (by `refresh`)",
    )


def _lineage(to: Parser) -> None:
    _id(to)
    to.add_argument("--depth", type=int, metavar="N", help="at most N steps back and forth, up to 32 (32)")


# --- reasoning


def _reflect(to: Parser) -> None:
    _text(to)
    _no_mask(to)
    to.add_argument(
        "--on", action="append", default=[], metavar="ID", help="a source of the reflection (repeatable, at least one)"
    )
    to.add_argument("--title", help="the title; else the text's first line")
    to.add_argument("--tag", action="append", default=[], metavar="TAG", help="a tag, or several (repeatable)")
    to.add_argument("--importance", type=float, metavar="0..1", help="how much it matters")
    to.add_argument("--occurred", metavar="TIME", help="when it happened")
    to.add_argument("--key", help="an idempotency key: sent again, it is stored once")


# --- options that several commands share


def _id(to: Parser) -> None:
    to.add_argument("id", metavar="ID", help=ID_HELP)


def _text(to: Parser) -> None:
    to.add_argument("text", metavar="TEXT", nargs="?", help="the text; - reads it from standard input")
    to.add_argument("--file", metavar="FILE", help="read the text from a file")


def _no_mask(to: Parser) -> None:
    to.add_argument(
        "--no-mask", action="store_false", dest="mask", help="store passwords and other secrets as they are"
    )


def _fields(
    to: Parser,
    *,
    clears: str = "",
    tag: str = "a tag, or several with commas (repeatable)",
    meta: str = "metadata of your own (repeatable)",
) -> None:
    to.add_argument("--title", help="the title; else the text's first line")
    to.add_argument("--kind", help="note, fact, preference, decision, procedure, episode or reflection")
    to.add_argument("--tag", action="append", metavar="TAG", help=tag)
    to.add_argument("--importance", metavar="0..1", help=f"how much it matters{clears}")
    to.add_argument("--meta", action="append", metavar="NAME=VALUE", help=meta)
    for name, summary in _TIMES:
        to.add_argument(f"--{name}", metavar="TIME", help=f"{summary}{clears}")


_TIMES: Final = (
    ("occurred", "when it happened"),
    ("valid-from", "since when it is true"),
    ("valid-until", "until when it is true"),
    ("expires", "when recall begins to leave it out"),
)


def _filter(to: Parser) -> None:
    to.add_argument("--tag", action="append", default=[], metavar="TAG", help="with this tag (repeatable: with all)")
    to.add_argument("--kind", action="append", default=[], metavar="KIND", help="of this kind (repeatable: of any)")
    to.add_argument("--meta", action="append", default=[], metavar="NAME=VALUE", help="with this metadata (repeatable)")
    to.add_argument("--since", metavar="TIME", help="that occurred (else were created) at this time or later")
    to.add_argument("--until", metavar="TIME", help="that occurred (else were created) before this time")


def _expected(to: Parser) -> None:
    to.add_argument("--expected-version", type=number, metavar="N", help="only if the memory has this version")


_ADDERS: Final[Mapping[str, Any]] = {"actions": _actions, "add": _command}

_COMMANDS: Final[Mapping[str, tuple[str, Callable[[Parser], None]]]] = {
    "remember": ("store a new memory", _remember),
    "recall": (
        "find memories and messages that answer a query, best first; without a query, the newest",
        _recall,
    ),
    "show": ("show one memory", lambda to: agent_arguments.show_arguments(to, _id)),
    "edit": ("change a memory; on a terminal without other arguments, in your editor", _edit),
    "move": ("move a memory into another space", _move),
    "delete": ("delete memories, by id or by a filter; on a terminal it asks first", _delete),
    "undelete": ("bring a deleted memory back, with its history and links", _id),
    "list": ("list memories, newest first, of all spaces or of --space", _list),
    "history": ("show the revisions and deletions of a memory, and who changed it", _history),
    "link": ("link a memory to another", _link),
    "unlink": ("remove a link", _link),
    "links": ("list the links of a memory, in both directions", _id),
    "share": ("copy memories into another space; the copies stay bound to their sources", _share),
    "pull": ("copy a memory of others into a space of yours; the copy stays bound to its source", _pull),
    "unshare": ("remove a copy", _id),
    "refresh": (
        "update a copy to its source now, or change when it follows",
        lambda to: sharing_rule_arguments.refresh_arguments(to, add_id=_id),
    ),
    "detach": ("stop a copy from following its source", _id),
    "adopt": ("give up the edits of a copy and follow its source again", _id),
    "lineage": ("show the sources and the copies of a memory as a tree", _lineage),
    "copies": ("list the copies of a memory, and their copies", _id),
    "rules": (
        "list, add and remove rules that share memories of one space into another",
        lambda to: sharing_rule_arguments.rules_arguments(to, **_ADDERS),
    ),
    "request": ("ask for a memory to be shared into a space", lambda to: sharing_rule_arguments.request_arguments(to)),
    "pending": (
        "list what waits for approval, of all spaces or of --space: share requests and proposals",
        lambda to: sharing_rule_arguments.pending_arguments(to),
    ),
    "approve": ("approve a request or a proposed memory", lambda to: sharing_rule_arguments.approve_arguments(to)),
    "reject": ("reject a request or proposal, or withdraw it", lambda to: sharing_rule_arguments.reject_arguments(to)),
    "limit": (
        "list and set how often principals may write, share, ask and recall",
        lambda to: sharing_rule_arguments.limit_arguments(to, **_ADDERS),
    ),
    "reflect": ("store a reflection: a memory that was reasoned from others", _reflect),
    "supersede": (
        "let a memory supersede another, whose dependents become suspect",
        lambda to: reasoning_arguments.supersede_arguments(to),
    ),
    "reinstate": ("undo a supersede, or a retraction", lambda to: reasoning_arguments.reinstate_arguments(to)),
    "dependents": ("show the memories that depend on a memory, directly or through others", _id),
    "inbox": (
        "go through proposed and suspect memories, one by one on a terminal; elsewhere, list them",
        lambda to: reasoning_arguments.inbox_arguments(to),
    ),
    "triage": ("decide about a suspect memory", lambda to: reasoning_arguments.triage_arguments(to)),
    "session": ("append, show, switch, rewind and settle sessions of messages", _session),
    "space": ("list, create and rename spaces, set the depth of reflections and the review", _space),
    "whoami": ("show whom you act for, the default space, and your role on each space", _no_arguments),
    "grant": ("let others use spaces", lambda to: access_arguments.grant_arguments(to, **_ADDERS)),
    "key": ("create, list and revoke API keys", lambda to: access_arguments.key_arguments(to, **_ADDERS)),
    "login": ("save the key of a server on this machine", lambda to: access_arguments.login_arguments(to)),
    "sign-in": ("print a link that signs a browser in", lambda to: access_arguments.sign_in_arguments(to)),
    "trust": (
        "let the `.commonbook.toml` of a git repository name the default space",
        lambda to: access_arguments.trust_arguments(to),
    ),
    "init": ("make a folder of notes a home, as a space if --space names one; default: --home", _init),
    "import": (
        "import a folder of Markdown files",
        lambda to: transfer_arguments.import_arguments(to, add_no_mask=_no_mask),
    ),
    "export": (
        "write a space, or all of them, as a folder or an archive",
        lambda to: transfer_arguments.export_arguments(to),
    ),
    "backup": (
        "copy the whole home, with history, rights and keys, while it is in use",
        lambda to: transfer_arguments.backup_arguments(to),
    ),
    "restore": (
        "make a home of a backup, where there is none, and check it",
        lambda to: transfer_arguments.restore_arguments(to),
    ),
    "migrate": (
        "move the whole book to a database server, or into a home; the old one becomes read-only",
        lambda to: transfer_arguments.migrate_arguments(to),
    ),
    "database": ("make or drop the vector index of a large space on PostgreSQL", _database),
    "rebuild": ("rebuild all derived data from the files and the database", _no_arguments),
    "reindex": ("update the index now, not with the next recall", _reindex),
    "doctor": ("check everything and show what is wrong", _doctor),
    "status": ("show numbers, what is pending and what is wrong", _no_arguments),
    "serve": (
        "serve the book over HTTP, with a worker; Ctrl-C ends it",
        lambda to: server_arguments.serve_arguments(to),
    ),
    "mcp": ("serve the book to an agent, over MCP on standard input and output", _no_arguments),
    "install": (
        "plug the book into an agent, such as claude-code, codex or gemini; shown first, and asked",
        lambda to: agent_arguments.install_arguments(to),
    ),
    "uninstall": ("take the book out of an agent again", lambda to: agent_arguments.uninstall_arguments(to)),
    "hook": ("handle one event of an agent", lambda to: agent_arguments.hook_arguments(to)),
    "worker": (
        "run the jobs that are due, such as settling sessions into episodes",
        lambda to: server_arguments.worker_arguments(to, seconds),
    ),
    "audit": ("verify and read the signed log", _audit),
    "completion": ("print a script that completes commands in your shell", _completion),
}
