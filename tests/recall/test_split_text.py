"""A memory in parts."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from commonbook.subjects.recall.indexed_passages import MAX_PART_WORDS, size, split_text

WORDY = st.text(alphabet="ab .!?\n`~\r\t東京。", max_size=400)


def prose(words: int, mark: str = "word") -> str:
    return " ".join(f"{mark}{number}" for number in range(words))


@given(st.text(max_size=300) | WORDY)
def test_every_character_that_is_not_blank_is_in_exactly_one_part(text):
    found = split_text(text)
    assert "".join("".join(part.text.split()) for part in found) == "".join(text.split())
    assert all(part.text == text[part.start : part.end] for part in found)
    assert [part.position for part in found] == list(range(len(found)))
    assert all(one.end <= other.start for one, other in pairwise(found))


@given(st.lists(st.integers(1, 400), max_size=12), st.sampled_from(["\n\n", "\r\n\r\n", "\n", ". "]))
def test_no_part_is_longer_than_allowed(paragraphs, between):
    text = between.join(prose(words) for words in paragraphs)
    assert all(0 < size(part.text) <= MAX_PART_WORDS for part in split_text(text))


def test_short_paragraphs_stay_together_and_a_part_ends_where_a_paragraph_does():
    text = "\n\n".join(prose(25, mark) for mark in "abcdef")
    assert [part.text.split("\n\n")[0].split()[0] for part in split_text(text)] == ["a0", "d0"]
    assert [size(part.text) for part in split_text(text)] == [75, 75]


def test_a_short_memory_is_one_part():
    assert [part.text for part in split_text("  Alice owns billing.\n")] == ["Alice owns billing."]


def test_blank_text_has_no_parts():
    assert split_text("") == split_text(" \n\t\r\n") == []


def test_a_long_paragraph_is_cut_between_sentences():
    text = " ".join(prose(30, mark) + "." for mark in "abcdefgh")
    found = split_text(text)
    assert len(found) == 4
    assert all(part.text.endswith(".") for part in found)


def test_a_block_of_code_is_not_cut_at_its_blank_lines():
    code = "```python\n" + prose(40) + "\n\n" + prose(40) + "\n```"
    assert code in [part.text for part in split_text(f"{prose(70)}\n\n{code}\n\n{prose(70)}")]


def test_a_text_without_spaces_is_cut_all_the_same():
    assert len(split_text("猫が好きです。" * 200)) > 3
    assert len(split_text("x" * 64 * 500)) > 3
