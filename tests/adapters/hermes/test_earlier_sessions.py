"""Sessions that an earlier version stored in one space move to their users, by what Hermes' own database says."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing

import pytest

from commonbook.adapters.hermes.provider import CommonbookMemoryProvider
from commonbook.model.memory import Filter
from commonbook.model.session import NewMessage
from tests.support.hermes import Hermes, reading

HERON = "the heron nests behind the old mill"
NEWER = ("source", "user_id", "parent_session_id", "chat_id", "chat_type", "session_key")
OLDER = NEWER[:3]
"""The columns of Hermes 0.13."""

BOB = ("telegram", "Bob", None, "77", "dm", "agent:main:telegram:dm:77")
GROUP = ("telegram", "Bob", None, "-100", "group", "agent:main:telegram:group:-100")
LOCAL = ("cli", None, None, None, None, None)


@pytest.fixture
def hermes_home(tmp_path):
    folder = tmp_path / "hermes"
    folder.mkdir()
    return folder


def hermes_knows(folder, sessions, columns=NEWER):
    with closing(sqlite3.connect(folder / "state.db")) as database, database:
        database.execute(f"CREATE TABLE sessions (id TEXT PRIMARY KEY, {', '.join(columns)}, started_at REAL)")
        for name, values in sessions.items():
            marks = ", ".join("?" * (len(columns) + 2))
            database.execute(f"INSERT INTO sessions VALUES ({marks})", (name, *values[: len(columns)], 1.0))


def stored(book, session, user, *, agent="agent:hermes", tags=("hermes", "telegram"), space="personal", parent=None):
    """Store a session as an earlier version did."""
    book.append(
        session,
        [
            NewMessage(HERON, author=user, client_id="hermes:1:1"),
            NewMessage("Noted.", "assistant", author=agent, client_id="hermes:1:2"),
        ],
        space=space,
        parent=parent,
        tags=tags,
    )


def start(folder, session="now", **options):
    """Start and end Hermes, and wait until the sessions are moved, if they are to be."""
    provider = CommonbookMemoryProvider(hermes_home=str(folder))
    provider.save_config({"write_seconds": 60, "recall_seconds": 7, **options}, str(folder))
    hermes = Hermes(provider, session, hermes_home=str(folder), platform="cli", agent_identity="default")
    hermes.turn("hello", "Hello.")
    until = time.monotonic() + 60
    while not options.get("space") and not (folder / "commonbook" / "sessions-moved").exists():
        assert time.monotonic() < until
        time.sleep(0.02)
    hermes.exit()
    assert not hermes.errors


def spaces(place):
    with reading(place) as book:
        return {one.id: one.space.name.partition("__")[0] for one in book.sessions(limit=100)}


def test_every_session_whose_user_hermes_names_moves_with_its_episodes(place, hermes_home):
    hermes_knows(
        hermes_home,
        {
            "dm": BOB,
            "group": GROUP,
            "local": LOCAL,
            "project": LOCAL,
            "child": ("subagent", None, "dm", None, None, None),
            "key": ("api_server", None, None, None, None, "Bob"),
            "nobody": ("api_server", None, None, None, None, None),
            "other": BOB,
            "never stored": BOB,
        },
    )
    with reading(place) as book:
        stored(book, "dm", "user:Bob")
        book.settle("dm")
        stored(book, "group", "user:Bob")
        stored(book, "local", book.actor, tags=("hermes", "cli"))
        stored(book, "project", book.actor, tags=("hermes", "cli"), space="projects/mill")
        tags = ("hermes", "telegram", "delegation")
        stored(book, "child", "agent:hermes", agent="agent:subagent", tags=tags, parent="dm")
        stored(book, "key", book.actor, tags=("hermes", "api_server"))
        stored(book, "nobody", book.actor, tags=("hermes", "api_server"))
        # Not as Hermes says: another person, another program, and one that Hermes does not know.
        stored(book, "other", "user:ann")
        stored(book, "mine", book.actor, tags=("cli",))
    start(hermes_home)
    found = spaces(place)
    expected = {
        "dm": "hermes/default/telegram.bob",
        "child": "hermes/default/telegram.bob",
        "group": "hermes/default/telegram.100",
        "local": "hermes/default/local",
        "project": "hermes/default/local",
        "key": "hermes/default/api_server.bob",
        "now": "hermes/default/local",
        **dict.fromkeys(("nobody", "other", "mine"), "personal"),
    }
    assert found == expected
    with reading(place) as book:
        space = book.messages("dm").session.space.name
        episodes = book.list(Filter(space=space, kinds=("episode",))).items
    assert any(HERON in one.text for one in episodes)
    # It is done once; what a person has moved back stays.
    with reading(place) as book:
        book.move_session("local", "personal")
    start(hermes_home, "later")
    assert spaces(place) == {**expected, "local": "personal", "later": "hermes/default/local"}


def test_an_older_hermes_does_not_say_who_was_in_a_chat(place, hermes_home):
    hermes_knows(hermes_home, {"dm": BOB, "local": LOCAL}, OLDER)
    with reading(place) as book:
        stored(book, "dm", "user:Bob")
        stored(book, "local", book.actor, tags=("hermes", "cli"))
    start(hermes_home)
    assert spaces(place) == {"dm": "personal", "local": "hermes/default/local", "now": "hermes/default/local"}


def test_nothing_moves_where_one_space_is_chosen_for_everybody(place, hermes_home):
    hermes_knows(hermes_home, {"local": LOCAL})
    with reading(place) as book:
        stored(book, "local", book.actor, tags=("hermes", "cli"))
    start(hermes_home, space="personal")
    assert spaces(place) == {"local": "personal", "now": "personal"}
    assert not (hermes_home / "commonbook" / "sessions-moved").exists()


@pytest.mark.parametrize("content", [b"", b"no database", None], ids=["empty", "broken", "missing"])
def test_a_database_of_hermes_that_cannot_be_read_disturbs_nothing(place, hermes_home, content):
    if content is not None:
        (hermes_home / "state.db").write_bytes(content)
    provider = CommonbookMemoryProvider(hermes_home=str(hermes_home))
    provider.save_config({"write_seconds": 60}, str(hermes_home))
    hermes = Hermes(provider, "s1", hermes_home=str(hermes_home), platform="cli")
    hermes.turn("hello", "Hello.")
    hermes.exit()
    assert not hermes.errors
    assert spaces(place) == {"s1": "hermes/default/local"}
