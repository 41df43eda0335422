"""The recorder stores each turn once, under the session, parent and tags that were current when it was said.

It keeps a ledger of the known messages for each session. The ledger is read from the book when the session is first
used, and then kept up to date. A transcript is compared with the ledger, and only new messages are stored.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from commonbook.adapters.hermes import transcript_diff
from commonbook.adapters.hermes.keeper import Keeper, StoredSession, Warn
from commonbook.adapters.hermes.transcript_diff import TranscriptDiff, TranscriptMessage
from commonbook.errors import Busy
from commonbook.model.ids import new_id
from commonbook.model.session import NewMessage, SwitchReason
from commonbook.ports.outbox import SessionContext

_MAX_LEDGERS: Final = 64
_BATCH_MESSAGES: Final = 1000
_MAX_PARENTS: Final = 8
_CONTINUING_REASONS: Final = ("branch", "compress")


class KnownMessage(NamedTuple):
    """A known message: its fingerprint, and its client ids if it belongs to this session (several if it was split)."""

    fingerprint: str
    ids: tuple[str, ...] = ()


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

    readable: bool = True
    """Whether the session could be read from the book."""

    @property
    def is_unknown(self) -> bool:
        """Whether it is not known which messages the session has."""
        return not self.readable and not self.known

    def fingerprints(self) -> list[str]:
        """Return the fingerprints of the known messages."""
        return [message.fingerprint for message in self.known]


class Speakers(NamedTuple):
    """Authors of the messages, and tags of a new session."""

    user: str | None = None
    agent: str = "agent:hermes"
    tags: tuple[str, ...] = ()


class Recorder:
    """Records conversations. It is thread-safe."""

    def __init__(self, keeper: Keeper, speakers: Speakers, *, settle_every: int, warn: Warn) -> None:
        """Start without ledgers."""
        self._keeper, self._speakers = keeper, speakers
        self._settle_every, self._warn = settle_every, warn
        self._ledgers: OrderedDict[str, Ledger] = OrderedDict()
        self._parents: dict[str, str] = {}
        self._turns_started = 0
        self._lock = threading.RLock()

    def set_parent(self, session: str, parent: str) -> None:
        """Set the parent of a session, in case it is new."""
        self._parents[session_name(session)] = session_name(parent)

    def turn_started(self) -> None:
        """Count a started turn, so that the next sync is not a repeat of the last."""
        self._turns_started += 1

    # --- turns and transcripts

    def record_turn(self, session: str, user: str, assistant: str, messages: Iterable[object] | None) -> None:
        """Store a turn, and all other new messages of its transcript."""
        with self._lock:
            session = session_name(session)
            ledger = self._ledger(session)
            transcript = transcript_diff.with_turn(transcript_diff.transcript_messages(messages or ()), user, assistant)
            last = [message.fingerprint for message in transcript[transcript_diff.last_turn_start(transcript) :]]
            if messages:
                self._inherit(ledger, transcript[: len(transcript) - len(last)])
                changes = self._diff_turn(session, ledger, transcript, last)
            else:
                changes = self._diff_bare_turn(ledger, transcript, last)
            self._apply(session, ledger, changes)
            # Only after storing: a turn that could not be stored is synced again, and is then no repeat.
            ledger.last_transcript = [message.fingerprint for message in transcript]
            ledger.last_turn = (self._turns_started, last)
            for fingerprint in last:
                _remove_if_present(ledger.stored_early, fingerprint)
            ledger.turns_since_settle += 1 if changes.new else 0
            if self._settle_every and ledger.turns_since_settle >= self._settle_every:
                ledger.turns_since_settle = 0
                self._keeper.settle(session)

    def checkpoint(self, session: str, messages: Iterable[object]) -> None:
        """Store the new messages of a whole transcript; raise if it is not known which are new."""
        with self._lock:
            if self._ledger(session_name(session)).is_unknown:
                raise Busy("it is not known which messages are stored already", fix="try again in a moment")
            self.record_transcript(session, messages)

    def record_transcript(self, session: str, messages: Iterable[object]) -> None:
        """Store the new messages of a whole transcript."""
        with self._lock:
            session = session_name(session)
            # An empty transcript means that Hermes has none, not that everything was undone.
            if transcript := transcript_diff.transcript_messages(messages):
                ledger = self._ledger(session)
                self._inherit(ledger, transcript)
                changes = self._diff(session, ledger, transcript, completes_turn=False)
                self._apply(session, ledger, changes)
                ledger.stored_early += [message.fingerprint for message in changes.new]

    def _diff_turn(
        self, session: str, ledger: Ledger, transcript: Sequence[TranscriptMessage], last: list[str]
    ) -> TranscriptDiff:
        """Return the new messages in the transcript of a turn; a whole transcript may have brought them before."""
        fingerprints = [message.fingerprint for message in transcript]
        searched = last if ledger.unknown_prefix else fingerprints
        stored_before = all(fingerprint in ledger.stored_early for fingerprint in last) and transcript_diff.is_sublist(
            ledger.fingerprints(), searched
        )
        if stored_before or (self._is_repeat(ledger, fingerprints, last) and not ledger.undo_pending):
            return TranscriptDiff(len(ledger.known), ())
        return self._diff(session, ledger, transcript, completes_turn=True)

    def _is_repeat(self, ledger: Ledger, fingerprints: list[str], last: list[str]) -> bool:
        """Tell whether a turn was synced before: no other has started since, and it is the last synced or known one."""
        started, last_synced = ledger.last_turn
        is_last_known = not last_synced and ledger.fingerprints()[-len(last) :] == last
        return (
            started == self._turns_started
            and bool(last)
            and (fingerprints == ledger.last_transcript or last_synced == last or is_last_known)
        )

    def _diff_bare_turn(self, ledger: Ledger, messages: Sequence[TranscriptMessage], last: list[str]) -> TranscriptDiff:
        """Return the new messages of a turn without transcript; if Hermes announces no turns, every turn is new."""
        if self._turns_started and ledger.last_turn == (self._turns_started, last):
            return TranscriptDiff(len(ledger.known), ())
        stored_early = list(ledger.stored_early)
        return TranscriptDiff(
            len(ledger.known),
            tuple(message for message in messages if not _remove_if_present(stored_early, message.fingerprint)),
        )

    def _diff(
        self, session: str, ledger: Ledger, transcript: Sequence[TranscriptMessage], *, completes_turn: bool
    ) -> TranscriptDiff:
        changes = (
            self._diff_after_undo(session, ledger, transcript, completes_turn=completes_turn)
            if ledger.undo_pending
            else None
        )
        return changes or transcript_diff.compare(
            ledger.fingerprints(),
            transcript,
            inherited=sum(not message.ids for message in ledger.known),
            unknown_prefix=ledger.unknown_prefix,
            completes_turn=completes_turn,
        )

    def _diff_after_undo(
        self, session: str, ledger: Ledger, transcript: Sequence[TranscriptMessage], *, completes_turn: bool
    ) -> TranscriptDiff | None:
        ledger.undo_pending = False
        self._load_parents(ledger, _MAX_PARENTS)
        known = ledger.fingerprints()
        changes = transcript_diff.compare_after_undo(
            known, transcript, unknown_prefix=ledger.unknown_prefix, completes_turn=completes_turn
        )
        if changes is None and known:
            self._warn(f"It is not clear what was undone in {session}; nothing was rewound.")
        return changes

    def _load_parents(self, ledger: Ledger, max_depth: int) -> None:
        """Put the known messages of the parents, which another process recorded, in front of the ledger."""
        if ledger.parent is not None and max_depth:
            parent, ledger.parent = self._ledger(ledger.parent), None
            self._load_parents(parent, max_depth - 1)
            ledger.known[:0] = [KnownMessage(message.fingerprint) for message in parent.known]

    def _apply(self, session: str, ledger: Ledger, changes: TranscriptDiff) -> None:
        if changes.kept < len(ledger.known):
            self._rewind(session, ledger, changes.kept)
        for start in range(0, len(changes.new), _BATCH_MESSAGES):
            self._store(session, ledger, changes.new[start : start + _BATCH_MESSAGES])

    def _rewind(self, session: str, ledger: Ledger, kept_count: int) -> None:
        removed = [client_id for message in ledger.known[kept_count:] for client_id in message.ids]
        del ledger.known[kept_count:]
        ledger.generation = _next_generation(ledger.generation)
        ledger.stored_early, ledger.last_turn = [], (0, [])
        if removed:
            last = next((message.ids[-1] for message in reversed(ledger.known) if message.ids), None)
            self._keeper.rewind(session, last, removed)

    def _store(self, session: str, ledger: Ledger, messages: Sequence[TranscriptMessage]) -> None:
        new, known, count = [], [], ledger.message_count
        for message in messages:
            author = self._speakers.user if message.role == "user" else self._speakers.agent
            parts = transcript_diff.split_text(message.text)
            ids = tuple(
                f"hermes:{ledger.generation}:{count + number}:{message.fingerprint[:12]}"
                for number in range(1, len(parts) + 1)
            )
            new += [
                NewMessage(part, role=message.role, author=author, client_id=client_id)
                for part, client_id in zip(parts, ids, strict=True)
            ]
            known.append(KnownMessage(message.fingerprint, ids))
            count += len(parts)
        self._keeper.append(session, new, ledger.context)
        # Only durable messages are known: one that could not be stored is new again in the next transcript.
        ledger.known += known
        ledger.message_count = count

    def record_delegation(self, session: str, task: str, result: str, child: str) -> None:
        """Store a delegated task and its result, as a session whose parent is this one."""
        messages = [
            message
            for message in (
                transcript_diff.transcript_message("user", task),
                transcript_diff.transcript_message("assistant", result),
            )
            if message
        ]
        fingerprints = "\n".join(message.fingerprint for message in messages)
        fingerprint = transcript_diff.fingerprint("delegation", fingerprints)[:12]
        child_session = session_name(child or f"{session}.{fingerprint}")
        author = {"user": self._speakers.agent, "assistant": "agent:subagent"}
        new = [
            NewMessage(
                piece,
                role=message.role,
                author=author[message.role],
                client_id=f"hermes:delegation:{fingerprint}:{index}:{part}",
            )
            for index, message in enumerate(messages)
            for part, piece in enumerate(transcript_diff.split_text(message.text))
        ]
        if new:
            tags = (*self._speakers.tags, "delegation")
            self._keeper.append(child_session, new, SessionContext(parent=session_name(session), tags=tags))
            self._keeper.settle(child_session, close=True)

    # --- sessions

    def note_undo(self, session: str) -> None:
        """Note that messages were undone; the next transcript shows which."""
        with self._lock:
            self._ledger(session_name(session)).undo_pending = True

    def switch(self, old: str, new: str, *, reason: SwitchReason) -> None:
        """Leave one session for another, new or resumed."""
        with self._lock:
            old, new = session_name(old), session_name(new)
            old_ledger = self._ledger(old)
            cached = self._ledgers.pop(new, None)
            if reason != "resume":
                self._cache(new, self._new_ledger(old, carries_on=reason in _CONTINUING_REASONS))
            elif cached is not None and cached.undo_pending:
                self._ledger(new).undo_pending = True
            old_ledger.generation = _next_generation(old_ledger.generation)
            old_ledger.turns_since_settle = 0
            self._keeper.switch(old, new, reason=reason, tags=self._speakers.tags)

    def _new_ledger(self, old: str, *, carries_on: bool) -> Ledger:
        """Return the ledger of a new session; with `carries_on`, its transcripts begin with messages of the old one."""
        context = SessionContext(parent=old, tags=self._speakers.tags)
        return Ledger(context, _new_generation(), inherits_from=old if carries_on else None, unknown_prefix=carries_on)

    def _inherit(self, ledger: Ledger, transcript: Sequence[TranscriptMessage]) -> None:
        """Copy the known messages of the session that this one continues, after applying a pending undo to it."""
        if ledger.inherits_from is not None:
            source, ledger.inherits_from = ledger.inherits_from, None
            source_ledger = self._ledger(source)
            self._inherit(source_ledger, transcript)
            if source_ledger.undo_pending and (
                changes := self._diff_after_undo(source, source_ledger, transcript, completes_turn=False)
            ):
                self._apply(source, source_ledger, changes._replace(new=()))
            ledger.known[:0] = [KnownMessage(message.fingerprint) for message in source_ledger.known]
            ledger.parent = source_ledger.parent

    def end_session(self, session: str, messages: Iterable[object]) -> None:
        """Store the new messages of a session that has ended, and settle all of it."""
        with self._lock:
            name = session_name(session)
            ledger = self._ledger(name)
            # A session that continues another one and has no turn yet still has the transcript of the other one.
            if ledger.inherits_from is None or self._ledger(ledger.inherits_from).undo_pending:
                self.record_transcript(name, messages)
            ledger.turns_since_settle = 0
            self._keeper.settle(name, close=True)

    def note_compression(self, session: str) -> None:
        """Settle a session that continues with a compressed transcript."""
        with self._lock:
            name = session_name(session)
            self._ledger(name).last_transcript = []
            self._keeper.settle(name)

    def settle(self, session: str) -> None:
        """Settle a session that was left without an end."""
        self._keeper.settle(session_name(session))

    # --- ledgers

    def _ledger(self, session: str) -> Ledger:
        ledger = self._ledgers.get(session)
        if ledger is None or (ledger.is_unknown and not ledger.undo_pending):
            ledger = self._make_ledger(session, self._keeper.load(session))
            self._cache(session, ledger)
        self._ledgers.move_to_end(session)
        return ledger

    def _cache(self, session: str, ledger: Ledger) -> None:
        self._ledgers[session] = ledger
        while len(self._ledgers) > _MAX_LEDGERS:
            self._ledgers.popitem(last=False)

    def _make_ledger(self, session: str, stored: StoredSession | None) -> Ledger:
        context = SessionContext(parent=self._parents.get(session), tags=self._speakers.tags)
        last_turn: tuple[int, list[str]] = (self._turns_started, [])
        if stored is None:
            # The session may exist or not. A generation of its own keeps its client ids apart from all others.
            return Ledger(context, _new_generation(), unknown_prefix=True, last_turn=last_turn, readable=False)
        known = [
            KnownMessage(transcript_diff.fingerprint(message.role, message.text), (message.client_id or message.id,))
            for message in stored.messages
            if message.rewound_at is None
        ]
        known += [
            KnownMessage(transcript_diff.fingerprint(message.role, message.text), (message.client_id,))
            for message in stored.pending
        ]
        if stored.session is None:
            return Ledger(context, "1", message_count=len(known), known=known, last_turn=last_turn)
        return Ledger(
            # The parent was fixed when the session was created.
            SessionContext(tags=context.tags),
            str(stored.session.generation),
            message_count=stored.session.last + len(stored.pending),
            known=known,
            parent=stored.session.parent,
            unknown_prefix=stored.session.parent is not None,
            last_turn=last_turn,
        )


def session_name(session: str) -> str:
    """Return a session id that the book accepts."""
    return re.sub(r"[\s\x00-\x1f\x7f-\x9f\ud800-\udfff]", "-", session)[:200] or "hermes"


def _remove_if_present(fingerprints: list[str], fingerprint: str) -> bool:
    if fingerprint not in fingerprints:
        return False
    fingerprints.remove(fingerprint)
    return True


def _new_generation() -> str:
    """Return a generation that no other process uses."""
    return new_id()[-12:] + ".1"


def _next_generation(generation: str) -> str:
    first, _, number = generation.rpartition(".")
    return f"{first}.{int(number) + 1}" if first else str(int(number) + 1)
