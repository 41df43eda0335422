"""The key of the owner for a server on its own machine: made once, and kept in a file that only the owner reads.

The file is `.commonbook/owner.key` of the home, with mode 0600. A key that was revoked is replaced at the next start.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from commonbook.engines.disk.durable_files import make_folders, sync_folder
from commonbook.engines.disk.home_folder import HIDDEN_FOLDER
from commonbook.errors import HomeReadOnly, NotAllowed
from commonbook.model.spaces import LOCAL_OWNER

if TYPE_CHECKING:
    from commonbook.book.book import Book
    from commonbook.settings.settings import Settings

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
