"""Entry point of the command line: run one command, print its answer to standard output, errors to standard error.

Modules are imported when a command needs them, because most runs are short.
"""

from __future__ import annotations

import errno
import gc
import io
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TextIO

from commonbook.errors import BadInput, CommonbookError, Conflict, NotAllowed, NotFound, TooMany

if TYPE_CHECKING:
    from commonbook.interfaces.cli.call import Call
    from commonbook.interfaces.cli.commands import Command
    from commonbook.service.book import Book


_FAILED: Final = 1
"""The exit code of every error that has none of its own."""

_EXIT_CODES: Final[Mapping[type[CommonbookError], int]] = {BadInput: 2, NotFound: 3, NotAllowed: 4, Conflict: 5}
"""The exit codes of the branches of the error tree."""

_INTERRUPTED: Final = 130
_PIPE_CLOSED: Final = 141
_GC_THRESHOLD: Final = 100_000
_HOOKS: Final = (("hook", "claude-code"), ("hook", "codex"), ("hook", "gemini"))


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return the exit code."""
    if argv is None:
        return _run_process(sys.argv[1:])
    if _is_hook(argv):
        # To an agent, any code but 0 refuses the prompt, also after a mistyped option.
        with suppress(Exception):
            _main(argv)
        return 0
    return _main(argv)


def _is_hook(argv: Sequence[str]) -> bool:
    """Return whether this is the command `hook`, also behind options such as `--home`."""
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
    """Run a command as the whole process, with little garbage collection: it costs a tenth of `status`."""
    from commonbook.core.settings.settings import use_one_thread_for_products

    gc.set_threshold(_GC_THRESHOLD)
    use_one_thread_for_products()
    code = main(argv)
    # The collections at the end of the process look at every object again, for a sixth of `status`.
    gc.freeze()
    return code


def _run_reporting_errors(argv: Sequence[str]) -> int:
    try:
        code = _run(argv)
        if sys.stdout is not None:
            sys.stdout.flush()
    except CommonbookError as error:
        _print_error(error, as_json="--json" in argv)
        return exit_code(error)
    except OSError as error:
        if error.errno not in {errno.EMFILE, errno.ENFILE}:
            raise
        # To load the module that prints errors takes a file too.
        print("commonbook: no more files can be opened\nfix: allow more, as `ulimit -n 256` does", file=sys.stderr)
        return _FAILED
    return code


def exit_code(error: CommonbookError) -> int:
    """Return the exit code of an error."""
    return next((code for branch, code in _EXIT_CODES.items() if isinstance(error, branch)), _FAILED)


def _run(argv: Sequence[str]) -> int:
    # First of all: other modules cannot be loaded on a system that the composition root refuses.
    import commonbook.compose  # noqa: F401 - it checks the system
    from commonbook.interfaces.cli.commands import command_of, make_parser

    try:
        args = make_parser(argv).parse_args(argv)
    except SystemExit as stop:  # --help and --version
        return int(stop.code or 0)
    from commonbook.interfaces.cli.call import Call

    name, command = command_of(args)
    if command.local and args.url is not None:
        raise BadInput(f"`commonbook {name}` is about this machine, not about a server", fix="leave out --url")
    return _run_command(command, Call(args, local=command.local))


def _run_command(command: Command, call: Call) -> int:
    """Run a command with the book that it needs: the book of a home, a database or a server."""
    has_book = call.settings.database is not None or call.has_home
    if command.book == "none" or (command.book == "if there" and not has_book):
        return command.run(call)
    if call.url is not None:
        return _run_on_server(command, call)
    from commonbook.compose.book import may_be_made

    # Any command but a first write has nothing to do before there is a book.
    is_first_write = command.first_write and not getattr(call.args, "dry_run", False)
    with call.open_home(create=is_first_write and may_be_made(call.settings)) as book:
        call.report_move(book.moved_to)
        call.book = _for_actor(book, call)
        return command.run(call)


def _for_actor(book: Book, call: Call) -> Book:
    """Return the book for the actor: the principal of a key, the principal of --as, or the owner."""
    if call.settings.key is not None:
        book = book.with_key(call.settings.key)
    return book if call.args.actor is None else book.acting_as(call.args.actor)


def _run_on_server(command: Command, call: Call) -> int:
    """Run a command on the book of a server; a remote book has the verbs that commands use."""
    from commonbook.compose.client import connect
    from commonbook.core.settings.remote import RemoteSettings

    with call.progress, connect(RemoteSettings.load(), call.url, space=call.settings.space) as book:
        call.book = book  # type: ignore[assignment] # it has the verbs that commands use
        return command.run(call)


def _print_error(error: CommonbookError, *, as_json: bool) -> None:
    from commonbook.core.text.masking import mask
    from commonbook.interfaces.cli.output import clean, json_line

    if sys.stderr is None:
        # It was closed, and `print` would take standard output in its place.
        return
    # A message may quote what was typed, and is often kept in other logs.
    error.message = mask(error.message).text
    error.fix = mask(error.fix).text
    if as_json:
        print(json_line(_error_json(error), sys.stderr), file=sys.stderr)
        return
    print(f"commonbook: {clean(error.message)}", file=sys.stderr)
    if error.fix:
        print(f"fix: {clean(error.fix)}", file=sys.stderr)


def _error_json(problem: CommonbookError) -> dict[str, Any]:
    """Return an error as it is written to standard error."""
    retry = {"retry_after": problem.retry_after} if isinstance(problem, TooMany) else {}
    return {"error": {"type": problem.type, "message": problem.message, "fix": problem.fix, **retry}}


def _escape_unprintable(*streams: TextIO | None) -> None:
    """Print characters that the encoding lacks as escapes, in place of an error."""
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
