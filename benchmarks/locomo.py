"""`python -m benchmarks.locomo FILE`: how many of LoCoMo's evidence turns are found, without a language model.

This measures the pure parts of recall (analysis, the static table, ranking) with exhaustive candidates. It does not go
through the public API: no book is opened and no index is asked. The data (locomo10.json) is not ours and not kept here.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import Any, NamedTuple

import numpy as np

from commonplace import analysis, ranking, stopwords, when
from commonplace.engines.static_table import Floats, StaticTable, quantise
from commonplace.ranking import Passage, Question

CATEGORIES = (1, 2, 3, 4)
_TURN = re.compile(r"D:?(\d+):(\d+)")


class Turn(NamedTuple):
    """One turn of a chat, with its day."""

    passage: Passage
    day: date
    text: str


class Chat:
    """One conversation, analysed once, as an index would keep it."""

    def __init__(self, sample: Mapping[str, Any], table: StaticTable) -> None:
        """Analyse every turn."""
        self.table = table
        self.turns = list(_turns(sample["conversation"]))
        self.ids = {turn.passage.id for turn in self.turns}
        self.df = Counter(term for turn in self.turns for term in turn.passage.bag)
        rows, scales = quantise(table.embed([vector_bag(turn.text) for turn in self.turns]))
        self.vectors: Floats = rows.astype(np.float32) * scales[:, None]
        self.lengths = np.maximum(np.linalg.norm(self.vectors, axis=1), 1e-9)

    def recall(self, query: str, *, first: int) -> list[str]:
        """Return ids of turns, best first."""
        idf = {term: ranking.idf(len(self.turns), self.df[term]) for term in analysis.query_terms(query)}
        asked = self.table.embed([vector_bag(query)])[0]
        pool = self.candidates(idf, asked, first)
        named = when.named(query)
        passages = [turn.passage._replace(date_match=named.match(turn.day)) for turn in (self.turns[at] for at in pool)]
        around = {term for passage in passages for term in passage.bag if term not in stopwords.ENGLISH}
        question = Question(
            idf=idf, words=frozenset(re.findall(r"\w+", query.lower())), asks_when=when.asks_when(query)
        )
        near = self.table.near(list(idf), sorted(around))
        scored = ranking.rank(question, passages, near=near, vectors=self.vectors[pool], asked=asked)
        return [one.id for one in scored]

    def candidates(self, idf: Mapping[str, float], asked: Floats, first: int) -> list[int]:
        """Return where the first by the sum of their terms' idf are, the first by vector, and both's neighbours."""
        sums = [sum(idf[term] for term in idf.keys() & turn.passage.bag.keys()) for turn in self.turns]
        lexical = sorted((at for at, value in enumerate(sums) if value), key=lambda at: (-sums[at], at))[:first]
        nearest = np.argsort(-(self.vectors @ asked / self.lengths), kind="stable")[:first].tolist()
        found = {at + distance for at in (*lexical, *nearest) for distance in range(-ranking.REACH, ranking.REACH + 1)}
        return sorted(at for at in found if 0 <= at < len(self.turns))


def vector_bag(text: str) -> dict[str, float]:
    """Return the words that say something, each with its share of the text."""
    words = analysis.words(text)
    said = Counter(word for word in words if word not in stopwords.ENGLISH)
    return {word: ranking.share(count, len(words)) for word, count in said.items()}


def _turns(conversation: Mapping[str, Any]) -> Iterator[Turn]:
    number = 0
    while f"session_{(number := number + 1)}_date_time" in conversation:
        said_on = datetime.strptime(conversation[f"session_{number}_date_time"], "%I:%M %p on %d %B, %Y").date()  # noqa: DTZ007
        for position, turn in enumerate(conversation.get(f"session_{number}", ())):
            text, speaker = turn["text"], turn["speaker"]
            terms = analysis.terms(f"{speaker} {text}")
            passage = Passage(
                id=turn["dia_id"],
                thread=str(number),
                position=position,
                bag=Counter(terms),
                length=len(terms),
                speaker=speaker,
                is_chat=True,
                is_question=ranking.is_short_question(text, len(terms)),
                tells_time=when.tells_time(text),
            )
            yield Turn(passage, said_on, text)


def measure(samples: Sequence[Mapping[str, Any]], table: StaticTable, *, first: int) -> dict[str, float]:
    """Ask every question of categories 1 to 4 that has evidence; return the figures."""
    ranks: list[list[int]] = []
    took = 0.0
    for sample in samples:
        chat = Chat(sample, table)
        for question in sample["qa"]:
            evidence = {
                f"D{int(day)}:{int(turn)}" for day, turn in _TURN.findall(" ".join(question["evidence"]))
            } & chat.ids
            if question["category"] not in CATEGORIES or not evidence:
                continue
            start = time.perf_counter()
            found = chat.recall(question["question"], first=first)
            took += time.perf_counter() - start
            places = {turn: place for place, turn in enumerate(found, 1)}
            ranks.append([places.get(turn, len(chat.turns) + 1) for turn in evidence])
    recall = {
        f"recall@{k}": sum(sum(r <= k for r in turns) / len(turns) for turns in ranks) / len(ranks) for k in (5, 10, 20)
    }
    return {
        "questions": len(ranks),
        **{name: round(value, 4) for name, value in recall.items()},
        "mrr": round(sum(1 / min(turns) for turns in ranks) / len(ranks), 4),
        "ms_per_query": round(took / len(ranks) * 1000, 2),
    }


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.locomo", description=__doc__)
    parser.add_argument("file", help="locomo10.json")
    parser.add_argument("--first", type=int, default=50, help="how many candidates by terms, and by vector (50)")
    parser.add_argument("--chats", type=int, default=None, help="only the first so many conversations")
    asked = parser.parse_args()
    with open(asked.file, encoding="utf-8") as file:
        samples = json.load(file)[: asked.chats]
    print(json.dumps(measure(samples, StaticTable(), first=asked.first)))


if __name__ == "__main__":
    main()
