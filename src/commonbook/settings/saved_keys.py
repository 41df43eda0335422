"""Saved keys: `commonbook login` saves the key for a server in a file of mode 0600, which its user alone can read.

There is one file for each origin of a server.
"""

from __future__ import annotations

import os
from contextlib import suppress

from commonbook.errors import BadInput, CommonbookError, HomeReadOnly
from commonbook.settings.remote import RemoteSettings, file_name, require_key
from commonbook.settings.settings import Secret


def saved_key_path(settings: RemoteSettings, origin: str) -> str:
    """Return the path of the key of an origin, such as `https://memory.example.com:443`."""
    return os.path.join(settings.keys, file_name(origin))


def saved_key(settings: RemoteSettings, origin: str) -> Secret | None:
    """Return the key that was saved for an origin, or None; BadInput if others than its owner could read it."""
    path = saved_key_path(settings, origin)
    try:
        with open(path, encoding="ascii") as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                raise BadInput(f"others can read the key in {path}", fix=f"chmod 600 {path}, or revoke the key")
            return require_key(file.read().strip(), path)
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read", fix="log in again: `commonbook login URL CODE`") from error


def save_key(settings: RemoteSettings, origin: str, key: str) -> str:
    """Save the key of an origin, in place of an earlier one, and return the path of its file."""
    path = saved_key_path(settings, origin)
    part = f"{path}.{os.getpid()}.part"
    try:
        os.makedirs(settings.keys, mode=0o700, exist_ok=True)
        with suppress(FileNotFoundError):
            os.unlink(part)
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(key + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as error:
        raise HomeReadOnly(
            f"{path} cannot be written: {error.strerror}", fix="give this user write access to the folder"
        ) from error
    return path


def require_savable(settings: RemoteSettings) -> None:
    """Raise an error if no key could be saved, before a code is used up for one."""
    try:
        os.makedirs(settings.keys, mode=0o700, exist_ok=True)
        writable = os.access(settings.keys, os.W_OK | os.X_OK)
    except OSError:
        writable = False
    if not writable:
        raise _not_writable(settings.keys)


def _not_writable(folder: str) -> CommonbookError:
    return HomeReadOnly(f"{folder} cannot be written", fix="give this user write access to the folder")
