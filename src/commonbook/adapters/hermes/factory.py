"""How the provider's parts are made from what was chosen: here alone the book and the client are opened."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from commonbook.adapters.hermes import options
from commonbook.adapters.hermes.book_keeper import BookKeeper
from commonbook.adapters.hermes.keeper import Keeper, Tell
from commonbook.adapters.hermes.options import Options
from commonbook.adapters.hermes.recorder import Speakers
from commonbook.adapters.hermes.server_keeper import ServerKeeper
from commonbook.settings.default_space import captures as may_capture
from commonbook.settings.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

    from commonbook.book.book import Book
    from commonbook.client.client import Client
    from commonbook.ports.outbox import Transport


_ANSWER_SECONDS: Final = 4.0
"""After twice that time another process sends what one was about to send when it was killed."""

_NOT_IN_A_TAG: Final = re.compile(r"[,\[\]{}#\x00-\x1f\x7f-\x9f\ud800-\udfff]+")
_NOT_IN_A_NAME: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]+")


def obstacle(hermes_home: str, transport: Transport | None) -> str:
    """Return why the provider cannot be used as it is configured; nothing if it can."""
    chosen = options.load(hermes_home)
    if chosen.url and transport is None:
        return (
            f"a Commonbook server is configured ({chosen.url}), but there is no way to reach one yet: "
            f"take `url` out of {options.folder(hermes_home) / 'config.json'} to use a book on this machine"
        )
    if not chosen.url:
        _settings(chosen)
    return ""


def keeper(chosen: Options, hermes_home: str, transport: Transport | None, *, tell: Tell) -> Keeper:
    """Return what keeps everything: a book on this machine, or an outbox for a server."""
    folder = options.folder(hermes_home)
    if chosen.url:
        if transport is None:
            from commonbook.errors import BadInput

            raise BadInput(obstacle(hermes_home, transport), fix="see the README of the adapter")
        client = _client(_beside(folder, "outbox", chosen.url), transport)
        return ServerKeeper(client, space=chosen.space or None, tell=tell)
    wanted = _settings(chosen)
    spill = _beside(folder, "spill", _whose(wanted))
    made = BookKeeper(lambda: _book(wanted), lambda way: _client(spill, way), seconds=chosen.write_seconds, tell=tell)
    made.catch_up(spilled=spill.exists())
    return made


def wait_until_open(made: Keeper, *, seconds: float) -> None:
    """Wait for a moment until a book is open, and raise what keeps it from being so."""
    if isinstance(made, BookKeeper):
        made.opened(wait=seconds)


def _book(wanted: Settings) -> Book:
    from commonbook.compose.book import open_book

    return open_book(wanted)


def _client(path: Path, transport: Transport) -> Client:
    """Open an outbox. What goes into it was cleaned before: the same words go to the book and past it."""
    from commonbook.compose.client import open_outbox

    return open_outbox(str(path), transport, mask=lambda text: (text, 0), answer_seconds=_ANSWER_SECONDS)


def _beside(folder: Path, what: str, whose: str) -> Path:
    """Return the file for one home or server: what was meant for one never goes to another."""
    return folder / f"{what}-{sha256(whose.encode()).hexdigest()[:12]}.db"


def _whose(wanted: Settings) -> str:
    """Return what tells a book from others: its home, or its address, whatever user and password go with it."""
    return wanted.database.address.rpartition("@")[2] if wanted.database else wanted.home


def _settings(chosen: Options) -> Settings:
    return Settings.load(chosen.home or None, space=chosen.space or None)


def captures(chosen: Options) -> bool:
    """Tell whether the project wants its sessions to be recorded."""
    return may_capture(_settings(chosen))


def backup_paths(hermes_home: str) -> list[str]:
    """Return what lies outside of the folder of Hermes, on this machine."""
    chosen = options.load(hermes_home)
    if chosen.url:
        return []
    wanted = _settings(chosen)
    return [] if wanted.database else [wanted.home]


def speakers(chosen: Options, told: Mapping[str, Any]) -> Speakers:
    """Return who speaks, and with what tags, as far as Hermes tells."""
    tags = [*chosen.tags.split(","), str(told.get("platform") or "")]
    user = _NOT_IN_A_NAME.sub(" ", str(told.get("user_id") or "")).strip()[:190]
    agent = _NOT_IN_A_NAME.sub(" ", str(told.get("agent_identity") or "")).strip()[:190]
    cleaned = (" ".join(_NOT_IN_A_TAG.sub(" ", tag).split())[:64].strip() for tag in tags)
    return Speakers(
        user=f"user:{user}" if user else None,
        agent=f"agent:{agent or 'hermes'}",
        tags=tuple(dict.fromkeys(tag for tag in cleaned if tag)),
    )
