"""What a transcript of Hermes tells that is not known yet: pure decisions.

Hermes hands over the same conversation again and again: after each turn, before it compresses, at the end; cut short in
front when it was compressed, cut short behind when it was undone. Nothing in it has an id. So a message is known again
by a mark, a hash of its role and cleaned words, and by what stands around it: never by its place alone, since places
move, nor by its words alone, since people say `yes` twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Final, NamedTuple

from commonbook.text import masking, recall_fence

_MOST_LETTERS: Final = 256 * 1024
"""So many letters are at most a message's one MiB, in any script."""

# What Hermes itself puts into a transcript: said by nobody.
_HERMES_OWN: Final = (
    "[CONTEXT COMPACTION",
    "[CONTEXT SUMMARY]",
    "[PRIOR CONTEXT",
    "[Your active task list was preserved",
)
_EMPTY_SHELL: Final = re.compile(
    r"<\s*memory-context\s*>\s*(?:\[System note:[^\]]{0,400}\]\s*)?</\s*memory-context\s*>\s*", re.IGNORECASE
)


class TranscriptTurn(NamedTuple):
    """One message: whose, what is to be stored of it, and the mark by which it is known again."""

    role: str
    text: str
    mark: str


class TranscriptDiff(NamedTuple):
    """What a transcript tells: how many of the known messages still stand, and what comes behind them."""

    kept: int
    fresh: tuple[TranscriptTurn, ...]


def clean(text: str) -> str:
    """Return a text without recalled passages that came back, without secrets, and fit for a file."""
    whole = text.replace("\0", "").encode("utf-8", "replace").decode("utf-8")
    return masking.mask(_EMPTY_SHELL.sub("", recall_fence.unfence(whole))).text.strip()


def transcript_turn(role: str, content: object) -> TranscriptTurn | None:
    """Return a message as it is to be kept; None if nobody said anything."""
    text = clean(_text(content))
    if role not in ("user", "assistant") or not text or text.startswith(_HERMES_OWN):
        return None
    return TranscriptTurn(role, text, mark(role, text))


def mark(role: str, text: str) -> str:
    """Return that by which a message is known again."""
    return sha256(f"{role}\n{text}".encode("utf-8", "replace")).hexdigest()[:24]


def transcript(messages: Iterable[object]) -> list[TranscriptTurn]:
    """Return what people and the agent said in messages of Hermes; tools, systems and summaries say nothing."""
    found = (
        transcript_turn(str(one.get("role") or ""), one.get("content")) if isinstance(one, Mapping) else None
        for one in messages
    )
    return [one for one in found if one is not None]


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        return ""
    parts = (one.get("text") if isinstance(one, Mapping) else one for one in content)
    return "\n".join(part for part in parts if isinstance(part, str))


def pieces(text: str) -> list[str]:
    """Return a text in parts that a message can hold: one, unless it is huge."""
    return [text[at : at + _MOST_LETTERS] for at in range(0, len(text), _MOST_LETTERS)]


# --- a turn


def turn(told: Sequence[TranscriptTurn], user: str, assistant: str) -> list[TranscriptTurn]:
    """Return a transcript that ends with this turn, in the words that Hermes gives for it.

    A transcript may have a skill's whole text where the user said two words; the marks are those of the transcript, so
    that the same message is known again in the next one.
    """
    asked, answered = transcript_turn("user", user), transcript_turn("assistant", assistant)
    found = list(told)
    start = last_turn(found)
    if start == len(found):
        return [*found, *(one for one in (asked, answered) if one)]
    if asked:
        found[start] = found[start]._replace(text=asked.text)
    if answered and found[-1].role == "assistant":
        found[-1] = found[-1]._replace(text=answered.text)
    elif answered:
        found.append(answered)
    return found


def last_turn(told: Sequence[TranscriptTurn]) -> int:
    """Return where the last turn of a transcript begins: at what the user said last."""
    return next((at for at in range(len(told) - 1, -1, -1) if told[at].role == "user"), len(told))


# --- what is new


def diff(
    known: Sequence[str], told: Sequence[TranscriptTurn], *, carried: int = 0, more_before: bool, completes_a_turn: bool
) -> TranscriptDiff:
    """Return what a transcript tells that is not known.

    `carried`: so many of the first that are known were said in another session. `more_before`: it may begin with what
    is not known here, because it was said in another session or to another process. `completes_a_turn`: its last
    message is new, unless all of it is known.
    """
    marks = [one.mark for one in told]
    if marks == list(known[: len(marks)]) and (len(marks) > carried or not completes_a_turn):
        return TranscriptDiff(len(known), ())
    if list(known) == marks[: len(known)] and (known or not more_before):
        return TranscriptDiff(len(known), tuple(told[len(known) :]))
    end = _overlap(known, marks[: len(marks) - completes_a_turn])
    if end:
        return TranscriptDiff(len(known), tuple(told[end:]))
    # Nothing in it is known: of what was said before, nobody can tell whether it was said here.
    return TranscriptDiff(len(known), tuple(told[last_turn(told) :]) if completes_a_turn else ())


def is_part_of(known: Sequence[str], marks: Sequence[str]) -> bool:
    """Tell whether a transcript, as it is, is a part of what is known."""
    return any(
        list(known[at : at + len(marks)]) == list(marks)
        for at in range(len(known) - len(marks) + 1)
        if known[at : at + 1] == list(marks[:1])
    )


def _overlap(known: Sequence[str], marks: Sequence[str]) -> int:
    """Return behind which message the longest end of what is known stands in a transcript; 0 if it does not."""
    best = (0, 0)
    for end in range(1, len(marks) + 1):
        best = max(best, (_common_end(known, marks, end), end))
    return best[1] if best[0] else 0


def _common_end(known: Sequence[str], marks: Sequence[str], end: int) -> int:
    """Return how many of the last known messages stand right before a place in a transcript."""
    count, most = 0, min(len(known), end)
    while count < most and known[-count - 1] == marks[end - count - 1]:
        count += 1
    return count


def after_undo(
    known: Sequence[str], told: Sequence[TranscriptTurn], *, more_before: bool, completes_a_turn: bool
) -> TranscriptDiff | None:
    """Return what an undone conversation still has, and what is new in it; None if it cannot be told.

    The place is where the longest run of known messages ends in the transcript.
    """
    newest = last_turn(told) if completes_a_turn else len(told)
    marks = [one.mark for one in told[:newest]]
    if not marks and told and not more_before:
        return TranscriptDiff(0, tuple(told))
    length, end, kept = _longest_run(known, marks)
    if not length:
        return None
    return TranscriptDiff(kept, tuple(told[end:]))


def _longest_run(known: Sequence[str], marks: Sequence[str]) -> tuple[int, int, int]:
    """Return the longest run that both have: its length, and where it ends in both; of several the last."""
    best, before = (0, 0, 0), [0] * (len(marks) + 1)
    for at, one in enumerate(known, 1):
        row = [0] * (len(marks) + 1)
        for end, other in enumerate(marks, 1):
            if one == other:
                row[end] = before[end - 1] + 1
                best = max(best, (row[end], end, at))
        before = row
    return best
