"""Capture: messages into sessions, and sessions switched, taken back and closed. Nothing is held only in memory."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Final, NamedTuple

from commonbook.errors import BadInput, BadText, Busy, CommonbookError, HomeError, KeyConflict, TooLarge
from commonbook.model.ids import new_id
from commonbook.model.session import MAX_MESSAGES, Appended, Captured, Message, Sent, Session
from commonbook.model.spaces import Actor
from commonbook.ports.engines import Parts
from commonbook.sessions import episode_boundaries, settle
from commonbook.sessions.find_or_create import Context, find_or_create, reopen
from commonbook.sessions.group_commit import LATER, Apart, Later, Together, apiece
from commonbook.tables import jobs, sessions
from commonbook.text import masking, validation
from commonbook.write.context import WriteContext
from commonbook.write.transaction import lock_early, write, write_all

# So many open messages may have a boundary among them; fewer wait until the session falls silent.
_MANY: Final = 40
_SILENCE: Final = timedelta(hours=1)
_NOW_AND_THEN: Final = 8
_PLACES: Final = 10_000


class _Clean(NamedTuple):
    """A message as it will be stored, and a hash of it as it was sent."""

    sent: Sent
    text: str
    masked: int
    role: str


class _Parcel(NamedTuple):
    """What somebody sends to a session at once."""

    actor: Actor
    session_id: str
    place: str
    """The space where it was last seen to be, or nothing."""
    cleaned: Sequence[_Clean]
    context: Context

    @property
    def client_ids(self) -> tuple[str, ...]:
        return tuple(one.sent.client_id for one in self.cleaned if one.sent.client_id)


# --- append


class Appender:
    """Appends messages to sessions, with group commit: concurrent appends of one process share a transaction.

    A book has one, shared by all principals who use it, so that their appends can be committed together.
    """

    def __init__(self, parts: Parts) -> None:
        """Append to the sessions of this book."""
        self._parts = parts
        self.session_spaces: dict[str, str] = {}
        """The space in which each session was last seen: a hint for early locks, always checked before it is used."""
        self.group_commit = Together()

    def append(self, actor: Actor, session_id: str, messages: Sequence[Sent], context: Context) -> Captured:
        """Store messages in the order given, all or none; one that was sent before under its client id is a repeat."""
        session_id = validation.session_name(session_id)
        if not messages:
            raise BadInput("there is no message to append", fix="give at least one")
        if len(messages) > MAX_MESSAGES:
            raise TooLarge(
                f"{len(messages):,} messages are too many at once", fix=f"send at most {MAX_MESSAGES:,} at a time"
            )
        cleaned = []
        for at, message in enumerate(messages):
            with validation.naming(at):
                cleaned.append(_cleaned(message))
        # Looked up once: another thread may clear the hints meanwhile.
        place = self.session_spaces.get(session_id, "")
        parcel = _Parcel(actor, session_id, place, cleaned, context)
        if not place:
            return write(self._parts, actor, partial(self._append, parcel=parcel))
        return self.group_commit.go(place, parcel, self._append_all, key=session_id, size=len(messages))

    def _append_all(
        self, parcels: Sequence[_Parcel], /, *, patient: bool, alone: bool
    ) -> Sequence[Captured | Later | CommonbookError]:
        """Append what several send, in one transaction.

        Who is patient waits for others who write to the same space, who is alone for those who write to its session
        too.
        """
        places = sorted({parcel.place for parcel in parcels})
        how = self._append_one if alone else partial(self._append_free, patient=patient)
        answers: Sequence[Captured | Later] = ()

        def operation(contexts: Sequence[WriteContext]) -> Sequence[Captured | Later]:
            nonlocal answers
            answers = how(contexts, parcels, places)
            return answers

        try:
            return write_all(self._parts, [parcel.actor for parcel in parcels], operation, expecting=places)
        except Busy as error:
            if patient or not error.one_thing:
                raise
            raise Apart from error
        except HomeError as error:
            if LATER not in answers:
                raise
            # What was perhaps made, or is not on every server, is not of those for whom nothing was done.
            each = apiece(error, len(parcels))
            return [LATER if answer is LATER else mine for answer, mine in zip(answers, each, strict=True)]

    def _append_one(
        self, contexts: Sequence[WriteContext], parcels: Sequence[_Parcel], places: Sequence[str]
    ) -> Sequence[Captured | Later]:
        """Append what one sends, which waits for its session and its space."""
        ((ctx, parcel),) = zip(contexts, parcels, strict=True)
        taking = sessions.Taking(ctx.tx, parcel.session_id, parcel.client_ids)
        lock_early(ctx, places)
        return [self._append(ctx, parcel, taking)]

    def _append_free(
        self, contexts: Sequence[WriteContext], parcels: Sequence[_Parcel], places: Sequence[str], *, patient: bool
    ) -> Sequence[Captured | Later]:
        """Append what goes to sessions that nobody holds; who is patient still waits for its space."""
        wanted = {parcel.session_id: parcel.client_ids for parcel in parcels}
        asked = sessions.take_free(contexts[0].tx, places, wanted, patient=patient)
        held = lock_early(contexts[0], places)
        taken, free = asked(), places if patient else held()
        takings = [taken.get((parcel.place, parcel.session_id)) if parcel.place in free else None for parcel in parcels]
        if not any(takings):
            raise Apart
        try:
            return [
                self._append(ctx, parcel, taking) if taking else LATER
                for ctx, parcel, taking in zip(contexts, parcels, takings, strict=True)
            ]
        except CommonbookError as error:
            if len(parcels) == 1:
                raise
            raise Apart from error

    def _append(self, ctx: WriteContext, parcel: _Parcel, taking: sessions.Taking | None = None) -> Captured:
        taking = taking or sessions.Taking(ctx.tx, parcel.session_id, parcel.client_ids)
        session = find_or_create(ctx, parcel.session_id, parcel.context, taking)
        self._note_space(session)
        return _append(ctx, session, parcel.cleaned, taking)

    def _note_space(self, session: Session) -> None:
        if len(self.session_spaces) >= _PLACES and session.id not in self.session_spaces:
            self.session_spaces.clear()
        self.session_spaces[session.id] = session.space.id


def _cleaned(sent: Sent) -> _Clean:
    """Check a message and take out what must not be stored: recalled text that came back, and secrets."""
    if not isinstance(sent, Sent):
        raise BadText("a message is neither a text nor a message", fix="send strings, or messages with a text")
    validation.require_sayable(sent.text, role=sent.role, author=sent.author, client_id=sent.client_id)
    if sent.client_id is not None:
        validation.key(sent.client_id)
    text, masked = masking.cleaned(sent.text)
    return _Clean(sent, text, masked, sent.role)


def _append(ctx: WriteContext, session: Session, cleaned: Sequence[_Clean], taking: sessions.Taking) -> Captured:
    known = taking.repeated()
    receipts: list[Appended] = []
    fresh: dict[str, tuple[Message, str | None]] = {}
    settled = True
    for at, one in enumerate(cleaned):
        hash_ = ctx.parts.keys.keyed_hash(one.role, one.sent.text) if one.sent.client_id else None
        before = known.get(one.sent.client_id or "")
        if before is None:
            with validation.naming(at):
                message = _message(ctx, session, one, session.last + len(fresh) + 1)
            fresh[message.id] = (message, hash_)
            if message.client_id and hash_:
                known[message.client_id] = (message, hash_)
            receipts.append(Appended(message.id, message.seq, new=True, masked=message.masked))
            settled = False
            continue
        message, first_hash = before
        if first_hash != hash_:
            error = KeyConflict(
                f"the client id {one.sent.client_id!r} was used before in this session for another message",
                fix="give every message a client id of its own; the same one only to send the same message again",
            )
            error.item = at
            raise error
        settled = settled and message.episode is not None
        taken_back = message.taken_back is not None
        receipts.append(Appended(message.id, message.seq, new=False, masked=message.masked, taken_back=taken_back))
    if fresh:
        _store(ctx, session, list(fresh.values()))
    return Captured(session.id, tuple(receipts), settled=settled)


def _store(ctx: WriteContext, session: Session, fresh: Sequence[tuple[Message, str | None]]) -> None:
    sessions.append(ctx.tx, session, fresh)
    reopen(ctx, session)
    ctx.touch(session.space, (message.id for message, _ in fresh))
    ctx.log(
        session.space,
        "append",
        (),
        session=session.id,
        first=fresh[0][0].seq,
        last=fresh[-1][0].seq,
        said=ctx.parts.keys.keyed_hash(*(message.text for message, _ in fresh)),
    )
    # Looked at where a boundary may first be found, and whenever the size alone makes one: not at every message.
    now_open = session.unsettled + len(fresh)
    many = session.unsettled < _MANY <= now_open or now_open >= episode_boundaries.LIMITS.messages
    due = ctx.tx.now if many else ctx.tx.now + _SILENCE
    # Where something is unsettled, somebody has asked already; if that came to nothing, it is asked for now and then.
    if many or not session.unsettled or session.last // _NOW_AND_THEN < fresh[-1][0].seq // _NOW_AND_THEN:
        jobs.ask(ctx.tx, space=session.space.id, kind=settle.JOB, subject=session.id, due=due)


def _message(ctx: WriteContext, session: Session, one: _Clean, seq: int) -> Message:
    return Message(
        id=new_id(),
        session=session.id,
        seq=seq,
        role=one.role,
        author=one.sent.author or (ctx.actor.principal if one.role == "user" else f"agent:{one.role}"),
        text=one.text,
        time=ctx.time("time", one.sent.time) or ctx.tx.now,
        client_id=one.sent.client_id,
        masked=one.masked,
    )
