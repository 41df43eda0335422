"""Entry point of the command line: run one command, print its answer to standard output, errors to standard error.

Modules are imported when a command needs them, because most runs are short.
"""

from __future__ import annotations

import gc
import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, TextIO

from commonbook.errors import CommonbookError

if TYPE_CHECKING:
    from argparse import Namespace


_INTERRUPTED = 130
_PIPE_CLOSED = 141
_GC_THRESHOLD = 100_000
_HOOKS = (("hook", "claude-code"), ("hook", "codex"), ("hook", "gemini"))


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return the exit code."""
    if argv is None:
        return _run_process(sys.argv[1:])
    if _is_hook(argv):
        # To an agent, any other code than 0 is a refusal of the prompt, also that of a mistyped option.
        with suppress(Exception):
            _main(argv)
        return 0
    return _main(argv)


def _is_hook(argv: Sequence[str]) -> bool:
    """Tell whether this is the command `hook`, also behind options such as `--home`."""
    return argv[:1] == ["hook"] or any(words in _HOOKS for words in pairwise(argv))


def _main(argv: Sequence[str]) -> int:
    _escape_unprintable(sys.stdout, sys.stderr)
    try:
        return _run_reporting_errors(argv)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader has closed the pipe. Python must not fail again when it flushes standard output at exit.
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _PIPE_CLOSED


def _run_process(argv: Sequence[str]) -> int:
    """Run a command as the whole process, with little garbage collection.

    Imports make no garbage, and the end of the process frees everything: collecting costs a tenth of `status`.
    """
    gc.set_threshold(_GC_THRESHOLD)
    try:
        return main(argv)
    finally:
        gc.freeze()


def _run_reporting_errors(argv: Sequence[str]) -> int:
    try:
        code = _run(argv)
        if sys.stdout is not None:
            sys.stdout.flush()
    except CommonbookError as error:
        _print_error(error, as_json="--json" in argv)
        from commonbook.interfaces.cli.exit_codes import exit_code

        return exit_code(error)
    return code


def _run(argv: Sequence[str]) -> int:
    # First of all: other modules cannot be loaded on a system that the composition root refuses.
    import commonbook.compose  # noqa: F401 - it checks the system
    from commonbook.interfaces.cli.arguments import parser

    try:
        args: Namespace = parser(argv).parse_args(argv)
    except SystemExit as stop:  # --help and --version
        return int(stop.code or 0)
    from commonbook.interfaces.cli.dispatch import run

    return run(args)


def _print_error(error: CommonbookError, *, as_json: bool) -> None:
    from commonbook.interfaces import json_values
    from commonbook.interfaces.cli.output import plain
    from commonbook.text.masking import mask

    if sys.stderr is None:
        # It was closed, and `print` would take standard output in its place.
        return
    # A message may quote what was typed, and is often kept in other logs.
    error.message = mask(error.message).text
    error.fix = mask(error.fix).text
    if as_json:
        print(
            json_values.dumps(json_values.error_json(error), encoding=getattr(sys.stderr, "encoding", None)),
            file=sys.stderr,
        )
        return
    print(f"commonbook: {plain.clean(error.message)}", file=sys.stderr)
    if error.fix:
        print(f"fix: {plain.clean(error.fix)}", file=sys.stderr)


def _escape_unprintable(*streams: TextIO | None) -> None:
    """Print characters that the encoding lacks as escapes, in place of an error."""
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
