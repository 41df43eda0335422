"""The marker of a home: a file in its hidden folder that tells on which machine, and for which user, it was made.

It is a hash of an id that the maker of a folder does not know of other machines. So a hidden folder that came with a
clone, an archive or a synchronised folder is distinguished from one that was made here.
"""

from __future__ import annotations

import os
from contextlib import suppress
from hashlib import sha256
from typing import Final

from commonbook.engines.disk.durable_files import sync_folder
from commonbook.engines.disk.home_folder import HIDDEN_FOLDER, MACHINE_FILE

_ID_FILES: Final = ("/etc/machine-id", "/var/lib/dbus/machine-id")
_NOT_BROUGHT: Final = frozenset({"out", ".gitignore"})
"""Entries of a hidden folder that mean nothing: a home that was only half made may have left them."""


def write_marker(hidden: str) -> None:
    """Mark a hidden folder as made on this machine."""
    # Several processes may make the home at once. After a crash `out` is cleared of unfinished files.
    part = os.path.join(hidden, "out", f".{MACHINE_FILE}.{os.urandom(6).hex()}")
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(_fingerprint())
        file.flush()
        os.fsync(file.fileno())
    # A process that has made the home meanwhile, with its marker, may have cleared `out`.
    with suppress(FileNotFoundError):
        os.rename(part, os.path.join(hidden, MACHINE_FILE))
    sync_folder(hidden)


def is_marked(folder: str) -> bool:
    """Return whether the hidden folder of a home was made, or was trusted, on this machine."""
    try:
        with open(os.path.join(folder, HIDDEN_FOLDER, MACHINE_FILE), "rb") as file:
            return file.read(200) == _fingerprint()
    except OSError:
        return False


def brings_hidden_folder(folder: str) -> bool:
    """Return whether a folder has a hidden folder with anything in it."""
    try:
        return bool(set(os.listdir(os.path.join(folder, HIDDEN_FOLDER))) - _NOT_BROUGHT)
    except FileNotFoundError:
        return False
    except OSError:
        return True


def _fingerprint() -> bytes:
    return sha256(f"commonbook home\0{_machine_id()}\0{os.getuid()}".encode()).hexdigest().encode() + b"\n"


def _machine_id() -> str:
    """Return the id of this machine: the system's own, else the hardware address of its network card."""
    for path in _ID_FILES:
        try:
            with open(path, encoding="ascii") as file:
                if found := file.read().strip():
                    return found
        except (OSError, ValueError):
            continue
    import uuid  # Imported late: nearly every system has an id of its own.

    return f"{uuid.getnode():012x}"
