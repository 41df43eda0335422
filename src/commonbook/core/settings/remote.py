"""Settings of a remote client: the URL of the server, its key, and the places of saved keys and outboxes.

Saved keys: `commonbook login` saves the key for a server in a file of mode 0600, which its user alone can read.

There is one file for each origin of a server.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from typing import NamedTuple

from commonbook.core.settings.settings import Secret
from commonbook.errors import BadInput, CommonbookError, HomeReadOnly


class RemoteSettings(NamedTuple):
    """All settings of a remote client, read once."""

    url: str | None
    """The URL of the server in COMMONBOOK_URL."""
    key: Secret | None
    """The API key in COMMONBOOK_KEY."""
    space: str | None
    """The default space in COMMONBOOK_SPACE."""
    keys: str
    """The folder of the keys that `commonbook login` has saved."""
    outboxes: str
    """The folder of the outboxes, one for each server."""
    outbox: str | None = None
    """The path of the outbox in COMMONBOOK_OUTBOX, in place of the one of the server."""

    @classmethod
    def load(cls, environ: Mapping[str, str] | None = None) -> RemoteSettings:
        """Read the environment."""
        env = os.environ if environ is None else environ
        named = env.get("COMMONBOOK_OUTBOX")
        key = env.get("COMMONBOOK_KEY") or None
        return cls(
            url=env.get("COMMONBOOK_URL") or None,
            key=None if key is None else require_key(key, "COMMONBOOK_KEY"),
            space=env.get("COMMONBOOK_SPACE") or None,
            keys=os.path.join(_base_folder(env, "XDG_CONFIG_HOME", ".config"), "commonbook", "keys"),
            outboxes=os.path.join(_base_folder(env, "XDG_STATE_HOME", ".local/state"), "commonbook", "outboxes"),
            outbox=os.path.realpath(_expand_user(named, env)) if named else None,
        )


def require_key(value: str, where: str) -> Secret:
    """Return an API key; BadInput if it cannot be one, without showing it."""
    if not re.fullmatch(r"[!-~]+", value):
        raise BadInput(f"{where} is not a key", fix="set it to the key alone: one word, without quotes or line ends")
    return Secret(value)


def _base_folder(env: Mapping[str, str], variable: str, default: str) -> str:
    """Return a folder of the user by the rules of the XDG: a relative path counts as not set."""
    named = env.get(variable, "")
    return named if os.path.isabs(named) else os.path.join(_expand_user("~", env), default)


def _expand_user(path: str, env: Mapping[str, str]) -> str:
    if path == "~" or path.startswith("~" + os.sep):
        return (env.get("HOME") or os.path.expanduser("~")) + path[1:]
    return os.path.expanduser(path)


def outbox_path(settings: RemoteSettings, origin: str, key: str | None) -> str:
    """Return the path of the outbox for an origin; a key that was not saved by a login has an outbox of its own.

    So messages of one agent are never sent with the key of another.
    """
    if settings.outbox is not None:
        return settings.outbox
    mark = f"-{sha256(key.encode()).hexdigest()[:16]}" if key else ""
    return os.path.join(settings.outboxes, f"{file_name(origin)}{mark}.db")


def file_name(origin: str) -> str:
    """Return the name of a file for an origin, such as `https://memory.example.com:443`."""
    return re.sub(r"[^A-Za-z0-9.-]+", "_", origin)


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
