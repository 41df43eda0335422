"""How what was typed is taken apart: a parser, and the values that it reads."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any, Final, NoReturn

from commonbook.errors import BadInput

_LARGEST: Final = 2**63 - 1
_DAY: Final = 86_400
_SHORTEST: Final = 0.01


class _Unmeasured(argparse.HelpFormatter):
    """A formatter that does not ask how wide the terminal is: argparse makes one for every argument it adds."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=80)


class Parser(argparse.ArgumentParser):
    """A parser whose complaints are errors of ours, and that takes options and words in any order."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - as in argparse
        """Make a parser that knows options by their full names only."""
        super().__init__(**options, allow_abbrev=False, formatter_class=_Unmeasured)

    def format_help(self) -> str:
        """Return the help, as wide as the terminal."""
        self.formatter_class = argparse.HelpFormatter
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        """Refuse what was typed."""
        raise BadInput(message, fix=f"`{self.prog} --help` shows what can be typed")

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201 - as in argparse
        """Parse; where no command follows, words may stand between options."""
        return super().parse_known_args(self._in_order(args or ()), namespace)

    def _in_order(self, args: Sequence[str]) -> list[str]:
        """Put the options first and the words behind `--`: argparse would take words from one place only."""
        if self._subparsers is not None:
            return list(args)
        options: list[str] = []
        words: list[str] = []
        left = list(args)
        while left:
            arg = left.pop(0)
            if arg == "--":
                words += left
                break
            if not _is_option(arg):
                words.append(arg)
                continue
            options.append(arg)
            action = self._option_string_actions.get(arg)
            if action is not None and action.nargs is None and left:
                options.append(left.pop(0))
        return [*options, "--", *words] if words else options


def _is_option(arg: str) -> bool:
    """Tell an option from a text that begins with a dash, such as an item of a list or a front matter."""
    name = arg.partition("=")[0].lstrip("-")
    return arg.startswith("-") and name[:1].isalpha() and name.replace("-", "").isalnum() and arg[:3] != "---"


def every_parser(top: argparse.ArgumentParser) -> Iterable[argparse.ArgumentParser]:
    """Yield a parser and all parsers below it."""
    yield top
    for action in top._actions:  # noqa: SLF001 - argparse shows them in no other way
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - the same
            for below in action.choices.values():
                yield from every_parser(below)


def number(text: str) -> int:
    """Read a whole number that is not negative."""
    return _bounded(text, range(_LARGEST))


def amount(text: str) -> int:
    """Read how many."""
    return _bounded(text, range(1, 10_001))


def _bounded(text: str, allowed: range) -> int:
    try:
        value = int(text)
    except ValueError:
        value = -1
    if value not in allowed:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {allowed[0]} to {allowed[-1]}")
    return value


def seconds(text: str) -> float:
    """Read how long."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not _SHORTEST <= value <= _DAY:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from {_SHORTEST} to {_DAY:,}")
    return value
