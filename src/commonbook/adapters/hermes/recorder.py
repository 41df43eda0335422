"""Each turn is stored once, under the session, parent and tags that were current when it was said.

For each session there is a ledger of what is known: read from the book when the session is first met, and then kept up
to date. A transcript is compared with it, and only what is new is stored.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from commonbook.adapters.hermes import transcript_diff
from commonbook.adapters.hermes.keeper import Keeper, Loaded, Tell
from commonbook.adapters.hermes.transcript_diff import TranscriptDiff, TranscriptTurn
from commonbook.errors import Busy
from commonbook.model.ids import new_id
from commonbook.model.session import NewMessage
from commonbook.ports.outbox import SessionContext

_MOST_LEDGERS: Final = 64
_AT_ONCE: Final = 1000
_MOST_PARENTS: Final = 8
_CARRIES_ON: Final = ("branch", "compress")


class KnownTurn(NamedTuple):
    """A message that is known: its mark, and its ids if it was said in this session: several if it is huge."""

    mark: str
    ids: tuple[str, ...] = ()


@dataclass(slots=True)
class Ledger:
    """What is known of a session."""

    context: SessionContext
    generation: str
    count: int = 0
    """How many messages it ever had: with the generation, what client ids are made of."""
    known: list[KnownTurn] = field(default_factory=list)
    carried_from: str | None = None
    """The session whose transcript this one goes on with. What is known of it is taken over when something is said
    here: the last turns of the other may still be on their way when Hermes switches."""
    parent: str | None = None
    """The session that it went on from for another process; its transcript may begin with that one's."""
    more_before: bool = False
    """Whether a transcript of it may begin with what is not known here."""
    undone: bool = False
    """Whether something was taken back, and the next transcript will show what."""
    ahead: list[str] = field(default_factory=list)
    """Marks that a whole transcript brought, before the turn that they belong to was told by itself."""
    transcript: list[str] = field(default_factory=list)
    """The last transcript that came with a turn: the same one again is a repeat, whatever is in it."""
    turns: int = 0
    """How many turns there were since it was last settled."""
    told: tuple[int, list[str]] = (0, [])
    """The last turn that was told, and how many turns had begun then: without another beginning it is a repeat."""

    can_be_read: bool = True
    """Whether it was read from the book."""

    @property
    def unknown(self) -> bool:
        """Whether nobody knows what was said in it before."""
        return not self.can_be_read and not self.known

    def marks(self) -> list[str]:
        """Return the marks of what is known."""
        return [one.mark for one in self.known]


class Speakers(NamedTuple):
    """Who speaks, and with what tags a session begins."""

    user: str | None = None
    agent: str = "agent:hermes"
    tags: tuple[str, ...] = ()


class Recorder:
    """Records conversations. Use it from any thread."""

    def __init__(self, keeper: Keeper, speakers: Speakers, *, settle_every: int, tell: Tell) -> None:
        """Begin with no ledger."""
        self._keeper, self._speakers = keeper, speakers
        self._settle_every, self._tell = settle_every, tell
        self._ledgers: OrderedDict[str, Ledger] = OrderedDict()
        self._parents: dict[str, str] = {}
        self._begun = 0
        self._guard = threading.RLock()

    def goes_on_from(self, session: str, parent: str) -> None:
        """Let a session have a parent, if it is a new one."""
        self._parents[session_name(session)] = session_name(parent)

    def turn_began(self) -> None:
        """Know that the next turn is not a repeat of the last."""
        self._begun += 1

    # --- what was said

    def turn(self, session: str, user: str, assistant: str, messages: Iterable[object] | None) -> None:
        """Store a turn, and what else a transcript tells that is not known."""
        with self._guard:
            session = session_name(session)
            ledger = self._ledger(session)
            told = transcript_diff.turn(transcript_diff.transcript(messages or ()), user, assistant)
            last = [one.mark for one in told[transcript_diff.last_turn(told) :]]
            if messages:
                self._take_over(ledger, told[: len(told) - len(last)])
                found = self._of_turn(session, ledger, told, last)
            else:
                found = self._without_transcript(ledger, told, last)
            self._keep(session, ledger, found)
            # Only now: a turn that could not be stored is told again, and is then no repeat.
            ledger.transcript, ledger.told = [one.mark for one in told], (self._begun, last)
            for mark in last:
                _claimed(ledger.ahead, mark)
            ledger.turns += 1 if found.fresh else 0
            if self._settle_every and ledger.turns >= self._settle_every:
                ledger.turns = 0
                self._keeper.settle(session)

    def checkpoint(self, session: str, messages: Iterable[object]) -> None:
        """Store what a whole conversation tells that is not known; raise if that cannot be told."""
        with self._guard:
            if self._ledger(session_name(session)).unknown:
                raise Busy("it cannot be told what of this is stored already", fix="try again in a moment")
            self.whole(session, messages)

    def whole(self, session: str, messages: Iterable[object]) -> None:
        """Store what a whole conversation tells that is not known."""
        with self._guard:
            session = session_name(session)
            # Hermes hands over nothing where it knows of nothing: that does not mean that everything was undone.
            if told := transcript_diff.transcript(messages):
                ledger = self._ledger(session)
                self._take_over(ledger, told)
                found = self._news(session, ledger, told, completes_a_turn=False)
                self._keep(session, ledger, found)
                ledger.ahead += [one.mark for one in found.fresh]

    def _of_turn(self, session: str, ledger: Ledger, told: Sequence[TranscriptTurn], last: list[str]) -> TranscriptDiff:
        """Return what is new in the transcript of a turn, which a whole transcript may have brought before."""
        marks = [one.mark for one in told]
        whole = last if ledger.more_before else marks
        came_before = all(mark in ledger.ahead for mark in last) and transcript_diff.is_part_of(ledger.marks(), whole)
        if came_before or (self._is_repeat(ledger, marks, last) and not ledger.undone):
            return TranscriptDiff(len(ledger.known), ())
        return self._news(session, ledger, told, completes_a_turn=True)

    def _is_repeat(self, ledger: Ledger, marks: list[str], last: list[str]) -> bool:
        """Tell whether a turn was told before: no other began since, and it is the last that was told or is known."""
        begun, told = ledger.told
        known_last = not told and ledger.marks()[-len(last) :] == last
        return begun == self._begun and bool(last) and (marks == ledger.transcript or told == last or known_last)

    def _without_transcript(self, ledger: Ledger, pair: Sequence[TranscriptTurn], last: list[str]) -> TranscriptDiff:
        """Return what is new in a turn by itself; without any word of a beginning, every turn is another."""
        if self._begun and ledger.told == (self._begun, last):
            return TranscriptDiff(len(ledger.known), ())
        ahead = list(ledger.ahead)
        return TranscriptDiff(len(ledger.known), tuple(one for one in pair if not _claimed(ahead, one.mark)))

    def _news(
        self, session: str, ledger: Ledger, told: Sequence[TranscriptTurn], *, completes_a_turn: bool
    ) -> TranscriptDiff:
        found = self._undone(session, ledger, told, completes_a_turn=completes_a_turn) if ledger.undone else None
        return found or transcript_diff.diff(
            ledger.marks(),
            told,
            carried=sum(not one.ids for one in ledger.known),
            more_before=ledger.more_before,
            completes_a_turn=completes_a_turn,
        )

    def _undone(
        self, session: str, ledger: Ledger, told: Sequence[TranscriptTurn], *, completes_a_turn: bool
    ) -> TranscriptDiff | None:
        ledger.undone = False
        self._know_parents(ledger, _MOST_PARENTS)
        known = ledger.marks()
        found = transcript_diff.after_undo(
            known, told, more_before=ledger.more_before, completes_a_turn=completes_a_turn
        )
        if found is None and known:
            self._tell(f"It cannot be told what was undone in {session}; nothing was taken back.")
        return found

    def _know_parents(self, ledger: Ledger, most: int) -> None:
        """Know what was said in the sessions that one went on from before this process met it."""
        if ledger.parent is not None and most:
            parent, ledger.parent = self._ledger(ledger.parent), None
            self._know_parents(parent, most - 1)
            ledger.known[:0] = [KnownTurn(one.mark) for one in parent.known]

    def _keep(self, session: str, ledger: Ledger, found: TranscriptDiff) -> None:
        if found.kept < len(ledger.known):
            self._take_back(session, ledger, found.kept)
        for at in range(0, len(found.fresh), _AT_ONCE):
            self._store(session, ledger, found.fresh[at : at + _AT_ONCE])

    def _take_back(self, session: str, ledger: Ledger, kept: int) -> None:
        gone = [name for one in ledger.known[kept:] for name in one.ids]
        del ledger.known[kept:]
        ledger.generation = _following(ledger.generation)
        ledger.ahead, ledger.told = [], (0, [])
        if gone:
            last = next((one.ids[-1] for one in reversed(ledger.known) if one.ids), None)
            self._keeper.rewind(session, last, gone)

    def _store(self, session: str, ledger: Ledger, fresh: Sequence[TranscriptTurn]) -> None:
        sent, known, count = [], [], ledger.count
        for one in fresh:
            author = self._speakers.user if one.role == "user" else self._speakers.agent
            parts = transcript_diff.pieces(one.text)
            ids = tuple(f"hermes:{ledger.generation}:{count + at}:{one.mark[:12]}" for at in range(1, len(parts) + 1))
            sent += [
                NewMessage(part, role=one.role, author=author, client_id=name)
                for part, name in zip(parts, ids, strict=True)
            ]
            known.append(KnownTurn(one.mark, ids))
            count += len(parts)
        self._keeper.append(session, sent, ledger.context)
        # Only what is durable is known: what could not be stored is found again in the next transcript.
        ledger.known += known
        ledger.count = count

    def delegated(self, session: str, task: str, result: str, child: str) -> None:
        """Store what was delegated and what came back, as a session of its own below this one."""
        told = [
            one
            for one in (
                transcript_diff.transcript_turn("user", task),
                transcript_diff.transcript_turn("assistant", result),
            )
            if one
        ]
        mark = transcript_diff.mark("delegation", "\n".join(one.mark for one in told))[:12]
        name = session_name(child or f"{session}.{mark}")
        author = {"user": self._speakers.agent, "assistant": "agent:subagent"}
        sent = [
            NewMessage(piece, role=one.role, author=author[one.role], client_id=f"hermes:delegation:{mark}:{at}:{part}")
            for at, one in enumerate(told)
            for part, piece in enumerate(transcript_diff.pieces(one.text))
        ]
        if sent:
            tags = (*self._speakers.tags, "delegation")
            self._keeper.append(name, sent, SessionContext(parent=session_name(session), tags=tags))
            self._keeper.settle(name, close=True)

    # --- sessions

    def undo(self, session: str) -> None:
        """Know that something was taken back: the next transcript shows what."""
        with self._guard:
            self._ledger(session_name(session)).undone = True

    def switch(self, old: str, new: str, *, reason: str) -> None:
        """Leave one session for another."""
        with self._guard:
            old, new = session_name(old), session_name(new)
            left = self._ledger(old)
            before = self._ledgers.pop(new, None)
            if reason != "resume":
                self._put(new, self._begun_after(old, carries_on=reason in _CARRIES_ON))
            elif before is not None and before.undone:
                self._ledger(new).undone = True
            left.generation = _following(left.generation)
            left.turns = 0
            self._keeper.switch(old, new, reason=reason, tags=self._speakers.tags)

    def _begun_after(self, old: str, *, carries_on: bool) -> Ledger:
        """Return the ledger of a new session; if it carries on, its transcripts begin with what was said in the old."""
        context = SessionContext(parent=old, tags=self._speakers.tags)
        return Ledger(context, _generation(), carried_from=old if carries_on else None, more_before=carries_on)

    def _take_over(self, ledger: Ledger, told: Sequence[TranscriptTurn]) -> None:
        """Know what was said in the session that this one goes on with, and what of it had been undone."""
        if ledger.carried_from is not None:
            name, ledger.carried_from = ledger.carried_from, None
            other = self._ledger(name)
            self._take_over(other, told)
            if other.undone and (found := self._undone(name, other, told, completes_a_turn=False)):
                self._keep(name, other, found._replace(fresh=()))
            ledger.known[:0] = [KnownTurn(one.mark) for one in other.known]
            ledger.parent = other.parent

    def end(self, session: str, messages: Iterable[object]) -> None:
        """Store what a conversation tells that is not known, and settle everything of a session that has ended."""
        with self._guard:
            name = session_name(session)
            ledger = self._ledger(name)
            # Of a session that goes on with another's and has heard nothing yet, the transcript is still the other's.
            if ledger.carried_from is None or self._ledger(ledger.carried_from).undone:
                self.whole(name, messages)
            ledger.turns = 0
            self._keeper.settle(name, close=True)

    def compressed(self, session: str) -> None:
        """Settle a session that goes on with a shorter transcript."""
        with self._guard:
            name = session_name(session)
            self._ledger(name).transcript = []
            self._keeper.settle(name)

    def settle(self, session: str) -> None:
        """Settle everything of a session that is left without a word."""
        self._keeper.settle(session_name(session))

    # --- ledgers

    def _ledger(self, session: str) -> Ledger:
        found = self._ledgers.get(session)
        if found is None or (found.unknown and not found.undone):
            found = self._read(session, self._keeper.load(session))
            self._put(session, found)
        self._ledgers.move_to_end(session)
        return found

    def _put(self, session: str, ledger: Ledger) -> None:
        self._ledgers[session] = ledger
        while len(self._ledgers) > _MOST_LEDGERS:
            self._ledgers.popitem(last=False)

    def _read(self, session: str, found: Loaded | None) -> Ledger:
        context = SessionContext(parent=self._parents.get(session), tags=self._speakers.tags)
        told: tuple[int, list[str]] = (self._begun, [])
        if found is None:
            # It may be there or not. Client ids of a generation that nobody else has are never taken for another's.
            return Ledger(context, _generation(), more_before=True, told=told, can_be_read=False)
        known = [
            KnownTurn(transcript_diff.mark(one.role, one.text), (one.client_id or one.id,))
            for one in found.messages
            if one.rewound_at is None
        ]
        known += [KnownTurn(transcript_diff.mark(one.role, one.text), (one.client_id,)) for one in found.under_way]
        if found.session is None:
            return Ledger(context, "1", count=len(known), known=known, told=told)
        return Ledger(
            # What was fixed when the session began is not said again.
            SessionContext(tags=context.tags),
            str(found.session.generation),
            count=found.session.last + len(found.under_way),
            known=known,
            parent=found.session.parent,
            more_before=found.session.parent is not None,
            told=told,
        )


def session_name(session: str) -> str:
    """Return a session's id as a book can have it."""
    return re.sub(r"[\s\x00-\x1f\x7f-\x9f\ud800-\udfff]", "-", session)[:200] or "hermes"


def _claimed(ahead: list[str], mark: str) -> bool:
    if mark not in ahead:
        return False
    ahead.remove(mark)
    return True


def _generation() -> str:
    """Return a generation that no other process has."""
    return new_id()[-12:] + ".1"


def _following(generation: str) -> str:
    first, _, number = generation.rpartition(".")
    return f"{first}.{int(number) + 1}" if first else str(int(number) + 1)
