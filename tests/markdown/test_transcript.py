"""The text of an episode: every message comes back whole."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from time import process_time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from commonbook.core.markdown.transcript import (
    Transcript,
    TranscriptMessage,
    blocks,
    is_transcript,
    message_at,
    parse,
    render,
)

TIME = datetime(2026, 11, 15, 20, 18, 24, 123456, tzinfo=UTC)
HEADING = "### Alice (user) · 2026-11-15T20:18:24.123456Z · 7 · 0192f3a1-5c2e-7b1d-9a3f-4e6d7f3a9c2e"

TEXTS = st.one_of(
    st.text(max_size=60),
    st.text(alphabet="\\\n\r \t#a\u2028\x85", max_size=20),
    st.lists(
        st.sampled_from([HEADING, "\\" + HEADING, "\\\\" + HEADING, "\\", "", " ", "\r", "```", "a"]), max_size=8
    ).map("\n".join),
)
AUTHORS = st.text(max_size=12) | st.sampled_from(
    ["user:alice", "A (b) · c", HEADING[4:], "100%", "%41;", " x ", "a\nb"]
)
MESSAGES = st.builds(
    TranscriptMessage,
    id=st.uuids().map(str),
    seq=st.integers(0, 10**15 - 1),
    author=AUTHORS,
    role=st.sampled_from(["user", "assistant", "system", "tool"]),
    time=st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC)),  # noqa: DTZ001
    text=TEXTS,
)


def turn(text: str, **fields) -> TranscriptMessage:
    return TranscriptMessage(id="m1", seq=1, author="Alice", role="user", time=TIME, text=text)._replace(**fields)


@given(st.lists(MESSAGES, max_size=5), TEXTS)
@example([turn("")], "")
@example([turn("\n\n"), turn("\\\n")], "\n")
def test_every_message_returns_whatever_it_says(messages, introduction):
    assert parse(render(messages, introduction=introduction)) == Transcript(introduction, tuple(messages))


@given(st.lists(MESSAGES.filter(lambda message: "\r" not in message.text), min_size=1, max_size=4))
def test_an_editor_that_writes_windows_line_ends_changes_no_message(messages):
    assert parse(render(messages).replace("\n", "\r\n") + "\r\n").messages == tuple(messages)


@given(st.lists(MESSAGES, min_size=1, max_size=4), st.text(alphabet="\n ", max_size=4))
def test_empty_lines_between_messages_do_not_matter(messages, blank):
    text = render(messages).replace("\n### ", f"\n{blank}\n### ")
    if all("\n### " not in message.text for message in messages):
        assert parse(text + "\n\n").messages == tuple(messages)


# --- where each message stands


def stands_as_told(text: str) -> list[TranscriptMessage]:
    """Check that each block's place leads to what it says, in order and without overlap; return the messages."""
    found = blocks(text)
    at = 0
    for block in found:
        assert at <= block.start <= block.end <= len(text)
        at = block.end
        assert message_at(text, block.start, block.end) == block.text
        assert block.message is None or block.message.text == block.text
    return [block.message for block in found if block.message is not None]


@given(st.lists(MESSAGES, max_size=5), TEXTS)
@example([turn("")], "")
@example([turn("\n\n"), turn("\\\n")], "\n")
@example([turn(HEADING), turn(f"\\{HEADING}\n")], HEADING)
@example([turn("a\r\nb\r"), turn("\r")], "\r")
def test_every_message_is_said_where_it_stands(messages, introduction):
    text = render(messages, introduction=introduction)
    assert stands_as_told(text) == messages
    first = blocks(text)[0]
    assert (first.message, first.text) == (None, introduction)


@given(st.lists(MESSAGES.filter(lambda message: "\r" not in message.text), min_size=1, max_size=4), TEXTS)
@example([turn("one"), turn(""), turn("two\n\nlines")], "above")
def test_every_message_is_said_where_it_stands_in_a_file_with_windows_line_ends(messages, introduction):
    introduction = introduction.replace("\r", "")
    text = render(messages, introduction=introduction).replace("\n", "\r\n") + "\r\n"
    assert stands_as_told(text) == messages


@given(st.lists(st.sampled_from([HEADING, HEADING + "\r", "\\" + HEADING, "\\", "", "\r", "a", "b\r"]), max_size=10))
def test_whatever_a_person_makes_of_a_transcript_each_place_leads_to_what_is_said(lines):
    text = "\n".join(lines)
    assert tuple(stands_as_told(text)) == parse(text).messages


def test_a_block_begins_below_its_heading_and_ends_before_the_next():
    text = render([turn("first", id="m1"), turn("second", id="m2")], introduction="Above.")
    assert [text[block.start : block.end].strip() for block in blocks(text)] == ["Above.", "first", "second"]
    assert [(block.message.id if block.message else None) for block in blocks(text)] == [None, "m1", "m2"]


def test_a_person_can_read_it():
    first = turn("We ship on Tuesday.\n\n```sh\nmake ship\n```", id="0192f3a1-5c2e-7b1d-9a3f-4e6d7f3a9c2e", seq=7)
    second = turn("Noted.", author="agent:helper", role="assistant", id="0192f3a1-5c2e-7b1d-9a3f-4e6d7f3a9c2f", seq=8)
    assert render([first, second]) == (
        f"{HEADING}\n\nWe ship on Tuesday.\n\n```sh\nmake ship\n```\n\n"
        "### agent:helper (assistant) · 2026-11-15T20:18:24.123456Z · 8 · 0192f3a1-5c2e-7b1d-9a3f-4e6d7f3a9c2f\n\n"
        "Noted."
    )


def test_a_heading_inside_a_message_is_shielded():
    written = render([turn(f"look:\n{HEADING}")])
    assert f"\n\\{HEADING}" in written
    assert len(parse(written).messages) == 1


def test_removing_a_heading_with_its_text_removes_that_message_alone():
    messages = [turn(f"text {number}", seq=number, id=f"m{number}") for number in range(3)]
    lines = render(messages).split("\n\n")
    assert parse("\n\n".join(lines[:2] + lines[4:])).messages == (messages[0], messages[2])
    assert parse("\n\n".join(lines[:4]) + "\n\n").messages == tuple(messages[:2])


def test_an_edited_text_is_what_the_message_says():
    assert parse(render([turn("old")]).replace("old", "new\n\nand more")).messages == (turn("new\n\nand more"),)


@pytest.mark.parametrize("text", ["", "Just a note.", "### A heading", HEADING.replace("11-15", "13-45")])
def test_a_text_without_messages_is_all_introduction(text):
    assert parse(text) == Transcript(text, ())
    assert not is_transcript(text)


def test_the_example_in_the_document_parses():
    document = (Path(__file__).parents[2] / "docs" / "TRANSCRIPTS.md").read_text(encoding="utf-8")
    example_text = document.split("````markdown\n")[1].split("\n````")[0]
    found = parse(example_text)
    assert [(one.seq, one.author, one.role) for one in found.messages] == [
        (7, "user:alice", "user"),
        (8, "agent:helper", "assistant"),
    ]
    assert render(found.messages, introduction=found.introduction) == example_text


def test_very_many_empty_lines_are_read_in_no_time():
    before = process_time()
    parse("\n" * 500_000 + "\\\n")
    assert process_time() - before < 5
