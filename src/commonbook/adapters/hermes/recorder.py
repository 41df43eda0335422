"""The recorder stores each turn once, under the session, parent and tags that were current when it was said.

A question is stored when its turn starts, so that a turn which is interrupted or killed does not lose it. It is held
back while an earlier turn is open: the answer to that one may still be queued, and belongs before it. The answer is
stored when Hermes hands the turn over.

The recorder keeps a ledger of the known messages for each session. The ledger is read from the book when the session is
first used, and then kept up to date. A transcript is compared with the ledger, and only new messages are stored.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from commonbook.adapters.hermes import transcripts
from commonbook.adapters.hermes.keeper import Keeper, StoredSession, Warn
from commonbook.adapters.hermes.transcripts import LastTurn, TranscriptDiff, TranscriptMessage
from commonbook.errors import Busy
from commonbook.ports.outbox import SessionContext
from commonbook.values.ids import new_id
from commonbook.values.session import NewMessage, SwitchReason

_MAX_LEDGERS: Final = 64
_BATCH_MESSAGES: Final = 1000
_MAX_PARENTS: Final = 8
_MAX_TURNS: Final = 32
_CONTINUING_REASONS: Final = ("branch", "compress")


# --- the known state of sessions: the messages of each (its ledger), and the turns that are open


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
        """Return whether no earlier turn is open that belongs to its session, or may belong to it."""
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
        words = {messages[start].fingerprint, transcripts.fingerprint("user", messages[start].text)}
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


def _with_overtaken(
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


def _known_message(role: str, text: str, client_id: str) -> KnownMessage:
    """Return a message of the book."""
    return KnownMessage(transcripts.fingerprint(role, text), (client_id,), text if role == "user" else "")


# --- the recorder


class Speakers(NamedTuple):
    """Authors of the messages, and tags of a new session."""

    user: str | None = None
    agent: str = "agent:hermes"
    tags: tuple[str, ...] = ()


class Recorder:
    """Records conversations. It is thread-safe."""

    def __init__(self, keeper: Keeper, speakers: Speakers, *, settle_every: int, warn: Warn) -> None:
        """Start without ledgers."""
        self._keeper, self.speakers = keeper, speakers
        self._settle_every, self._warn = settle_every, warn
        self._ledgers: OrderedDict[str, Ledger] = OrderedDict()
        self._parents: dict[str, str] = {}
        self._turns_started = 0
        self._open = OpenTurns()
        self._lock = threading.RLock()

    def set_parent(self, session: str, parent: str) -> None:
        """Set the parent of a session, in case it is new."""
        self._parents[session_name(session)] = session_name(parent)

    # --- turns and transcripts

    def start_turn(self, session: str, number: int, words: str) -> None:
        """Note that a turn starts, and store its question; `number` is 1 in a session without earlier turns."""
        with self._lock:
            self._turns_started += 1
            if question := transcripts.transcript_message("user", words):
                turn = OpenTurn(session_name(session), question, is_first=number == 1)
                # Hermes switches to a new session behind the turns that are queued: this one may be ahead of it.
                ledger = self._ledger(turn.session)
                turn.is_unplaced = turn.is_first and (ledger.has_ended or self._has_turns(ledger))
                self._adopt_from_source(turn, ledger)
                if overflow := self._open.add(turn):
                    self._store_question(overflow)
                self._store_if_next(turn)

    def _leave_to_next(self, session: str, ledger: Ledger, messages: Sequence[object]) -> None:
        """Take turns out of a session that ends without them: they started ahead of the switch to the next session."""
        if ledger.is_compressed or transcripts.has_summary(messages):
            return
        turns = self._open.of_session(session)
        start = max((at for at, turn in enumerate(turns) if turn.is_first), default=len(turns))
        shown = {message.fingerprint for message in self._transcript(session, ledger, messages)}
        for turn in reversed(turns[start:] if turns[start:] and turns[start].question.fingerprint not in shown else ()):
            at = ledger.index(turn)
            if at is not None and at == len(ledger.known) - 1:
                self._rewind(session, ledger, at)
            turn.ids, turn.is_unplaced = (), True

    def _has_turns(self, ledger: Ledger) -> bool:
        source = ledger.inherits_from
        return bool(ledger.known) or (source is not None and self._has_turns(self._ledger(source)))

    def _adopt_from_source(self, turn: OpenTurn, ledger: Ledger) -> None:
        """Leave a question in the session that was compressed before the turn started, and had it already."""
        source = ledger.inherits_from
        if source is not None and turn.question.fingerprint in self._ledger(source).stored_early:
            turn.session, turn.is_unplaced = source, False

    def _store_if_next(self, turn: OpenTurn) -> None:
        """Store the question of a turn, if nothing that is still to come belongs before it."""
        ledger = self._ledger(turn.session)
        if not (ledger.is_unknown or ledger.undo_pending) and not turn.is_unplaced and self._open.is_next(turn):
            self._store_question(turn)

    def _store_question(self, turn: OpenTurn) -> None:
        ledger = self._ledger(turn.session)
        if turn.is_held and turn.question.fingerprint not in ledger.stored_early:
            self._store(turn.session, ledger, [turn.question])
        if turn.is_held:
            known = (one.ids for one in reversed(ledger.known) if one.fingerprint == turn.question.fingerprint)
            turn.ids = next(known, ())

    def store_held(self, session: str | None = None) -> None:
        """Store the questions that were held back, of a session that ends or of all."""
        with self._lock:
            for turn in self._open.held():
                if session is None or (turn.session == session and not turn.is_unplaced):
                    self._store_question(turn)

    def record_turn(self, session: str, user: str, assistant: str, messages: Sequence[object] | None) -> None:
        """Store a turn, and all other new messages of its transcript."""
        with self._lock:
            session = session_name(session)
            ledger = self._ledger(session)
            transcript = self._transcript(session, ledger, transcripts.split_question(messages or (), user))
            turn = transcripts.with_turn(transcript, user, assistant, known=ledger.fingerprints())
            last = [message.fingerprint for message in turn.messages[turn.start :]]
            opened = self._open.up_to(turn.messages, turn.start)
            ledger.notices.update(turn.notices)
            if messages:
                ledger.is_compressed |= transcripts.has_summary(messages)
                self._inherit(ledger, turn.messages[: turn.start])
                self._take_back_misplaced(session, ledger, opened[-1:])
                changes = self._diff_turn(session, ledger, turn, last, opened[-1] if opened else None)
            else:
                changes = self._diff_bare_turn(ledger, turn, last, opened)
            self._apply(session, ledger, _with_overtaken(changes, opened, ledger.stored_early))
            self._open.remove(opened)
            ledger.has_ended = False
            # Only after storing: a turn that could not be stored is synced again, and is then no repeat.
            ledger.last_transcript = [message.fingerprint for message in turn.messages]
            ledger.last_turn = (self._turns_started, last)
            for fingerprint in last:
                _remove_if_present(ledger.stored_early, fingerprint)
            self._store_next(session)
            ledger.turns_since_settle += 1 if changes.new else 0
            if self._settle_every and ledger.turns_since_settle >= self._settle_every:
                ledger.turns_since_settle = 0
                self._keeper.settle(session)

    def _take_back_misplaced(self, session: str, ledger: Ledger, opened: Sequence[OpenTurn]) -> None:
        """Rewind a question that was stored in the session before, because Hermes was about to leave it."""
        for turn in opened:
            if turn.session != session and not turn.is_held and turn.question.fingerprint not in ledger.fingerprints():
                source = self._ledger(turn.session)
                if source.known and source.index(turn) == len(source.known) - 1:
                    self._rewind(turn.session, source, len(source.known) - 1)

    def _store_next(self, session: str) -> None:
        for turn in self._open.of_session(session)[:1]:
            self._store_if_next(turn)

    def _unanswered(self, ledger: Ledger, max_depth: int = _MAX_PARENTS) -> list[list[TranscriptMessage]]:
        """Return the unanswered messages of a session and of those that it continues; a run may span two of them."""
        source = ledger.inherits_from or ledger.parent
        own = ledger.unanswered()
        if source is None or not max_depth:
            return own
        *earlier, last = self._unanswered(self._ledger(source), max_depth - 1)
        return [*earlier, last + own[0], *own[1:]]

    def _transcript(self, session: str, ledger: Ledger, messages: Iterable[object]) -> list[TranscriptMessage]:
        """Return the messages of a transcript as they were typed: none of Hermes, and none joined."""
        unanswered = self._unanswered(ledger)
        unanswered[-1] += [turn.question for turn in self._open.of_session(session) if turn.is_held]
        parsed = transcripts.split_joined(transcripts.transcript_messages(messages), unanswered)
        return [message for message in parsed if message.fingerprint not in ledger.notices]

    def checkpoint(self, session: str, messages: Iterable[object]) -> None:
        """Store the new messages of a whole transcript; raise if it is not known which are new."""
        with self._lock:
            if self._ledger(session_name(session)).is_unknown:
                raise Busy("it is not known which messages are stored already", fix="try again in a moment")
            self.record_transcript(session, messages)

    def record_transcript(self, session: str, messages: Iterable[object]) -> None:
        """Store the new messages of a whole transcript."""
        with self._lock:
            session, messages = session_name(session), list(messages)
            ledger = self._ledger(session)
            ledger.is_compressed |= transcripts.has_summary(messages)
            # An empty transcript means that Hermes has none, not that everything was undone.
            if transcript := self._transcript(session, ledger, messages):
                self._inherit(ledger, transcript)
                changes = self._diff(session, ledger, transcript, completes_turn=False)
                self._apply(session, ledger, changes)
                ledger.stored_early += [message.fingerprint for message in changes.new]
            self.store_held(session)

    def _diff_turn(
        self, session: str, ledger: Ledger, turn: LastTurn, last: list[str], started: OpenTurn | None
    ) -> TranscriptDiff:
        """Return the new messages in the transcript of a turn; a whole transcript may have brought them before."""
        if started is not None and not ledger.undo_pending:
            changes = self._diff_started(ledger, turn, started)
            if changes is not None:
                return changes
        fingerprints = [message.fingerprint for message in turn.messages]
        searched = last if ledger.unknown_prefix else fingerprints
        stored_before = all(fingerprint in ledger.stored_early for fingerprint in last) and transcripts.is_sublist(
            ledger.fingerprints(), searched
        )
        is_repeat = started is None and self._is_repeat(ledger, fingerprints, last) and not ledger.undo_pending
        if stored_before or is_repeat:
            return TranscriptDiff(len(ledger.known), ())
        return self._diff(session, ledger, turn.messages, completes_turn=True)

    def _diff_started(self, ledger: Ledger, turn: LastTurn, started: OpenTurn) -> TranscriptDiff | None:
        """Return the new messages of a turn whose question is stored already, or asked again; None of another."""
        question = turn.messages[turn.start].fingerprint
        known = ledger.fingerprints()
        if known[:1] != [turn.messages[0].fingerprint] and known.count(question) > (not started.is_held):
            # It may be asked again, which shows in what was said before it, also in another session.
            self._load_parents(ledger, _MAX_PARENTS)
        at = ledger.index(started)
        if at is not None:
            # The transcript may have the question in other words, by which it is recognised from now on.
            ledger.known[at] = ledger.known[at]._replace(fingerprint=question)
            return transcripts.compare_started(
                ledger.fingerprints(),
                at,
                turn,
                unknown_prefix=ledger.unknown_prefix,
                is_compressed=ledger.is_compressed,
            )
        if question in ledger.stored_early:
            return None
        prior = [message.fingerprint for message in turn.messages[: turn.start]]
        retried = transcripts.retry_index(ledger.fingerprints(), prior, question, is_compressed=ledger.is_compressed)
        return None if retried is None else TranscriptDiff(retried, tuple(turn.messages[turn.start :]))

    def _is_repeat(self, ledger: Ledger, fingerprints: list[str], last: list[str]) -> bool:
        """Return whether a turn was synced before: no other started since, and it is the last synced or known one."""
        started, last_synced = ledger.last_turn
        is_last_known = not last_synced and ledger.fingerprints()[-len(last) :] == last
        return (
            started == self._turns_started
            and bool(last)
            and (fingerprints == ledger.last_transcript or last_synced == last or is_last_known)
        )

    def _diff_bare_turn(
        self, ledger: Ledger, turn: LastTurn, last: list[str], opened: Sequence[OpenTurn]
    ) -> TranscriptDiff:
        """Return the new messages of a turn without transcript; if Hermes announces no turns, every turn is new."""
        if not opened and self._turns_started and ledger.last_turn == (self._turns_started, last):
            return TranscriptDiff(len(ledger.known), ())
        is_stored = bool(opened) and not opened[-1].is_held
        messages = [message for at, message in enumerate(turn.messages) if at != turn.start or not is_stored]
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
        return changes or transcripts.compare(
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
        changes = transcripts.compare_after_undo(
            known,
            transcript,
            unknown_prefix=ledger.unknown_prefix or ledger.is_compressed,
            completes_turn=completes_turn,
        )
        if changes is None and known:
            self._warn(f"It is not clear what was undone in {session}; nothing was rewound.")
        return changes

    def _load_parents(self, ledger: Ledger, max_depth: int) -> None:
        """Put the known messages of the parents, which another process recorded, in front of the ledger."""
        if ledger.parent is not None and max_depth:
            parent, ledger.parent = self._ledger(ledger.parent), None
            self._load_parents(parent, max_depth - 1)
            ledger.known[:0] = [message._replace(ids=()) for message in parent.known]

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
            author = self.speakers.user if message.role == "user" else self.speakers.agent
            parts = transcripts.split_text(message.text)
            ids = tuple(
                f"hermes:{ledger.generation}:{count + number}:{message.fingerprint[:12]}"
                for number in range(1, len(parts) + 1)
            )
            new += [
                NewMessage(part, role=message.role, author=author, client_id=client_id)
                for part, client_id in zip(parts, ids, strict=True)
            ]
            known.append(KnownMessage(message.fingerprint, ids, message.text if message.role == "user" else ""))
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
                transcripts.transcript_message("user", task),
                transcripts.transcript_message("assistant", result),
            )
            if message
        ]
        fingerprints = "\n".join(message.fingerprint for message in messages)
        fingerprint = transcripts.fingerprint("delegation", fingerprints)[:12]
        child_session = session_name(child or f"{session}.{fingerprint}")
        author = {"user": self.speakers.agent, "assistant": "agent:subagent"}
        new = [
            NewMessage(
                piece,
                role=message.role,
                author=author[message.role],
                client_id=f"hermes:delegation:{fingerprint}:{index}:{part}",
            )
            for index, message in enumerate(messages)
            for part, piece in enumerate(transcripts.split_text(message.text))
        ]
        if new:
            tags = (*self.speakers.tags, "delegation")
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
            self.store_held(old)
            old_ledger = self._ledger(old)
            cached = self._ledgers.pop(new, None)
            if reason != "resume":
                self._cache(new, self._new_ledger(old, carries_on=reason in _CONTINUING_REASONS))
            elif cached is not None and cached.undo_pending:
                self._ledger(new).undo_pending = True
            old_ledger.generation = _next_generation(old_ledger.generation)
            old_ledger.turns_since_settle = 0
            self._keeper.switch(old, new, reason=reason, tags=self.speakers.tags)
            self._open.place(new)
            self._store_next(new)

    def _new_ledger(self, old: str, *, carries_on: bool) -> Ledger:
        """Return the ledger of a new session; with `carries_on`, its transcripts begin with messages of the old one."""
        context = SessionContext(parent=old, tags=self.speakers.tags)
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
            ledger.known[:0] = [message._replace(ids=()) for message in source_ledger.known]
            ledger.parent = source_ledger.parent

    def end_session(self, session: str, messages: Iterable[object]) -> None:
        """Store the new messages of a session that has ended, and settle all of it."""
        with self._lock:
            name = session_name(session)
            ledger = self._ledger(name)
            messages = list(messages)
            self._leave_to_next(name, ledger, messages)
            ledger.has_ended = True
            # A session that continues another one and has no turn yet still has the transcript of the other one.
            if ledger.inherits_from is None or self._ledger(ledger.inherits_from).undo_pending:
                self.record_transcript(name, messages)
            self.store_held(name)
            ledger.turns_since_settle = 0
            self._keeper.settle(name, close=True)

    def note_compression(self, session: str) -> None:
        """Settle a session that continues with a compressed transcript."""
        with self._lock:
            name = session_name(session)
            ledger = self._ledger(name)
            ledger.last_transcript, ledger.is_compressed = [], True
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
        context = SessionContext(parent=self._parents.get(session), tags=self.speakers.tags)
        last_turn: tuple[int, list[str]] = (self._turns_started, [])
        if stored is None:
            # The session may exist or not. A generation of its own keeps its client ids apart from all others.
            return Ledger(context, _new_generation(), unknown_prefix=True, last_turn=last_turn, readable=False)
        known = [
            _known_message(message.role, message.text, message.client_id or message.id)
            for message in stored.messages
            if message.rewound_at is None
        ]
        known += [_known_message(message.role, message.text, message.client_id) for message in stored.pending]
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
