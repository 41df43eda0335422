"""Child processes of the tests of backups.

`python -m tests.support.backup_child write HOME NAME` remembers and appends until it is killed, and reports each text
once it is acknowledged. `backup HOME TARGET POINT SIGNAL` and `restore BACKUP HOME POINT SIGNAL` run the command, and
send this process a signal at the point.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from itertools import count
from typing import Any

import commonbook
from commonbook.compose import backup
from commonbook.engines.disk import backup_format
from commonbook.interfaces.cli.main import main
from commonbook.values.session import NewMessage

POINTS: dict[str, tuple[Any, str, int]] = {
    "the first entry": (backup_format.TarWriter, "add", 1),
    "an entry in the middle": (backup_format.TarWriter, "add", 20),
    "the list": (backup_format.ListedWriter, "finish", 1),
    "the end of the archive": (backup_format.TarWriter, "close", 1),
    "reading it again": (backup, "read_backup", 1),
    "the rename": (backup, "_put_in_place", 1),
}
RESTORE_POINTS: dict[str, tuple[Any, str, int]] = {
    "the first entry": (backup_format.FolderWriter, "add", 1),
    "an entry in the middle": (backup_format.FolderWriter, "add", 20),
    "the end of the entries": (backup_format.FolderWriter, "close", 1),
    "the marker": (backup, "_complete_hidden_folder", 1),
}


def write(home: str, name: str) -> None:
    """Remember and append without end."""
    with commonbook.open(home) as book:
        for at in count():
            text = f"{name} {at} herons nest by the mill"
            book.remember(text, space=f"team/{name}" if at % 2 else None)
            # A message is in no file yet: only the database has it.
            book.append(name, [NewMessage(text)], space="personal")
            os.write(1, f"{text}\n".encode())


def _signal_at(point: tuple[Any, str, int], number: int) -> None:
    owner, name, calls = point
    really: Callable[..., Any] = getattr(owner, name)
    remaining = [calls]

    def call(*args: Any, **options: Any) -> Any:
        remaining[0] -= 1
        if remaining[0] == 0:
            os.kill(os.getpid(), number)
        return really(*args, **options)

    setattr(owner, name, call)


if __name__ == "__main__":
    mode, first, second, *more = sys.argv[1:]
    if mode == "write":
        write(first, second)
    # Tests that run in the background of a shell inherit that Ctrl-C is ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    point, number = more[0], int(signal.Signals[more[1]])
    _signal_at((POINTS if mode == "backup" else RESTORE_POINTS)[point], number)
    command = ["--home", first, "backup", second] if mode == "backup" else ["restore", first, second]
    sys.exit(main(command))
