"""Command line arguments of the commands that run until they are interrupted: `serve` and `worker`."""

from __future__ import annotations

import argparse
from collections.abc import Callable


def worker_arguments(to: argparse.ArgumentParser, seconds: Callable[[str], float]) -> None:
    """Add the arguments of `worker`."""
    how_long = to.add_mutually_exclusive_group()
    how_long.add_argument("--once", action="store_true", help="run the jobs that are due now, and end")
    how_long.add_argument(
        "--every", type=seconds, default=1.0, metavar="SECONDS", help="how often to look for work (1); Ctrl-C ends it"
    )
    to.add_argument("--retry", action="store_true", help="first try the failed jobs again")


def serve_arguments(to: argparse.ArgumentParser) -> None:
    """Add the arguments of `serve`."""
    to.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="the address to listen on (127.0.0.1)")
    to.add_argument("--port", type=int, default=7373, metavar="NUMBER", help="the port (7373); 0 takes a free one")
    to.add_argument("--init", action="store_true", help="make the home if there is none and its folder is empty")
    to.add_argument("--tls-cert", metavar="FILE", help="the certificate of the server, in PEM")
    to.add_argument("--tls-key", metavar="FILE", help="the key of the certificate, in PEM")
    to.add_argument(
        "--behind-proxy",
        action="append",
        default=[],
        metavar="ADDRESS",
        help="the address or network of a proxy that ends TLS; nobody else is answered (repeatable)",
    )
    to.add_argument(
        "--allowed-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name by which clients call this server (repeatable)",
    )
    to.add_argument("--metrics-port", type=int, metavar="NUMBER", help="a port for metrics, which needs no key")
    to.add_argument("--no-worker", action="store_true", help="leave background jobs to other processes")
    to.add_argument("--no-request-log", action="store_true", help="log no line for each request")
