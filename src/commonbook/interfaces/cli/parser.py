"""Argument parser: argparse with errors of Commonbook, and options in any order."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any, Final, NoReturn

from commonbook.errors import BadInput

_HELP: Final = frozenset({"-h", "--help", "--version"})
"""Options that end the parsing with an answer, also behind arguments that are wrong."""


class _FixedWidth(argparse.HelpFormatter):
    """A formatter of fixed width: argparse makes one for every argument, and asking for the terminal size is slow."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=80)


class Parser(argparse.ArgumentParser):
    """A parser that raises BadInput and accepts options and positional arguments in any order."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - as in argparse
        """Make a parser that accepts no abbreviated options."""
        super().__init__(**options, allow_abbrev=False, formatter_class=_FixedWidth)

    def format_help(self) -> str:
        """Return the help, as wide as the terminal."""
        self.formatter_class = argparse.HelpFormatter
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        """Raise BadInput."""
        raise BadInput(message, fix=f"`{self.prog} --help` shows the arguments")

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201 - as in argparse
        """Parse; without a subcommand, positional arguments may stand between options."""
        found, rest = super().parse_known_args(self._options_first(args or ()), namespace)
        words = [word for word in rest if word != "--"]
        if words and self._subparsers is None:
            # Here, not in the parser of all commands, whose help is not about this command.
            self.error(f"unrecognized arguments: {' '.join(words)}")
        return found, rest

    def _check_value(self, action: argparse.Action, value: Any) -> None:  # noqa: ANN401 - as in argparse
        """Refuse an unknown command with a guess: argparse would print the names of all."""
        if not isinstance(action, argparse._SubParsersAction) or value in action.choices:  # noqa: SLF001 - see below
            super()._check_value(action, value)
            return
        from commonbook.interfaces.similar_names import did_you_mean

        what = str(action.dest)
        raise BadInput(
            f"`{self.prog}` has no {what} {value[:100]!r}{did_you_mean(value[:100], action.choices)}",
            fix=f"`{self.prog} --help` shows the {what}s",
        )

    def _refuse_option(self, name: str) -> NoReturn:
        from commonbook.interfaces.similar_names import did_you_mean

        self.error(f"`{self.prog}` has no option {name[:100]!r}{did_you_mean(name[:100], self._option_string_actions)}")

    def _options_first(self, args: Sequence[str]) -> list[str]:
        """Put options first and positional arguments behind `--`: argparse would take those from one place only.

        The arguments after a subcommand are for its own parser.
        """
        options: list[str] = []
        unknown: list[str] = []
        positional: list[str] = []
        rest = list(args)
        while rest:
            arg = rest.pop(0)
            if arg == "--":
                positional += rest
                break
            if not _is_option(arg):
                positional.append(arg)
                if self._subparsers is not None:
                    break
                continue
            options.append(arg)
            name = arg.partition("=")[0]
            if name.startswith("--") and name not in self._option_string_actions:
                unknown.append(name)
            action = self._option_string_actions.get(arg)
            if action is not None and action.nargs is None and rest:
                options.append(rest.pop(0))
        if unknown and _HELP.isdisjoint(options):
            self._refuse_option(unknown[0])
        if self._subparsers is not None:
            return list(args)
        return [*options, "--", *positional] if positional else options


def _is_option(arg: str) -> bool:
    """Return whether an argument is an option, and not a text with a dash, such as a list item or front matter."""
    name = arg.partition("=")[0].lstrip("-")
    return arg.startswith("-") and name[:1].isalpha() and name.replace("-", "").isalnum() and arg[:3] != "---"


def every_parser(top: argparse.ArgumentParser) -> Iterable[argparse.ArgumentParser]:
    """Yield a parser and all parsers below it."""
    yield top
    for action in top._actions:  # noqa: SLF001 - argparse has no public access to them
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - the same
            for below in action.choices.values():
                yield from every_parser(below)
