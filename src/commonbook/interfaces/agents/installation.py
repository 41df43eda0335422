"""Plans of an installation and its removal: which files change, from which text to which, and by which command.

A plan is made without changing anything, so that it can be shown first.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from commonbook.errors import BadInput, CommonbookError
from commonbook.interfaces.agents import json_text
from commonbook.interfaces.agents.clients import SERVER, Client, FileEdit, Request
from commonbook.interfaces.agents.edits import Element, Member
from commonbook.settings.agents import AgentFolders

_MAX_FILE_BYTES: Final = 32 << 20
_COMMAND_SECONDS: Final = 600
_MAX_OWN_FOLDERS: Final = 2


class FileChange(NamedTuple):
    """A change of a file; None stands for no file."""

    path: str
    before: str | None
    after: str | None


class Plan(NamedTuple):
    """The changes of files, and the commands of the agent itself that are run."""

    changes: tuple[FileChange, ...] = ()
    commands: tuple[tuple[str, ...], ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.changes and not self.commands


def plan_install(client: Client, request: Request, *, own_command: str | None = None) -> Plan:
    """Return what an installation changes; `own_command` is the agent's program, which edits a file of its own."""
    wanted = client.all_edits(request)
    edits, commands = _without_own(wanted, request, own_command, install=True)
    # Hooks that an earlier installation has added, and this one does without.
    other_hooks = client.all_edits(request._replace(hooks=True, tool_output=True))
    unwanted = [each for each in other_hooks if isinstance(each.edit, Element) and each not in wanted]
    return Plan(_changes(added=edits, removed=unwanted), commands)


def plan_uninstall(client: Client, request: Request, *, own_command: str | None = None) -> Plan:
    """Return what a removal changes: everything that any installation may have added."""
    everything = request._replace(
        permissions=True,
        hooks=True,
        instructions=not client.opens_book,
        tool_output=True,
        home=request.home or "",
        plugin_folder=True,
    )
    edits, commands = _without_own(client.all_edits(everything), request, own_command, install=False)
    return Plan(_changes(removed=edits), commands)


def is_installed(client: Client, request: Request) -> bool:
    """Tell whether a removal would change the configuration; a file that cannot be read counts as unchanged."""
    try:
        return not plan_uninstall(client, request).is_empty
    except CommonbookError:
        return False


def carry_out(plan: Plan) -> None:
    """Run the commands and write the files; each file is replaced whole, and a link to it stays one."""
    for command in plan.commands:
        _run(command)
    for change in plan.changes:
        _write(change)


# --- files


def _changes(*, added: Sequence[FileEdit] = (), removed: Sequence[FileEdit]) -> tuple[FileChange, ...]:
    before = {path: _read(path) for path in dict.fromkeys(path for path, _ in (*added, *removed))}
    after = {path: text or "" for path, text in before.items()}
    undone = ((path, edit.undone) for path, edit in removed)
    made = ((path, edit.made) for path, edit in added)
    for path, change_text in (*undone, *made):
        try:
            after[path] = change_text(after[path])
        except BadInput as error:
            raise BadInput(f"{path} cannot be edited: {error.message}", fix=error.fix) from None
    found = (FileChange(path, before[path], after[path] or None) for path in before)
    return tuple(change for change in found if (change.before or "") != (change.after or ""))


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", newline="") as file:
            text = file.read(_MAX_FILE_BYTES)
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read: {error}", fix="make it a readable file in UTF-8") from error
    return text


def _write(change: FileChange) -> None:
    path = os.path.realpath(change.path)
    try:
        if change.after is None:
            with suppress(FileNotFoundError):
                os.unlink(path)
            if path.endswith(".py"):
                shutil.rmtree(os.path.join(os.path.dirname(path), "__pycache__"), ignore_errors=True)
            _remove_empty_folders(os.path.dirname(path))
            return
        if _read(path) != change.before:
            raise BadInput(f"{path} was changed meanwhile", fix="try again")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        part = f"{path}.{os.getpid()}.part"
        mode = os.stat(path).st_mode & 0o777 if change.before is not None else 0o600
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8", newline="") as file:
            file.write(change.after)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(part, mode)
        os.replace(part, path)
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}", fix="give this user write access") from error


def _remove_empty_folders(folder: str) -> None:
    """Remove the folders that an installation made for a file: at most two, if nothing else is in them."""
    home = os.path.realpath(AgentFolders.load().home)
    with suppress(OSError):
        for _ in range(_MAX_OWN_FOLDERS):
            if folder == home:
                return
            os.rmdir(folder)
            folder = os.path.dirname(folder)


# --- the file that an agent rewrites all the time: its own command edits it


def _without_own(
    edits: Sequence[FileEdit], request: Request, program: str | None, *, install: bool
) -> tuple[list[FileEdit], tuple[tuple[str, ...], ...]]:
    """Return the edits that are left, and the commands in place of the others."""
    own = os.path.join(request.folders.home, ".claude.json")
    mine = next((edit for path, edit in edits if path == own and isinstance(edit, Member)), None)
    if program is None or mine is None:
        return list(edits), ()
    others = [each for each in edits if each.path != own]
    servers = json_text.parse(_read(own) or "").get("mcpServers") or {}
    commands: list[tuple[str, ...]] = []
    if SERVER in servers and (not install or servers[SERVER] != mine.value):
        commands.append((program, "mcp", "remove", SERVER, "--scope", "user"))
    if install and servers.get(SERVER) != mine.value:
        commands.append((program, "mcp", "add-json", "--scope", "user", SERVER, json.dumps(mine.value)))
    return others, tuple(commands)


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(  # noqa: S603 - the user has seen the command
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_COMMAND_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BadInput(f"`{command[0]}` could not be run: {error}", fix="try again without it in PATH") from error
    if done.returncode:
        raise BadInput(
            f"`{' '.join(command[:3])}` failed: {(done.stderr or done.stdout).strip()[-500:]}",
            fix=f"run it by hand: {shlex.join(command)}",
        )
