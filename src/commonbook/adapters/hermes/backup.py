"""Copies of the book for `hermes backup`, and their way back after `hermes import`.

Hermes archives files outside of its folder as they are, without the write-ahead log of a database, and brings them back
to the same place. So it is handed a copy in one file. When a session starts and there is no book, a copy that an import
has brought is put back. A copy that was made here, and stayed because the process was killed, is not: its note says so.
"""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from commonbook.adapters.hermes import options
from commonbook.compose import home_copy
from commonbook.errors import CommonbookError, NoHome
from commonbook.settings.settings import Settings

_FOLDER: Final = "backups"
"""Hermes leaves folders of this name out when it archives its own folder: the copy is archived once."""


def paths(settings: Settings, hermes_home: str) -> list[str]:
    """Return the file that a backup needs: a copy of the book, which is removed when this process ends."""
    if settings.database is not None:
        return []
    copy = _copy(hermes_home)
    try:
        home_copy.copy_home(settings, str(copy), replace=True)
    except NoHome:
        return []
    except CommonbookError as error:
        sys.stderr.write(
            f"Commonbook: no consistent copy of the book ({error.message}); its files are taken as they are\n"
        )
        return [settings.home]
    _note(copy).write_text(str(copy.stat().st_mtime_ns), encoding="ascii")
    atexit.register(_remove, copy, os.getpid())
    return [str(copy)]


def waiting(hermes_home: str) -> datetime | None:
    """Return when a copy was brought by an import, if one waits to be put back."""
    copy = _copy(hermes_home)
    try:
        status = copy.stat()
    except OSError:
        return None
    if _is_made_here(copy):
        return None
    return datetime.fromtimestamp(status.st_mtime, UTC)


def put_back(settings: Settings, hermes_home: str, *, replace: bool = False) -> str:
    """Put a copy that an import has brought in the place of the book, and return what was done, if anything.

    A book that is there stays, unless it is to be replaced; then it is moved aside.
    """
    if waiting(hermes_home) is None or settings.database is not None:
        return ""
    copy = _copy(hermes_home)
    is_free = home_copy.has_no_home(settings.home)
    if not is_free and not replace:
        return ""
    aside = None if is_free else f"{settings.home}.before-{datetime.now(UTC):%Y%m%dT%H%M%S}"
    home_copy.restore_home(str(copy), settings.home, aside=aside)
    copy.unlink(missing_ok=True)
    kept = f"; the former one is {aside}" if aside else ""
    return f"The book was put back from a backup, to {settings.home}{kept}."


def _copy(hermes_home: str) -> Path:
    return options.folder(hermes_home) / _FOLDER / "book.tar"


def _note(copy: Path) -> Path:
    return copy.with_suffix(".made-here")


def _is_made_here(copy: Path) -> bool:
    with suppress(OSError):
        return _note(copy).read_text(encoding="ascii") == str(copy.stat().st_mtime_ns)
    return False


def _remove(copy: Path, process: int) -> None:
    # A child of this process ends too.
    if os.getpid() == process and _is_made_here(copy):
        for path in (copy, _note(copy)):
            path.unlink(missing_ok=True)
        with suppress(OSError):
            copy.parent.rmdir()
