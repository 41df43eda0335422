"""The command line: one command, its answer on standard output, its trouble on standard error.

What a command needs beyond the book is imported when it is needed: most runs are short.
"""

from __future__ import annotations

import gc
import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

from commonbook.errors import CommonbookError

if TYPE_CHECKING:
    from argparse import Namespace


_INTERRUPTED = 130
_PIPE_CLOSED = 141
_RARELY = 100_000


def main(argv: Sequence[str] | None = None) -> int:
    """Do what was typed and return the exit code."""
    if argv is None:
        return _whole_process(sys.argv[1:])
    _never_stumble(sys.stdout, sys.stderr)
    try:
        return _answered(argv)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # Whoever read us has gone: nothing is left to say, and Python must not try again when it ends.
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _PIPE_CLOSED


def _whole_process(typed: Sequence[str]) -> int:
    """Do what was typed in a process of its own, and spend little of it on looking for garbage.

    A start makes none, and what is left at the end goes with the process: both searches cost a tenth of `status`.
    """
    gc.set_threshold(_RARELY)
    try:
        return main(typed)
    finally:
        gc.freeze()


def _answered(typed: Sequence[str]) -> int:
    try:
        code = _run(typed)
        if sys.stdout is not None:
            sys.stdout.flush()
    except CommonbookError as error:
        _complain(error, as_json="--json" in typed)
        return error.exit_code
    return code


def _run(typed: Sequence[str]) -> int:
    from commonbook.interfaces.cli.arguments import parser

    try:
        args: Namespace = parser(typed).parse_args(typed)
    except SystemExit as stop:  # --help and --version
        return int(stop.code or 0)
    from commonbook.interfaces.cli.dispatch import run

    return run(args)


def _complain(error: CommonbookError, *, as_json: bool) -> None:
    from commonbook.interfaces import json_values
    from commonbook.interfaces.cli.output import plain

    if as_json:
        print(
            json_values.dumps(json_values.error(error), encoding=getattr(sys.stderr, "encoding", None)), file=sys.stderr
        )
        return
    print(f"commonbook: {plain.clean(error.message)}", file=sys.stderr)
    if error.fix:
        print(f"fix: {plain.clean(error.fix)}", file=sys.stderr)


def _never_stumble(*streams: TextIO | None) -> None:
    """Let a character that a terminal cannot show come out as its number."""
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
