"""Transcript diff: the pure comparison of a transcript with the known messages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonbook.adapters.hermes import transcripts
from commonbook.adapters.hermes.transcripts import TranscriptMessage
from commonbook.core.text import masking, recall_fence


def messages_of(words: str) -> list[TranscriptMessage]:
    """A transcript of single letters: capitals are the user's."""
    return [TranscriptMessage("user" if one.isupper() else "assistant", one, one) for one in words]


def new_text(known: str, words: str, **how: bool) -> str:
    how = {"unknown_prefix": False, "completes_turn": True, **how}
    return "".join(one.text for one in transcripts.compare(list(known), messages_of(words), **how).new)


@pytest.mark.parametrize(
    ("known", "words", "new"),
    [
        ("", "Aa", "Aa"),
        ("Aa", "Aa", ""),
        ("Aa", "AaBb", "Bb"),
        ("AaBb", "Aa", ""),
        ("Aa", "AaAa", "Aa"),
        ("AaAa", "AaAaAa", "Aa"),
        ("AaB", "AaBb", "b"),
        ("Aa", "AaBCc", "BCc"),
        ("AaBbCc", "CcDd", "Dd"),
        ("AaBbCc", "cDd", "Dd"),
        ("AaBbCc", "Dd", "Dd"),
        ("AaBbCc", "CcAa", "Aa"),
        ("AaBbCc", "AxBbCcDd", "Dd"),
        ("AaBbCc", "AaBbCxDd", "Dd"),
        ("AaBbAa", "AaBbAaCc", "Cc"),
        ("AaBb", "BbCbDd", "CbDd"),
    ],
)
def test_only_what_is_new_in_a_turn_s_transcript_is_new(known, words, new):
    assert new_text(known, words) == new


@pytest.mark.parametrize(
    ("known", "words", "new"),
    [("", "AaBb", "AaBb"), ("AaBb", "AaBb", ""), ("AaBbCc", "Bb", ""), ("Aa", "XxYy", ""), ("AaBb", "BbC", "C")],
)
def test_a_whole_transcript_may_tell_nothing_new(known, words, new):
    assert new_text(known, words, completes_turn=False) == new


def test_of_a_transcript_that_begins_with_what_was_said_elsewhere_only_the_last_turn_is_new():
    assert new_text("", "AaBbCc", unknown_prefix=True) == "Cc"
    assert new_text("Cc", "AaBbCcDd", unknown_prefix=True) == "Dd"


@pytest.mark.parametrize(
    ("known", "words", "kept", "new"),
    [
        ("AaBbCc", "AaBbDd", "AaBb", "Dd"),
        ("AaBbCc", "AaBbCc", "AaBb", "Cc"),
        ("AaBbCc", "Dd", "", "Dd"),
        ("AaBbCc", "BbDd", "AaBb", "Dd"),
        ("AaBbCc", "AaXDd", "Aa", "XDd"),
        ("AaAaAa", "AaAaBb", "AaAa", "Bb"),
    ],
)
def test_what_was_undone_shows_in_the_next_turn_s_transcript(known, words, kept, new):
    found = transcripts.compare_after_undo(list(known), messages_of(words), unknown_prefix=False, completes_turn=True)
    assert found is not None
    assert (known[: found.kept], "".join(one.text for one in found.new)) == (kept, new)


def test_what_was_undone_cannot_be_told_from_a_transcript_that_has_nothing_in_common():
    assert (
        transcripts.compare_after_undo(list("AaBb"), messages_of("XxYy"), unknown_prefix=False, completes_turn=True)
        is None
    )
    assert (
        transcripts.compare_after_undo(list("Bb"), messages_of("Cc"), unknown_prefix=True, completes_turn=True) is None
    )


@given(st.lists(st.sampled_from("ABC"), max_size=12), st.integers(0, 12))
def test_a_conversation_told_turn_by_turn_is_known_as_it_is(turns, cut):
    """Also if it is cut in front once: as long as something of it is left, nothing is lost or doubled."""
    known: list[str] = []
    words: list[TranscriptMessage] = []
    whole = ""
    for at, turn in enumerate(turns):
        if at == cut:
            words = words[-2:]
        words += [*messages_of(turn), TranscriptMessage("assistant", f"{turn}{at}", f"{turn}{at}")]
        whole += turn + f"{turn}{at}"
        found = transcripts.compare(known, words, unknown_prefix=False, completes_turn=True)
        known += [one.fingerprint for one in found.new]
    assert "".join(known) == whole


@given(st.text(max_size=200))
def test_what_was_cleaned_is_stored_as_it_is(text):
    cleaned = transcripts.clean(text)
    assert masking.mask(recall_fence.unfence_any(cleaned)).text == cleaned
    assert "\0" not in cleaned


def test_summaries_tools_and_systems_say_nothing():
    messages = [
        {"role": "system", "content": "You are Hermes."},
        {"role": "user", "content": "[CONTEXT COMPACTION - REFERENCE ONLY] of herons"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
        {"role": "tool", "content": "42"},
        {"role": "user", "content": [{"type": "text", "text": "hello"}, {"type": "image_url"}, "there"]},
        "not a message",
        {"role": "assistant"},
    ]
    assert [(one.role, one.text) for one in transcripts.transcript_messages(messages)] == [("user", "hello\nthere")]
