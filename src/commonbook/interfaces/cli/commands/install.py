"""`install` and `uninstall`: plug the book into an agent, or take it out again; shown first, and asked."""

from __future__ import annotations

import difflib
import json
import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from commonbook.compose.book import may_be_made
from commonbook.core.settings.project_files import PROJECTS
from commonbook.core.settings.remote import default_book, is_url
from commonbook.core.settings.settings import AgentFolders
from commonbook.errors import BadInput
from commonbook.interfaces.agents import hermes as hermes_agent
from commonbook.interfaces.agents import installation
from commonbook.interfaces.agents.clients import CLIENTS, SERVER, Client, Request
from commonbook.interfaces.agents.installation import FileChange, Plan
from commonbook.interfaces.cli.arguments import add_confirmation, confirm
from commonbook.interfaces.cli.commands import command
from commonbook.interfaces.cli.output import is_terminal
from commonbook.values.spaces import PERSONAL, WRITER

if TYPE_CHECKING:
    from commonbook.interfaces.cli.call import Call
    from commonbook.interfaces.cli.output import Output
    from commonbook.interfaces.cli.parser import Parser

_SCOPES: Final = ("user", "project")
_DRY_RUN_HELP: Final = "only show what would be changed"
_SPACE_HELP: Final = (
    "a space that the agent may write to as well, with all below it (repeatable); personal and projects "
    "are always among them"
)


class _Access(NamedTuple):
    """The spaces that the principal of an agent gets grants on, or loses them on."""

    principal: str
    granted: tuple[str, ...] = ()
    revoked: tuple[str, ...] = ()


def _install_arguments(to: Parser) -> None:
    to.add_argument("client", metavar="CLIENT", nargs="?", help="the agent; --list shows all")
    to.add_argument("--list", action="store_true", help="list the agents, and where they have the book")
    _add_scope(to)
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
    add_confirmation(to, _DRY_RUN_HELP)


def _add_scope(to: Parser) -> None:
    to.add_argument(
        "--scope",
        choices=_SCOPES,
        default="user",
        help="for all projects of this user (default), or for the project in this folder",
    )


@command("install", _install_arguments, book="none", space_help=_SPACE_HELP, several_spaces=True)
def _install(call: Call) -> int:
    """Plug the book into an agent, or list the agents."""
    if call.args.list:
        return _list(call)
    client = _client(call)
    hermes = _hermes(call) if client.name == "hermes" else None
    request = _request(call, client)
    if hermes is not None:
        request = request._replace(plugin_folder=not hermes.knows_entry_points)
    plan = installation.plan_install(client, request, own_command=_own_command(client, request))
    if hermes is not None and (pip := hermes_agent.package_command(hermes)):
        plan = plan._replace(commands=(pip,))
    granted = () if client.opens_book else _missing_grants(call, client.principal)
    access = _Access(client.principal, granted=granted)
    done = _ask_and_do(call, plan, access, question=f"Plug the book into {client.title}?")
    if hermes is not None and (done or (plan.is_empty and not call.args.dry_run)):
        hermes_agent.check(hermes, hermes_agent.profiles(request.folders.hermes))
    answer = {**_answer_json(client, plan, access), "installed": done, "configuration": _snippet(client, request)}
    return call.print_answer(answer, lambda out: _show_installed(out, call, client, request, plan, access, done=done))


def _uninstall_arguments(to: Parser) -> None:
    to.add_argument("client", metavar="CLIENT", help="the agent")
    _add_scope(to)
    add_confirmation(to, _DRY_RUN_HELP)


@command("uninstall", _uninstall_arguments, book="none")
def _uninstall(call: Call) -> int:
    """Take the book out of an agent."""
    client = _client(call)
    request = _request(call, client)
    plan = installation.plan_uninstall(client, request, own_command=_own_command(client, request))
    # While the agent has the book in another place, it keeps its grants.
    others = (scope for scope in client.scopes if scope != request.scope)
    is_elsewhere = any(installation.is_installed(client, request._replace(scope=scope)) for scope in others)
    access = _Access(client.principal, revoked=() if is_elsewhere else _grants(call, client.principal))
    done = _ask_and_do(call, plan, access, question=f"Take the book out of {client.title}?")
    answer = {**_answer_json(client, plan, access), "uninstalled": done}
    return call.print_answer(answer, lambda out: _show_uninstalled(out, call, client, plan, access, done=done))


def _client(call: Call) -> Client:
    _refuse_other_actors(call)
    name = call.args.client
    client = CLIENTS.get(name or "")
    if client is None:
        what = f"{name!r} is no agent that Commonbook knows" if name else "no agent was named"
        raise BadInput(what, fix=f"name one of: {', '.join(CLIENTS)}; for another one, `other` shows what it needs")
    if call.args.scope not in client.scopes:
        raise BadInput(f"{client.title} has no configuration of a project", fix="leave out --scope")
    return client


def _refuse_other_actors(call: Call) -> None:
    if call.args.actor is not None or (call.settings.key is not None and call.url is None):
        raise BadInput("only the owner of the home may let agents in", fix="leave out --as, and unset COMMONBOOK_KEY")
    if call.settings.database is not None and call.url is None:
        raise BadInput(
            "the address of a database, with its password, is not written into the configuration of an agent",
            fix="serve the book, and give --url URL",
        )


def _hermes(call: Call) -> hermes_agent.Hermes:
    """Return the Hermes of this machine; refuse what only agents with MCP have."""
    if call.url is not None:
        raise BadInput("Hermes cannot use the book of a server yet", fix="name a home: --home DIR")
    if call.args.spaces or call.args.instructions or call.args.tool_output:
        raise BadInput(
            "--space, --instructions and --tool-output are for agents with MCP",
            fix="leave them out; `hermes memory setup commonbook` asks for the space",
        )
    return hermes_agent.find(AgentFolders.load(), call.args.program)


# --- the command that an agent starts


def _request(call: Call, client: Client) -> Request:
    return Request(
        command=(*_program(call), "mcp", *_place(call, client)),
        hook=(*_program(call), "hook", client.name, *_place(call, client)),
        folders=AgentFolders.load(),
        project=call.settings.cwd,
        scope=call.args.scope,
        permissions=getattr(call.args, "permissions", True),
        hooks=getattr(call.args, "hooks", True),
        tool_output=getattr(call.args, "tool_output", False),
        instructions=getattr(call.args, "instructions", False),
        home=_named_home(call),
    )


def _program(call: Call) -> tuple[str, ...]:
    """Return the program: its path, since not every agent has the same PATH; its name in files that others get."""
    if call.args.scope == "project":
        return ("commonbook",)
    started = os.path.abspath(sys.argv[0])
    if os.path.basename(started) == "commonbook" and os.access(started, os.X_OK):
        return (started,)
    found = shutil.which("commonbook")
    return (found,) if found else (sys.executable, "-m", "commonbook")


def _place(call: Call, client: Client) -> tuple[str, ...]:
    """Return the arguments that name the book and the principal; a key is never among them."""
    if call.url is not None:
        return ("--url", call.url)
    home = _named_home(call)
    return ("--as", client.principal, *(("--home", home) if home else ()))


def _named_home(call: Call) -> str | None:
    """Return the home, unless an agent finds it by itself: as `~/commonbook`, if no other home is the default."""
    default = default_book()
    finds_it = call.settings.is_default_home and (default is None or is_url(default))
    return None if finds_it else call.settings.home


def _own_command(client: Client, request: Request) -> str | None:
    return shutil.which("claude") if client.name == "claude-code" and request.scope == "user" else None


def _snippet(client: Client, request: Request) -> dict[str, Any] | None:
    """Return the configuration for an agent that is not known."""
    program, *arguments = request.command
    return {"mcpServers": {SERVER: {"command": program, "args": arguments}}} if client.name == "other" else None


# --- grants


def _grants(call: Call, principal: str) -> tuple[str, ...]:
    """Return the spaces on which a principal has a grant in the book of this machine."""
    if call.url is not None or not call.has_home:
        return ()
    with call.open_home(create=False) as book:
        return tuple(grant.space.name for grant in book.grants() if grant.principal == principal)


def _missing_grants(call: Call, principal: str) -> tuple[str, ...]:
    if call.url is not None:
        # The key of the agent decides, which an administrator of the server makes.
        return ()
    granted = _grants(call, principal)
    wanted = dict.fromkeys((PERSONAL, PROJECTS, *call.args.spaces))
    return tuple(space for space in wanted if space not in granted)


def _change_grants(call: Call, access: _Access) -> None:
    if not access.granted and not access.revoked:
        return
    with call.open_home(create=may_be_made(call.settings)) as book:
        known = {space.name for space in book.spaces()}
        for space in access.granted:
            if space not in known:
                book.create_space(space)
            book.grant(access.principal, space, WRITER)
        for space in access.revoked:
            book.revoke(access.principal, space)


# --- showing and asking


def _ask_and_do(call: Call, plan: Plan, access: _Access, *, question: str) -> bool:
    """Show the changes, ask, and make them; return whether they were made."""
    if call.args.dry_run or (plan.is_empty and not access.granted and not access.revoked):
        return False
    if not call.args.yes:
        if call.args.json or not is_terminal(sys.stdin):
            raise BadInput(
                f"{len(plan.changes) + len(plan.commands)} changes, and there is no terminal to ask for confirmation",
                fix="look at the changes with --dry-run, then make them with --yes",
            )
        call.progress.pause()
        _show_plan(call.out, plan, access)
        call.flush()
        if not confirm(question):
            return False
    # Grants first: an agent that finds the book may use it.
    if access.granted:
        _change_grants(call, access)
    installation.carry_out(plan)
    if access.revoked:
        _change_grants(call, access)
    return True


def _show_plan(out: Output, plan: Plan, access: _Access) -> None:
    for change in plan.changes:
        out.diff(_diff(change))
    for words in plan.commands:
        out.line("Run:")
        out.command(shlex.join(words))
    for space in access.granted:
        below = ": of its projects, an agent reaches the one that it works in" if space == PROJECTS else ""
        out.line(f"Let {access.principal} read and write {space}{below}")
    for space in access.revoked:
        out.line(f"Let {access.principal} no longer use {space}")


def _diff(change: FileChange) -> str:
    before, after = ((text or "").splitlines(keepends=True) for text in (change.before, change.after))
    from_file, to_file = (change.path if text is not None else os.devnull for text in (change.before, change.after))
    lines = difflib.unified_diff(before, after, from_file, to_file)
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


def _show_installed(
    out: Output, call: Call, client: Client, request: Request, plan: Plan, access: _Access, *, done: bool
) -> None:
    if call.args.dry_run or call.args.yes:
        _show_plan(out, plan, access)
    if done:
        where = "" if call.url is not None or client.opens_book else f", as {client.principal}"
        out.line(f"{client.title} has the book now{where}; start it anew", "green")
        if client.hooks_note and request.hooks:
            out.note(client.hooks_note)
        if not client.tried and client.name != "other":
            out.note(f"{client.title} was not tried: this follows its documentation")
    elif plan.is_empty and not access.granted:
        out.line(f"{client.title} has the book already")
    else:
        out.line("Nothing was changed")
    snippet = _snippet(client, request)
    if snippet is not None:
        out.line("Put this into the configuration of the agent:")
        out.body(json.dumps(snippet, indent=2))


def _show_uninstalled(out: Output, call: Call, client: Client, plan: Plan, access: _Access, *, done: bool) -> None:
    if call.args.dry_run or call.args.yes:
        _show_plan(out, plan, access)
    if done:
        out.line(f"{client.title} no longer has the book; its memories stay", "green")
        if client.opens_book:
            out.note("The package commonbook stays in its environment; `pip uninstall commonbook` there removes it")
    else:
        out.line("Nothing was changed" if not plan.is_empty else f"{client.title} does not have the book")


def _answer_json(client: Client, plan: Plan, access: _Access) -> dict[str, Any]:
    return {
        "client": client.name,
        "principal": client.principal,
        "files": [change.path for change in plan.changes],
        "commands": [list(command) for command in plan.commands],
        "granted": list(access.granted),
        "revoked": list(access.revoked),
    }


# --- the list


def _list(call: Call) -> int:
    found = [{"client": c.name, "title": c.title, "tried": c.tried, "installed": _places(call, c)} for c in _listed()]
    return call.print_answer({"clients": found}, lambda out: _show_list(out, found))


def _listed() -> Sequence[Client]:
    return [client for client in CLIENTS.values() if client.name != "other"]


def _places(call: Call, client: Client) -> list[str]:
    request = Request((SERVER,), (SERVER,), AgentFolders.load(), call.settings.cwd)
    return [
        scope
        for scope in _SCOPES
        if scope in client.scopes and installation.is_installed(client, request._replace(scope=scope))
    ]


def _show_list(out: Output, found: Sequence[Mapping[str, Any]]) -> None:
    rows = [
        (each["client"], each["title"], ", ".join(each["installed"]) or "no", "" if each["tried"] else "not tried")
        for each in found
    ]
    out.table(("client", "agent", "has the book", ""), rows)
