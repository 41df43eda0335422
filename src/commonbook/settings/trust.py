"""Trust in project files: a `.commonbook.toml` in a git repository is obeyed once a person has trusted it.

The home has one small file for each trusted one, named by a hash of its path and holding the hash of its content. So a
file that changes, or that is copied elsewhere, has to be trusted again, and nothing in a repository can say that it is
trusted.
"""

from __future__ import annotations

import os
from contextlib import suppress
from hashlib import sha256
from typing import Final

_FOLDER: Final = os.path.join(".commonbook", "trusted")


def is_trusted(home: str, path: str, data: bytes) -> bool:
    """Tell whether a person has trusted the file at this path with this content."""
    try:
        with open(_record(home, path), encoding="ascii") as file:
            return file.read().strip() == sha256(data).hexdigest()
    except OSError:
        return False


def trust(home: str, path: str, data: bytes) -> None:
    """Record that a person trusts the file at this path, as long as its content stays the same."""
    record = _record(home, path)
    os.makedirs(os.path.dirname(record), mode=0o700, exist_ok=True)
    part = f"{record}.{os.getpid()}.part"
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as file:
        file.write(sha256(data).hexdigest() + "\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, record)


def distrust(home: str, path: str) -> None:
    """Forget that a person has trusted the file at this path."""
    with suppress(FileNotFoundError):
        os.unlink(_record(home, path))


def _record(home: str, path: str) -> str:
    real = os.path.realpath(path).encode(errors="surrogateescape")
    return os.path.join(home, _FOLDER, sha256(real).hexdigest()[:32])
