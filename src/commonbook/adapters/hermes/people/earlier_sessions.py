"""Earlier sessions: an earlier version stored the sessions of all people and profiles in one space.

A session is moved into the space of its user, if its tags and all of its authors are those of this user and profile.
One that is not recognised as theirs stays where it is. This happens when Hermes goes on with a session (`claim`), and
once in the background for all sessions of a profile (`move_all`), by what Hermes' own database says.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from commonbook.adapters.hermes.people.user_spaces import API_PLATFORM, TOP, UserSpaces, is_local
from commonbook.adapters.hermes.recorder import session_name
from commonbook.errors import Ambiguous, CommonbookError, Conflict, NotFound

if TYPE_CHECKING:
    from commonbook.adapters.hermes.recorder import Speakers
    from commonbook.book.book import Book


_PAGE: Final = 1000
_DATABASE: Final = "state.db"
_WAIT_SECONDS: Final = 5.0
_COLUMNS: Final[Mapping[str, str]] = {
    "id": "id",
    "parent_session_id": "parent",
    "source": "platform",
    "user_id": "user_id",
    "chat_id": "chat_id",
    "chat_type": "chat_type",
    "session_key": "gateway_session_key",
}
"""The columns of Hermes' table, and the names that Hermes has for them when it starts a provider."""


class Whose(NamedTuple):
    """The person whose session it is: the spaces of that person, and the authors and tags of the sessions."""

    spaces: UserSpaces
    speakers: Speakers


def claim(book: Book, whose: Whose, session: str) -> None:
    """Move a session that an earlier version stored in the default space into the space of its user."""
    earlier = book.default_space
    if earlier != whose.spaces.own and is_theirs(book, earlier, whose.speakers, session):
        # Another process may have moved it meanwhile.
        with suppress(CommonbookError):
            book.move_session(session, whose.spaces.own, space=earlier)


def move_all(
    book: Book, hermes_home: str, find_whose: Callable[[Mapping[str, Any]], Whose], is_stopped: Callable[[], bool]
) -> bool:
    """Move all sessions of a profile that Hermes knows; return whether this came to its end."""
    rows = {str(row["id"]): row for row in _rows(Path(hermes_home) / _DATABASE)}
    for name, row in rows.items():
        if is_stopped():
            return False
        # A subagent may have a platform of its own; its session belongs to the one that asked.
        for known in (row, rows.get(str(row.get("parent")), {})):
            if _tells_person(known) and _move(book, session_name(name), find_whose(known)):
                break
    return True


def _rows(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the sessions of Hermes' database, with the columns that this version of it has."""
    if not path.exists():
        return
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=_WAIT_SECONDS)) as database:
        database.row_factory = sqlite3.Row
        present = {row["name"] for row in database.execute("SELECT name FROM pragma_table_info('sessions')")}
        columns = [f"{column} AS {name}" for column, name in _COLUMNS.items() if column in present]
        if "id" in present:
            yield from map(dict, database.execute(f"SELECT {', '.join(columns)} FROM sessions ORDER BY started_at"))  # noqa: S608 - names of this module


def _tells_person(row: Mapping[str, Any]) -> bool:
    """Tell whether a row says who talked. One of an older Hermes does not tell a chat of several from one of two."""
    platform = str(row.get("platform") or "")
    if is_local(platform) or not row:
        return bool(row)
    if platform == API_PLATFORM:
        return bool(row.get("gateway_session_key"))
    return bool(row.get("chat_type"))


def _move(book: Book, session: str, whose: Whose) -> bool:
    """Move a session into the space of its user if it is not there; return whether it was."""
    try:
        earlier = book.messages(session, limit=1).session.space.name
    except (Ambiguous, NotFound):
        # It is in several spaces, or was never stored.
        return False
    if earlier.partition("/")[0] == TOP or not is_theirs(book, earlier, whose.speakers, session):
        return False
    # A home that is locked or read-only is another matter: then all of it is tried again.
    with suppress(Conflict, NotFound):
        book.move_session(session, whose.spaces.own, space=earlier)
        return True
    return False


def is_theirs(book: Book, space: str, speakers: Speakers, session: str) -> bool:
    """Tell whether a session has the tags of a user's platform, and no author but the user and the user's agent."""
    authors: set[str] = set()
    after: int | None = 0
    try:
        while after is not None:
            page = book.messages(session, space=space, after=after, limit=_PAGE)
            if page.session.space.name != space or not set(speakers.tags) <= set(page.session.tags):
                return False
            authors.update(message.author for message in page.items)
            after = page.next
    except NotFound:
        return False
    return authors <= {speakers.user or book.actor, *_agents(speakers)}


def _agents(speakers: Speakers) -> tuple[str, ...]:
    """Return the names of the agent: `agent:hermes/PROFILE`, and `agent:PROFILE` as an earlier version had it."""
    _, _, profile = speakers.agent.partition("/")
    return speakers.agent, f"agent:{profile or 'default'}", "agent:subagent"
