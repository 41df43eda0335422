"""The plugin folder of Hermes and its configuration: what an installation adds to every profile.

The folder only passes on to the package, so that a newer Commonbook needs no new installation.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from commonbook.errors import BadInput
from commonbook.interfaces.agents.edits import Edit, Member
from commonbook.interfaces.agents.yaml_value import YamlValue

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
        yield os.path.join(folder, "config.yaml"), YamlValue("memory", "provider", PROVIDER)


def _refuse_link(path: str) -> None:
    """Raise BadInput if the folder is a link: an edit would change the files of the package that it leads to."""
    if os.path.islink(path):
        raise BadInput(f"{path} is a link, as earlier versions asked you to make it", fix=f"`rm {path}`, and try again")
