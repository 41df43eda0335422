"""Ledger: the known messages of a session, by which new ones are recognised in a transcript."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from commonbook.adapters.hermes.open_turns import OpenTurn
from commonbook.adapters.hermes.transcript_diff import TranscriptMessage, fingerprint
from commonbook.ports.outbox import SessionContext


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
