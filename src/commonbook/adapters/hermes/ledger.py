"""The known state of the sessions of a provider: the messages of each (its ledger), and the turns that are open.

New messages of a transcript are recognised by the ledger of its session. A question is stored when its turn starts, so
that a turn which is interrupted or killed does not lose it. It is held back while an earlier turn is open: the answer
to that one may still be queued, and belongs before it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from commonbook.adapters.hermes.transcript_diff import TranscriptDiff, TranscriptMessage, fingerprint
from commonbook.ports.outbox import SessionContext

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


class KnownMessage(NamedTuple):
    """A known message: its fingerprint, and its client ids if it belongs to this session (several if it was split)."""

    fingerprint: str
    ids: tuple[str, ...] = ()
    words: str = ""
    """The text, if a person typed it."""


@dataclass(slots=True)
class Ledger:
    """The known messages of a session, and the state of its transcripts."""

    context: SessionContext
    generation: str
    message_count: int = 0
    """Number of messages that it ever had. Client ids consist of the generation and this number."""
    known: list[KnownMessage] = field(default_factory=list)
    inherits_from: str | None = None
    """The session whose transcript this one continues. Its known messages are copied when the first turn comes here,
    because its own last turns may still be queued when Hermes switches."""
    parent: str | None = None
    """The parent that another process recorded; a transcript may begin with messages of it."""
    unknown_prefix: bool = False
    """Whether a transcript may begin with messages that are not in the ledger."""
    is_compressed: bool = False
    """Whether a transcript may begin after the first messages of the ledger."""
    has_ended: bool = False
    """Whether Hermes has reported the end of the session, and no turn of it came since."""
    undo_pending: bool = False
    """Whether messages were undone; the next transcript shows which."""
    stored_early: list[str] = field(default_factory=list)
    """Fingerprints of messages that a whole transcript brought before their own turn was synced."""
    last_transcript: list[str] = field(default_factory=list)
    """Fingerprints of the last transcript that came with a turn; the same transcript again is a repeat."""
    turns_since_settle: int = 0
    """Number of turns since the session was last settled."""
    last_turn: tuple[int, list[str]] = (0, [])
    """How many turns had started when the last turn was synced, and the fingerprints of that turn. The same turn
    again is a repeat, unless another one has started."""

    notices: set[str] = field(default_factory=set)
    """Fingerprints of messages that Hermes wrote within a turn, in the name of the user."""
    readable: bool = True
    """Whether the session could be read from the book."""

    @property
    def is_unknown(self) -> bool:
        """Whether it is not known which messages the session has."""
        return not self.readable and not self.known

    def fingerprints(self) -> list[str]:
        """Return the fingerprints of the known messages."""
        return [message.fingerprint for message in self.known]

    def index(self, turn: OpenTurn) -> int | None:
        """Return the index of the stored question of an open turn."""
        return next((at for at, message in enumerate(self.known) if turn.ids and message.ids == turn.ids), None)

    def unanswered(self) -> list[list[TranscriptMessage]]:
        """Return the messages of the user in runs without an answer between them."""
        runs: list[list[TranscriptMessage]] = [[]]
        for message in self.known:
            if message.words:
                runs[-1].append(TranscriptMessage("user", message.words, message.fingerprint))
            elif runs[-1]:
                runs.append([])
        return runs


def known_message(role: str, text: str, client_id: str) -> KnownMessage:
    """Return a message of the book."""
    return KnownMessage(fingerprint(role, text), (client_id,), text if role == "user" else "")
