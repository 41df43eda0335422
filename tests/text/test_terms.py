"""Text to terms, in many languages."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonbook.core.text.terms import MAX_WORD_LETTERS, language_of, names_in, query_words, terms, words


def finds(query: str, text: str) -> bool:
    return {term for _, term in query_words(query)} <= set(terms(text))


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("payments", "Alice made the payment."),
        ("Alice", "Alice's desk"),
        ("cafe", "We met at the Café."),
        ("CAFÉ", "a cafe"),
        ("ﬁle", "the files"),
        ("Wo sind die Rechnungen?", "Die Rechnung ist nicht bezahlt, und der Brief liegt hier."),
        ("Rechnung", "Rechnung bezahlt"),
        ("straße", "Die Straße ist nicht weit von hier."),
        ("İstanbul", "Bu yıl İstanbul'da çok güzel bir gün"),
        ("istanbul", "İSTANBUL"),
        ("isparta", "ISPARTA"),
        ("ılık", "ilik"),
        ("¿Dónde está la casa?", "Las casas son muy grandes y están lejos."),
        ("собака", "Мы видели собак"),
        ("東京", "東京都に住んでいます"),
        ("猫", "猫が好きです"),
        ("한국어", "저는 한국어를 배웁니다"),
        ("العالم", "مرحبا بالعالم"),
        ("हिन्दी", "मैं हिन्दी में लिखता हूँ"),
        ("ไทย", "ภาษาไทย"),
        ("deploy_token", "the deploy token"),
    ],
)
def test_a_text_is_found_by_another_form_of_its_words(query, text):
    assert finds(query, text)


@pytest.mark.parametrize(("query", "text"), [("car", "careful"), ("京東", "東京"), ("мир", "море")])
def test_another_word_is_not_found(query, text):
    assert not finds(query, text)


def test_a_text_keeps_its_small_words_and_a_query_loses_them():
    assert terms("When did the meeting start?") == ["when", "did", "the", "meet", "start"]
    assert query_words("When did we have the meetings, the meeting?") == [("meetings", "meet"), ("meeting", "meet")]


@pytest.mark.parametrize("query", ["to be or not to be", "Wo ist es?", "что это", "من هو", "", "?!"])
def test_a_query_of_small_words_alone_asks_for_nothing(query):
    assert query_words(query) == []


def test_a_query_tells_its_words_with_their_terms():
    assert query_words("Who made payments?") == [("payments", "payment")]


def test_a_digit_is_a_term_and_an_apostrophe_leaves_none_to_ask_for():
    assert terms("Buoy 1, c") == ["buoy", "1", "c"]
    assert query_words("What's on buoy 1? I'm, don't") == [("buoy", "buoy"), ("1", "1")]


def test_a_day_is_a_term_however_it_is_written():
    days = {"date:2024-1-16", "day:1-16"}
    assert days <= set(terms("On 16.01.2024 it broke")) & set(terms("It broke on January 16th, 2024"))
    assert query_words("16/1/24") == [("", "date:2024-1-16")]
    assert ("", "day:1-16") in query_words("16 January")


def test_names_are_capitalised_inside_a_sentence_of_an_english_text():
    assert names_in("Where did Ben meet Anna's aunt (Olga)? In Graz.") == {"ben", "anna", "olga", "graz"}
    assert names_in("Who came? Maybe nobody.") == frozenset()
    assert names_in("where does paul live") == names_in("Was it on a Monday in June?") == frozenset()
    assert names_in("Wann war die Prüfung in der Schule, und wer hat sie bestanden?") == frozenset()


def test_words_to_embed_have_two_letters_at_least_and_do_not_grow_without_end():
    assert words("a I bc x9 _ 7") == ["bc", "x9"]
    assert words("y" * 1000) == ["y" * MAX_WORD_LETTERS]


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("english", "What did the dog do with the die?"),
        ("english", ""),
        ("english", "MRI scan"),
        ("german", "Ich habe den Schlüssel nicht bei mir"),
        ("turkish", "Bu kitap çok güzel ama biraz pahalı"),
        ("french", "Je suis dans la maison avec mes amis"),
        ("spanish", "El perro está en la casa con los niños"),
        ("italian", "Il gatto è nella casa con gli altri"),
        ("portuguese", "Eu não tenho uma casa, mas você tem"),
        ("dutch", "Ik heb het boek niet bij mij"),
    ],
)
def test_the_language_is_guessed_by_its_small_words(language, text):
    assert language_of(text) == language


@given(st.text(max_size=200))
def test_any_text_has_terms_that_are_stable(text):
    assert terms(text) == terms(text)
    assert all(term == term.strip() and term for term in terms(text))


@given(text=st.text(st.characters(max_codepoint=127), max_size=60))
def test_a_text_in_ascii_has_the_same_terms_as_with_a_dash_behind_it(text):
    """Texts in ASCII are cut into words by a faster pattern."""
    assert terms(text) == terms(f"{text} \N{EM DASH}")
    assert words(text) == words(f"{text} \N{EM DASH}")


def test_threads_do_not_disturb_each_other():
    text = "Running horses were jumping over the fences " * 50
    expected, seen = terms(text), []
    threads = [threading.Thread(target=lambda: seen.append(terms(text))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [expected] * 8
