"""Capture: messages into sessions, and sessions switched, taken back and closed. Nothing is held only in memory."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Final, NamedTuple

from commonbook.errors import BadInput, BadText, Busy, CommonbookError, HomeError, KeyConflict, TooLarge
from commonbook.model.ids import new_id
from commonbook.model.session import MAX_MESSAGES, AppendReceipt, Message, MessageReceipt, NewMessage, Session
from commonbook.model.spaces import Actor
from commonbook.ports.engines import Engines
from commonbook.sessions import episode_boundaries, settle
from commonbook.sessions.find_or_create import Context, find_or_create, reopen
from commonbook.sessions.group_commit import DEFERRED, Deferred, GroupCommit, RetryAlone, one_error_each
from commonbook.tables import jobs, sessions
from commonbook.text import masking, validation
from commonbook.write.context import WriteContext
from commonbook.write.transaction import lock_early, write, write_all

# So many open messages may have a boundary among them; fewer wait until the session falls silent.
_MANY: Final = 40
_SILENCE: Final = timedelta(hours=1)
_NOW_AND_THEN: Final = 8
_PLACES: Final = 10_000


class _MaskedMessage(NamedTuple):
    """A message as it will be stored, and a hash of it as it was sent."""

    sent: NewMessage
    text: str
    masked: int
    role: str


class _AppendRequest(NamedTuple):
    """What somebody sends to a session at once."""

    actor: Actor
    session_id: str
    place: str
    """The space where it was last seen to be, or nothing."""
    cleaned: Sequence[_MaskedMessage]
    context: Context

    @property
    def client_ids(self) -> tuple[str, ...]:
        return tuple(one.sent.client_id for one in self.cleaned if one.sent.client_id)


# --- append


class Appender:
    """Appends messages to sessions, with group commit: concurrent appends of one process share a transaction.

    A book has one, shared by all principals who use it, so that their appends can be committed together.
    """

    def __init__(self, engines: Engines) -> None:
        """Append to the sessions of this book."""
        self._engines = engines
        self.session_spaces: dict[str, str] = {}
        """The space in which each session was last seen: a hint for early locks, always checked before it is used."""
        self.group_commit = GroupCommit()

    def append(self, actor: Actor, session_id: str, messages: Sequence[NewMessage], context: Context) -> AppendReceipt:
        """Store messages in the order given, all or none; one that was sent before under its client id is a repeat."""
        session_id = validation.validate_session_id(session_id)
        if not messages:
            raise BadInput("there is no message to append", fix="give at least one")
        if len(messages) > MAX_MESSAGES:
            raise TooLarge(
                f"{len(messages):,} messages are too many at once", fix=f"send at most {MAX_MESSAGES:,} at a time"
            )
        cleaned = []
        for at, message in enumerate(messages):
            with validation.error_item(at):
                cleaned.append(_cleaned(message))
        # Looked up once: another thread may clear the hints meanwhile.
        place = self.session_spaces.get(session_id, "")
        parcel = _AppendRequest(actor, session_id, place, cleaned, context)
        if not place:
            return write(self._engines, actor, partial(self._append, parcel=parcel))
        return self.group_commit.go(place, parcel, self._append_all, key=session_id, size=len(messages))

    def _append_all(
        self, parcels: Sequence[_AppendRequest], /, *, patient: bool, alone: bool
    ) -> Sequence[AppendReceipt | Deferred | CommonbookError]:
        """Append what several send, in one transaction.

        Who is patient waits for others who write to the same space, who is alone for those who write to its session
        too.
        """
        places = sorted({parcel.place for parcel in parcels})
        how = self._append_one if alone else partial(self._append_free, patient=patient)
        answers: Sequence[AppendReceipt | Deferred] = ()

        def operation(contexts: Sequence[WriteContext]) -> Sequence[AppendReceipt | Deferred]:
            nonlocal answers
            answers = how(contexts, parcels, places)
            return answers

        try:
            return write_all(self._engines, [parcel.actor for parcel in parcels], operation, expecting=places)
        except Busy as error:
            if patient or not error.one_thing:
                raise
            raise RetryAlone from error
        except HomeError as error:
            if DEFERRED not in answers:
                raise
            # What was perhaps made, or is not on every server, is not of those for whom nothing was done.
            each = one_error_each(error, len(parcels))
            return [DEFERRED if answer is DEFERRED else mine for answer, mine in zip(answers, each, strict=True)]

    def _append_one(
        self, contexts: Sequence[WriteContext], parcels: Sequence[_AppendRequest], places: Sequence[str]
    ) -> Sequence[AppendReceipt | Deferred]:
        """Append what one sends, which waits for its session and its space."""
        ((ctx, parcel),) = zip(contexts, parcels, strict=True)
        taking = sessions.LockedSession(ctx.tx, parcel.session_id, parcel.client_ids)
        lock_early(ctx, places)
        return [self._append(ctx, parcel, taking)]

    def _append_free(
        self,
        contexts: Sequence[WriteContext],
        parcels: Sequence[_AppendRequest],
        places: Sequence[str],
        *,
        patient: bool,
    ) -> Sequence[AppendReceipt | Deferred]:
        """Append what goes to sessions that nobody holds; who is patient still waits for its space."""
        wanted = {parcel.session_id: parcel.client_ids for parcel in parcels}
        asked = sessions.lock_free(contexts[0].tx, places, wanted, patient=patient)
        held = lock_early(contexts[0], places)
        taken, free = asked(), places if patient else held()
        takings = [taken.get((parcel.place, parcel.session_id)) if parcel.place in free else None for parcel in parcels]
        if not any(takings):
            raise RetryAlone
        try:
            return [
                self._append(ctx, parcel, taking) if taking else DEFERRED
                for ctx, parcel, taking in zip(contexts, parcels, takings, strict=True)
            ]
        except CommonbookError as error:
            if len(parcels) == 1:
                raise
            raise RetryAlone from error

    def _append(
        self, ctx: WriteContext, parcel: _AppendRequest, taking: sessions.LockedSession | None = None
    ) -> AppendReceipt:
        taking = taking or sessions.LockedSession(ctx.tx, parcel.session_id, parcel.client_ids)
        session = find_or_create(ctx, parcel.session_id, parcel.context, taking)
        self._note_space(session)
        return _append(ctx, session, parcel.cleaned, taking)

    def _note_space(self, session: Session) -> None:
        if len(self.session_spaces) >= _PLACES and session.id not in self.session_spaces:
            self.session_spaces.clear()
        self.session_spaces[session.id] = session.space.id


def _cleaned(sent: NewMessage) -> _MaskedMessage:
    """Check a message and take out what must not be stored: recalled text that came back, and secrets."""
    if not isinstance(sent, NewMessage):
        raise BadText("a message is neither a text nor a message", fix="send strings, or messages with a text")
    validation.validate_message(sent.text, role=sent.role, author=sent.author, client_id=sent.client_id)
    if sent.client_id is not None:
        validation.validate_key(sent.client_id)
    text, masked = masking.cleaned(sent.text)
    return _MaskedMessage(sent, text, masked, sent.role)


def _append(
    ctx: WriteContext, session: Session, cleaned: Sequence[_MaskedMessage], taking: sessions.LockedSession
) -> AppendReceipt:
    known = taking.repeated()
    receipts: list[MessageReceipt] = []
    fresh: dict[str, tuple[Message, str | None]] = {}
    settled = True
    for at, one in enumerate(cleaned):
        hash_ = ctx.engines.keys.keyed_hash(one.role, one.sent.text) if one.sent.client_id else None
        before = known.get(one.sent.client_id or "")
        if before is None:
            with validation.error_item(at):
                message = _message(ctx, session, one, session.last + len(fresh) + 1)
            fresh[message.id] = (message, hash_)
            if message.client_id and hash_:
                known[message.client_id] = (message, hash_)
            receipts.append(MessageReceipt(message.id, message.seq, new=True, masked=message.masked))
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
        rewound = message.rewound_at is not None
        receipts.append(MessageReceipt(message.id, message.seq, new=False, masked=message.masked, rewound=rewound))
    if fresh:
        _store(ctx, session, list(fresh.values()))
    return AppendReceipt(session.id, tuple(receipts), settled=settled)


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
        said=ctx.engines.keys.keyed_hash(*(message.text for message, _ in fresh)),
    )
    # Looked at where a boundary may first be found, and whenever the size alone makes one: not at every message.
    now_open = session.unsettled + len(fresh)
    many = session.unsettled < _MANY <= now_open or now_open >= episode_boundaries.LIMITS.messages
    due = ctx.tx.now if many else ctx.tx.now + _SILENCE
    # Where something is unsettled, somebody has asked already; if that came to nothing, it is asked for now and then.
    if many or not session.unsettled or session.last // _NOW_AND_THEN < fresh[-1][0].seq // _NOW_AND_THEN:
        jobs.enqueue(ctx.tx, space=session.space.id, kind=settle.SETTLE_JOB, subject=session.id, due=due)


def _message(ctx: WriteContext, session: Session, one: _MaskedMessage, seq: int) -> Message:
    return Message(
        id=new_id(),
        session=session.id,
        seq=seq,
        role=one.role,
        author=one.sent.author or (ctx.actor.principal if one.role == "user" else f"agent:{one.role}"),
        text=one.text,
        time=ctx.parse_time("time", one.sent.time) or ctx.tx.now,
        client_id=one.sent.client_id,
        masked=one.masked,
    )
