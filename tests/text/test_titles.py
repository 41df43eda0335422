"""Titles for texts that have none, and file names from titles."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonbook.core.text.titles import derive_title, slug


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("# Alice owns billing\n\nSince May.", "Alice owns billing"),
        ("\n\n  plain words  \nmore", "plain words"),
        ("> quoted **bold** and _soft_ `code`", "quoted bold and soft code"),
        ("- [ ] buy milk", "buy milk"),
        ("* item", "item"),
        ("3. third", "third"),
        ("keep snake_case and 2 * 3", "keep snake_case and 2 * 3"),
        ("see [the page](https://example.org) and [[Note|that note]]", "see the page and that note"),
        ("---\n```python\nprint()\n```", "print()"),
        ("\r\n## Windows\r\ntext", "Windows"),
        ("#hashtag first", "#hashtag first"),
        ("日本語の題", "日本語の題"),
        ("", "Untitled"),
        ("---\n***\n\n", "Untitled"),
    ],
)
def test_the_first_line_that_says_something_is_the_title(text, title):
    assert derive_title(text) == title


def test_a_long_line_is_cut_at_the_end_of_a_word():
    title = derive_title("word " * 40)
    assert title == "word " * 13 + "word…"
    assert len(derive_title("x" * 500)) == 72


@given(st.text())
def test_a_title_is_always_one_short_line(text):
    title = derive_title(text)
    assert 0 < len(title) <= 73
    assert title.splitlines() == [title]
    assert title == title.strip()


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("Alice owns billing", "alice-owns-billing"),
        ("Crème brûlée, à la carte!", "creme-brulee-a-la-carte"),
        ("Don't panic", "dont-panic"),
        ("会議のメモ", "会議のメモ"),
        ("ガイド 한국어 हिन्दी Привет", "ガイド-한국어-हिन्दी-привет"),
        ("\uff26\uff35\uff2c\uff2c width", "full-width"),
        ("../../etc/passwd", "etc-passwd"),
        ("...", "memory"),
        ("", "memory"),
        ("🎉", "memory"),
        ("\u0301a", "a"),
    ],
)
def test_a_slug_is_readable(title, name):
    assert slug(title) == name


def test_a_long_title_is_cut_at_the_end_of_a_word():
    assert slug("several words " * 10) == "several-words-several-words-several-words"
    assert slug("x" * 100) == "x" * 48
    assert slug("会" * 100) == "会" * 40


@given(st.text())
def test_a_slug_is_always_a_safe_part_of_a_file_name(title):
    name = slug(title)
    assert 0 < len(name) <= 48
    assert len(name.encode()) <= 120
    assert not set(name) & set('/\\:*?"<>|. \0\n')
    assert name.strip("-") == name
    assert unicodedata.is_normalized("NFC", name)
    assert slug(name) == name
