"""The plugin folder of Hermes and its configuration: what an installation adds to every profile.

The folder only passes on to the package, so that a newer Commonbook needs no new installation.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import yaml

from commonbook.errors import BadInput
from commonbook.interfaces.agents.edits import HASH, Block, Edit, Member

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

    A comment has the former value. If Hermes writes the file anew, the comment is lost; then the value is emptied.
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
    """Return the folders of all profiles by their names; that of the default profile is the folder of Hermes itself."""
    below = os.path.join(root, "profiles")
    names = sorted(os.listdir(below)) if os.path.isdir(below) else []
    found = {name: os.path.join(below, name) for name in names if _PROFILE.fullmatch(name) and name != "default"}
    return {"default": root, **{name: path for name, path in found.items() if os.path.isdir(path)}}


def edits(root: str, *, home: str | None, with_folder: bool) -> Iterator[tuple[str, Edit]]:
    """Return the edits of the files of every profile; `home` is that of the book, if it is not the default."""
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
        raise BadInput(f"{path} is a link,, which would be written through", fix=f"`rm {path}`, and try again")
