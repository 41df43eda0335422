"""`hermes commonbook ...`: the state of the provider, and every command of Commonbook on the book that Hermes uses."""

from __future__ import annotations

import argparse
import subprocess
import sys


def register_cli(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "words",
        nargs=argparse.REMAINDER,
        metavar="COMMAND",
        help="a command of Commonbook, such as `recall WORDS` or `doctor`; without one, the state of the provider",
    )


def commonbook_command(args: argparse.Namespace) -> None:
    """Run the command, and end with its exit code."""
    # Hermes loads this module for every command of its own.
    from commonbook.adapters.hermes import factory, options
    from commonbook.adapters.hermes.provider import CommonbookMemoryProvider
    from commonbook.core.settings import settings

    words = list(args.words)
    if not words:
        for name, value in CommonbookMemoryProvider().get_status_config({}).items():
            sys.stdout.write(f"{name}: {value}\n")
        return
    if words == ["put-back"]:
        done = factory.put_back(settings.hermes_home(), replace=True)
        sys.stdout.write(f"{done or 'There is no backup to put back: `hermes import FILE` brings one.'}\n")
        return
    home = factory.home(options.load(settings.hermes_home()))
    place = ["--home", home] if home else []
    sys.stdout.flush()
    result = subprocess.run(  # noqa: S603 - this program, with the words of the user
        [sys.executable, "-m", "commonbook", *place, *words], check=False
    )
    sys.exit(result.returncode)
