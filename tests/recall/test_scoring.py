"""Ranking puts the passages that answer a query best first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonbook.ports.index import BY_USER, IS_MESSAGE, IS_QUESTION, IS_WISH, TELLS_NAME, TELLS_TIME, CandidatePool
from commonbook.subjects.recall.scoring import (
    PARTS,
    ExpandedTerm,
    QueryFeatures,
    Scores,
    idf,
    is_short_question,
    rank,
    share,
    word_weights,
)

TERMS = ("bill", "alic")
"""The query terms; expansion terms get the places behind them."""

BILLING = QueryFeatures(idf=[2.0, 1.0])


class Passage(NamedTuple):
    """A passage as these tests write it; a pool is made of them."""

    name: str
    words: tuple[str, ...]
    thread: str
    position: int = 0
    flags: int = 0
    speaker: str = ""
    date: float = 0.0
    eligible: bool = True
    order: int = 0
    vector: tuple[float, ...] | None = None


def passage(name: str, *words: str, thread: str = "", **more) -> Passage:
    return Passage(name, words, thread or name, **more)


class Ranked(NamedTuple):
    """The names, best first, and the score and the parts of each."""

    order: list[str]
    scores: dict[str, float]
    parts: dict[str, dict[str, float]]


def pool_of(passages: Sequence[Passage], near: Sequence[str] = ()) -> tuple[CandidatePool, list[Passage]]:
    """Lay passages out as an index does: by thread and position, terms and vectors in arrays."""
    rows = sorted(passages, key=lambda one: (one.thread, one.position))
    threads = sorted({one.thread for one in rows})
    speakers = sorted({one.speaker for one in rows})
    terms = [*TERMS, *near]
    entries = [
        (row, terms.index(word), one.words.count(word))
        for row, one in enumerate(rows)
        for word in dict.fromkeys(one.words)
        if word in terms
    ]
    columns = np.array(entries, np.int64).reshape(-1, 3)
    size = max((len(one.vector) for one in rows if one.vector), default=0)
    floats = np.array([one.vector or (0.0,) * size for one in rows], np.float32).reshape(len(rows), size)
    scales = np.abs(floats).max(axis=1, initial=0) / 127
    whole = np.rint(floats / np.where(scales > 0, scales, 1)[:, None]).astype(np.int8)

    def numbers(values: list[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.array(values, np.int64)

    pool = CandidatePool(
        ids_of=lambda row: (rows[row].name, rows[row].thread),
        speakers=speakers,
        speaker=numbers([speakers.index(one.speaker) for one in rows]),
        eligible=np.array([one.eligible for one in rows], np.bool_),
        threads=numbers([threads.index(one.thread) for one in rows]),
        positions=numbers([one.position for one in rows]),
        orders=np.array([one.order for one in rows], np.uint64),
        starts=numbers([0 for _ in rows]),
        ends=numbers([0 for _ in rows]),
        seqs=numbers([-1 for _ in rows]),
        times=numbers([0 for _ in rows]),
        flags=numbers([one.flags for one in rows]),
        lengths=numbers([len(one.words) for one in rows]),
        entries=(columns[:, 0], columns[:, 1], columns[:, 2]),
        vectors=whole if size else None,
        scales=scales.astype(np.float32) if size else None,
        suspect=np.zeros(len(rows), np.bool_),
    )
    return pool, rows


def ranked(question: QueryFeatures, *passages: Passage, near: Sequence[tuple[str, str, float]] = ()) -> Ranked:
    others = list(dict.fromkeys(other for _, other, _ in near))
    pool, rows = pool_of(passages, others)
    terms = [*TERMS, *others]
    pairs: list[ExpandedTerm] = [(terms.index(own), terms.index(other), cosine) for own, other, cosine in near]
    best, scores = rank(question, pool, expansions=pairs, date_matches=np.array([one.date for one in rows]))
    assert isinstance(scores, Scores)
    return Ranked(
        order=[rows[row].name for row in best.tolist()],
        scores={one.name: float(scores.total[row]) for row, one in enumerate(rows)},
        parts={one.name: dict(scores.parts_of(row)) for row, one in enumerate(rows)},
    )


def test_nothing_gives_nothing():
    assert ranked(BILLING).order == []
    assert ranked(QueryFeatures(idf=[]), passage("a", "x")).scores == {"a": 0}
    assert ranked(QueryFeatures(idf=[], vector=np.ones(4, np.float32))).order == []


def test_more_and_rarer_terms_win():
    both, rare, common = passage("c", "bill", "alic"), passage("b", "bill", "x"), passage("a", "alic", "x")
    assert ranked(BILLING, common, rare, both).order == ["c", "b", "a"]


def test_the_score_is_the_sum_of_its_parts_and_each_is_what_it_should_be():
    flags = IS_MESSAGE | IS_QUESTION | TELLS_TIME | TELLS_NAME | BY_USER | IS_WISH
    chat = passage("a", "bill", "x", flags=flags, date=1.5, vector=(1, 1, 1, 1))
    question = BILLING._replace(
        words=frozenset({"my"}),
        asks_when=True,
        asks_for_name=True,
        asks_for_advice=True,
        vector=np.ones(4, np.float32),
    )
    found = ranked(question, chat)
    parts = found.parts["a"]
    assert tuple(parts) == PARTS
    assert found.scores["a"] == pytest.approx(sum(parts.values()), abs=1e-9)
    # One `bill` of two words: share 1 / (.25 + .75 * 2 / 28), saturated at .8, two thirds of all rarity.
    once = 1 / (0.25 + 0.75 * 2 / 28)
    assert parts["lexical"] == pytest.approx(once / (once + 0.8) * 2 / 3, abs=1e-6)
    expected = (0.25, 0.13, -0.04, 0.0268, 0.10, 0.05, 0.375, 0.0, 0.0, 0.15)
    assert tuple(parts.values())[1:] == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize(
    ("flag", "part", "question"),
    [
        (IS_QUESTION, "question", BILLING),
        (TELLS_TIME, "time", BILLING._replace(asks_when=True)),
        (TELLS_NAME, "told_name", BILLING._replace(asks_for_name=True)),
        (BY_USER, "speaker", BILLING._replace(words=frozenset({"we"}))),
        (IS_WISH, "wish", BILLING._replace(asks_for_advice=True)),
    ],
)
def test_each_sign_of_a_passage_changes_its_own_part_alone(flag, part, question):
    found = ranked(question, passage("with", "bill", flags=flag), passage("without", "bill"))
    assert {name for name in PARTS if found.parts["with"][name] != found.parts["without"][name]} == {part}
    plain = ranked(BILLING, passage("with", "bill", flags=flag), passage("without", "bill"))
    assert (plain.scores["with"] != plain.scores["without"]) == (flag == IS_QUESTION)


def test_a_neighbour_counts_the_one_before_more_than_the_one_after_and_only_in_its_thread():
    hit, plain = passage("hit", "bill", thread="s", position=5), {"thread": "s"}
    before = passage("before", "x", **plain, position=4)
    after = passage("after", "x", **plain, position=6)
    edge, far = passage("edge", "x", **plain, position=9), passage("far", "x", **plain, position=10)
    other = passage("other", "x", thread="t", position=6)
    found = ranked(BILLING, hit, before, after, edge, far, other).scores
    assert found["hit"] > found["after"] > found["before"] > found["edge"] > found["far"] == found["other"] == 0


def test_a_neighbour_that_may_not_be_found_itself_still_counts():
    hidden = passage("hidden", "bill", thread="s", position=0, eligible=False)
    shown = passage("shown", "x", thread="s", position=1)
    found = ranked(BILLING, hidden, shown)
    assert found.order == ["shown"]
    assert found.scores["shown"] > 0


def test_near_terms_count_a_little_and_only_the_nearest_eight():
    exact, near = passage("exact", "bill", "x"), passage("near", "payment", "x")
    pair = [("bill", "payment", 0.8)]
    found = ranked(BILLING, exact, near, near=pair).scores
    assert found["exact"] > found["near"] > 0
    assert ranked(BILLING, exact, near).scores["near"] == 0
    crowd = [("bill", f"t{number}", 0.9) for number in range(8)]
    other = passage("other", *(term for _, term, _ in crowd))
    assert ranked(BILLING, exact, near, other, near=crowd + pair).scores["near"] == 0
    assert ranked(BILLING, exact, near, other, near=crowd[:7] + pair).scores["near"] > 0


def test_a_near_term_that_nobody_has_takes_no_place_from_one_that_somebody_has():
    crowd = [("bill", f"t{number}", 0.9) for number in range(20)]
    found = ranked(BILLING, passage("near", "payment"), near=[*crowd, ("bill", "payment", 0.8)])
    assert found.scores["near"] > 0


def test_the_nearer_term_counts_more_and_one_at_the_border_nothing():
    near = [("bill", "invoice", 0.9), ("bill", "payment", 0.6), ("bill", "banana", 0.4)]
    found = ranked(BILLING, *(passage(word, word, "x") for _, word, _ in near), near=near).scores
    assert found["invoice"] > found["payment"] > found["banana"] == 0


def test_the_only_speaker_named_is_preferred_and_of_two_named_none():
    ann = passage("ann", "bill", "x", speaker="Ann", order=1)
    bob = passage("bob", "bill", "x", speaker="Bob", order=2)
    assert ranked(BILLING._replace(words=frozenset({"ann"})), ann, bob).order == ["ann", "bob"]
    both = ranked(BILLING._replace(words=frozenset({"ann", "bob"})), ann, bob)
    assert both.order == ["bob", "ann"]
    assert both.scores["ann"] == both.scores["bob"]


@pytest.mark.parametrize("speaker", ["user:alice", "Alice", "alice", "agent:alice", "Alice Miller", "user:alice.m"])
def test_a_speaker_is_named_by_a_part_of_the_name(speaker):
    hers, his = passage("hers", "bill", speaker=speaker), passage("his", "bill", speaker="user:bob", order=1)
    found = ranked(BILLING._replace(words=frozenset({"what", "does", "alice", "owe"})), hers, his)
    assert found.parts["hers"]["speaker"] == pytest.approx(0.13)
    assert found.parts["his"]["speaker"] == 0


@pytest.mark.parametrize("word", ["user", "agent", "assistant", "tool", "system", "ai", "human"])
def test_a_role_is_nobodys_name(word):
    speakers = [passage("one", "bill", speaker=f"{word}:alice"), passage("two", "bill", speaker=word)]
    found = ranked(BILLING._replace(words=frozenset({word})), *speakers)
    assert [found.parts[name]["speaker"] for name in ("one", "two")] == [0, 0]


def test_a_named_speaker_comes_before_the_one_who_says_i():
    mine = passage("mine", "bill", flags=BY_USER, speaker="user:local")
    ann = passage("ann", "bill", speaker="Ann")
    assert ranked(BILLING._replace(words=frozenset({"my", "ann"})), mine, ann).order == ["ann", "mine"]
    assert ranked(BILLING._replace(words=frozenset({"my"})), mine, ann).order == ["mine", "ann"]


def test_length_counts_in_chats_alone():
    long = ["bill"] * 20 + ["x"] * 60
    note, chat, short = (
        passage("note", *long),
        passage("chat", *long, flags=IS_MESSAGE),
        passage("s", "bill", flags=IS_MESSAGE),
    )
    found = ranked(BILLING, note, chat, short).parts
    assert found["note"]["length"] == 0
    assert found["chat"]["length"] == pytest.approx(0.10)
    assert 0 < found["s"]["length"] < 0.05


def test_a_name_in_a_long_passage_counts_less():
    question = BILLING._replace(asks_for_name=True)
    lengths = {"short": 1, "full": 50, "long": 100}
    named = [passage(name, *["bill"] * length, flags=TELLS_NAME) for name, length in lengths.items()]
    found = ranked(question, *named).parts
    assert [found[name]["told_name"] for name in lengths] == [0.05, 0.05, 0.025]


def test_what_is_only_likely_of_a_passage_counts_as_far_as_there_is_a_ground_for_it():
    flags = IS_MESSAGE | IS_QUESTION | TELLS_TIME | TELLS_NAME | BY_USER | IS_WISH
    question = BILLING._replace(words=frozenset({"my", "ann"}), asks_when=True, asks_for_advice=True)
    nothing = passage("nothing", *["x"] * 30, flags=flags, speaker="Ann")
    little = passage("little", *["x"] * 3, thread="s", position=0, flags=flags, speaker="Ann")
    much = passage("much", "bill", thread="s", position=4, flags=flags, speaker="Ann")
    found = ranked(question, nothing, little, much).parts
    assert found["nothing"] == dict.fromkeys(PARTS, 0)
    assert 0 < found["little"]["speaker"] < found["much"]["speaker"] == pytest.approx(0.13)
    assert 0 < found["little"]["wish"] < found["much"]["wish"] == pytest.approx(0.15)


def test_the_day_that_a_question_names_counts():
    named = [passage("day", "x", date=1.5), passage("month", "x", date=1.0), passage("year", "x", date=0.5)]
    found = ranked(BILLING, *named, passage("other", "x"))
    assert [found.scores[name] for name in found.order] == [0.375, 0.25, 0.125, 0]
    assert found.order == ["day", "month", "year", "other"]


def test_meaning_is_the_cosine_and_takes_the_neighbours_along():
    question = BILLING._replace(vector=np.array([1, 0], np.float32))
    one = passage("one", "x", thread="s", vector=(1, 0))
    two = passage("two", "x", thread="s", position=1, vector=(0, 1))
    alone = passage("alone", "x", vector=(0, 1))
    found = ranked(question, alone, two, one)
    assert found.order == ["one", "two", "alone"]
    # `one` has .3 of what follows it, and `two` has .5 of what is before it.
    for name, along, across in (("one", 1, 0.3), ("two", 0.5, 1), ("alone", 0, 1)):
        cosine = along / float(np.hypot(along, across))
        assert found.parts[name]["meaning"] == pytest.approx(0.25 * cosine, abs=2e-3)


def test_meaning_does_not_depend_on_how_much_a_passage_says():
    question = BILLING._replace(vector=np.array([3, 4], np.float32))
    found = ranked(question, passage("little", vector=(0.3, 0.4)), passage("much", vector=(30, 40)), passage("no"))
    assert found.parts["little"]["meaning"] == pytest.approx(0.25, abs=1e-3)
    assert found.parts["little"]["meaning"] == pytest.approx(found.parts["much"]["meaning"], abs=1e-4)
    assert found.parts["no"]["meaning"] == 0


def test_rarer_is_more_and_an_unseen_term_is_the_rarest():
    assert idf(100, 0) > idf(100, 1) > idf(100, 99) > idf(100, 100) > 0


def test_a_long_passage_needs_a_term_more_often():
    assert share(1, 10) > share(1, 100)
    assert share(1, 28) == 1
    short, long = passage("short", "bill", *["x"] * 5), passage("long", "bill", *["x"] * 80)
    assert ranked(BILLING, short, long).order == ["short", "long"]


def test_a_passage_of_two_thousand_words_is_longer_than_one_of_two_hundred():
    assert share(1, 200) > 9 * share(1, 2000)


def test_a_long_neighbour_lends_less_than_its_own_words_count():
    def lent(length: int) -> float:
        long = passage("long", *["bill"] * (length // 10), *["x"] * (length - length // 10), thread="s", position=0)
        return ranked(BILLING, long, passage("next", "x", thread="s", position=1)).parts["next"]["lexical"]

    assert lent(50) == pytest.approx(lent(40), rel=0.2)
    assert lent(50) > 1.5 * lent(500) > 0


def test_a_text_is_said_by_the_words_that_are_not_small():
    found = word_weights(["the", "bill", "of", "the", "bill"], frozenset({"the", "of"}))
    assert found == {"bill": share(2, 5)}


def test_a_short_question_is_told_from_an_answer():
    assert is_short_question("Who owns it? ", 3)
    assert is_short_question("誰ですか\uff1f", 3)
    assert not is_short_question("Alice does.", 2)
    assert not is_short_question("Well? " * 29, 29)


# --- whatever the passages

PLACES = st.tuples(st.sampled_from("st"), st.integers(0, 20))
FOUND = st.lists(
    st.builds(
        lambda place, words, vector, order, flags: passage(
            f"{place[0]}{place[1]:02}",
            *words,
            thread=place[0],
            position=place[1],
            vector=vector,
            order=order,
            flags=flags,
        ),
        PLACES,
        st.lists(st.sampled_from(["bill", "alic", "payment", "x"]), max_size=4),
        st.tuples(*[st.integers(-127, 127)] * 3).filter(any) | st.none(),
        st.integers(0, 3),
        st.sampled_from([0, IS_MESSAGE, IS_MESSAGE | BY_USER, IS_QUESTION]),
    ),
    max_size=12,
    unique_by=lambda one: one.name,
)
NEAR_BILL = [("bill", "payment", 0.7)]
ASKED = BILLING._replace(words=frozenset({"my"}), vector=np.array([5, -3, 2], np.float32))


@given(FOUND, st.randoms())
def test_the_order_of_what_was_found_does_not_matter(found, random):
    mixed = random.sample(found, len(found))
    assert ranked(ASKED, *mixed, near=NEAR_BILL) == ranked(ASKED, *found, near=NEAR_BILL)


@given(FOUND)
def test_equal_scores_go_newest_first_and_then_as_they_stand(found):
    result = ranked(ASKED, *found, near=NEAR_BILL)
    by_name = {one.name: one for one in found}
    in_order = [by_name[name] for name in result.order]
    keys = [(-result.scores[one.name], -one.order, one.thread, one.position) for one in in_order]
    assert keys == sorted(keys)


@given(FOUND, FOUND)
def test_what_else_was_found_changes_no_score(found, others):
    """The score is absolute: only a passage's own thread matters to it."""
    elsewhere = [one._replace(name=f"other {one.name}", thread=f"other {one.thread}") for one in others]
    alone, together = ranked(ASKED, *found, near=NEAR_BILL), ranked(ASKED, *found, *elsewhere, near=NEAR_BILL)
    assert {one.name: together.scores[one.name] for one in found} == alone.scores
    assert {one.name: together.parts[one.name] for one in found} == alone.parts
    assert [name for name in together.order if name in alone.scores] == alone.order


@given(FOUND)
def test_a_score_is_always_the_sum_of_its_parts(found):
    result = ranked(ASKED, *found, near=NEAR_BILL)
    for name, score in result.scores.items():
        assert score == pytest.approx(sum(result.parts[name].values()), abs=1e-9)
        assert 0 <= result.parts[name]["lexical"] <= 1
        assert abs(result.parts[name]["meaning"]) <= 0.25 + 1e-6
