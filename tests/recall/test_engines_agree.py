"""Recall is as good on PostgreSQL as in a home, by `python -m benchmarks locomo` on chats of our own."""

from __future__ import annotations

import json
import re
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest

import commonbook
from benchmarks.__main__ import main
from tests.interfaces.cli.test_cli import cli
from tests.support.paraphrases import ASKED, OTHERS
from tests.support.postgres_server import TEMPLATE, rows_of

__all__ = ["cli"]

CLOSE = 0.02
A_SESSION = 20
CODES = [sha256(str(number).encode()).hexdigest()[:6] for number in range(210)]


def turns() -> list[str]:
    """Return the turns: the everyday memories, and many more that begin as one of them and end as another."""
    memories = [*(memory for memory, _ in ASKED), *OTHERS]
    words = [one.rstrip(".").split() for one in memories]
    begun, ended = [one[: len(one) // 2] for one in words], [one[len(one) // 2 :] for one in words]
    mixed = [" ".join([*begun[at - far], *ended[at]]) for far in (1, 7, 13, 19, 29) for at in range(len(words))]
    return [*mixed[:150], *memories, *mixed[150:], *(f"Parcel {code} was sent to the shop" for code in CODES)]


def questions() -> list[tuple[str, str]]:
    """Return turns and questions for them: by meaning alone, by two of the words, or by a word that nobody knows."""
    by_words = [(turn, f"What about {turn.split()[1]} and {turn.rstrip('.').split()[-1]}?") for turn in OTHERS]
    by_code = [(f"Parcel {code} was sent to the shop", f"Where is {code}?") for code in CODES[::7]]
    return [*ASKED, *by_words, *by_code]


def chats(file: Path) -> Path:
    """Write a chat of two people in the shape of LoCoMo's: more turns than an engine brings for a question."""
    conversation: dict[str, Any] = {"speaker_a": "Ann", "speaker_b": "Ben"}
    where: dict[str, str] = {}
    all_turns = turns()
    for day, start in enumerate(range(0, len(all_turns), A_SESSION), 1):
        named = [(f"D{day}:{at}", text) for at, text in enumerate(all_turns[start : start + A_SESSION], 1)]
        where |= {text: turn for turn, text in named}
        conversation[f"session_{day}_date_time"] = f"1:56 pm on {day} May, 2023"
        conversation[f"session_{day}"] = [
            {"speaker": ("Ann", "Ben")[at % 2], "dia_id": turn, "text": text} for at, (turn, text) in enumerate(named)
        ]
    asking = [{"question": question, "category": 1, "evidence": [where[turn]]} for turn, question in questions()]
    file.write_text(json.dumps([{"conversation": conversation, "qa": asking}]))
    return file


@pytest.fixture
def vacant(postgres):
    """The address of an empty database."""
    yield postgres.make_database("vacant", template=TEMPLATE)
    postgres.drop_database("vacant")


class Run(NamedTuple):
    """The exit code and the output of a run of the benchmark."""

    code: int
    out: str
    err: str

    @property
    def figures(self) -> dict[str, float]:
        figures: dict[str, float] = json.loads(self.out)
        return figures


@pytest.fixture
def bench(home, capsys, monkeypatch):
    monkeypatch.setenv("COMMONBOOK_HOME", str(home))

    def run(*arguments: str) -> Run:
        return Run(main(["locomo", *arguments]), *capsys.readouterr())

    return run


def test_recall_is_as_good_on_postgresql_as_in_a_home(bench, home, vacant, tmp_path):
    file = str(chats(tmp_path / "chats.json"))
    here, there = (bench(file, *more).figures for more in ((), ("--database", vacant)))
    with psycopg.connect(vacant) as connection:
        assert connection.execute("SELECT count(*) FROM recall_passage").fetchone() == (len(turns()),)
    assert here["questions"] == there["questions"] == len(questions())
    # Neither so good nor so bad that nothing could tell them apart.
    assert 0.3 < here["mrr"] < 0.9
    for figure in ("recall@5", "recall@10", "mrr"):
        assert abs(here[figure] - there[figure]) < CLOSE, (figure, here, there)
    assert not home.exists()


@pytest.mark.slow
def test_a_database_that_is_not_empty_is_not_measured_on(bench, vacant, postgres, tmp_path):
    file = str(chats(tmp_path / "chats.json"))
    postgres.run("CREATE TABLE theirs (a int)", database="vacant")
    before = rows_of(vacant)
    refused = bench(file, "--database", vacant)
    assert (refused.code, refused.out) == (5, "")
    assert refused.err.startswith("conflict: ")
    assert "createdb" in refused.err
    assert rows_of(vacant) == before
    postgres.run("DROP TABLE theirs", database="vacant")
    assert bench(file, "--database", vacant).code == 0
    before = rows_of(vacant)
    assert bench(file, "--database", vacant).code == 5
    assert rows_of(vacant) == before


@pytest.mark.parametrize("address", ["", "book", "mysql://host/book", "postgresql://%"])
def test_what_is_no_address_is_not_measured_on(bench, tmp_path, address):
    file = str(chats(tmp_path / "chats.json"))
    refused = bench(file, "--database", address)
    assert (refused.code, refused.out) == (2, "")
    assert re.match("bad_input: .+; .+", refused.err)


def test_a_benchmark_leaves_the_book_that_there_is_alone(cli, stored, capsys, tmp_path):
    cli.remember("Alice owns billing")
    before = stored()
    assert main(["locomo", str(chats(tmp_path / "chats.json"))]) == 0
    assert stored() == before
    with commonbook.open() as book:
        assert [one.text for one in book.list().items] == ["Alice owns billing"]
