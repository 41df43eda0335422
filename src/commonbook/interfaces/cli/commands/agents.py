"""The commands for agents, each in a module of its own: an agent starts them often, and waits for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from commonbook.interfaces.cli.call import Call, Command


def _mcp(call: Call) -> int:
    from commonbook.interfaces.cli.commands.mcp import run_mcp

    run_mcp(call)


def _install(call: Call) -> int:
    from commonbook.interfaces.cli.commands.install import run_install

    return run_install(call)


def _uninstall(call: Call) -> int:
    from commonbook.interfaces.cli.commands.install import run_uninstall

    return run_uninstall(call)


def _hook(call: Call) -> int:
    from commonbook.interfaces.cli.commands.hook import run_hook

    run_hook(call)


COMMANDS: Final[Mapping[str, Command]] = {"mcp": _mcp, "install": _install, "uninstall": _uninstall, "hook": _hook}
