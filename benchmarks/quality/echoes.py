"""The studies of echoes and of everyday questions: does a question that was asked before bury its answer?

An echo is a message that only repeats a question, or an answer that says nothing. `data/echo_facts.txt` has 30 facts;
half are remembered and half are said. Each is asked 1, 5 and 20 times in other sessions, answered or not, in the same
or in other words. Then the question is asked again, through recall and through each way into a prompt.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from benchmarks.quality.datasets import DATA, DataSet, notes
from benchmarks.quality.homes import stored
from benchmarks.quality.report import Table
from commonbook import Bars, Book, NewMessage
from commonbook.interfaces.agents.hooks import context
from commonbook.interfaces.agents.hooks.folder import SessionState
from commonbook.interfaces.mcp import results

_TIMES: Final = (1, 5, 20)
_PROMPT_TOKENS: Final = 1500
_SPACE: Final = "personal"
_NOTHING_SAID: Final = ("I am not sure, let me look at the code.", "I don't know.")


class Fact(NamedTuple):
    """A fact, a question for it in two wordings, and a word that only the answer has."""

    text: str
    question: str
    other_words: str
    word: str


def facts() -> tuple[list[Fact], list[str]]:
    """Return the facts, and the prompts that none of them answers."""
    lines = (DATA / "echo_facts.txt").read_text(encoding="utf-8").splitlines()
    texts = {mark: [line[2:] for line in lines if line[:1] == mark] for mark in "=?~*!"}
    return [Fact(*fields) for fields in zip(*(texts[mark] for mark in "=?~*"), strict=True)], texts["!"]


def echoes(database: str | None = None) -> Iterator[Table]:
    """Yield how often the fact comes first and stands in a prompt, and how many echoes are beside it."""
    known, unrelated = facts()
    rows = []
    for times in _TIMES:
        for answered in (False, True):
            for other_words in (False, True):
                with stored(DataSet("echoes", ()), database=database) as book:
                    _tell(book, known)
                    _ask(book, known, times=times, answered=answered, other_words=other_words)
                    words = "in other words" if other_words else "in the same words"
                    answers = "answered" if answered else "unanswered"
                    rows.append((f"{times} times, {answers}, {words}", *_measured(book, known, unrelated)))
    heads = ("asked before", "fact first", "in as_prompt", "in hook", "in MCP", "most echoes", "unrelated empty")
    yield Table(f"echoes: {len(known)} facts, {len(unrelated)} unrelated prompts", heads, rows)


def _tell(book: Book, known: Sequence[Fact]) -> None:
    for at, fact in enumerate(known):
        if at % 2:
            book.append(f"told-{at}", [NewMessage(fact.text), NewMessage("Noted.", role="assistant")], space=_SPACE)
        else:
            book.remember(fact.text, space=_SPACE)


def _ask(book: Book, known: Sequence[Fact], *, times: int, answered: bool, other_words: bool) -> None:
    for at, fact in enumerate(known):
        for time in range(times):
            question = fact.other_words if other_words else fact.question
            answer = f"You told me: {fact.text}" if answered else _NOTHING_SAID[time % len(_NOTHING_SAID)]
            messages = [NewMessage(question), NewMessage(answer, role="assistant")]
            book.append(f"asked-{at}-{time}", messages, space=_SPACE)


def _measured(book: Book, known: Sequence[Fact], unrelated: Sequence[str]) -> list[int]:
    ways: dict[str, Callable[[str], str]] = {
        "as_prompt": lambda text: book.recall(text, spaces=_SPACE).as_prompt(max_tokens=_PROMPT_TOKENS),
        "hook": lambda text: context.at_prompt(book, text, session="now", state=SessionState()).text,
        "MCP": lambda text: json.dumps(results.recall(book, {"query": text, "spaces": [_SPACE]}), ensure_ascii=False),
    }
    first, most_echoes, found = 0, 0, dict.fromkeys(ways, 0)
    for fact in known:
        hits = book.recall(fact.question, spaces=_SPACE).hits
        first += bool(hits) and fact.word in hits[0].passage
        for name, way in ways.items():
            prompt = way(fact.question)
            found[name] += fact.word in prompt
            repeated = [fact.question, fact.other_words, *_NOTHING_SAID]
            most_echoes = max(most_echoes, sum(prompt.count(text) for text in repeated))
    empty = sum(not ways["hook"](text) and not ways["as_prompt"](text) for text in unrelated)
    return [first, *found.values(), most_echoes, empty]


def everyday(database: str | None = None) -> Iterator[Table]:
    """Yield how many everyday questions have the answer first, and how many without an answer get nothing."""
    lines = (DATA / "everyday.txt").read_text(encoding="utf-8").splitlines()
    with stored(DataSet("everyday", (), notes=notes().notes), database=database) as book:
        _store_everyday(book, [line for line in lines if line[:1] in "=><"])
        book.reindex()
        rows, right, silent = [], 0, 0
        questions = [line[2:].split(" | ") for line in lines if line[:1] in "?!"]
        for text, *answer, kind in questions:
            hits = book.recall(text, spaces=("everyday", "notes")).hits
            shown = f"{hits[0].title}: {hits[0].passage} {dict(hits[0].metadata) or ''}" if hits else ""
            if answer:
                is_right = any(part.strip() in shown for part in answer[0].split(";;"))
                right += is_right
            else:
                is_right = not any(hit.confidence >= Bars().likely for hit in hits)
                silent += is_right
            if not is_right:
                rows.append((kind, text, shown[:80], hits[0].confidence if hits else 0.0))
    count = sum(len(fields) == 3 for fields in questions)
    rows.append(("all", "the answer first", f"{right} of {count}", 0.0))
    rows.append(("all", "nothing, where nothing answers", f"{silent} of {len(questions) - count}", 0.0))
    yield Table("everyday questions that are not answered as they should be", ("kind", "question", "first", "p"), rows)


def _store_everyday(book: Book, lines: Sequence[str]) -> None:
    for at, line in enumerate(lines):
        text, *properties = line[2:].split(" | ")
        if line.startswith("="):
            book.remember(text, space="everyday", metadata=dict(field.split("=", 1) for field in properties))
        else:
            role = "user" if line.startswith(">") else "assistant"
            book.append(f"talk-{at // 2}", [NewMessage(text, role=role)], space="everyday")
