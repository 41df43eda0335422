"""The table of agents: which files hold their configuration, and what is added to them."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

from commonbook.core.settings.settings import AgentFolders
from commonbook.interfaces.agents.edits import HASH, MARKDOWN, Block, Edit, Element, Member
from commonbook.interfaces.mcp.tools import TOOLS

Scope: TypeAlias = Literal["user", "project"]

SERVER: Final = "commonbook"
"""The name of the server in every configuration."""

_HARMLESS: Final = tuple(
    name for name, tool in TOOLS.items() if not tool.hints.destructive and name not in ("share", "switch")
)
"""Tools that read, or add something that can be taken back: an agent may call them without a question."""

_EVENTS: Final = ("SessionStart", "UserPromptSubmit", "Stop", "PreCompact", "SessionEnd")
_GEMINI_EVENTS: Final = ("SessionStart", "BeforeAgent", "AfterAgent", "SessionEnd")
_TOOL_EVENT: Final = "PostToolUse"
_GEMINI_TOOL_EVENT: Final = "AfterTool"
_GEMINI_COMPACTION: Final = ("PreCompress", "manual")
"""The event of Gemini's compaction, and the trigger by which it is one: else it comes before each request."""
_HOOK_SECONDS: Final = 5
_CODEX_HOOK_SECONDS: Final = 3
"""How long an agent waits for a hook; it ends by itself sooner. Codex gives the end of a session no more."""

_INSTRUCTIONS: Final = """\
Long-term memory is in the MCP server `commonbook`. Before you begin a task, `recall` what is known about it. When you
learn a preference, a decision with its reason, or how something is done here, `remember` it in one sentence."""


class Request(NamedTuple):
    """A wish to plug the book into an agent: the command that the agent starts, where, and what else to add."""

    command: tuple[str, ...]
    """The program, and the arguments of its command `mcp`."""
    hook: tuple[str, ...]
    """The program, and the arguments of its command `hook`."""
    folders: AgentFolders
    project: str
    scope: Scope = "user"
    permissions: bool = True
    hooks: bool = True
    instructions: bool = False
    tool_output: bool = False
    """Whether hooks store the output of tools too."""
    home: str | None = None
    """The home of the book, for an agent that opens it by itself; None for the default home."""
    plugin_folder: bool = True
    """Whether the agent finds a plugin only by its folder."""


class FileEdit(NamedTuple):
    """An edit of a file."""

    path: str
    edit: Edit


class Client(NamedTuple):
    """An agent: `tried` tells whether its real program was tried, or only its documentation read."""

    name: str
    title: str
    edits: Callable[[Request], Iterator[FileEdit]]
    tried: bool = False
    scopes: tuple[Scope, ...] = ("user", "project")
    instructions_file: str = "AGENTS.md"
    hooks_note: str = ""
    """A condition for its hooks to run, for the person who installs them."""
    opens_book: bool = False
    """Whether the agent opens the book itself, as its owner, and needs no grants."""

    @property
    def principal(self) -> str:
        """The principal that the agent acts as."""
        return f"agent:{self.name}"

    def all_edits(self, request: Request) -> list[FileEdit]:
        """Return everything that an installation adds."""
        edits = list(self.edits(request))
        if request.instructions:
            path = os.path.join(request.project, self.instructions_file)
            edits.append(FileEdit(path, Block(MARKDOWN, _INSTRUCTIONS)))
        return edits


def _json_server(request: Request, **more: object) -> dict[str, object]:
    program, *arguments = request.command
    return {**more, "command": program, "args": arguments}


def _in(request: Request, *, user: str, project: str) -> str:
    return user if request.scope == "user" else os.path.join(request.project, project)


def _claude_code(request: Request) -> Iterator[FileEdit]:
    servers = _in(request, user=os.path.join(request.folders.home, ".claude.json"), project=".mcp.json")
    yield FileEdit(servers, Member(("mcpServers", SERVER), _json_server(request, type="stdio")))
    settings = _in(
        request,
        user=os.path.join(request.folders.home, ".claude", "settings.json"),
        project=os.path.join(".claude", "settings.json"),
    )
    if request.permissions:
        for tool in _HARMLESS:
            yield FileEdit(settings, Element(("permissions", "allow"), f"mcp__{SERVER}__{tool}"))

    if request.hooks:
        program, *arguments = request.hook
        command = {"type": "command", "command": program, "args": arguments, "timeout": _HOOK_SECONDS}
        events = (*_EVENTS, _TOOL_EVENT) if request.tool_output else _EVENTS
        yield from _json_hooks(settings, events, command, mark="hook claude-code")


def _json_hooks(path: str, events: Iterable[str], command: Mapping[str, object], *, mark: str) -> Iterator[FileEdit]:
    for event in events:
        yield FileEdit(path, Element(("hooks", event), {"hooks": [command]}, mark=mark))


def _codex(request: Request) -> Iterator[FileEdit]:
    config = _in(
        request,
        user=os.path.join(request.folders.codex, "config.toml"),
        project=os.path.join(".codex", "config.toml"),
    )
    program, *arguments = request.command
    words = ", ".join(map(_toml_text, arguments))
    body = f"[mcp_servers.{SERVER}]\ncommand = {_toml_text(program)}\nargs = [{words}]"
    if request.hooks:
        command = _toml_text(shlex.join(request.hook))
        for event in (*_EVENTS, _TOOL_EVENT) if request.tool_output else _EVENTS:
            body += f"\n[[hooks.{event}]]\n[[hooks.{event}.hooks]]\n"
            body += f'type = "command"\ncommand = {command}\ntimeout = {_CODEX_HOOK_SECONDS}'
    yield FileEdit(config, Block(HASH, body, ("mcp_servers", SERVER)))


def _toml_text(text: str) -> str:
    import json

    # A JSON string is a basic string of TOML too, but for this character.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _gemini(request: Request) -> Iterator[FileEdit]:
    settings = os.path.join(".gemini", "settings.json")
    path = _in(request, user=os.path.join(request.folders.home, settings), project=settings)
    yield FileEdit(path, Member(("mcpServers", SERVER), _json_server(request)))
    if request.hooks:
        command = {"type": "command", "command": shlex.join(request.hook), "timeout": _HOOK_SECONDS * 1000}
        events = (*_GEMINI_EVENTS, _GEMINI_TOOL_EVENT) if request.tool_output else _GEMINI_EVENTS
        yield from _json_hooks(path, events, command, mark="hook gemini")
        event, trigger = _GEMINI_COMPACTION
        group = {"matcher": trigger, "hooks": [command]}
        yield FileEdit(path, Element(("hooks", event), group, mark="hook gemini"))


def _claude_desktop(request: Request) -> Iterator[FileEdit]:
    path = os.path.join(_application_data(request, "Claude"), "claude_desktop_config.json")
    yield FileEdit(path, Member(("mcpServers", SERVER), _json_server(request)))


def _cursor(request: Request) -> Iterator[FileEdit]:
    servers = os.path.join(".cursor", "mcp.json")
    path = _in(request, user=os.path.join(request.folders.home, servers), project=servers)
    yield FileEdit(path, Member(("mcpServers", SERVER), _json_server(request)))


def _vscode(request: Request) -> Iterator[FileEdit]:
    user = os.path.join(_application_data(request, "Code"), "User", "mcp.json")
    path = _in(request, user=user, project=os.path.join(".vscode", "mcp.json"))
    yield FileEdit(path, Member(("servers", SERVER), _json_server(request, type="stdio")))


def _opencode(request: Request) -> Iterator[FileEdit]:
    user = os.path.join(request.folders.config, "opencode", "opencode.json")
    path = _in(request, user=user, project="opencode.json")
    server = {"type": "local", "command": list(request.command), "enabled": True}
    yield FileEdit(path, Member(("mcp", SERVER), server))


def _hermes(request: Request) -> Iterator[FileEdit]:
    from commonbook.interfaces.agents import hermes  # Imported late: only this agent needs YAML.

    for path, edit in hermes.edits(request.folders.hermes, home=request.home, with_folder=request.plugin_folder):
        yield FileEdit(path, edit)


def _application_data(request: Request, name: str) -> str:
    if sys.platform == "darwin":
        return os.path.join(request.folders.home, "Library", "Application Support", name)
    return os.path.join(request.folders.config, name)


_CLIENTS: Final = (
    Client("claude-code", "Claude Code", _claude_code, tried=True, instructions_file="CLAUDE.md"),
    Client(
        "codex",
        "Codex",
        _codex,
        tried=True,
        hooks_note="its hooks run after you have trusted them: start `codex` in a terminal, which asks once",
    ),
    Client("gemini", "Gemini CLI", _gemini, tried=True, instructions_file="GEMINI.md"),
    Client("hermes", "Hermes", _hermes, tried=True, scopes=("user",), opens_book=True),
    Client("claude-desktop", "Claude Desktop", _claude_desktop, scopes=("user",)),
    Client("cursor", "Cursor", _cursor),
    Client("vscode", "VS Code", _vscode),
    Client("opencode", "opencode", _opencode),
    Client("other", "any other agent", lambda _request: iter(()), scopes=("user",)),
)

CLIENTS: Final[Mapping[str, Client]] = {client.name: client for client in _CLIENTS}
