"""The files of servers in the home that they serve: the key of the owner, and the addresses of those that run.

The key is made once and kept in `.commonbook/owner.key`, with mode 0600. A key that was revoked is replaced at the next
start. A server holds a lock on the file of its address, `.commonbook/servers/<random>`, as long as it lives. A file
that nobody has locked was left by a server that was killed.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from commonbook.engines.disk.durable_files import make_folders, sync_folder
from commonbook.engines.disk.home_folder import HIDDEN_FOLDER
from commonbook.errors import HomeReadOnly, NotAllowed
from commonbook.values.spaces import LOCAL_OWNER

if TYPE_CHECKING:
    from commonbook.core.settings.settings import Settings
    from commonbook.service.book import Book

_NAME: Final = "owner.key"
_LABEL: Final = "the server on this machine"
_MODE: Final = 0o600


def ensure_owner_key(book: Book, settings: Settings) -> str:
    """Return the path of the file with the owner's key; make both if there is none that opens the book."""
    path = os.path.join(settings.home, HIDDEN_FOLDER, _NAME)
    try:
        make_folders(os.path.dirname(path), mode=0o700)
        secret = _read(path)
        if secret is None or not _opens(book, secret):
            _store_new_key(book, path, replaced=secret)
        os.chmod(path, _MODE)
    except OSError as error:
        raise HomeReadOnly(
            f"the key of the owner cannot be kept in {path}: {error.strerror}",
            fix="give this user write access to that folder, or name another home (--home, COMMONBOOK_HOME)",
        ) from error
    return path


def read_owner_key(book: Book, settings: Settings) -> str:
    """Return the secret of the owner's key; it is made if there is none."""
    return _read(ensure_owner_key(book, settings)) or ""


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read().strip()
    except FileNotFoundError:
        return None


def _opens(book: Book, secret: str) -> bool:
    try:
        return book.with_key(secret).actor == LOCAL_OWNER
    except NotAllowed:
        return False


def _store_new_key(book: Book, path: str, *, replaced: str | None) -> None:
    """Make a key and put it into its file, whole and durable; of several servers that start at once, the first wins."""
    made = book.create_key(LOCAL_OWNER, label=_LABEL)
    temporary = f"{path}.{secrets.token_hex(8)}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE)
    try:
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(made.secret + "\n")
            file.flush()
            os.fsync(file.fileno())
        if replaced is not None and _read(path) == replaced:
            os.replace(temporary, path)
        else:
            os.link(temporary, path)
        sync_folder(os.path.dirname(path))
    except FileExistsError:
        book.revoke_key(made.key.id)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)


_FOLDER: Final = "servers"
_MAX_URL_BYTES: Final = 1000


@contextmanager
def recorded_address(settings: Settings, url: str) -> Iterator[None]:
    """Keep the address of a server in its home while the `with` block runs; a home that is read-only keeps none."""
    path = os.path.join(_folder(settings), secrets.token_hex(8))
    try:
        os.makedirs(_folder(settings), mode=0o700, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError:
        yield
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.write(descriptor, url.encode()[:_MAX_URL_BYTES])
        yield
    finally:
        with suppress(FileNotFoundError):
            os.unlink(path)
        os.close(descriptor)


def running_servers(settings: Settings) -> list[str]:
    """Return the addresses of the servers that run on a home, the newest first."""
    found = []
    with suppress(OSError), os.scandir(_folder(settings)) as entries:
        for entry in entries:
            with suppress(OSError):
                if url := _address_of_living(entry.path):
                    found.append((entry.stat().st_mtime_ns, url))
    return [url for _, url in sorted(found, reverse=True)]


def _address_of_living(path: str) -> str | None:
    """Return the address in a file whose server lives; None, and the file is removed, if it does not."""
    with open(path, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return file.read(_MAX_URL_BYTES).decode(errors="replace")
        url = file.read(_MAX_URL_BYTES)
    if url:
        # An empty one belongs to a server that is starting, and has not locked it yet.
        os.unlink(path)
    return None


def _folder(settings: Settings) -> str:
    return os.path.join(settings.home, HIDDEN_FOLDER, _FOLDER)
