"""`completion`: print a script that completes commands, options and files in a shell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import shtab

from commonbook.interfaces.cli.arguments import parser
from commonbook.interfaces.cli.parser import every_parser

if TYPE_CHECKING:
    from commonbook.interfaces.cli.call import Call, Command


_FILES = ("FILE",)
_FOLDERS = ("DIR", "FOLDER", "TARGET")


def script(shell: str) -> str:
    """Return the script for a shell."""
    top = parser()
    for parser_ in every_parser(top):
        for action in parser_._actions:  # noqa: SLF001 - argparse has no public access to them
            if action.metavar in _FILES:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
            elif action.metavar in _FOLDERS:
                action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
    return str(shtab.complete(top, shell))


def _completion(call: Call) -> int:
    text = script(call.args.shell)
    return call.print_answer({"shell": call.args.shell, "script": text}, lambda _out: print(text))


COMMANDS: Final[Mapping[str, Command]] = {"completion": _completion}
