"""Capture: messages into sessions, and sessions switched, taken back and closed. Nothing is held only in memory."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

from commonbook import (
    amend,
    audit,
    boundary,
    jobs,
    masking,
    memories,
    reading,
    rights,
    sessions,
    settle,
    spoken,
    sync,
    takein,
    transcripts,
    wording,
)
from commonbook.desk import Desk
from commonbook.errors import (
    BadInput,
    BadText,
    Busy,
    CommonbookError,
    Conflict,
    FileInTheWay,
    HomeError,
    KeyConflict,
    NotFound,
    TooLarge,
)
from commonbook.model import (
    MAX_MESSAGES,
    Appended,
    Captured,
    Message,
    MessagePage,
    Sent,
    Session,
    Settled,
    Space,
    Spaces,
    new_id,
)
from commonbook.ports import Likeness, Overtaken, Parts, Reading, asking
from commonbook.principals import Actor
from commonbook.together import LATER, Apart, Later, Together, apiece
from commonbook.writing import ask_ahead, write, write_all

Reason: TypeAlias = Literal["new", "reset", "resume", "branch", "compress"]
REASONS: Final[tuple[str, ...]] = get_args(Reason)

# So many open messages may have a boundary among them; fewer wait until the session falls silent.
_MANY: Final = 40
_SILENCE: Final = timedelta(hours=1)
_NOW_AND_THEN: Final = 8
_PLACES: Final = 10_000


class Context(NamedTuple):
    """Where a session belongs, if it is new: its space, the session that it goes on from, its tags."""

    space: str
    named: bool = False
    parent: str | None = None
    tags: tuple[str, ...] = ()


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
        session_id = spoken.session_name(session_id)
        if not messages:
            raise BadInput("there is no message to append", fix="give at least one")
        if len(messages) > MAX_MESSAGES:
            raise TooLarge(
                f"{len(messages):,} messages are too many at once", fix=f"send at most {MAX_MESSAGES:,} at a time"
            )
        cleaned = []
        for at, message in enumerate(messages):
            with wording.naming(at):
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

        def story(desks: Sequence[Desk]) -> Sequence[Captured | Later]:
            nonlocal answers
            answers = how(desks, parcels, places)
            return answers

        try:
            return write_all(self._parts, [parcel.actor for parcel in parcels], story, expecting=places)
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
        self, desks: Sequence[Desk], parcels: Sequence[_Parcel], places: Sequence[str]
    ) -> Sequence[Captured | Later]:
        """Append what one sends, which waits for its session and its space."""
        ((desk, parcel),) = zip(desks, parcels, strict=True)
        taking = sessions.Taking(desk.tx, parcel.session_id, parcel.client_ids)
        ask_ahead(desk, places)
        return [self._append(desk, parcel, taking)]

    def _append_free(
        self, desks: Sequence[Desk], parcels: Sequence[_Parcel], places: Sequence[str], *, patient: bool
    ) -> Sequence[Captured | Later]:
        """Append what goes to sessions that nobody holds; who is patient still waits for its space."""
        wanted = {parcel.session_id: parcel.client_ids for parcel in parcels}
        asked = sessions.take_free(desks[0].tx, places, wanted, patient=patient)
        held = ask_ahead(desks[0], places)
        taken, free = asked(), places if patient else held()
        takings = [taken.get((parcel.place, parcel.session_id)) if parcel.place in free else None for parcel in parcels]
        if not any(takings):
            raise Apart
        try:
            return [
                self._append(desk, parcel, taking) if taking else LATER
                for desk, parcel, taking in zip(desks, parcels, takings, strict=True)
            ]
        except CommonbookError as error:
            if len(parcels) == 1:
                raise
            raise Apart from error

    def _append(self, desk: Desk, parcel: _Parcel, taking: sessions.Taking | None = None) -> Captured:
        taking = taking or sessions.Taking(desk.tx, parcel.session_id, parcel.client_ids)
        session = find_or_create(desk, parcel.session_id, parcel.context, taking)
        self._note_space(session)
        return _append(desk, session, parcel.cleaned, taking)

    def _note_space(self, session: Session) -> None:
        if len(self.session_spaces) >= _PLACES and session.id not in self.session_spaces:
            self.session_spaces.clear()
        self.session_spaces[session.id] = session.space.id


def _cleaned(sent: Sent) -> _Clean:
    """Check a message and take out what must not be stored: recalled text that came back, and secrets."""
    if not isinstance(sent, Sent):
        raise BadText("a message is neither a text nor a message", fix="send strings, or messages with a text")
    spoken.require_sayable(sent.text, role=sent.role, author=sent.author, client_id=sent.client_id)
    if sent.client_id is not None:
        wording.key(sent.client_id)
    text, masked = masking.cleaned(sent.text)
    return _Clean(sent, text, masked, sent.role)


def _append(desk: Desk, session: Session, cleaned: Sequence[_Clean], taking: sessions.Taking) -> Captured:
    known = taking.repeated()
    receipts: list[Appended] = []
    fresh: dict[str, tuple[Message, str | None]] = {}
    settled = True
    for at, one in enumerate(cleaned):
        hash_ = desk.parts.keys.keyed_hash(one.role, one.sent.text) if one.sent.client_id else None
        before = known.get(one.sent.client_id or "")
        if before is None:
            with wording.naming(at):
                message = _message(desk, session, one, session.last + len(fresh) + 1)
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
        _store(desk, session, list(fresh.values()))
    return Captured(session.id, tuple(receipts), settled=settled)


def _store(desk: Desk, session: Session, fresh: Sequence[tuple[Message, str | None]]) -> None:
    sessions.append(desk.tx, session, fresh)
    reopen(desk, session)
    desk.touch(session.space, (message.id for message, _ in fresh))
    desk.log(
        session.space,
        "append",
        (),
        session=session.id,
        first=fresh[0][0].seq,
        last=fresh[-1][0].seq,
        said=desk.parts.keys.keyed_hash(*(message.text for message, _ in fresh)),
    )
    # Looked at where a boundary may first be found, and whenever the size alone makes one: not at every message.
    now_open = session.unsettled + len(fresh)
    many = session.unsettled < _MANY <= now_open or now_open >= boundary.LIMITS.messages
    due = desk.tx.now if many else desk.tx.now + _SILENCE
    # Where something is unsettled, somebody has asked already; if that came to nothing, it is asked for now and then.
    if many or not session.unsettled or session.last // _NOW_AND_THEN < fresh[-1][0].seq // _NOW_AND_THEN:
        jobs.ask(desk.tx, space=session.space.id, kind=settle.JOB, subject=session.id, due=due)


def reopen(desk: Desk, session: Session) -> None:
    """Open a session again if it is closed."""
    if session.closed is not None:
        sessions.close(desk.tx, session, None)
        desk.log(session.space, "session.open", (), session=session.id)


def _message(desk: Desk, session: Session, one: _Clean, seq: int) -> Message:
    return Message(
        id=new_id(),
        session=session.id,
        seq=seq,
        role=one.role,
        author=one.sent.author or (desk.actor.principal if one.role == "user" else f"agent:{one.role}"),
        text=one.text,
        time=desk.time("time", one.sent.time) or desk.tx.now,
        client_id=one.sent.client_id,
        masked=one.masked,
    )


def find_or_create(desk: Desk, session_id: str, context: Context, taking: sessions.Taking | None = None) -> Session:
    """Return the session, made now if there is none; what was fixed when it was made does not change."""
    session = desk.held(taking or sessions.Taking(desk.tx, session_id))
    if session is None:
        _require_new(desk, session_id)
        _require_no_circle(desk.tx, session_id, context.parent)
        session = Session(
            id=session_id,
            space=desk.space(context.space),
            parent=context.parent,
            tags=context.tags,
            created=desk.tx.now,
            closed=None,
            generation=sessions.FIRST_GENERATION,
            last=0,
        )
        sessions.add(desk.tx, session)
        desk.log(session.space, "session.begin", (), session=session.id, parent=session.parent)
        return session
    if session.space.id not in desk.writable:
        raise rights.refusal(desk.actor, session.space.name)
    if context.named and not _is_called(desk.tx, session.space, context.space):
        raise Conflict(
            f"the session {session_id} is in the space {session.space.name}, not in {context.space}",
            fix=f"append to it in {session.space.name}, or use another session",
        )
    if context.parent is not None and context.parent != session.parent:
        raise Conflict(
            f"the session {session_id} goes on from {session.parent or 'no other'}, which cannot be changed",
            fix="leave the parent out, or use another session",
        )
    return session


def _is_called(tx: Reading, space: Space, name: str) -> bool:
    """Tell whether a space has this name, or had it: an outbox that has not heard of the new one goes on."""
    return space.name == name or audit.was_called(tx, space.id, name)


def _require_no_circle(tx: Reading, session_id: str, parent: str | None) -> None:
    """Refuse a parent that goes on from the session itself: it may have been named before it was there."""
    if parent is not None and sessions.goes_on_from(tx, parent, session_id):
        raise BadInput(
            f"the session {session_id} cannot go on from {parent}, which goes on from it", fix="name another parent"
        )


def _require_new(desk: Desk, session_id: str) -> None:
    """Refuse a session that is there and may not be used; one that is there only now is looked at again."""
    place = sessions.place(desk.tx, session_id)
    if place is None:
        return
    if place in desk.spaces and place not in desk.readable:
        raise no_session(session_id)
    raise Overtaken


# --- reading


def no_session(session_id: str) -> NotFound:
    """Return the one error for a session that does not exist or may not be read."""
    return NotFound(f"there is no session {session_id}", fix="`commonbook session list` shows what there is")


def require(tx: Reading, allowed: Spaces, session_id: str) -> Session:
    """Return a session that may be used; one that may not even be read is not found."""
    session = sessions.find(tx, allowed, spoken.session_name(session_id))
    if session is None:
        raise no_session(session_id)
    return session


def require_writable(desk: Desk, session_id: str) -> Session:
    """Return a session that the actor may write to, held for it; one that it may not even read is not found."""
    desk.hold_sessions(session_id)
    session = require(desk.tx, desk.readable, session_id)
    if session.space.id not in desk.writable:
        raise rights.refusal(desk.actor, session.space.name)
    return session


@asking
def require_there(parts: Parts, actor: Actor, session_id: str) -> None:
    """Refuse a session that is not there, or that may not be read."""
    with parts.db.reading() as tx:
        require(tx, reading.readable(tx, actor), session_id)


def show(parts: Parts, actor: Actor, session_id: str, *, after: int, limit: int) -> MessagePage:
    """Return messages of a session behind a number, in order."""
    wording.require_page_limit(limit)
    with parts.db.reading() as tx:
        session = require(tx, reading.readable(tx, actor), session_id)
        found = sessions.messages(tx, session, after=min(max(0, after), session.last), limit=limit + 1)
    following = found[limit - 1].seq if len(found) > limit else None
    return MessagePage(session, tuple(found[:limit]), following)


def listed(parts: Parts, actor: Actor, *, space: str | None, limit: int) -> tuple[Session, ...]:
    """Return the newest sessions."""
    wording.require_page_limit(limit, has_next=False)
    with parts.db.reading() as tx:
        return tuple(sessions.page(tx, reading.readable(tx, actor, space), after=None, limit=limit))


@asking
def generation(parts: Parts, actor: Actor, session_id: str) -> int:
    """Return the generation of a session, which its first message does not change."""
    with parts.db.reading() as tx:
        found = sessions.find(tx, reading.readable(tx, actor), spoken.session_name(session_id))
    return found.generation if found else sessions.FIRST_GENERATION


# --- switch, rewind, close


def switch(
    parts: Parts, actor: Actor, old: str, new: str, *, reason: str, context: Context, likeness: Likeness
) -> Settled:
    """Settle what is open in the old session, under its own name, and begin or resume the new one, in one step."""
    old, new = spoken.session_name(old), spoken.session_name(new)
    if reason not in REASONS:
        raise BadInput(f"{reason!r} is no reason to switch", fix=f"use one of {', '.join(REASONS)}")
    if old == new:
        raise BadInput("a session cannot be switched to itself", fix="name another session")

    def story(desk: Desk, plan: settle.Plan | None) -> Settled:
        # One that was never heard of begins here, and ends: what was fetched for it in advance is void all the same.
        before = find_or_create(desk, old, context._replace(named=False))
        made = settle.carry_out(desk, before, plan) if plan else ()
        sessions.next_generation(desk.tx, before)
        if reason != "branch":
            sessions.close(desk.tx, before, desk.tx.now)
        _switch_to(desk, new, old, reason, _inherited(context, before))
        desk.log(before.space, "session.switch", (), session=old, to=new, reason=reason)
        return Settled(old, made, sessions.count_open(desk.tx, before.space.id, old))

    return settle.with_plan(parts, actor, old, likeness, story, flush=True, also=(new,))


def _inherited(context: Context, before: Session) -> Context:
    """Return where a session belongs that follows another: to the same space and tags, unless others are named."""
    space = context.space if context.named else before.space.name
    return context._replace(space=space, tags=context.tags or before.tags)


def _switch_to(desk: Desk, new: str, old: str, reason: str, context: Context) -> None:
    if sessions.place(desk.tx, new) is None:
        parent = None if reason == "resume" else old
        session = find_or_create(desk, new, context._replace(parent=parent, named=False))
    else:
        session = require_writable(desk, new)
        reopen(desk, session)
    sessions.next_generation(desk.tx, session)


def rewind(parts: Parts, actor: Actor, session_id: str, after: int | str) -> tuple[Message, ...]:
    """Take back every message behind one, by its number or id: they leave recall and episodes, the log keeps them."""
    session_id = spoken.session_name(session_id)

    def story(desk: Desk, *, looked: bool) -> tuple[Message, ...]:
        session = require_writable(desk, session_id)
        taken = sessions.take_back(desk.tx, session, after=_seq(desk, session, after))
        for episode in dict.fromkeys(message.episode for message in taken if message.episode):
            gone = frozenset(message.id for message in taken if message.episode == episode)
            _leave_episode(desk, episode, gone, looked=looked)
        sessions.next_generation(desk.tx, session)
        desk.touch(session.space, (message.id for message in taken))
        desk.log(session.space, "session.rewind", (), session=session.id, seqs=[message.seq for message in taken])
        return tuple(taken)

    return sync.write_with_a_look(parts, actor, story)


def _seq(desk: Desk, session: Session, after: int | str) -> int:
    if isinstance(after, int):
        if not 0 <= after <= session.last:
            raise BadInput(
                f"the session {session.id} has no message {after}", fix=f"give a number from 0 to {session.last}"
            )
        return after
    said: object = after
    named = [after] if isinstance(said, str) and wording.is_unicode(said) and "\0" not in said else []
    found = sessions.several(desk.tx, {session.space.id: session.space}, named).get(after)
    if found is None or found[0].session != session.id:
        raise NotFound(
            f"the session {session.id} has no message {after}", fix="`commonbook session show` lists its messages"
        )
    return found[0].seq


def _leave_episode(desk: Desk, episode: str, gone: frozenset[str], *, looked: bool) -> None:
    """Take messages out of an episode by a new revision; an episode without messages goes."""
    desk.hold([episode])
    memory = memories.find(desk.tx, desk.spaces, episode)
    if memory is None or memory.deleted is not None:
        return
    try:
        memory = takein.fresh(desk, memory, looked=looked)
    except FileInTheWay:
        # A person is mending the file, and we do not write over it. Recall goes by the log, whatever the file says.
        desk.touch(memory.space, [memory.id])
        return
    told = transcripts.parse(memory.text)
    kept = [message for message in told.messages if message.id not in gone]
    if len(kept) == len(told.messages):
        return
    if kept:
        said = memory._replace(text=transcripts.render(kept, introduction=told.introduction))
        amend.amend(desk, memory, said, ["text"], how="rewind")
    else:
        amend.remove(desk, memory, how="rewind")


def close(parts: Parts, actor: Actor, session_id: str, *, likeness: Likeness) -> Settled:
    """Settle what is open, and close the session; a later append opens it again."""

    def story(desk: Desk, plan: settle.Plan | None) -> Settled:
        session = require_writable(desk, session_id)
        made = settle.carry_out(desk, session, plan) if plan else ()
        if session.closed is None:
            sessions.close(desk.tx, session, desk.tx.now)
            desk.log(session.space, "session.close", (), session=session.id)
        return Settled(session.id, made, sessions.count_open(desk.tx, session.space.id, session.id))

    return settle.with_plan(parts, actor, spoken.session_name(session_id), likeness, story, flush=True)
