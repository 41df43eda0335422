"""Open turns: the turns that Hermes has announced and not yet handed over, in their order.

A question is stored when its turn starts, so that a turn which is interrupted or killed does not lose it. It is held
back while an earlier turn is open: the answer to that one may still be queued, and belongs before it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from commonbook.adapters.hermes.transcript_diff import TranscriptDiff, TranscriptMessage, fingerprint

_MAX_TURNS: Final = 32


@dataclass(slots=True, eq=False)
class OpenTurn:
    """A turn that has started: its session, its question, and the client ids of the question if it is stored."""

    session: str
    question: TranscriptMessage
    ids: tuple[str, ...] = ()
    is_first: bool = False
    """Whether it is the first turn of its session."""
    is_unplaced: bool = False
    """Whether it may belong to a session to which Hermes is about to switch."""

    @property
    def is_held(self) -> bool:
        """Whether the question is not stored yet."""
        return not self.ids


class OpenTurns:
    """All open turns of a process."""

    def __init__(self) -> None:
        """Start without turns."""
        self._turns: list[OpenTurn] = []

    def add(self, turn: OpenTurn) -> OpenTurn | None:
        """Add a turn that starts; return the oldest one if there are too many, which is not open any more."""
        turn.is_unplaced |= any(one.is_unplaced for one in self._turns)
        self._turns.append(turn)
        return self._turns.pop(0) if len(self._turns) > _MAX_TURNS else None

    def of_session(self, session: str) -> list[OpenTurn]:
        """Return the open turns of a session."""
        return [turn for turn in self._turns if turn.session == session and not turn.is_unplaced]

    def is_next(self, turn: OpenTurn) -> bool:
        """Tell whether no earlier turn is open that belongs to its session, or may belong to it."""
        return next(one for one in self._turns if one.is_unplaced or one.session == turn.session) is turn

    def held(self) -> Iterator[OpenTurn]:
        """Yield the turns whose question is not stored."""
        return (turn for turn in list(self._turns) if turn.is_held)

    def place(self, session: str) -> None:
        """Put turns that waited for a switch into the session to which Hermes has switched."""
        unplaced = [turn for turn in self._turns if turn.is_unplaced]
        for index, turn in enumerate(unplaced):
            if index and turn.is_first:
                break
            turn.session, turn.is_unplaced = session, False

    def remove(self, turns: Collection[OpenTurn]) -> None:
        """Remove turns that are stored, or overtaken by one that is."""
        self._turns = [turn for turn in self._turns if turn not in turns]

    def up_to(self, messages: Sequence[TranscriptMessage], start: int) -> list[OpenTurn]:
        """Return the turn with this question, as the last one, and those that it has overtaken.

        Of several turns with the same words it is the one whose predecessors stand before it in the transcript; else
        the first.
        """
        if start >= len(messages):
            return []
        words = {messages[start].fingerprint, fingerprint("user", messages[start].text)}
        matches = [index for index, turn in enumerate(self._turns) if turn.question.fingerprint in words]
        if not matches:
            return []
        best = max(matches, key=lambda index: (self._overtaken(index, messages, start), -index))
        found = self._turns[best]
        return [*(turn for turn in self._turns[:best] if turn.session == found.session), found]

    def _overtaken(self, index: int, messages: Sequence[TranscriptMessage], start: int) -> int:
        count = 0
        while count < min(index, start):
            message = messages[start - count - 1]
            if message.role != "user" or message.fingerprint != self._turns[index - count - 1].question.fingerprint:
                break
            count += 1
        return count


def with_overtaken(
    changes: TranscriptDiff, opened: Sequence[OpenTurn], stored_early: Collection[str]
) -> TranscriptDiff:
    """Return changes with the questions that were held back before this turn, if the transcript does not show them."""
    new = [message.fingerprint for message in changes.new]
    found = {*new, *stored_early}
    lost = [turn.question for turn in opened[:-1] if turn.is_held and turn.question.fingerprint not in found]
    question = opened[-1].question.fingerprint if lost else ""
    at = new.index(question) if question in new else 0
    return changes._replace(new=(*changes.new[:at], *lost, *changes.new[at:])) if lost else changes
