"""The factory makes the parts of the provider from its options. Only here are the book and its spill file opened.

It also makes copies of the book for `hermes backup`, and puts them back after `hermes import`. Hermes archives files
outside of its folder as they are, without the write-ahead log of a database, and brings them back to the same place. So
it is handed a copy in one file. When a session starts and there is no book, a copy that an import has brought is put
back. A copy that was made here, and stayed because the process was killed, is not: its note says so.
"""

from __future__ import annotations

import atexit
import os
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from commonbook.adapters.hermes import options, user_spaces
from commonbook.adapters.hermes.keeper import Keeper, Warn
from commonbook.adapters.hermes.options import Options
from commonbook.adapters.hermes.recorder import Speakers
from commonbook.adapters.hermes.shared_book import SharedBook, shared_books
from commonbook.adapters.hermes.user_spaces import UserSpaces
from commonbook.core.settings.project_files import capture_allowed as may_capture
from commonbook.core.settings.project_files import default_space
from commonbook.core.settings.settings import Settings
from commonbook.errors import BadInput, CommonbookError, HomeReadOnly, NoHome

if TYPE_CHECKING:
    from commonbook.ports.outbox import Transport
    from commonbook.remote.outbox_client import Client
    from commonbook.service.book import Book


_ANSWER_SECONDS: Final = 4.0
"""After twice this time another process sends the messages of a process that was killed while sending."""

_DEFAULT_PROFILE: Final = "default"

_BACKUPS: Final = "backups"
"""Hermes leaves folders of this name out when it archives its own folder: the copy is archived once."""

_NOT_IN_A_TAG: Final = re.compile(r"[,\[\]{}#\x00-\x1f\x7f-\x9f\ud800-\udfff]+")
_NOT_IN_A_NAME: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]+")


def problem(hermes_home: str) -> str:
    """Return why the provider cannot be used, and a fix; an empty text if it can."""
    try:
        config = options.load(hermes_home)
        _refuse_server(config, hermes_home)
        settings = _settings(config)
        if settings.database is None:
            from commonbook.compose.book import require_usable

            require_usable(settings)
    except CommonbookError as error:
        return f"{error.message}; {error.fix}"
    return ""


def _refuse_server(config: Options, hermes_home: str) -> None:
    if config.url:
        raise BadInput(
            f"a Commonbook server is configured ({config.url}), but servers are not supported yet",
            fix=f"remove `url` from {options.folder(hermes_home) / 'config.json'} to use a book on this machine",
        )


def make_keeper(config: Options, hermes_home: str, session_info: Mapping[str, Any], *, warn: Warn) -> Keeper:
    """Return the keeper for the book on this machine."""
    _refuse_server(config, hermes_home)
    settings = _settings(config)
    try:
        if done := put_back(hermes_home):
            warn(done)
    except CommonbookError as error:
        warn(f"The book of a backup could not be put back ({error.message}).")
    own = spaces(config, session_info).own
    shared = _shared_book(settings, _spill_path(options.folder(hermes_home), settings))
    return Keeper(shared, space=own, write_seconds=config.write_seconds, warn=warn)


def _shared_book(settings: Settings, spill: Path) -> SharedBook:
    """Return the book of this process, with one user more; send what an earlier process left in the spill file."""
    # Calls name their space, so that providers with different ones share a book.
    settings = settings._replace(space=None)

    def make() -> SharedBook:
        return SharedBook(
            lambda: _book(settings), lambda to_book: _client(spill, to_book, space=default_space(settings))
        )

    shared = shared_books.acquire((settings, str(spill)), make)
    try:
        if spill.exists():
            shared.spill_client()
        shared.start_housekeeper()
    except BaseException:
        shared_books.let_go(shared)
        raise
    return shared


def spaces(config: Options, session_info: Mapping[str, Any]) -> UserSpaces:
    """Return the spaces of the person who talks; COMMONBOOK_SPACE chooses one for the person at this machine."""
    chosen = config.space
    if not chosen and user_spaces.user_name(session_info) == user_spaces.LOCAL:
        chosen = _settings(config).space or ""
    return user_spaces.user_spaces(session_info, shared=chosen, also=config.recall_spaces)


def _book(settings: Settings) -> Book:
    from commonbook.compose.book import open_book

    try:
        return open_book(settings, create=True)
    except HomeReadOnly:
        from commonbook.compose.read_only_home import open_read_only

        # Recall still works, and turns wait in the spill file.
        return open_read_only(settings)


def _client(path: Path, transport: Transport, *, space: str) -> Client:
    """Open an outbox without masking: its messages are masked before, so that book and outbox get the same text."""
    from commonbook.compose.client import open_outbox

    return open_outbox(str(path), transport, mask=lambda text: (text, 0), space=space, answer_seconds=_ANSWER_SECONDS)


def _spill_path(folder: Path, settings: Settings) -> Path:
    """Return the spill file of one book, by its home or its address without user and password."""
    identity = settings.database.address.rpartition("@")[2] if settings.database else settings.home
    return folder / f"spill-{sha256(identity.encode()).hexdigest()[:12]}.db"


def _settings(config: Options) -> Settings:
    return Settings.load(config.home or None, space=config.space or None)


def home(config: Options) -> str:
    """Return the folder of the book; an empty text if the book is in a database server."""
    settings = _settings(config)
    return "" if settings.database else settings.home


def status(hermes_home: str) -> dict[str, str]:
    """Return what `hermes memory status` shows: the place of the book, its space, and what is wrong."""
    shown: dict[str, str] = {}
    try:
        config = options.load(hermes_home)
        settings = _settings(config)
        shown["book"] = config.url or (settings.database.place if settings.database else settings.home)
        shown["space"] = config.space or f"{user_spaces.TOP}/PROFILE/USER"
    except CommonbookError as error:
        return {"problem": f"{error.message}; {error.fix}"}
    if reason := problem(hermes_home):
        shown["problem"] = reason
    elif settings.database is None and os.path.exists(settings.home) and not os.access(settings.home, os.W_OK):
        shown["access"] = "read-only: recall works, and turns wait in the spill file"
    if brought := _waiting_copy(hermes_home):
        shown["backup"] = (
            f"brought on {brought:%Y-%m-%d %H:%M} UTC; `hermes commonbook put-back` replaces the book by it"
        )
    return shown


def capture_enabled(config: Options) -> bool:
    """Return whether the project allows its sessions to be recorded."""
    return may_capture(_settings(config))


def speakers(config: Options, session_info: Mapping[str, Any]) -> Speakers:
    """Return the authors and tags of a session, from the options and the arguments of Hermes."""
    tags = [*config.tags.split(","), str(session_info.get("platform") or "")]
    user = _NOT_IN_A_NAME.sub(" ", str(session_info.get("user_id") or "")).strip()[:190]
    profile = _NOT_IN_A_NAME.sub(" ", str(session_info.get("agent_identity") or "")).strip()[:180]
    cleaned = (" ".join(_NOT_IN_A_TAG.sub(" ", tag).split())[:64].strip() for tag in tags)
    return Speakers(
        user=f"user:{user}" if user else None,
        agent=f"agent:hermes/{profile}" if profile not in ("", _DEFAULT_PROFILE) else "agent:hermes",
        tags=tuple(dict.fromkeys(tag for tag in cleaned if tag)),
    )


# --- backups


def backup_paths(hermes_home: str) -> list[str]:
    """Return the file that a backup needs: a copy of a book on this machine; the process removes it when it ends."""
    from commonbook.compose import backup

    settings = _settings(options.load(hermes_home))
    if settings.database is not None:
        return []
    copy = _copy(hermes_home)
    try:
        backup.copy_home(settings, str(copy), replace=True)
    except NoHome:
        return []
    except CommonbookError as error:
        sys.stderr.write(
            f"Commonbook: no consistent copy of the book ({error.message}); its files are taken as they are\n"
        )
        return [settings.home]
    _note(copy).write_text(str(copy.stat().st_mtime_ns), encoding="ascii")
    atexit.register(_remove_copy, copy, os.getpid())
    return [str(copy)]


def put_back(hermes_home: str, *, replace: bool = False) -> str:
    """Put a copy that an import has brought in the place of the book, and return what was done, if anything.

    A book that is there stays, unless it is to be replaced; then it is moved aside.
    """
    settings = _settings(options.load(hermes_home))
    if _waiting_copy(hermes_home) is None or settings.database is not None:
        return ""
    from commonbook.compose import backup

    is_free = backup.has_no_home(settings.home)
    if not is_free and not replace:
        return ""
    aside = None if is_free else f"{settings.home}.before-{datetime.now(UTC):%Y%m%dT%H%M%S}"
    backup.put_back(str(_copy(hermes_home)), settings.home, aside=aside)
    _copy(hermes_home).unlink(missing_ok=True)
    kept = f"; the former one is {aside}" if aside else ""
    return f"The book was put back from a backup, to {settings.home}{kept}."


def _waiting_copy(hermes_home: str) -> datetime | None:
    """Return when a copy was brought by an import, if one waits to be put back."""
    copy = _copy(hermes_home)
    try:
        status = copy.stat()
    except OSError:
        return None
    return None if _is_made_here(copy) else datetime.fromtimestamp(status.st_mtime, UTC)


def _copy(hermes_home: str) -> Path:
    return options.folder(hermes_home) / _BACKUPS / "book.tar"


def _note(copy: Path) -> Path:
    return copy.with_suffix(".made-here")


def _is_made_here(copy: Path) -> bool:
    with suppress(OSError):
        return _note(copy).read_text(encoding="ascii") == str(copy.stat().st_mtime_ns)
    return False


def _remove_copy(copy: Path, process: int) -> None:
    # A child of this process ends too.
    if os.getpid() == process and _is_made_here(copy):
        for path in (copy, _note(copy)):
            path.unlink(missing_ok=True)
        with suppress(OSError):
            copy.parent.rmdir()
