"""Which passages answer a question best."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonplace.ranking import Parts, Passage, Question, idf, is_short_question, rank, share

BILLING = Question(idf={"bill": 2.0, "alic": 1.0})


def passage(name: str, *terms: str, thread: str = "", position: int = 0, **more) -> Passage:
    bag = {term: terms.count(term) for term in terms}
    return Passage(name, thread or name, position, bag, len(terms))._replace(**more)


def order(question: Question, *passages: Passage, **more) -> list[str]:
    return [one.id for one in rank(question, passages, **more)]


def score(question: Question, name: str, *passages: Passage, **more) -> float:
    return next(one.score for one in rank(question, passages, **more) if one.id == name)


def test_nothing_gives_nothing():
    assert rank(BILLING, []) == []
    assert rank(Question(idf={}), [passage("a", "x")])[0].score == 0


def test_more_and_rarer_terms_win():
    both, rare, common = passage("c", "bill", "alic"), passage("b", "bill", "x"), passage("a", "alic", "x")
    assert order(BILLING, common, rare, both) == ["c", "b", "a"]


def test_the_score_is_the_sum_of_its_parts():
    chat = passage("a", "bill", "x", is_chat=True, is_question=True, tells_time=True, date_match=1.5, by_user=True)
    question = BILLING._replace(words=frozenset({"my"}), asks_when=True)
    vectors = np.ones((1, 4), np.float32)
    found = rank(question, [chat], vectors=vectors, asked=vectors[0])[0]
    assert found.score == pytest.approx(sum(found.parts))
    assert found.parts.meaning == pytest.approx(0.25)
    assert found.parts[2:] == pytest.approx((0.13, -0.04, 0.0268, 0.10, 0.375), abs=1e-3)


def test_a_neighbour_counts_the_one_before_more_than_the_one_after_and_only_in_its_thread():
    hit, plain = passage("hit", "bill", thread="s", position=5), {"thread": "s"}
    before = passage("before", "x", **plain, position=4)
    after = passage("after", "x", **plain, position=6)
    far, other = passage("far", "x", **plain, position=10), passage("other", "x", thread="t", position=6)
    found = {one.id: one.score for one in rank(BILLING, [hit, before, after, far, other])}
    assert found["hit"] > found["after"] > found["before"] > found["far"] == found["other"] == 0


def test_near_terms_count_a_little_and_only_the_nearest_eight():
    exact, near = passage("exact", "bill", "x"), passage("near", "payment", "x")
    pair = [("bill", "payment", 0.8)]
    assert score(BILLING, "exact", exact, near, near=pair) > score(BILLING, "near", exact, near, near=pair) > 0
    crowd = [("bill", f"t{number}", 0.9) for number in range(8)]
    assert score(BILLING, "near", exact, near, near=crowd + pair) == 0


def test_the_only_speaker_named_is_preferred_and_of_two_named_none():
    ann, bob = passage("b", "bill", "ann", speaker="Ann"), passage("a", "bill", "bob", speaker="Bob")
    assert order(BILLING._replace(words=frozenset({"ann"})), ann, bob) == ["b", "a"]
    assert order(BILLING._replace(words=frozenset({"ann", "bob"})), ann, bob) == ["a", "b"]


def test_a_named_speaker_comes_before_the_one_who_says_i():
    mine, ann = passage("mine", "bill", by_user=True, speaker="me"), passage("ann", "bill", speaker="Ann")
    assert order(BILLING._replace(words=frozenset({"my", "ann"})), mine, ann) == ["ann", "mine"]
    assert order(BILLING._replace(words=frozenset({"my"})), mine, ann) == ["mine", "ann"]


def test_length_counts_in_chats_alone():
    assert rank(BILLING, [passage("a", *["x"] * 80)])[0].parts == Parts()
    assert rank(BILLING, [passage("a", *["x"] * 80, is_chat=True)])[0].parts.length == pytest.approx(0.10)


def test_meaning_takes_the_neighbours_along():
    vectors = np.array([[1, 0], [0, 1], [0, 1]], np.float32)
    one, two = passage("one", "x", thread="s"), passage("two", "x", thread="s", position=1)
    alone = passage("alone", "x")
    assert order(BILLING, alone, two, one, vectors=vectors[[2, 1, 0]], asked=vectors[0]) == ["one", "two", "alone"]


def test_rarer_is_more_and_an_unseen_term_is_the_rarest():
    assert idf(100, 0) > idf(100, 1) > idf(100, 99) > idf(100, 100) > 0


def test_a_long_passage_needs_a_term_more_often():
    assert share(1, 10) > share(1, 100)
    assert share(1, 25) == 1


def test_a_short_question_is_told_from_an_answer():
    assert is_short_question("Who owns it? ", 3)
    assert is_short_question("誰ですか\uff1f", 3)
    assert not is_short_question("Alice does.", 2)
    assert not is_short_question("Well? " * 26, 26)


PASSAGES = st.lists(
    st.builds(
        passage,
        st.just(""),
        st.sampled_from(["bill", "alic", "x"]),
        thread=st.sampled_from("st"),
        position=st.integers(0, 20),
    ),
    max_size=12,
    unique_by=lambda one: (one.thread, one.position),
).map(lambda found: [one._replace(id=f"{one.thread}{one.position:02}") for one in found])


@given(PASSAGES, st.randoms())
def test_the_order_of_what_was_found_does_not_matter_and_ties_are_in_the_order_of_ids(found, random):
    mixed = random.sample(found, len(found))
    assert rank(BILLING, mixed) == rank(BILLING, found)
    keys = [(-one.score, one.id) for one in rank(BILLING, found)]
    assert keys == sorted(keys)
