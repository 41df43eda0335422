"""Serves the book of the environment over HTTP in a process of its own; prints its port when it is ready."""

from __future__ import annotations

import socket
import sys

import uvicorn

import commonbook
from commonbook.interfaces.http.app import make_app


class TellingServer(uvicorn.Server):
    """A server that says when it listens: before, a connection would be refused."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for one in sockets or ():
            print(one.getsockname()[1], flush=True)


def main(port: int) -> None:
    with commonbook.open(create=True) as book:
        config = uvicorn.Config(make_app(book), host="127.0.0.1", port=port, log_level="warning", lifespan="off")
        TellingServer(config).run(sockets=[config.bind_socket()])


if __name__ == "__main__":
    main(int(sys.argv[1]))
