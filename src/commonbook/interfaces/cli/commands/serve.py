"""Commands that run until they are interrupted: `serve`, the book over HTTP, and `worker`, which runs due jobs."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Final, Self

from commonbook.errors import BadInput, Busy, DiskFull
from commonbook.interfaces.cli.arguments import add_list
from commonbook.interfaces.cli.commands import command
from commonbook.interfaces.cli.output import is_terminal, sessions

if TYPE_CHECKING:
    from argparse import Namespace

    from commonbook.core.settings.settings import Settings
    from commonbook.interfaces.cli.call import Call
    from commonbook.interfaces.cli.output import Output
    from commonbook.interfaces.cli.parser import Parser
    from commonbook.interfaces.http.serving.addresses import ServeOptions
    from commonbook.service.book import Book
    from commonbook.values.session import WorkReport

_TURN_SECONDS: Final = 1.0
_MAX_SECONDS: Final = 86_400
_MIN_SECONDS: Final = 0.01
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


# --- serve


def _serve_arguments(to: Parser) -> None:
    to.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="the address to listen on (127.0.0.1)")
    to.add_argument("--port", type=int, default=7373, metavar="NUMBER", help="the port (7373); 0 takes a free one")
    to.add_argument("--init", action="store_true", help="make the home if there is none and its folder is empty")
    to.add_argument("--tls-cert", metavar="FILE", help="the certificate of the server, in PEM")
    to.add_argument("--tls-key", metavar="FILE", help="the key of the certificate, in PEM")
    add_list(
        to,
        "--behind-proxy",
        "ADDRESS",
        "the address or network of a proxy that ends TLS; nobody else is answered (repeatable)",
    )
    add_list(to, "--allowed-host", "NAME", "a name by which clients call this server (repeatable)")
    to.add_argument("--metrics-port", type=int, metavar="NUMBER", help="a port for metrics, which needs no key")
    to.add_argument("--no-worker", action="store_true", help="leave background jobs to other processes")
    to.add_argument("--no-request-log", action="store_true", help="log no line for each request")


@command("serve", _serve_arguments, book="none", local=True)
def _serve(call: Call) -> int:
    """Serve the book until SIGINT or SIGTERM."""
    from commonbook.compose.book import may_be_made
    from commonbook.compose.servers import ensure_owner_key, recorded_address

    try:
        from commonbook.interfaces.http.serving import server
    except ImportError as error:
        raise _missing_package(error.name) from error
    if call.args.actor is not None or call.settings.key is not None:
        raise BadInput("a server serves the whole book, as its owner", fix="leave out --as, and unset COMMONBOOK_KEY")
    options = _options(call.args)
    # Where the server runs says nothing about its callers.
    settings = call.settings._replace(cwd="")
    create = may_be_made(settings, anywhere=call.args.init)
    with call.open_home(create=create, settings=settings) as book, ExitStack() as until_end:
        key_path = ensure_owner_key(book, settings) if options.is_loopback else None

        def ready(urls: Sequence[str]) -> None:
            until_end.enter_context(recorded_address(settings, urls[0]))
            # Elsewhere than on a terminal it would stand in a log; a program that asks for JSON takes care of it.
            is_asked_for = call.args.json or is_terminal(sys.stdout)
            link = _sign_in_link(book, settings, urls[0]) if key_path is not None and is_asked_for else None
            metrics = urls[1] + "/metrics" if urls[1:] else None
            answer = {"url": urls[0], "key": key_path, "sign_in": link, "metrics": metrics}
            call.print_answer(answer, lambda out: _show(out, book.home, urls, key_path, link))
            call.flush()

        server.serve(book, options, ready=ready)
    return 0


def _missing_package(name: str | None) -> BadInput:
    return BadInput(f"the server needs a package that is not installed: {name}", fix="pip install 'commonbook[server]'")


def _options(args: Namespace) -> ServeOptions:
    from commonbook.interfaces.http.serving.addresses import ServeOptions

    return ServeOptions(
        host=args.host,
        port=args.port,
        behind_proxy=tuple(args.behind_proxy),
        tls_cert=args.tls_cert,
        tls_key=args.tls_key,
        allowed_hosts=tuple(args.allowed_host),
        metrics_port=args.metrics_port,
        worker=not args.no_worker,
        log_requests=not args.no_request_log,
    )


def _sign_in_link(book: Book, settings: Settings, url: str) -> str:
    """Return a link that signs a browser of the owner in."""
    from commonbook.compose.servers import read_owner_key

    code = book.with_key(read_owner_key(book, settings)).create_sign_in().code
    return f"{url}/sign-in#{code}"


def _show(out: Output, home: str, urls: Sequence[str], key_path: str | None, link: str | None) -> None:
    out.line(f"Commonbook serves {home} at {urls[0]}")
    if urls[1:]:
        out.line(f"Metrics are at {urls[1]}/metrics")
    if key_path is None:
        return
    out.line(f"The key of the owner is in {key_path}; try it in another terminal:")
    out.command(f"KEY=$(cat {shlex.quote(key_path)})")
    out.command(_curl_line(urls[0], "memories", '{"text": "Bob owns the web shop"}'))
    out.command(_curl_line(urls[0], "recall", '{"query": "who is responsible for the store?"}'))
    if link is None:
        out.line("`commonbook sign-in` prints a link that signs a browser in.")
        return
    out.line("Sign a browser in, within a minute; `commonbook sign-in` prints another link:")
    out.command(link)


def _curl_line(url: str, path: str, body: str) -> str:
    """Return a command that sends a body of JSON to a verb, with the key in the variable KEY."""
    headers = """-H "Authorization: Bearer $KEY" -H 'Content-Type: application/json'"""
    return f"curl -s {url}/v1/{path} {headers} -d '{body}'"


# --- worker


def _worker_arguments(to: Parser) -> None:
    how_long = to.add_mutually_exclusive_group()
    how_long.add_argument("--once", action="store_true", help="run the jobs that are due now, and end")
    how_long.add_argument(
        "--every", type=_seconds, default=1.0, metavar="SECONDS", help="how often to look for work (1); Ctrl-C ends it"
    )
    to.add_argument("--retry", action="store_true", help="first try the failed jobs again")


def _seconds(text: str) -> float:
    """Read a duration in seconds."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not _MIN_SECONDS <= value <= _MAX_SECONDS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from {_MIN_SECONDS} to {_MAX_SECONDS:,}")
    return value


@command("worker", _worker_arguments, local=True)
def _work(call: Call) -> int:
    """Run the jobs that are due, once or repeatedly, and print the result of each."""
    if call.args.once:
        return _once(call)
    with _Shutdown() as shutdown:
        retry = call.args.retry
        while not shutdown.requested:
            if not _turn(call, retry=retry):
                shutdown.sleep(call.args.every)
            retry = False
    return 0


def _once(call: Call) -> int:
    failed: list[str] = []

    def noticed(report: WorkReport) -> None:
        _print_report(call, report)
        if report.error:
            failed.append(report.settled.session)

    if not call.book.work(retry=call.args.retry, noticed=noticed) and not call.args.json:
        call.out.note("nothing is due")
    return 1 if failed else 0


def _turn(call: Call, *, retry: bool) -> int:
    """Work for a second; jobs that fail because the home is busy or the disk is full stay due."""
    try:
        return call.book.work(
            seconds=_TURN_SECONDS, retry=retry, index=True, noticed=lambda report: _print_report(call, report)
        )
    except (Busy, DiskFull) as error:
        call.out.note(f"{error.message}; {error.fix}" if error.fix else error.message)
        return 0


def _print_report(call: Call, report: WorkReport) -> None:
    call.print_answer(report, lambda out: sessions.show_work_report(out, report))
    call.flush()


class _Shutdown:
    """Signal handler of the worker.

    The first signal ends it after the current turn of work, or at once while it sleeps. A second signal ends
    it at once.
    """

    def __init__(self) -> None:
        self.requested = False
        self._sleeping = False

    def sleep(self, seconds: float) -> None:
        """Sleep, unless the worker is to end."""
        self._sleeping = True
        if not self.requested:
            time.sleep(seconds)
        self._sleeping = False

    def __enter__(self) -> Self:
        self._before = [signal.signal(number, self._interrupted) for number in _SIGNALS]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        for number, handler in zip(_SIGNALS, self._before, strict=True):
            signal.signal(number, handler)
        return kind is _WakeUp

    def _interrupted(self, _number: int, _frame: FrameType | None) -> None:
        twice, self.requested = self.requested, True
        if twice:
            raise KeyboardInterrupt
        if self._sleeping:
            raise _WakeUp


class _WakeUp(Exception):
    """Ends the sleep of the worker."""
