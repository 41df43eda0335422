"""The servers that run on a home: each keeps its address in a file there, so that commands can print it.

A server holds a lock on its file, `.commonbook/servers/<random>`, as long as it lives. A file that nobody has locked
was left by a server that was killed.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from commonbook.engines.disk.home_folder import HIDDEN_FOLDER

if TYPE_CHECKING:
    from commonbook.settings.settings import Settings

_FOLDER: Final = "servers"
_MAX_URL_BYTES: Final = 1000


@contextmanager
def recorded_address(settings: Settings, url: str) -> Iterator[None]:
    """Keep the address of a server in its home while the `with` block runs; a home that is read-only keeps none."""
    path = os.path.join(_folder(settings), secrets.token_hex(8))
    try:
        os.makedirs(_folder(settings), mode=0o700, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError:
        yield
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.write(descriptor, url.encode()[:_MAX_URL_BYTES])
        yield
    finally:
        with suppress(FileNotFoundError):
            os.unlink(path)
        os.close(descriptor)


def running_servers(settings: Settings) -> list[str]:
    """Return the addresses of the servers that run on a home, the newest first."""
    found = []
    with suppress(OSError), os.scandir(_folder(settings)) as entries:
        for entry in entries:
            with suppress(OSError):
                if url := _address_of_living(entry.path):
                    found.append((entry.stat().st_mtime_ns, url))
    return [url for _, url in sorted(found, reverse=True)]


def _address_of_living(path: str) -> str | None:
    """Return the address in a file whose server lives; None, and the file is removed, if it does not."""
    with open(path, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return file.read(_MAX_URL_BYTES).decode(errors="replace")
        url = file.read(_MAX_URL_BYTES)
    if url:
        # An empty one belongs to a server that is starting, and has not locked it yet.
        os.unlink(path)
    return None


def _folder(settings: Settings) -> str:
    return os.path.join(settings.home, HIDDEN_FOLDER, _FOLDER)
