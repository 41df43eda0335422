"""Transcript diff: find the messages of a Hermes transcript that are not stored yet. All functions are pure.

Hermes hands over the same conversation again and again: after each turn, before it compresses, and at the end. A
compression cuts the transcript at the front, an undo cuts it at the end. Messages have no ids. So a message is
recognised by its fingerprint, a hash of its role and cleaned text, together with its neighbours. The position alone is
not enough, since positions move. The text alone is not enough, since people say `yes` twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Final, NamedTuple

from commonbook.text import masking, recall_fence

_MAX_PIECE_CHARS: Final = 256 * 1024
"""This many characters are at most 1 MiB, the limit of a message, in any script."""

# Hermes puts these texts into a transcript itself; nobody said them.
_HERMES_PREFIXES: Final = (
    "[CONTEXT COMPACTION",
    "[CONTEXT SUMMARY]",
    "[PRIOR CONTEXT",
    "[Your active task list was preserved",
)
_EMPTY_MEMORY_CONTEXT: Final = re.compile(
    r"<\s*memory-context\s*>\s*(?:\[System note:[^\]]{0,400}\]\s*)?</\s*memory-context\s*>\s*", re.IGNORECASE
)


class TranscriptMessage(NamedTuple):
    """One message of a transcript: its role, the text to store, and the fingerprint that recognises it."""

    role: str
    text: str
    fingerprint: str


class TranscriptDiff(NamedTuple):
    """Result of a comparison: how many of the known messages remain, and the new messages after them."""

    kept: int
    new: tuple[TranscriptMessage, ...]


def clean(text: str) -> str:
    """Return a text without recalled passages, secrets and characters that a file cannot hold."""
    encodable = text.replace("\0", "").encode("utf-8", "replace").decode("utf-8")
    return masking.mask(_EMPTY_MEMORY_CONTEXT.sub("", recall_fence.unfence_any(encodable))).text.strip()


def transcript_message(role: str, content: object) -> TranscriptMessage | None:
    """Return a message as it is stored; None if it is empty, of another role, or written by Hermes itself."""
    text = clean(_text(content))
    if role not in ("user", "assistant") or not text or text.startswith(_HERMES_PREFIXES):
        return None
    return TranscriptMessage(role, text, fingerprint(role, text))


def fingerprint(role: str, text: str) -> str:
    """Return the hash by which a message is recognised."""
    return sha256(f"{role}\n{text}".encode("utf-8", "replace")).hexdigest()[:24]


def transcript_messages(messages: Iterable[object]) -> list[TranscriptMessage]:
    """Return the messages of user and assistant; those of tools, system prompts and summaries are left out."""
    parsed = (
        transcript_message(str(message.get("role") or ""), message.get("content"))
        if isinstance(message, Mapping)
        else None
        for message in messages
    )
    return [message for message in parsed if message is not None]


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        return ""
    parts = (item.get("text") if isinstance(item, Mapping) else item for item in content)
    return "\n".join(part for part in parts if isinstance(part, str))


def split_text(text: str) -> list[str]:
    """Split a text into parts that fit into one message each."""
    return [text[at : at + _MAX_PIECE_CHARS] for at in range(0, len(text), _MAX_PIECE_CHARS)]


# --- the last turn


def with_turn(messages: Sequence[TranscriptMessage], user: str, assistant: str) -> list[TranscriptMessage]:
    """Return a transcript that ends with this turn, with the texts that Hermes gives for the turn itself.

    A transcript may have the whole text of a skill where the user said two words. The fingerprints stay those of the
    transcript, so that the same message is recognised in the next transcript.
    """
    question, answer = transcript_message("user", user), transcript_message("assistant", assistant)
    result = list(messages)
    start = last_turn_start(result)
    if start == len(result):
        return [*result, *(message for message in (question, answer) if message)]
    if question:
        result[start] = result[start]._replace(text=question.text)
    if answer and result[-1].role == "assistant":
        result[-1] = result[-1]._replace(text=answer.text)
    elif answer:
        result.append(answer)
    return result


def last_turn_start(messages: Sequence[TranscriptMessage]) -> int:
    """Return the index of the last message of the user, where the last turn begins."""
    return next((index for index in range(len(messages) - 1, -1, -1) if messages[index].role == "user"), len(messages))


# --- new messages


def compare(
    known: Sequence[str],
    messages: Sequence[TranscriptMessage],
    *,
    inherited: int = 0,
    unknown_prefix: bool,
    completes_turn: bool,
) -> TranscriptDiff:
    """Compare a transcript with the known fingerprints and return the new messages.

    `inherited` is the number of known messages, at the front, that belong to another session. `unknown_prefix` says
    that the transcript may begin with unknown messages, of another session or another process. `completes_turn` says
    that its last message is new, unless the whole transcript is known.
    """
    fingerprints = [message.fingerprint for message in messages]
    if fingerprints == list(known[: len(fingerprints)]) and (len(fingerprints) > inherited or not completes_turn):
        return TranscriptDiff(len(known), ())
    if list(known) == fingerprints[: len(known)] and (known or not unknown_prefix):
        return TranscriptDiff(len(known), tuple(messages[len(known) :]))
    end = _end_of_overlap(known, fingerprints[: len(fingerprints) - completes_turn])
    if end:
        return TranscriptDiff(len(known), tuple(messages[end:]))
    # No message is known, so only the last turn certainly belongs to this session.
    return TranscriptDiff(len(known), tuple(messages[last_turn_start(messages) :]) if completes_turn else ())


def is_sublist(known: Sequence[str], fingerprints: Sequence[str]) -> bool:
    """Tell whether the fingerprints are a contiguous part of the known ones."""
    return any(
        list(known[start : start + len(fingerprints)]) == list(fingerprints)
        for start in range(len(known) - len(fingerprints) + 1)
        if known[start : start + 1] == list(fingerprints[:1])
    )


def _end_of_overlap(known: Sequence[str], fingerprints: Sequence[str]) -> int:
    """Return the index after the longest known suffix in a transcript; 0 if there is none."""
    best = (0, 0)
    for end in range(1, len(fingerprints) + 1):
        best = max(best, (_common_suffix(known, fingerprints, end), end))
    return best[1] if best[0] else 0


def _common_suffix(known: Sequence[str], fingerprints: Sequence[str], end: int) -> int:
    """Return how many of the last known messages precede an index of a transcript."""
    count, limit = 0, min(len(known), end)
    while count < limit and known[-count - 1] == fingerprints[end - count - 1]:
        count += 1
    return count


def compare_after_undo(
    known: Sequence[str], messages: Sequence[TranscriptMessage], *, unknown_prefix: bool, completes_turn: bool
) -> TranscriptDiff | None:
    """Return the remaining and the new messages after an undo; None if the transcript does not show them.

    Known messages remain up to the end of the longest run that the transcript shares with them.
    """
    compared = last_turn_start(messages) if completes_turn else len(messages)
    fingerprints = [message.fingerprint for message in messages[:compared]]
    if not fingerprints and messages and not unknown_prefix:
        return TranscriptDiff(0, tuple(messages))
    length, end, kept = _longest_run(known, fingerprints)
    if not length:
        return None
    return TranscriptDiff(kept, tuple(messages[end:]))


def _longest_run(known: Sequence[str], fingerprints: Sequence[str]) -> tuple[int, int, int]:
    """Return the longest common run: its length, its end in the transcript and in the known list; the last if equal."""
    best, previous_row = (0, 0, 0), [0] * (len(fingerprints) + 1)
    for known_end, expected in enumerate(known, 1):
        row = [0] * (len(fingerprints) + 1)
        for end, actual in enumerate(fingerprints, 1):
            if expected == actual:
                row[end] = previous_row[end - 1] + 1
                best = max(best, (row[end], end, known_end))
        previous_row = row
    return best
