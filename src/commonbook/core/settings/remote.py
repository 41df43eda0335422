"""Settings of a remote client: the URL of the server, its key, and the places of saved keys and outboxes.

Saved keys: `commonbook login` saves the key for a server in a file of mode 0600, which its user alone can read.

There is one file for each origin of a server. The file beside them names the default book of the user, if it is not
the home `~/commonbook`: a server after `login`, a server or a folder after `commonbook use`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from typing import Final, NamedTuple

from commonbook.core.settings.settings import Secret, environment, read_config_file
from commonbook.errors import BadInput, CommonbookError, HomeReadOnly

_BOOK_VARIABLES: Final = ("COMMONBOOK_URL", "COMMONBOOK_DATABASE", "COMMONBOOK_HOME")


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
    default: str | None = None
    """The URL of the server that is the default book of the user."""

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
            keys=os.path.join(_config_folder(env), "keys"),
            outboxes=os.path.join(_base_folder(env, "XDG_STATE_HOME", ".local/state"), "commonbook", "outboxes"),
            outbox=os.path.realpath(_expand_user(named, env)) if named else None,
            default=default if (default := default_book(env)) and is_url(default) else None,
        )


class BookChoice(NamedTuple):
    """The book that a command uses: that of a server, else that of a home or a database."""

    home: str | None = None
    """The folder of the home; None leaves it to COMMONBOOK_DATABASE and COMMONBOOK_HOME, else it is `~/commonbook`."""
    url: str | None = None


def choose_book(home: str | None, url: str | None, *, local: bool = False, default_server: bool = True) -> BookChoice:
    """Return the book of the options, else of the environment, else the default book of the user.

    With `local`, COMMONBOOK_URL and a default server do not count; without `default_server`, the latter alone.
    """
    if home is not None and url is not None:
        raise BadInput("--home and --url each name a book", fix="give one of them")
    if home is not None or url is not None:
        return BookChoice(home, url)
    env = environment()
    here = next((name for name in _BOOK_VARIABLES[1:] if env.get(name)), None)
    named = None if local else env.get("COMMONBOOK_URL") or None
    if named and here:
        raise BadInput(
            f"COMMONBOOK_URL and {here} each name a book", fix="unset one of them, or name the book by --url or --home"
        )
    if named or here:
        return BookChoice(url=named)
    default = default_book(env)
    if default is None or not is_url(default):
        return BookChoice(default)
    return BookChoice(url=default if default_server and not local else None)


def book_variable() -> str | None:
    """Return the name of a variable that names a book, which wins over the default book."""
    return next((name for name in _BOOK_VARIABLES if environment().get(name)), None)


def is_url(book: str) -> bool:
    """Return whether a book is named by the address of a server, and not by a folder."""
    return book.startswith(("http://", "https://"))


def default_book(env: Mapping[str, str] | None = None) -> str | None:
    """Return the default book of the user, the URL of a server or a folder; None for the home `~/commonbook`."""
    content = read_config_file(_default_path(environment() if env is None else env))
    return content.decode(errors="surrogateescape").strip() or None if content else None


def save_default_book(book: str | None) -> None:
    """Save the default book of the user, or forget it."""
    path = _default_path(environment())
    if book is not None:
        _write_private(path, book)
        return
    with suppress(FileNotFoundError):
        os.unlink(path)


def _default_path(env: Mapping[str, str]) -> str:
    return os.path.join(_config_folder(env), "book")


def _config_folder(env: Mapping[str, str]) -> str:
    return os.path.join(_base_folder(env, "XDG_CONFIG_HOME", ".config"), "commonbook")


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
    _write_private(path, key)
    return path


def _write_private(path: str, line: str) -> None:
    """Write a file of one line that only its user can read, in place of an earlier one."""
    part = f"{path}.{os.getpid()}.part"
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with suppress(FileNotFoundError):
            os.unlink(part)
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(os.fsencode(line) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as error:
        raise HomeReadOnly(
            f"{path} cannot be written: {error.strerror}", fix="give this user write access to the folder"
        ) from error


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
