"""`serve`: the book over HTTP, with a worker and the watcher, until it is interrupted."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from commonbook.compose.book import may_be_made, open_book
from commonbook.compose.owner_key import ensure_owner_key, read_owner_key
from commonbook.compose.running_servers import recorded_address
from commonbook.errors import BadInput
from commonbook.interfaces.cli.output.plain import is_terminal

if TYPE_CHECKING:
    from argparse import Namespace

    from commonbook.book.book import Book
    from commonbook.interfaces.cli.call import Call, Command
    from commonbook.interfaces.cli.output.plain import Output
    from commonbook.interfaces.http.serving.addresses import ServeOptions
    from commonbook.settings.settings import Settings


def run_serve(call: Call) -> int:
    """Serve the book until SIGINT or SIGTERM."""
    try:
        from commonbook.interfaces.http.serving import server
    except ImportError as error:
        raise _missing_package(error.name) from error
    # The OpenAPI document needs it, which is made only when somebody asks for it.
    if find_spec("fastapi") is None:
        raise _missing_package("fastapi")
    if call.args.actor is not None or call.settings.key is not None:
        raise BadInput("a server serves the whole book, as its owner", fix="leave out --as, and unset COMMONBOOK_KEY")
    options = _options(call.args)
    # Where the server runs says nothing about its callers.
    settings = call.settings._replace(cwd="")
    create = may_be_made(settings, anywhere=call.args.init)
    with (
        call.progress,
        open_book(settings, create=create, progress=call.progress) as book,
        ExitStack() as until_end,
    ):
        call.report_migration(book.schema_migration)
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
    out.command(curl_line(urls[0], "memories", '{"text": "Bob owns the web shop"}'))
    out.command(curl_line(urls[0], "recall", '{"query": "who is responsible for the store?"}'))
    if link is None:
        out.line("`commonbook sign-in` prints a link that signs a browser in.")
        return
    out.line("Sign a browser in, within a minute; `commonbook sign-in` prints another link:")
    out.command(link)


def curl_line(url: str, path: str, body: str) -> str:
    """Return a command that sends a body of JSON to a verb, with the key in the variable KEY."""
    headers = """-H "Authorization: Bearer $KEY" -H 'Content-Type: application/json'"""
    return f"curl -s {url}/v1/{path} {headers} -d '{body}'"


COMMANDS: Final[Mapping[str, Command]] = {"serve": run_serve}
