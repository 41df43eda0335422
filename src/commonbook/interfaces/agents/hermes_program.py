"""Finds the Python environment in which Hermes runs, and asks Hermes what it has and whether it finds the provider.

Hermes is asked by its own interpreter in a process of its own. Nothing of it is imported here.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from commonbook.errors import BadInput
from commonbook.settings.agents import AgentFolders
from commonbook.settings.settings import environment
from commonbook.version import __version__

_SECONDS: Final = 120
_MAX_SCRIPT_BYTES: Final = 4096
_MAX_WRAPPERS: Final = 3
_NAMED_IN_SCRIPT: Final = re.compile(r"(/[^\s\"']+/bin/(?:python[\d.]*|hermes))(?=[\s\"']|$)")
_PROBE: Final = """
import importlib.metadata as metadata, importlib.util as util, json, sys
def version(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
spec = util.find_spec("plugins.memory") if util.find_spec("plugins") else None
with open(spec.origin, encoding="utf-8") if spec and spec.origin else open("/dev/null") as source:
    knows = "hermes_agent.memory_providers" in source.read()
print(json.dumps({"hermes": version("hermes-agent"), "commonbook": version("commonbook"), "entry_points": knows,
                  "pip": util.find_spec("pip") is not None, "found": util.find_spec("hermes_cli") is not None}))
"""


class Hermes(NamedTuple):
    """An installation of Hermes: its interpreter, its version, and what it has."""

    python: str
    version: str
    package: str | None
    """The version of Commonbook in its environment; None without one."""
    knows_entry_points: bool
    """Whether it finds a provider by the entry point of a package, without a plugin folder."""
    has_pip: bool


def find(folders: AgentFolders, program: str | None) -> Hermes:
    """Return the Hermes of this machine, or the one whose program is named; raise if there is none, or several."""
    candidates = [program] if program else _candidates(folders)
    found = {os.path.dirname(python): python for each in candidates if (python := _interpreter(each))}
    answers = [hermes for python in found.values() if (hermes := _probe(python))]
    if not answers:
        what = f"{program} is not Hermes" if program else "Hermes was not found"
        raise BadInput(
            what,
            fix="install Hermes, or name its program: `commonbook install hermes --program /path/to/bin/hermes`",
        )
    if len(answers) > 1:
        names = ", ".join(os.path.join(os.path.dirname(hermes.python), "hermes") for hermes in answers)
        raise BadInput(f"there are several: {names}", fix="name the one that you use with --program PATH")
    return answers[0]


def _candidates(folders: AgentFolders) -> list[str]:
    home = folders.home
    tools = [
        os.path.join(home, ".local", *way)
        for way in (("share", "uv", "tools"), ("share", "pipx", "venvs"), ("pipx", "venvs"))
    ]
    paths = [
        shutil.which("hermes"),
        os.path.join(home, ".local", "bin", "hermes"),
        *(os.path.join(folders.hermes, "hermes-agent", venv, "bin", "hermes") for venv in ("venv", ".venv")),
        *(os.path.join(folder, "hermes-agent", "bin", "hermes") for folder in tools),
    ]
    return [path for path in paths if path and os.path.exists(path)]


def _interpreter(program: str, depth: int = 0) -> str | None:
    """Return the interpreter of a program: of its first line, of a script that starts it, or beside it."""
    path = os.path.realpath(program)
    try:
        with open(path, "rb") as file:
            text = file.read(_MAX_SCRIPT_BYTES).decode("utf-8", "replace")
    except OSError:
        return None
    for named in _NAMED_IN_SCRIPT.findall(text) if text.startswith("#!") else ():
        if os.path.basename(named) == "hermes":
            if depth < _MAX_WRAPPERS and named != program and (found := _interpreter(named, depth + 1)):
                return found
        elif os.access(named, os.X_OK):
            return str(named)
    beside = os.path.join(os.path.dirname(path), "python")
    return beside if os.access(beside, os.X_OK) else None


def _probe(python: str) -> Hermes | None:
    try:
        done = _run([python, "-I", "-c", _PROBE], {})
        answer = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    if not answer["found"]:
        return None
    return Hermes(python, answer["hermes"] or "", answer["commonbook"], answer["entry_points"], answer["pip"])


def package_command(hermes: Hermes) -> tuple[str, ...] | None:
    """Return the command that puts this Commonbook into Hermes' environment; None if it is there."""
    if hermes.package == __version__:
        return None
    if hermes.has_pip:
        return (hermes.python, "-m", "pip", "install", *_source())
    uv = shutil.which("uv")
    if uv is None:
        raise BadInput(
            f"Hermes' environment has no pip, and `uv` is not in PATH: Commonbook cannot be put into {hermes.python}",
            fix=f"`{hermes.python} -m ensurepip`, and try again",
        )
    return (uv, "pip", "install", "--python", hermes.python, *_source())


def _source() -> tuple[str, ...]:
    """Return what pip installs: the folder that this Commonbook was installed from, or its version of the registry."""
    stated = importlib.metadata.distribution("commonbook").read_text("direct_url.json")
    origin = json.loads(stated) if stated else {}
    url = str(origin.get("url", ""))
    if url.startswith("file://"):
        folder = url.removeprefix("file://")
        return ("--editable", folder) if origin.get("dir_info", {}).get("editable") else (folder,)
    return (f"commonbook=={__version__}",)


def check(hermes: Hermes, profiles: Mapping[str, str]) -> None:
    """Raise BadInput unless Hermes' own status says, in every profile, that the provider is found and available."""
    for name, folder in profiles.items():
        try:
            done = _run([hermes.python, "-m", "hermes_cli.main", "memory", "status"], {"HERMES_HOME": folder})
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BadInput(f"`hermes memory status` could not be run: {error}", fix="run it by hand") from error
        lines = dict(_status_lines(done.stdout))
        if lines.get("Provider") == "commonbook" and "✓" in lines.get("Status", ""):
            continue
        reason = lines.get("problem") or lines.get("Status") or lines.get("Plugin") or (done.stderr or done.stdout)
        raise BadInput(
            f"everything is in place, but Hermes does not use it in the profile {name}: {reason.strip()[-500:]}",
            fix=f"`HERMES_HOME={folder} hermes memory status` shows it; `hermes memory setup commonbook` changes it",
        )


def _status_lines(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        key, colon, value = line.strip().partition(":")
        if colon:
            yield key, value.strip()


def _run(command: list[str], variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - the interpreter of Hermes, which the user has installed
        command,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SECONDS, check=False,
        env={**environment(), **variables, "PYTHONUTF8": "1"},
    )  # fmt: skip
