"""Tags and links as Obsidian's users write them inside a text."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonbook.core.markdown.obsidian import hashtags, wiki_links


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ("#one and #two", ("one", "two")),
        ("#project/alpha-2 #snake_case", ("project/alpha-2", "snake_case")),
        ("#käse #日本語 #हिन्दी", ("käse", "日本語", "हिन्दी")),
        ("ends a sentence: #done.", ("done",)),
        ("#Idea again #idea", ("Idea",)),
        ("#nested/ trailing", ("nested",)),
    ],
)
def test_inline_tags_are_found_in_order_and_once(text, tags):
    assert hashtags(text) == tags


@pytest.mark.parametrize(
    "text",
    [
        "# Heading",
        "## Heading two",
        "issue #123",
        "https://example.org/page#part",
        "see [part](#part) and [[Note#part]]",
        "C# and a#b",
        "`#inline` and ``a ` #b``",
        "```\n#fenced\n```",
        "~~~~ python\n#fenced\n~~~\n#still\n~~~~",
        "> ```\n> #quoted\n> ```",
        "- ```sh\n  #listed\n  ```",
        "```\n#never closed",
        "# " + "x" * 65,
        "#" + "x" * 65,
        "#",
    ],
)
def test_what_only_looks_like_a_tag_is_none(text):
    assert hashtags(text) == ()


def test_a_tag_after_code_is_found():
    assert hashtags("```\n#no\n```\n#yes `#no` #also") == ("yes", "also")


def test_a_backtick_inside_code_opens_no_other_code():
    assert hashtags("``a ` b`` #tag `code`") == ("tag",)


def test_a_lone_backtick_does_not_hide_the_rest_of_the_text():
    assert hashtags("a ` here #one\n\nand ` there #two") == ("one", "two")


@pytest.mark.parametrize(
    ("text", "targets"),
    [
        ("[[Target]]", ("Target",)),
        ("[[Target|alias]] [[ Spaced ]]", ("Target", "Spaced")),
        ("[[Target#heading]] [[Other#^block|x]]", ("Target", "Other")),
        ("[[folder/Target]]", ("folder/Target",)),
        ("[[Target.md]] [[Target]]", ("Target",)),
        ("| [[Target\\|alias]] |", ("Target",)),
        ("![[Note]] ![[picture.png]] ![[sound.mp3|100]] ![[Plan v1.2]]", ("Note", "Plan v1.2")),
        ("[[paper.pdf]]", ("paper.pdf",)),
        ("[[#heading of this note]] [[]] [not](a-link) [[broken\nlink]]", ()),
        ("`[[code]]`\n```\n[[fenced]]\n```\n[[real]]", ("real",)),
    ],
)
def test_links_name_their_target(text, targets):
    assert wiki_links(text) == targets


@given(st.text(alphabet="`~#[]|!\\ \nab/.", max_size=300))
def test_any_text_can_be_looked_at(text):
    assert all(tag and not tag.startswith("#") for tag in hashtags(text))
    assert all(wiki_links(text))


@pytest.mark.parametrize("piece", ["`", "` ", "`a``a", "[[", "[[a", "#", "```\n", "!["])
def test_hostile_texts_take_no_longer_than_long_ones(piece):
    started = time.process_time()
    text = piece * (400_000 // len(piece))
    hashtags(text)
    wiki_links(text)
    assert time.process_time() - started < 5
