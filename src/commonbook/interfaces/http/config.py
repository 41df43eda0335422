"""The configuration of the HTTP server."""

from __future__ import annotations

from typing import NamedTuple


class ServerConfig(NamedTuple):
    """The configuration of an app.

    `threads` is how many requests use the book at the same time; further ones wait. `max_archive_bytes` is
    the size of an archive that is imported.
    """

    threads: int = 64
    max_archive_bytes: int = 1024 * 1024 * 1024
