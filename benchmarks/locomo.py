"""`python -m benchmarks locomo FILE`: measures the share of LoCoMo's evidence turns that is recalled.

Each chat is a space, each of its sessions an episode, and each question a recall, all through the public API. The data
(locomo10.json) is not part of this project.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

from commonbook import BadInput, Book, CommonbookError, Conflict, DatabaseError, Draft, Progress
from commonbook.compose.book import open_book
from commonbook.compose.databases import make_keys
from commonbook.core.settings.settings import DatabaseChoice, Settings, require_address
from commonbook.interfaces.cli.main import exit_code
from commonbook.values.ids import format_time

CATEGORIES: Final = (1, 2, 3, 4)
"""Questions that the chats answer; those of category 5 have no answer."""

_MAX_HITS: Final = 20
_TURN: Final = re.compile(r"D:?(\d+):(\d+)")


class Asking(NamedTuple):
    """A question, the space of its chat, and the turns that answer it."""

    space: str
    text: str
    evidence: frozenset[str]


class Chat(NamedTuple):
    """A chat: an episode for each of its sessions, and the questions about it."""

    episodes: Sequence[Draft]
    askings: Sequence[Asking]


def main(arguments: Sequence[str]) -> int:
    """Measure in a home or a database of its own, and write the figures to standard output as JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks locomo", description="Find LoCoMo's evidence turns.")
    parser.add_argument("file", metavar="FILE", help="locomo10.json, which is not part of this project")
    parser.add_argument("--database", metavar="ADDRESS", help="an empty database (postgresql://…) in place of the home")
    options = parser.parse_args(arguments)
    try:
        figures = _measure_in_temporary_book(options.file, options.database)
    except CommonbookError as error:
        print(f"{error.type}: {error.message}; {error.fix}", file=sys.stderr)
        return exit_code(error)
    except KeyboardInterrupt:
        return 130
    print(json.dumps(figures, indent=2))
    return 0


def _measure_in_temporary_book(file: str, database: str | None) -> dict[str, float]:
    """Measure in a temporary book, with the embedder of the environment."""
    with TemporaryDirectory(prefix="commonbook-bench-") as home:
        # The time zone is that of the data, so that figures are comparable.
        settings = Settings.load()._replace(home=home, database=None, space=None, zone="UTC")
        if database is not None:
            keys = os.path.join(home, "keys")
            _require_empty(require_address(database, "the database"))
            make_keys(keys)
            settings = settings._replace(database=DatabaseChoice(database, keys))
        with open_book(settings, create=True) as book:
            return measure(book, file, progress=_show)


def _require_empty(address: str) -> None:
    """Raise Conflict if a database has tables of its own."""
    import psycopg

    try:
        with closing(psycopg.connect(address)) as connection:
            table = connection.execute(
                "SELECT 1 FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema') LIMIT 1"
            ).fetchone()
    except psycopg.ProgrammingError as error:
        raise BadInput("the address of the database cannot be read", fix="give postgresql://HOST/NAME") from error
    except psycopg.Error as error:
        raise DatabaseError(f"the database cannot be used: {error}", fix="check its address") from error
    if table is not None:
        raise Conflict("the database is not empty", fix="make one for this (`createdb NAME`), and drop it afterwards")


def _show(what: str, done: int, total: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{what} {done:,}/{total:,}", end=" ", file=sys.stderr, flush=True)


def measure(book: Book, file: str, *, progress: Progress) -> dict[str, float]:
    """Store every chat, ask every question that has evidence, and return the figures."""
    chats = _chats(file)
    for at, chat in enumerate(chats):
        progress("storing", at, len(chats))
        book.remember_many(chat.episodes)
    book.reindex(progress=progress)
    askings = [asking for chat in chats for asking in chat.askings]
    ranks: list[list[int]] = []
    took = 0.0
    for at, asking in enumerate(askings):
        progress("asking", at, len(askings))
        start = time.perf_counter()
        result = book.recall(asking.text, spaces=asking.space, k=_MAX_HITS, min_confidence=0)
        took += time.perf_counter() - start
        places = {hit.id: place for place, hit in enumerate(result.hits, 1)}
        ranks.append([places.get(turn, 0) for turn in asking.evidence])
    return _figures(ranks, took)


def _figures(ranks: Sequence[Sequence[int]], took: float) -> dict[str, float]:
    count = max(len(ranks), 1)
    shares = {
        f"recall@{k}": sum(sum(0 < rank <= k for rank in turns) / len(turns) for turns in ranks) / count
        for k in (5, 10, _MAX_HITS)
    }
    firsts = [min((rank for rank in turns if rank), default=0) for turns in ranks]
    return {
        "questions": len(ranks),
        **{name: round(share, 4) for name, share in shares.items()},
        "mrr": round(sum(1 / first for first in firsts if first) / count, 4),
        "ms_per_query": round(took / count * 1000, 2),
    }


# --- the file


def _chats(file: str) -> list[Chat]:
    """Parse the whole file before anything of it is stored."""
    fix = "give the path of locomo10.json"
    try:
        with open(file, encoding="utf-8") as opened:
            samples = json.load(opened)
        chats = [_chat(f"locomo/chat-{at}", sample) for at, sample in enumerate(samples, 1)]
    except OSError as error:
        raise BadInput(f"{file} cannot be read: {error.strerror}", fix=fix) from error
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise BadInput(f"{file} does not hold LoCoMo's chats", fix=fix) from error
    if not any(chat.askings for chat in chats):
        raise BadInput(f"{file} has no question whose answer is in its chats", fix=fix)
    return chats


def _chat(space: str, sample: Mapping[str, Any]) -> Chat:
    sessions = list(_sessions(sample["conversation"]))
    turns = frozenset(turn["dia_id"] for _, turns_of_session in sessions for turn in turns_of_session)
    episodes = [
        Draft(_transcript(at, turns_of_session), space=space, kind="episode", title=f"Session {number}", occurred=at)
        for number, (at, turns_of_session) in enumerate(sessions, 1)
        if turns_of_session
    ]
    return Chat(episodes, list(_askings(space, sample["qa"], turns)))


def _sessions(conversation: Mapping[str, Any]) -> Iterator[tuple[datetime, Sequence[Mapping[str, str]]]]:
    """Yield the time and the turns of each session."""
    number = 0
    while f"session_{(number := number + 1)}_date_time" in conversation:
        said_at = datetime.strptime(conversation[f"session_{number}_date_time"], "%I:%M %p on %d %B, %Y")  # noqa: DTZ007 - it has none
        yield said_at.replace(tzinfo=UTC), conversation.get(f"session_{number}", ())


def _transcript(said_at: datetime, turns: Sequence[Mapping[str, str]]) -> str:
    return "\n\n".join(
        f"### {turn['speaker']} (user) · {format_time(said_at)} · {seq} · {turn['dia_id']}\n\n{turn['text']}"
        for seq, turn in enumerate(turns, 1)
    )


def _askings(space: str, questions: Sequence[Mapping[str, Any]], turns: frozenset[str]) -> Iterator[Asking]:
    for question in questions:
        named = _TURN.findall(" ".join(question.get("evidence", ())))
        evidence = frozenset(f"D{int(day)}:{int(turn)}" for day, turn in named) & turns
        if question["category"] in CATEGORIES and evidence:
            yield Asking(space, str(question["question"]), evidence)
