"""Serve a home with a few example memories: `python tools/run.py [HOME [PORT]]`. Without HOME, a temporary one is used.

A home that exists is served as it is. The temporary one is removed at the end.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import commonbook
from commonbook.interfaces.cli.main import main as run_command

PORT = 7373
EXAMPLES = (
    commonbook.Draft("Alice owns the billing service. Ask her before you change an invoice.", tags=("billing",)),
    commonbook.Draft("Invoices go out on the first working day of the month.", kind="procedure", tags=("billing",)),
    commonbook.Draft("We deploy on Tuesdays after the stand-up, never on a Friday.", kind="procedure"),
    commonbook.Draft("The staging database is restored from a backup of production every night.", kind="fact"),
)


def main(arguments: list[str]) -> int:
    """Fill a new home, and serve it until it is interrupted."""
    # Settings of this machine must not lead to another book.
    for name in [name for name in os.environ if name.startswith("COMMONBOOK_")]:
        del os.environ[name]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("home", nargs="?", help="the home to serve; a temporary one without it")
    parser.add_argument("port", nargs="?", type=int, help=f"the port, in place of {PORT} or any free one")
    given = parser.parse_args(arguments)
    with ExitStack() as stack:
        if given.home:
            home = Path(given.home).expanduser()
        else:
            home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="commonbook-"))) / "home"
        if not home.exists() or not any(home.iterdir()):
            with commonbook.open(home, create=True) as book:
                book.remember_many([draft._replace(space="personal") for draft in EXAMPLES])
        port = _free_port() if given.port is None else given.port
        return run_command(["serve", "--home", str(home), "--port", str(port), "--no-request-log"])


def _free_port() -> int:
    """Return the usual port, or 0 for any other if a program listens there."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", PORT))
        except OSError:
            return 0
    return PORT


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
