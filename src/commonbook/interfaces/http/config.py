"""The configuration of the HTTP server."""

from __future__ import annotations

from typing import NamedTuple


class ServerConfig(NamedTuple):
    """The configuration of an app.

    `threads` is how many requests use the book at the same time; further ones wait. `max_batch_lines` is how many
    requests one batch may have. `max_archive_bytes` is the size of an archive that is imported.
    """

    threads: int = 64
    max_batch_lines: int = 10_000
    max_archive_bytes: int = 1024 * 1024 * 1024
