"""What a transcript tells that is not known: the decisions by themselves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonbook.adapters.hermes import transcript_diff
from commonbook.adapters.hermes.transcript_diff import TranscriptTurn
from commonbook.text import masking, recall_fence


def told(words: str) -> list[TranscriptTurn]:
    """A transcript of single letters: capitals are the user's."""
    return [TranscriptTurn("user" if one.isupper() else "assistant", one, one) for one in words]


def fresh(known: str, words: str, **how: bool) -> str:
    how = {"more_before": False, "completes_a_turn": True, **how}
    return "".join(one.text for one in transcript_diff.diff(list(known), told(words), **how).fresh)


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
    assert fresh(known, words) == new


@pytest.mark.parametrize(
    ("known", "words", "new"),
    [("", "AaBb", "AaBb"), ("AaBb", "AaBb", ""), ("AaBbCc", "Bb", ""), ("Aa", "XxYy", ""), ("AaBb", "BbC", "C")],
)
def test_a_whole_transcript_may_tell_nothing_new(known, words, new):
    assert fresh(known, words, completes_a_turn=False) == new


def test_of_a_transcript_that_begins_with_what_was_said_elsewhere_only_the_last_turn_is_new():
    assert fresh("", "AaBbCc", more_before=True) == "Cc"
    assert fresh("Cc", "AaBbCcDd", more_before=True) == "Dd"


@pytest.mark.parametrize(
    ("known", "words", "kept", "new"),
    [
        ("AaBbCc", "AaBbDd", "AaBb", "Dd"),
        ("AaBbCc", "AaBbCc", "AaBb", "Cc"),
        ("AaBbCc", "Dd", "", "Dd"),
        ("AaBbCc", "BbDd", "AaBb", "Dd"),
        ("AaBbCc", "AaXDd", "Aa", "XDd"),
        ("AaAaAa", "AaAaBb", "AaAaAa", "Bb"),
    ],
)
def test_what_was_undone_shows_in_the_next_turn_s_transcript(known, words, kept, new):
    found = transcript_diff.after_undo(list(known), told(words), more_before=False, completes_a_turn=True)
    assert found is not None
    assert (known[: found.kept], "".join(one.text for one in found.fresh)) == (kept, new)


def test_what_was_undone_cannot_be_told_from_a_transcript_that_has_nothing_in_common():
    assert transcript_diff.after_undo(list("AaBb"), told("XxYy"), more_before=False, completes_a_turn=True) is None
    assert transcript_diff.after_undo(list("Bb"), told("Cc"), more_before=True, completes_a_turn=True) is None


@given(st.lists(st.sampled_from("ABC"), max_size=12), st.integers(0, 12))
def test_a_conversation_told_turn_by_turn_is_known_as_it_is(turns, cut):
    """Also if it is cut in front once: as long as something of it is left, nothing is lost or doubled."""
    known: list[str] = []
    words: list[TranscriptTurn] = []
    whole = ""
    for at, turn in enumerate(turns):
        if at == cut:
            words = words[-2:]
        words += [*told(turn), TranscriptTurn("assistant", f"{turn}{at}", f"{turn}{at}")]
        whole += turn + f"{turn}{at}"
        found = transcript_diff.diff(known, words, more_before=False, completes_a_turn=True)
        known += [one.mark for one in found.fresh]
    assert "".join(known) == whole


@given(st.text(max_size=200))
def test_what_was_cleaned_is_stored_as_it_is(text):
    cleaned = transcript_diff.clean(text)
    assert masking.mask(recall_fence.unfence(cleaned)).text == cleaned
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
    assert [(one.role, one.text) for one in transcript_diff.transcript(messages)] == [("user", "hello\nthere")]
