"""Plans of an installation and its removal: which files change, from which text to which, and by which command.

A plan is made without changing anything, so that it can be shown first.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from commonbook.core.settings.settings import AgentFolders
from commonbook.errors import BadInput, CommonbookError
from commonbook.interfaces.agents.clients import SERVER, Client, FileEdit, Request
from commonbook.interfaces.agents.edits import Element, Member

_MAX_FILE_BYTES: Final = 32 << 20
_COMMAND_SECONDS: Final = 600
_MAX_OWN_FOLDERS: Final = 2
BACKUP: Final = ".before-commonbook"
"""The ending of the copy of a file as it was before the last change."""


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
    """Return whether a removal would change the configuration; a file that cannot be read counts as unchanged."""
    try:
        return not plan_uninstall(client, request).is_empty
    except CommonbookError:
        return False


def carry_out(plan: Plan) -> None:
    """Run the commands and write the files; each file is replaced whole, and a link to it stays one.

    Beside a file that is changed, a copy keeps the text of before.
    """
    for command in plan.commands:
        _run(command)
    for change in plan.changes:
        _write(change)


# --- files


def _changes(*, added: Sequence[FileEdit] = (), removed: Sequence[FileEdit]) -> tuple[FileChange, ...]:
    before = {path: _read(path) for path in dict.fromkeys(path for path, _ in (*added, *removed))}
    after = {path: text or "" for path, text in before.items()}
    for path in before:
        wanted = [edit for where, edit in added if where == path]
        try:
            after[path] = _made([edit.undone for where, edit in removed if where == path], after[path])
            after[path] = _made([edit.made for edit in wanted], after[path])
        except BadInput as error:
            by_hand = f"; a file of its own would be:\n{_made([edit.made for edit in wanted], '')}" if wanted else ""
            raise BadInput(f"{path} cannot be edited: {error.message}", fix=f"{error.fix}{by_hand}") from None
    found = (FileChange(path, before[path], after[path] or None) for path in before)
    return tuple(change for change in found if (change.before or "") != (change.after or ""))


def _made(edits: Iterable[Callable[[str], str]], text: str) -> str:
    for edit in edits:
        text = edit(text)
    return text


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
        if change.after is None and not os.path.islink(change.path):
            for name in (path, path + BACKUP):
                with suppress(FileNotFoundError):
                    os.unlink(name)
            if path.endswith(".py"):
                shutil.rmtree(os.path.join(os.path.dirname(path), "__pycache__"), ignore_errors=True)
            _remove_empty_folders(os.path.dirname(path))
            return
        if _read(path) != change.before:
            raise BadInput(f"{path} was changed meanwhile", fix="try again")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        mode = os.stat(path).st_mode & 0o777 if change.before is not None else 0o600
        if change.before is not None:
            _replace(path + BACKUP, change.before, mode)
        # A link leads to a file as before, though that says nothing any more.
        empty = "{}\n" if change.path.endswith(".json") else ""
        _replace(path, empty if change.after is None else change.after, mode)
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}", fix="give this user write access") from error


def _replace(path: str, text: str, mode: int) -> None:
    part = f"{path}.{os.getpid()}.part"
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8", newline="") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.chmod(part, mode)
    os.replace(part, path)


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
    server = next((edit for path, edit in edits if path == own and isinstance(edit, Member)), None)
    if program is None or server is None:
        return list(edits), ()
    text = _read(own) or ""
    is_there, is_wanted = server.undone(text) != text, install and server.made(text) != text
    commands: list[tuple[str, ...]] = []
    if is_there and (is_wanted or not install):
        commands.append((program, "mcp", "remove", SERVER, "--scope", "user"))
    if is_wanted:
        commands.append((program, "mcp", "add-json", "--scope", "user", SERVER, json.dumps(server.value)))
    return [each for each in edits if each.path != own], tuple(commands)


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
