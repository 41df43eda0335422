"""Serves the book of the environment over HTTP in a process of its own; prints its port when it is ready."""

from __future__ import annotations

import sys

import uvicorn

import commonbook
from commonbook.interfaces.http.app import make_app


def main(port: int) -> None:
    with commonbook.open(create=True) as book:
        config = uvicorn.Config(make_app(book), host="127.0.0.1", port=port, log_level="warning", lifespan="off")
        listening = config.bind_socket()
        print(listening.getsockname()[1], flush=True)
        uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main(int(sys.argv[1]))
