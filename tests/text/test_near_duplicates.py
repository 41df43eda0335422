"""Tests of near duplicates: texts are split into the same words, in ASCII or not."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from commonbook.text.near_duplicates import words_of

ASCII = st.text(st.characters(max_codepoint=127))


@given(ASCII | st.text())
def test_words_are_the_runs_of_two_or_more_letters_digits_and_underscores(text: str):
    assert words_of(text) == re.findall(r"\w{2,}", text.lower())
