"""A question that was asked before does not bury its answer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from commonbook import Book, NewMessage

FACT = "Our staging database is called heron-7 and runs in Frankfurt."
QUESTION = "What is our staging database called?"
EMPTY = "I am not sure, let me look at the code."


@pytest.fixture(params=[False, True], ids=["in the tail", "in the index"])
def settle(request, book: Book) -> Callable[[], object]:
    return book.reindex if request.param else lambda: None


def ask(book: Book, times: int, question: str = QUESTION, answer: str = EMPTY) -> None:
    for time in range(times):
        book.append(f"asked-{time}", [NewMessage(question), NewMessage(answer, role="assistant")])


def passages(book: Book, query: str = QUESTION, **options) -> list[str]:
    return [hit.passage for hit in book.recall(query, **options).hits]


@pytest.mark.promise("recall.echoes")
@pytest.mark.parametrize("times", [1, 6, 70])
def test_a_question_that_was_asked_before_comes_behind_its_answer(book: Book, settle, times):
    book.remember(FACT)
    ask(book, times)
    settle()
    assert passages(book)[0] == FACT
    assert passages(book, "What's the name of the staging database?")[0] == FACT


@pytest.mark.promise("recall.echoes")
def test_what_was_said_stands_above_a_question_that_was_asked_before(book: Book, settle):
    book.append("told", [NewMessage(FACT), NewMessage("Noted.", role="assistant")])
    ask(book, 12)
    settle()
    assert passages(book)[0] == FACT


@pytest.mark.promise("recall.echoes")
@pytest.mark.parametrize("times", [1, 70])
def test_an_unrelated_prompt_gets_no_empty_answer(book: Book, settle, times):
    book.remember(FACT)
    ask(book, times)
    settle()
    assert EMPTY not in passages(book, "fix the failing test in parser.py")


@pytest.mark.promise("recall.echoes")
def test_a_question_that_nothing_answers_is_found_once(book: Book, settle):
    ask(book, 7)
    settle()
    (hit,) = book.recall(QUESTION).hits
    assert (hit.passage, hit.repeats, hit.confidence) == (QUESTION, 6, 0)
    assert passages(book, f'"{QUESTION}"')[0] == QUESTION


@pytest.mark.parametrize(
    "statement",
    [
        "Is our staging database called heron?",
        "Isn't our staging database called heron?",
        "Our staging database is called heron, right?",
        "Did I tell you that our staging database got the name heron?",
        "What is our staging database called, heron-7?",
        "I don't know, but Alice called our staging database heron.",
        "I am not sure; it is called heron on the staging dashboard.",
    ],
)
def test_a_question_or_doubt_that_tells_something_is_no_echo(book: Book, settle, statement):
    book.append("told", [NewMessage(statement)])
    ask(book, 2)
    settle()
    assert passages(book)[0] == statement


def test_messages_of_one_author_that_say_the_same_are_one_hit(book: Book, settle):
    for at in range(5):
        book.append(f"s{at}", [NewMessage("We deploy to production on Thursdays at ten."), NewMessage(f"Noted, {at}.")])
    book.append("other", [NewMessage("We deploy to production on Thursdays at ten.", author="user:ben")])
    settle()
    hits = [hit for hit in book.recall("When do we deploy to production?").hits if "deploy" in hit.passage]
    assert sorted((hit.author, hit.repeats) for hit in hits) == [("user:ben", 0), ("user:local", 4)]


def test_short_answers_to_different_questions_are_different_hits(book: Book, settle):
    for name in ("Ann", "Ben"):
        book.append(f"s-{name}", [NewMessage(f"Which day is {name} in the office?"), NewMessage("On Friday.")])
    settle()
    found = [hit for hit in book.recall("office day").hits if hit.passage == "On Friday."]
    assert len(found) == 2


def test_a_fact_about_somebody_else_is_hardly_an_answer(book: Book, settle):
    for text in ("Anna's birthday is on 7 August.", "Tom works in Leiden.", "The canteen is closed on Mondays."):
        book.remember(text)
    settle()
    for query in ("what is Toms birthday", "What is Tom's birthday?", "when does Tom have his birthday"):
        hits = book.recall(query).hits
        assert [hit.confidence for hit in hits if "Anna" in hit.passage and hit.confidence > 0.1] == [], query
        assert not hits or "Anna" not in hits[0].passage, query


def test_a_note_that_has_the_asked_name_in_its_title_alone_answers(book: Book, settle):
    book.remember("The birthday is on 16 March, which Anna never forgets.", title="Tom Berger")
    book.remember("Anna's birthday is on 7 August.")
    settle()
    assert book.recall("When is Tom's birthday?").hits[0].title == "Tom Berger"


@pytest.mark.parametrize(
    ("query", "answer"),
    [
        ("who is on call", "Priya is on call this week."),
        ("on call", "Priya is on call this week."),
        ("IT", "IT support sits in building C."),
        ("who runs IT", "IT support sits in building C."),
    ],
)
def test_a_question_of_common_words_finds_them(book: Book, settle, query, answer):
    book.remember("Priya is on call this week.")
    book.remember("IT support sits in building C.")
    book.remember("Our dog is called Biscuit, and it barks.")
    settle()
    assert passages(book, query)[0] == answer


@pytest.mark.parametrize(
    ("query", "name"),
    [("where is Muhhamed's desk", "Muhammad"), ("kuberntes", "Kubernetes"), ("Lindquist", "Lindqvist")],
)
def test_a_misspelt_name_is_taken_for_a_known_one_and_said_so(book: Book, settle, query, name):
    book.remember("Muhammad's desk is next to the lift.")
    book.remember("The move was put off in May.", tags=["Kubernetes"])
    book.append("chat", [NewMessage("I answer on Tuesdays.", author="user:lindqvist")])
    settle()
    answer = book.recall(query)
    assert list(answer.meant.values()) in ([name], [name.lower()])
    assert answer.hits
    assert any(name.lower() in note.lower() for note in answer.notes)


def test_a_word_that_is_no_misspelt_name_is_left_alone(book: Book, settle):
    book.remember("Plant care: water the fern on Mondays.")
    book.remember("Muhammad's desk is next to the lift.", space="secret")
    settle()
    for query in ("planet", "xylophone", "where is Muhhamed's desk"):
        assert book.recall(query, spaces="personal").meant == {}, query


def test_a_question_among_other_sentences_is_answered(book: Book, settle):
    book.remember(FACT)
    book.remember("The canteen is closed on Mondays.")
    settle()
    prompt = f"We have a meeting tomorrow and Peter wants to know it before lunch. {QUESTION} Also check the calendar."
    assert FACT in book.recall(prompt).as_prompt(max_tokens=500)
    assert book.recall("We have a meeting tomorrow. How do bats navigate? Check it.").as_prompt(max_tokens=500) == ""


def test_whoever_is_idle_indexes_a_long_text_before_the_next_recall(book: Book):
    book.remember("The crane is heliotrope.")
    assert book.work(index=True) == 0
    book.remember("\n\n".join(f"Paragraph {number} of the long report about cranes." for number in range(6_000)))
    assert book.work(index=True) > 0
    assert book.work(index=True) == 0
    assert book.recall("Paragraph 4711").hits
