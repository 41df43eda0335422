"""The studies of the laboratory: each asks questions of a stored data set, and returns tables."""

from __future__ import annotations

import random
import re
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

from benchmarks.quality import measures
from benchmarks.quality.datasets import DataSet, Question, Talk, Turn, unrelated
from benchmarks.quality.homes import FullText
from benchmarks.quality.report import Table
from commonbook import Book, Draft
from commonbook.values.hit import Hit
from commonbook.values.prompts import tokens

DEPTH: Final = 50
_PARTS_DEPTH: Final = 200
BUDGETS: Final = (500, 1500, 4000)
_PROMPT_DEPTH: Final = 100
_SHOWN_CHARS: Final = 200
_LIMITS: Final = 100
_FRAGMENT_WORDS: Final = 7
_PIECE_WORDS: Final = 60


class Answered(NamedTuple):
    """A question, and its hits without a threshold, best first."""

    question: Question
    hits: Sequence[Hit]

    def ids(self) -> list[str]:
        """Return the ids of the hits: of turns, or the titles of notes."""
        return [id_of(hit) for hit in self.hits]

    def talks(self, first: int = DEPTH) -> list[str]:
        """Return the talks of the first hits, each once, best first."""
        return list(dict.fromkeys(hit.title for hit in self.hits[:first]))


def id_of(hit: Hit) -> str:
    """Return the id that evidence names: that of a turn, or the title of a note."""
    return hit.id if hit.type == "message" else hit.title


def ask(book: Book, questions: Iterable[Question], *, k: int = DEPTH, space: str | None = None) -> list[Answered]:
    """Ask every question without a threshold."""
    return [
        Answered(question, book.recall(question.text, spaces=space or question.space, k=k, min_confidence=0).hits)
        for question in questions
    ]


# --- ranking


def ranking(data: DataSet, answered: Sequence[Answered], reference: FullText | None, *, pooled: bool = False) -> Table:
    """Return how much of the evidence is among the first hits, beside FTS5, by kind of question."""
    rows = []
    groups: dict[str, list[Answered]] = {"tuned on": [], "reported": []}
    for one in answered:
        if one.question.evidence:
            groups["reported" if one.question.is_reported else "tuned on"].append(one)
            if one.question.is_reported:
                groups.setdefault(one.question.kind, []).append(one)
    for name, group in groups.items():
        if group:
            rows.append((name, len(group), *_found(group, reference, pooled=pooled)))
    title = f"{data.name}{', all in one space' if pooled else ''}: evidence among the first hits"
    heads = ("questions", "n", "R@5", "R@10", "R@20", "MRR", "FTS5 R@10", "talks@5", "FTS5 talks@5", "talks of 5 hits")
    return Table(title, heads, rows)


def _found(group: Sequence[Answered], reference: FullText | None, *, pooled: bool) -> list[object]:
    def mean_found(k: int) -> float:
        return measures.mean([measures.found(one.ids(), one.question.evidence, k) for one in group])

    row: list[object] = [mean_found(k) for k in (5, 10, 20)]
    row.append(measures.mean([measures.reciprocal_rank(one.ids(), one.question.evidence) for one in group]))
    if reference is None:
        return [*row, "", "", "", ""]
    other = {
        one.question: reference.ids(one.question.text, DEPTH, space=None if pooled else one.question.space)
        for one in group
    }
    row.append(measures.mean([measures.found(other[one.question], one.question.evidence, 10) for one in group]))
    if not all(one.question.sessions for one in group):
        return [*row, "", "", ""]
    row.append(measures.mean([measures.found(one.talks(), one.question.sessions, 5) for one in group]))
    talks = {question: list(dict.fromkeys(reference.talk_of[id_] for id_ in ids)) for question, ids in other.items()}
    row.append(measures.mean([measures.found(talks[one.question], one.question.sessions, 5) for one in group]))
    row.append(measures.mean([measures.found(one.talks(5), one.question.sessions, 5) for one in group]))
    return row


def parts(data: DataSet, book: Book) -> Table:
    """Return what each part of the score gives alone, and what is lost without it, among the first 200 hits."""
    answered = ask(book, data.reported(), k=_PARTS_DEPTH)
    names = sorted({name for one in answered for hit in one.hits for name in hit.parts})

    def rank_by(score: Callable[[Mapping[str, float]], float]) -> float:
        values = []
        for one in answered:
            # Equal values are ordered by id, not by the rank that the whole score gave.
            best = sorted(one.hits, key=lambda hit: (-score(hit.parts), hit.passage_id))
            values.append(measures.found([id_of(hit) for hit in best], one.question.evidence, 10))
        return measures.mean(values)

    rows: list[Sequence[object]] = [("all", rank_by(lambda found: sum(found.values())), "")]
    for name in names:
        alone = rank_by(lambda found, name=name: found.get(name, 0.0))  # type: ignore[misc]
        without = rank_by(lambda found, name=name: sum(found.values()) - found.get(name, 0.0))  # type: ignore[misc]
        rows.append((name, alone, without))
    return Table(f"{data.name}: parts of the score, R@10", ("part", "alone", "left out"), rows)


# --- silence


def silence(data: DataSet, book: Book, answered: Sequence[Answered]) -> Table:
    """Return the share of unrelated questions that get nothing, and what the threshold costs."""
    spaces = sorted({question.space for question in data.questions})
    requests, crossed = _unrelated(spaces), _crossed(spaces, answered)
    rows: list[Sequence[object]] = [("unrelated questions", len(requests), _silent(book, requests))]
    if crossed:
        rows.append(("questions of another talk", len(crossed), _silent(book, crossed)))
    reported = [one for one in answered if one.question.is_reported and one.question.evidence]
    if any(one.question.kind == "paraphrase" for one in reported):
        rows.append(_lost_paraphrases(book, reported))
    with_limit = [
        measures.found(
            [id_of(hit) for hit in book.recall(one.question.text, spaces=one.question.space).hits],
            one.question.evidence,
            10,
        )
        for one in reported
    ]
    without = [measures.found(one.ids(), one.question.evidence, 10) for one in reported]
    rows.append(("cost in R@10", len(reported), measures.mean(without) - measures.mean(with_limit)))
    answerable = [_best(one.hits) for one in reported]
    others = [_best(_all(book, text, space)) for text, space in requests]
    rows.append(("AUC of confidence, unrelated", len(others), measures.auc(answerable, others)))
    abstain = [_best(one.hits) for one in answered if one.question.is_reported and not one.question.evidence]
    if abstain:
        rows.append(("AUC of confidence, no answer", len(abstain), measures.auc(answerable, abstain)))
    axes = ("answerable questions that get something", "unrelated questions that get nothing")
    return Table(f"{data.name}: silence", ("what", "n", "value"), rows, _trade_off(answerable, others), axes)


def _trade_off(answerable: Sequence[float], others: Sequence[float]) -> list[tuple[float, float]]:
    """Return, for limits of the best hit's confidence, the shares of questions that are rightly answered and not."""
    limits = [step / _LIMITS for step in range(_LIMITS + 1)]
    return [
        (
            measures.mean([float(found >= limit) for found in answerable]),
            measures.mean([float(found < limit) for found in others]),
        )
        for limit in limits
    ]


def _silent(book: Book, requests: Sequence[tuple[str, str]]) -> float:
    return measures.mean([float(not book.recall(text, spaces=space).hits) for text, space in requests])


def _all(book: Book, text: str, space: str) -> Sequence[Hit]:
    return book.recall(text, spaces=space, min_confidence=0).hits


def _best(hits: Sequence[Hit]) -> float:
    return max((hit.confidence for hit in hits), default=0.0)


def calibration(data: DataSet, book: Book, answered: Sequence[Answered]) -> Table:
    """Return how often first hits are right, by confidence: of answerable and of unrelated questions."""
    spaces = sorted({question.space for question in data.questions})
    pairs = [
        (one.hits[0].confidence, id_of(one.hits[0]) in one.question.evidence)
        for one in answered
        if one.question.is_reported and one.question.evidence and one.hits
    ]
    for text, space in [*_unrelated(spaces), *_crossed(spaces, answered)]:
        pairs += [(hit.confidence, False) for hit in _all(book, text, space)[:1]]
    chances, outcomes = [chance for chance, _ in pairs], [right for _, right in pairs]
    bins = measures.calibration(chances, outcomes)
    constant = measures.mean([float(right) for right in outcomes])
    better = 1 - measures.brier(chances, outcomes) / max(constant * (1 - constant), 1e-9)
    rows: list[Sequence[object]] = [(f"{one.predicted:.2f}", one.size, one.observed) for one in bins]
    rows.append(("calibration error (ECE)", len(pairs), measures.calibration_error(bins)))
    rows.append(("Brier score, better than a constant by", len(pairs), better))
    points = [(one.predicted, one.observed) for one in bins]
    heads = ("confidence", "n", "right")
    return Table(f"{data.name}: calibration of first hits", heads, rows, points, ("confidence", "right"))


def _unrelated(spaces: Sequence[str]) -> list[tuple[str, str]]:
    rng = random.Random(7)
    return [(text, rng.choice(spaces)) for text in unrelated()]


def _crossed(spaces: Sequence[str], answered: Sequence[Answered]) -> list[tuple[str, str]]:
    """Return the answerable questions, each with the space of another talk."""
    if len(spaces) == 1:
        return []
    return [
        (one.question.text, spaces[(spaces.index(one.question.space) + 1) % len(spaces)])
        for one in answered
        if one.question.is_reported and one.question.evidence
    ]


def _lost_paraphrases(book: Book, reported: Sequence[Answered]) -> Sequence[object]:
    paraphrases = [one for one in reported if one.question.kind == "paraphrase"]
    found = [one for one in paraphrases if measures.found(one.ids(), one.question.evidence, 10)]
    lost = 0
    for one in found:
        hits = book.recall(one.question.text, spaces=one.question.space).hits
        lost += not measures.found([id_of(hit) for hit in hits], one.question.evidence, 10)
    return (f"paraphrases lost, of {len(found)} found", len(paraphrases), lost)


# --- evidence in the prompt


def prompt(data: DataSet, book: Book) -> Table:
    """Return the share of evidence turns that a prompt of so many tokens has, whole or with their first 200 letters."""
    turns = [turn for talk in data.talks for turn in talk.turns]
    beginnings = {turn.id: " ".join(turn.text.strip()[:_SHOWN_CHARS].split()) for turn in turns}
    shares: dict[int, list[float]] = {budget: [] for budget in BUDGETS}
    lengths: dict[int, list[float]] = {budget: [] for budget in BUDGETS}
    for question in data.reported():
        result = book.recall(question.text, spaces=question.space, k=_PROMPT_DEPTH, min_confidence=0)
        for budget in BUDGETS:
            text = result.as_prompt(max_tokens=budget)
            # A prompt indents the further lines of a text.
            words = " ".join(text.split())
            shares[budget].append(measures.mean([float(beginnings[turn] in words) for turn in question.evidence]))
            lengths[budget].append(tokens(text))
    rows = [
        (budget, len(shares[budget]), measures.mean(shares[budget]), measures.mean(lengths[budget]))
        for budget in BUDGETS
    ]
    points = [(budget / max(BUDGETS), measures.mean(shares[budget])) for budget in BUDGETS]
    axes = (f"tokens, of {max(BUDGETS)}", "evidence in the prompt")
    heads = ("tokens", "n", "evidence", "tokens used")
    return Table(f"{data.name}: evidence in the prompt", heads, rows, points, axes)


# --- words as they stand


def pieces(talks: Sequence[Talk], size: int) -> list[str]:
    """Return up to so many distinct texts of at most sixty words, cut out of talks."""
    texts: dict[str, None] = {}
    for talk in talks:
        for turn in talk.turns:
            words = turn.text.split()
            for start in range(0, len(words), _PIECE_WORDS):
                if len(words) - start > _FRAGMENT_WORDS:
                    texts[" ".join(words[start : start + _PIECE_WORDS])] = None
    chosen = list(texts)
    random.Random(11).shuffle(chosen)
    return chosen[:size]


def verbatim(book: Book, texts: Sequence[str], questions: int) -> Table:
    """Return how often seven words copied from a memory find it, as they stand and in quotes, beside FTS5."""
    drafts = [Draft(text, space="verbatim", kind="note") for text in texts]
    for start in range(0, len(drafts), 1000):
        book.remember_many(drafts[start : start + 1000])
    book.reindex()
    fragments = _fragments(texts, questions)
    reference = FullText([Talk("", "", datetime.now(UTC), [Turn(text, "", "", text) for text in texts])])

    def recalled(query: str) -> list[str]:
        return [hit.text for hit in book.recall(query, spaces="verbatim", k=10).hits]

    searches: dict[str, Callable[[str], list[str]]] = {
        "as they stand": recalled,
        "in quotes": lambda fragment: recalled(f'"{fragment.replace(chr(34), " ")}"'),
        "FTS5": lambda fragment: reference.ids(fragment, 10),
    }
    rows = [(name, len(texts), len(fragments), *_literally(fragments, search)) for name, search in searches.items()]
    return Table("fragments of seven words", ("search", "memories", "n", "first", "R@10", "median ms"), rows)


def _fragments(texts: Sequence[str], questions: int) -> list[str]:
    """Return seven words in a row of some of the texts; stretches without any letter or digit are left out."""
    rng = random.Random(13)
    fragments = []
    for text in rng.sample(list(texts), min(questions, len(texts))):
        words = text.split()
        start = rng.randrange(len(words) - _FRAGMENT_WORDS + 1)
        fragments.append(" ".join(words[start : start + _FRAGMENT_WORDS]))
    return [fragment for fragment in fragments if _letters(fragment)]


def _literally(fragments: Sequence[str], search: Callable[[str], list[str]]) -> list[float]:
    """Return how often a text with the fragment comes first, or among the first ten, and the median time."""
    ranks, times = list[int](), list[float]()
    for fragment in fragments:
        begun = time.perf_counter()
        texts = search(fragment)
        times.append((time.perf_counter() - begun) * 1000)
        ranks.append(next((rank for rank, text in enumerate(texts, 1) if _letters(fragment) in _letters(text)), 99))
    found = [measures.mean([float(rank <= k) for rank in ranks]) for k in (1, 10)]
    return [*found, statistics.median(times) if times else 0.0]


def _letters(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))
