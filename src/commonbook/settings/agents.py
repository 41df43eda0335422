"""Settings of agents: the folders in which they keep their configuration."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from commonbook.settings.settings import environment


class AgentFolders(NamedTuple):
    """The folders below which agents keep the configuration of a user."""

    home: str
    """The home directory of the user."""
    config: str
    """XDG_CONFIG_HOME, else `~/.config`."""
    codex: str
    """CODEX_HOME, else `~/.codex`."""
    hermes: str
    """HERMES_HOME, else `~/.hermes`; without the part that names a profile."""

    @classmethod
    def load(cls, environ: Mapping[str, str] | None = None) -> AgentFolders:
        """Read the environment."""
        env = environment() if environ is None else environ
        home = env.get("HOME") or os.path.expanduser("~")
        config = env.get("XDG_CONFIG_HOME", "")
        return cls(
            home=home,
            config=config if os.path.isabs(config) else os.path.join(home, ".config"),
            codex=env.get("CODEX_HOME") or os.path.join(home, ".codex"),
            hermes=_hermes_root(env.get("HERMES_HOME", "").strip() or os.path.join(home, ".hermes")),
        )


def _hermes_root(folder: str) -> str:
    above, parent = os.path.split(os.path.dirname(os.path.abspath(folder)))
    return above if parent == "profiles" else os.path.abspath(folder)
