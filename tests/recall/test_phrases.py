"""Phrases: words copied from a memory find it, and quoted words must occur."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from commonbook.core.markdown.transcript import render
from commonbook.service.book import Book
from commonbook.values.memory import Draft
from commonbook.values.recall import RecallResult
from commonbook.values.session import NewMessage
from tests.interfaces.cli.test_cli import Cli, cli
from tests.recall.test_recall import turn

__all__ = ["cli"]

THANKS = "Thank you so much for the support, it really means a lot to me and to the whole team."


@pytest.fixture(params=[False, True], ids=["in the tail", "in the index"])
def settle(request, book: Book) -> Callable[[], None]:
    def settling() -> None:
        if request.param:
            book.reindex()

    return settling


def texts(found: RecallResult) -> list[str]:
    return [hit.text for hit in found.hits]


def scattered(count: int) -> list[Draft]:
    """Return memories that have all words of THANKS in another order, and the only rare one more than once."""
    return [
        Draft(
            f"Support {number}: a support that means it really was for the best; support is so much to me, thank you."
        )
        for number in range(count)
    ]


@pytest.mark.promise("recall.words")
@pytest.mark.parametrize(
    "fragment",
    [
        "for the support, it really means a",
        "For The SUPPORT it really -- means a",
        "to me and to the",
    ],
)
def test_words_copied_from_a_memory_find_it_first(book: Book, settle, fragment):
    book.remember_many([Draft(THANKS), *scattered(90)])
    settle()
    for _ in range(3):
        assert texts(book.recall(fragment, k=3))[:1] == [THANKS]


def test_a_phrase_comes_before_the_same_words_scattered(book: Book, settle):
    scattered_words = "Machine room: the espresso is ready"
    phrase = "We have bought the espresso machine that everybody in the whole office has wished for since last spring"
    book.remember_many([Draft(phrase), Draft(scattered_words), Draft("Something else altogether")])
    settle()
    assert texts(book.recall("bought the espresso machine that everybody in"))[0] == phrase
    assert set(texts(book.recall("espresso machine"))) == {phrase, scattered_words}


def test_small_words_in_a_row_find_nothing_unless_they_occur(book: Book, settle):
    book.remember_many([Draft(THANKS), Draft("It is what it is, and that is all there is to it.")])
    settle()
    assert texts(book.recall("and that is all there is to")) == ["It is what it is, and that is all there is to it."]
    assert texts(book.recall("to there is all that and is")) == []
    assert texts(book.recall("the of and")) == []


PRESENT = (
    '"the old lighthouse"', "“the old lighthouse”", "„The Old Lighthouse“", "«the old lighthouse»", '"lighthouse"',
    'who painted "the old, lighthouse!" and when', '"crème brûlée"', '"creme brulee"', '"CREME brûlee"', '"喝咖啡"',
    "「喝咖啡」", '"for the"', '"old lighthouse" "creme brulee"',
)  # fmt: skip
ABSENT = (
    '"lighthouse old"', '"a lighthouse"', '"lighthouses"', '"brulee creme"', '"咖喝"', '"the for"',
    'lighthouse "zebra crossing"', '"old lighthouse" "zebra"',
)  # fmt: skip


@pytest.mark.promise("recall.words")
def test_quoted_words_must_occur_in_this_order(book: Book, settle):
    text = "Ann painted the old lighthouse for the club. Then crème brûlée for all. 我喜欢喝咖啡。"
    book.remember_many([Draft(text), Draft("The lighthouse is old, and so is Ann, who paints"), Draft("A crème")])
    settle()
    for query in PRESENT:
        result = book.recall(query)
        assert (text in texts(result), result.notes) == (True, ()), query
    for query in ABSENT:
        result = book.recall(query)
        assert (result.hits, result.nearest) == ((), None), query
        assert "in this order" in result.notes[0]


@pytest.mark.parametrize(
    "query", ['old " lighthouse', '"old lighthouse', 'old lighthouse"', 'a 5" old lighthouse 6"', '"" old']
)
def test_a_mark_without_its_pair_asks_for_nothing(book: Book, query):
    book.remember("Ann painted the lighthouse, which is old")
    assert len(book.recall(query).hits) == 1


@pytest.mark.promise("recall.words")
def test_quoted_words_are_found_among_many_that_have_them_scattered(book: Book, settle):
    rare = "In the end the red door was shut, and the green gate stood open for a while."
    others = [
        Draft(f"The green door {n} and the red gate {n} are open; red, green, gate, door, stood.") for n in range(150)
    ]
    book.remember_many([Draft(rare), *others])
    settle()
    assert texts(book.recall('"green gate stood"')) == [rare]
    assert texts(book.recall('red door "the green gate stood open"', k=1)) == [rare]
    assert len(book.recall('"the green door"', k=20).hits) == 20


def test_quoted_words_of_messages_and_of_their_speakers(book: Book, settle):
    messages = (turn(1, "Shall we sail to the far island?"), turn(2, "The island is far: to sail takes days"))
    book.remember(render(messages), kind="episode", title="Sailing")
    book.append("s1", [NewMessage("I would rather sail to the near island", author="user:bob")])
    settle()
    assert texts(book.recall('"to the far island"')) == ["Shall we sail to the far island?"]
    assert len(book.recall('"sail to the"', k=5, spaces="personal").hits) == 2
    assert texts(book.recall('sail "bob"')) == ["I would rather sail to the near island"]


def test_quoted_words_may_stand_in_a_title_or_anywhere_in_a_long_memory(book: Book, settle):
    filler = " ".join(f"Paragraph about the grey heron and the pond number {n} of the park." for n in range(40))
    long = f"The pond has a grey heron.\n\n{filler}\n\nAt last the heron of the grey pond flew away."
    book.remember(long, title="Birds of the park")
    settle()
    assert [hit.title for hit in book.recall('"heron of the grey pond"').hits] == ["Birds of the park"]
    assert [hit.title for hit in book.recall('"birds of the park" "grey pond flew"').hits] == ["Birds of the park"]
    assert book.recall('"heron of the pond"').hits == ()


def test_filters_and_rights_hold_for_phrases(book: Book, settle):
    book.remember(THANKS, space="ours", tags=["x"])
    book.remember(THANKS, space="theirs")
    settle()
    fragment = "for the support, it really means a"
    for query in (fragment, f'"{fragment}"'):
        assert [hit.space for hit in book.recall(query, spaces="ours").hits] == ["ours"]
        assert [hit.space for hit in book.recall(query, spaces=["ours", "theirs"], tags=["x"]).hits] == ["ours"]
        assert book.recall(query, spaces="ours", tags=["y"]).hits == ()


def test_the_command_line_says_that_quoted_words_occur_nowhere(cli: Cli):
    cli.remember("The lighthouse is old")
    answer = cli("recall", '"old lighthouse"')
    assert (answer.code, answer.out) == (0, "")
    assert 'nothing that was searched has the words "old lighthouse" in this order' in answer.err
    assert cli("recall", '"old lighthouse"', "--json").json["hits"] == []
    assert "is old" in cli("recall", '"lighthouse is"').out
