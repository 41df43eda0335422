"""Hermes: the Python environment in which it runs, and the plugin folder and setting that an installation adds to it.

Hermes is asked by its own interpreter in a process of its own what it has, and whether it finds the provider. Nothing
of it is imported here. The plugin folder of a profile only passes on to the package, so that a newer Commonbook needs
no new installation.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import yaml

from commonbook.core.settings.settings import AgentFolders, environment
from commonbook.errors import BadInput
from commonbook.interfaces.agents.edits import HASH, Block, Edit, Member
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


# --- what an installation adds to every profile

PROVIDER: Final = "commonbook"
_PROFILE: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")

_INIT: Final = '''\
"""Commonbook as the memory provider of Hermes. `commonbook install hermes` wrote this folder."""

import sys


class _Missing:
    """Stands in for the provider while its package is missing, and says so."""

    name = "commonbook"

    def is_available(self):
        return False

    def unavailable_reason(self):
        return f"the package commonbook is missing: {sys.executable} -m pip install commonbook"

    def get_status_config(self, provider_config):
        return {"problem": self.unavailable_reason()}

    def get_config_schema(self):
        return []

    def get_tool_schemas(self):
        return []


def register(ctx):
    try:
        from commonbook.adapters.hermes import register as register_provider
    except ImportError:
        ctx.register_memory_provider(_Missing())
    else:
        register_provider(ctx)
'''
_CLI: Final = '''\
"""`hermes commonbook`, of the package."""

from commonbook.adapters.hermes.cli import commonbook_command, register_cli

__all__ = ["commonbook_command", "register_cli"]
'''
_SCHEMA: Final = '''\
"""The options for the desktop panel, of the package."""

from commonbook.adapters.hermes.config_schema import CONFIG_SCHEMA

__all__ = ["CONFIG_SCHEMA"]
'''
_MANIFEST: Final = """\
name: commonbook
version: 1.0.0
description: "Commonbook: every turn kept exactly once, as Markdown that you own."
"""
_FILES: Final = {"__init__.py": _INIT, "cli.py": _CLI, "config_schema.py": _SCHEMA, "plugin.yaml": _MANIFEST}


class WholeFile(NamedTuple):
    """A file that is ours as a whole."""

    text: str

    def made(self, text: str) -> str:
        """Return the text of the file, whatever was there."""
        del text
        return self.text

    def undone(self, text: str) -> str:
        """Return no text."""
        del text
        return ""


_BLOCK: Final = Block(HASH, f"memory:\n  provider: {PROVIDER}")
_SECTION: Final = re.compile(r"^memory:[ \t]*(?:#.*)?\n(?:(?:[ \t]+.*|[ \t]*#.*)?\n)*(?:[ \t]+.+)?", re.MULTILINE)
_FIRST_KEY: Final = re.compile(r"^([ \t]+)[^ \t#\n]", re.MULTILINE)
_ADDED: Final = "  # commonbook: added"
_WAS: Final = "  # commonbook: was "
_OWN_LINE: Final = re.compile(
    rf"^([ \t]+provider:) {PROVIDER}(.*?)(?:(?P<added>{_ADDED})\n?|{_WAS}(.*))$", re.MULTILINE
)


class ProviderSetting(NamedTuple):
    """The setting `memory.provider` in the YAML of Hermes: a line or a block of our own, and all others stay.

    A comment has the former value. If Hermes rewrites the file, the comment is lost; then the value is emptied.
    """

    def made(self, text: str) -> str:
        """Return the text with the setting."""
        before = _load(text)
        memory = before.get("memory")
        if isinstance(memory, dict) and memory.get("provider") == PROVIDER:
            return text
        if "memory" not in before:
            changed = _BLOCK.made(text)
        else:
            changed = _SECTION.sub(lambda found: _with_provider(found[0]), text, count=1)
        return _require_provider(changed, before, PROVIDER)

    def undone(self, text: str) -> str:
        """Return the text without the setting."""
        before = _load(text)
        memory = before.get("memory")
        if not isinstance(memory, dict) or memory.get("provider") != PROVIDER:
            return text
        without = _BLOCK.undone(text)
        if without == text:
            without = _OWN_LINE.sub(lambda found: "" if found["added"] else f"{found[1]} {found[4]}{found[2]}", text)
        if without == text:
            line = rf"^([ \t]+provider:)[ \t]*[\"']?{PROVIDER}[\"']?"
            return _require_provider(re.sub(line, r"\1 ''", text, count=1, flags=re.MULTILINE), before, "")
        return without


def _with_provider(section: str) -> str:
    """Return the section `memory` with the provider, in its line if there is one."""
    first = _FIRST_KEY.search(section)
    indent = first[1] if first else "  "
    line = re.compile(rf"^({indent}provider:)[ \t]*(\"[^\"\n]*\"|'[^'\n]*'|[^\s#\"']*)([ \t]*(?:#.*)?)$", re.MULTILINE)
    if line.search(section):
        return line.sub(lambda found: f"{found[1]} {PROVIDER}{found[3]}{_WAS}{found[2]}", section, count=1)
    head, _, rest = section.partition("\n")
    return f"{head}\n{indent}provider: {PROVIDER}{_ADDED}\n{rest}"


def _require_provider(text: str, before: dict[str, Any], provider: str) -> str:
    """Return the text if it differs from the one before by the provider alone; refuse it otherwise."""
    try:
        is_right = _load(text) == {**before, "memory": {**(before.get("memory") or {}), "provider": provider}}
    except (BadInput, TypeError):
        is_right = False
    if not is_right:
        raise BadInput(
            "memory.provider is written in a way that is not changed here", fix="change it yourself, and try again"
        )
    return text


def _load(text: str) -> dict[str, Any]:
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise BadInput("it is not YAML", fix=f"correct the file, and try again: {error}") from error
    if found is not None and not isinstance(found, dict):
        raise BadInput("it is not a mapping", fix="correct the file, and try again")
    return found or {}


def profiles(root: str) -> dict[str, str]:
    """Return the folders of all profiles by their names; the default profile has the folder of Hermes itself."""
    below = os.path.join(root, "profiles")
    names = sorted(os.listdir(below)) if os.path.isdir(below) else []
    found = {name: os.path.join(below, name) for name in names if _PROFILE.fullmatch(name) and name != "default"}
    return {"default": root, **{name: path for name, path in found.items() if os.path.isdir(path)}}


def edits(root: str, *, home: str | None, with_folder: bool) -> Iterator[tuple[str, Edit]]:
    """Return the edits of the files of every profile; `home` is the home of the book, if it is not the default."""
    for folder in profiles(root).values():
        if with_folder:
            _refuse_link(os.path.join(folder, "plugins", PROVIDER))
            for name, text in _FILES.items():
                yield os.path.join(folder, "plugins", PROVIDER, name), WholeFile(text)
        if home is not None:
            yield os.path.join(folder, PROVIDER, "config.json"), Member(("home",), home)
        yield os.path.join(folder, "config.yaml"), ProviderSetting()


def _refuse_link(path: str) -> None:
    """Raise BadInput if the folder is a link: an edit would change the files of the package that it leads to."""
    if os.path.islink(path):
        raise BadInput(f"{path} is a link, which would be written through", fix=f"`rm {path}`, and try again")
