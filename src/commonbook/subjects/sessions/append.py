"""Appends messages to sessions: validated, masked, recognized as repeats by their client ids, and group-committed.

An append is durable when it returns: no message is held only in memory. Finds the session of an append or a switch,
locked for the transaction, or creates it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from commonbook.core.access import permissions
from commonbook.core.log import chain
from commonbook.core.tables import jobs, sessions
from commonbook.core.tables.sessions import SessionKey
from commonbook.core.text import masking, space_names, validation
from commonbook.core.write.context import WriteContext
from commonbook.core.write.idempotency import answer_once
from commonbook.core.write.transaction import count_write, write, write_all
from commonbook.errors import BadInput, BadText, Busy, CommonbookError, Conflict, HomeError, KeyConflict, TooLarge
from commonbook.ports.database import Reading, RetryTransaction
from commonbook.ports.engines import Engines
from commonbook.subjects.sessions import episode_boundaries
from commonbook.subjects.sessions.group_commit import GroupCommit, NotRun, Outcome, error_for_each
from commonbook.subjects.sessions.read import no_session
from commonbook.values.ids import new_id
from commonbook.values.request import RequestContext
from commonbook.values.session import MAX_MESSAGES, AppendReceipt, Message, MessageReceipt, NewMessage, Session
from commonbook.values.spaces import Actor, Space, SpaceScope

_MESSAGES_PER_SETTLE_JOB: Final = 8
_MAX_SESSION_HINTS: Final = 10_000


class _MaskedMessage(NamedTuple):
    """A message as it was sent, with the text as it will be stored and how many secrets were masked."""

    sent: NewMessage
    text: str
    masked: int
    role: str


class _AppendRequest(NamedTuple):
    """The messages of one append, and the session that they go to."""

    caller: RequestContext
    session_id: str
    space_hint: str
    """The id of the space in which the session was last seen; empty if this process does not know the session."""
    messages: Sequence[_MaskedMessage]
    options: NewSessionOptions

    @property
    def key(self) -> sessions.SessionKey:
        """The key of the session, if the hint is right."""
        return self.space_hint, self.session_id

    @property
    def client_ids(self) -> tuple[str, ...]:
        return tuple(message.sent.client_id for message in self.messages if message.sent.client_id)


class _NothingRun(Exception):
    """No append of a batch is run: the transaction is given up, so that nothing is committed."""

    def __init__(self, outcomes: Sequence[NotRun]) -> None:
        """Keep the outcome of each append."""
        super().__init__()
        self.outcomes = outcomes


class Appender:
    """Appends messages to sessions, with group commit: concurrent appends of one process share a transaction.

    A book has one, shared by all principals who use it, so that their appends can be committed together.
    """

    def __init__(self, engines: Engines) -> None:
        """Append to the sessions of this book."""
        self._engines = engines
        self.session_spaces: dict[tuple[str, str], str] = {}
        """The id of the space of each session, by the name of the space and the id of the session.

        It is a hint, always checked before it is used: spaces can be renamed.
        """
        self.group_commit = GroupCommit(busy_seconds=engines.db.busy_seconds)

    def append(
        self,
        caller: RequestContext,
        session_id: str,
        messages: Sequence[NewMessage],
        options: NewSessionOptions,
    ) -> AppendReceipt:
        """Store messages in the order given, all or none; a client id that was sent before marks a repeat."""
        caller, session_id = caller.recording(), validation.validate_session_id(session_id)
        if not messages:
            raise BadInput("there is no message to append", fix="give at least one")
        if len(messages) > MAX_MESSAGES:
            raise TooLarge(
                f"{len(messages):,} messages are too many at once", fix=f"send at most {MAX_MESSAGES:,} at a time"
            )
        masked = []
        for index, message in enumerate(messages):
            with validation.error_item(index):
                masked.append(_mask(message, self._engines.keys.keyed_hash))
        # Looked up once: another thread may clear the hints meanwhile.
        space_hint = self.session_spaces.get((options.space, session_id), "")
        request = _AppendRequest(caller, session_id, space_hint, masked, options)
        append_alone = partial(
            write, self._engines, caller, partial(self._append_to_session, request=request), counted=False
        )
        if not space_hint:
            return append_alone()
        return self.group_commit.submit(space_hint, request, self._append_all, append_alone, size=len(messages))

    def _append_all(self, requests: Sequence[_AppendRequest], /, *, patient: bool) -> Sequence[Outcome[AppendReceipt]]:
        """Run several appends in one transaction, as a `BatchOperation`: it waits for no session.

        With `patient`, it waits for other writers of the same spaces.
        """
        outcomes: Sequence[Outcome[AppendReceipt]] = ()

        def operation(contexts: Sequence[WriteContext]) -> Sequence[Outcome[AppendReceipt]]:
            nonlocal outcomes
            outcomes = self._append_unlocked(contexts, requests, patient=patient)
            return outcomes

        actors = [request.caller.actor for request in requests]
        try:
            return write_all(self._engines, actors, operation, patient=patient)
        except _NothingRun as nothing:
            return nothing.outcomes
        except Busy as error:
            if patient or not error.single_lock:
                raise
            return [NotRun.LOCKED] * len(requests)
        except HomeError as error:
            if not any(isinstance(outcome, NotRun) for outcome in outcomes):
                raise
            # The error says that the commit is uncertain or incomplete. An append that was not run was no part of it.
            errors = error_for_each(error, len(requests))
            return [
                outcome if isinstance(outcome, NotRun) else own for outcome, own in zip(outcomes, errors, strict=True)
            ]

    def _append_unlocked(
        self, contexts: Sequence[WriteContext], requests: Sequence[_AppendRequest], *, patient: bool
    ) -> Sequence[Outcome[AppendReceipt]]:
        """Run the appends whose sessions no other transaction has locked; unless `patient`, nor their spaces.

        A session is locked once, for all its appends of the batch.
        """
        tx, spaces = contexts[0].tx, {request.space_hint for request in requests}
        client_ids = {request.key: request.client_ids for request in reversed(requests)}
        rows = sessions.lock_available(tx, client_ids.keys())
        free = spaces if patient else chain.lock(tx, spaces, if_free=True)
        by_key = sessions.read_locked(tx, {key: row for key, row in rows.items() if key[0] in free}, client_ids)
        locks = [_lock_of(request, by_key, contexts[0].spaces) for request in requests]
        not_run = [lock for lock in locks if isinstance(lock, NotRun)]
        if len(not_run) == len(requests):
            raise _NothingRun(not_run)
        try:
            return self._append_in_order(contexts, requests, locks)
        except CommonbookError as error:
            if len(requests) == 1:
                raise
            raise _NothingRun([NotRun.MUST_RUN_ALONE] * len(requests)) from error

    def _append_in_order(
        self,
        contexts: Sequence[WriteContext],
        requests: Sequence[_AppendRequest],
        locks: Sequence[sessions.LockedSession | NotRun],
    ) -> Sequence[Outcome[AppendReceipt]]:
        """Run the appends of a batch that have a lock."""
        outcomes: list[Outcome[AppendReceipt]] = []
        appended: set[sessions.SessionKey] = set()
        for ctx, request, lock in zip(contexts, requests, locks, strict=True):
            if isinstance(lock, NotRun):
                outcomes.append(lock)
                continue
            # An append before it in the batch may have changed the session.
            is_first = request.key not in appended
            locked = lock if is_first else sessions.lock_session(ctx.tx, request.key, request.client_ids)
            appended.add(request.key)
            outcomes.append(self._append_once(ctx, request, locked))
        return outcomes

    def _append_once(self, ctx: WriteContext, request: _AppendRequest, locked: sessions.LockedSession) -> AppendReceipt:
        """Append, and store the receipt as the answer to the idempotency key of the request, if it has one.

        A repeat raises `Repeated`, which ends a batch: its requests are then run one by one.
        """
        return answer_once(ctx, request.caller, lambda ctx: self._append_to_session(ctx, request, locked))

    def _append_to_session(
        self, ctx: WriteContext, request: _AppendRequest, locked: sessions.LockedSession | None = None
    ) -> AppendReceipt:
        """Append to the session of a request, created if it does not exist, and remember its space."""
        name = request.options.space
        # Waits for the lock of the session before anything else is read.
        if locked is None and request.space_hint:
            locked = sessions.lock_session(ctx.tx, request.key, request.client_ids)
        hinted = locked.session(ctx.spaces) if locked else None
        if locked is None or hinted is None or hinted.space.name != name:
            space = ctx.require_writable_space(name)
            key = key_for_append(ctx, (space.id, request.session_id))
            locked = sessions.lock_session(ctx.tx, key, request.client_ids)
        count_write(ctx)
        options = request.options
        if options.parent is not None and _all_repeated(request, locked):
            # They are stored already, whatever parent is named now.
            options = options._replace(parent=None)
        session = find_or_create(ctx, request.session_id, options, locked)
        self._note_space(name, session)
        return _store_new_and_report_repeats(ctx, session, request.messages, locked)

    def _note_space(self, name: str, session: Session) -> None:
        key = (name, session.id)
        if len(self.session_spaces) >= _MAX_SESSION_HINTS and key not in self.session_spaces:
            self.session_spaces.clear()
        self.session_spaces[key] = session.space.id


def _lock_of(
    request: _AppendRequest, locked: Mapping[sessions.SessionKey, sessions.LockedSession], spaces: SpaceScope
) -> sessions.LockedSession | NotRun:
    """Return the lock of the session of an append, or why it cannot be run in a batch."""
    if request.key not in locked:
        return NotRun.LOCKED
    session = locked[request.key].session(spaces)
    if session is None or session.space.name != request.options.space:
        # It was moved, or its space was renamed and the append may create another one: not along with others.
        return NotRun.MUST_RUN_ALONE
    return locked[request.key]


def _mask(sent: NewMessage, keyed_hash: Callable[..., str]) -> _MaskedMessage:
    """Validate a message and remove text that must not be stored: recalled text that came back, and secrets."""
    if not isinstance(sent, NewMessage):
        raise BadText("a message is neither a text nor a message", fix="send strings, or messages with a text")
    validation.validate_message(sent.text, role=sent.role, author=sent.author, client_id=sent.client_id)
    if sent.client_id is not None:
        validation.validate_key(sent.client_id)
    text, masked = masking.clean_for_storage(sent.text, keyed_hash)
    return _MaskedMessage(sent, text, masked + validation.validate_masked(sent.masked), sent.role)


def _all_repeated(request: _AppendRequest, locked: sessions.LockedSession) -> bool:
    known = locked.repeated()
    return all(message.sent.client_id in known for message in request.messages)


def _store_new_and_report_repeats(
    ctx: WriteContext, session: Session, masked: Sequence[_MaskedMessage], locked: sessions.LockedSession
) -> AppendReceipt:
    """Store the messages whose client id is new; return a receipt for every message.

    A client id that was used before must come with the same message as then.
    """
    known = locked.repeated()
    receipts: list[MessageReceipt] = []
    new: dict[str, tuple[Message, str | None]] = {}
    settled = True
    for index, item in enumerate(masked):
        hash_ = ctx.engines.keys.keyed_hash(item.role, item.sent.text) if item.sent.client_id else None
        repeated = known.get(item.sent.client_id or "")
        if repeated is None:
            with validation.error_item(index):
                message = _message(ctx, session, item, session.last + len(new) + 1)
            new[message.id] = (message, hash_)
            if message.client_id and hash_:
                known[message.client_id] = (message, hash_)
            receipts.append(MessageReceipt(message.id, message.seq, new=True, masked=message.masked))
            settled = False
            continue
        message, first_hash = repeated
        if not _is_repeat(item, hash_, message, first_hash):
            error = KeyConflict(
                f"the client id {item.sent.client_id!r} was used before in this session for another message",
                fix="give every message a client id of its own; the same one only to send the same message again",
            )
            error.item = index
            raise error
        settled = settled and message.episode is not None
        rewound = message.rewound_at is not None
        receipts.append(MessageReceipt(message.id, message.seq, new=False, masked=message.masked, rewound=rewound))
    if new:
        _store(ctx, session, list(new.values()))
    return AppendReceipt(session.id, tuple(receipts), settled=settled, space=session.space.name)


def _is_repeat(item: _MaskedMessage, hash_: str | None, message: Message, first_hash: str | None) -> bool:
    """Tell whether a message is one that was stored under its client id; an imported one is compared as stored.

    If that one was edited before its export, it is not known what was sent: a client sends it again to learn that it
    arrived, and gets its receipt.
    """
    if first_hash == sessions.SENT_OTHERWISE:
        return True
    if first_hash:
        # A message that a file has brought back has only the beginning of the hash.
        return hash_ is not None and hash_.startswith(first_hash)
    return (item.role, item.text) == (message.role, message.text)


def _store(ctx: WriteContext, session: Session, new: Sequence[tuple[Message, str | None]]) -> None:
    """Store new messages, open their session again if it is closed, and enqueue its settle job if one is needed."""
    sessions.append(ctx.tx, session, new)
    reopen(ctx, session)
    ctx.touch(session.space, (message.id for message, _ in new))
    ctx.log(
        session.space,
        "append",
        (),
        session=session.id,
        first=new[0][0].seq,
        last=new[-1][0].seq,
        # The payload key, for a keyed hash of the texts, is part of the signed logs of existing books.
        said=ctx.engines.keys.keyed_hash(*(message.text for message, _ in new)),
    )
    due_now = episode_boundaries.is_due_at_once(before=session.unsettled, unsettled=session.unsettled + len(new))
    due = ctx.tx.now if due_now else ctx.tx.now + episode_boundaries.SILENCE
    # While messages are unsettled, a job is queued already. It is queued again at intervals, in case it was lost.
    again = session.last // _MESSAGES_PER_SETTLE_JOB < new[-1][0].seq // _MESSAGES_PER_SETTLE_JOB
    if due_now or not session.unsettled or again:
        jobs.enqueue(ctx.tx, space=session.space.id, kind=jobs.SETTLE_JOB, subject=session.id, due=due)


def _message(ctx: WriteContext, session: Session, masked: _MaskedMessage, seq: int) -> Message:
    return Message(
        id=new_id(),
        session=session.id,
        seq=seq,
        role=masked.role,
        author=masked.sent.author or (ctx.actor.principal if masked.role == "user" else f"agent:{masked.role}"),
        text=masked.text,
        time=ctx.parse_time("time", masked.sent.time) or ctx.tx.now,
        client_id=masked.sent.client_id,
        masked=masked.masked,
    )


class NewSessionOptions(NamedTuple):
    """The space of a session, and its properties if it is new: the session that it continues (parent), its tags."""

    space: str
    parent: str | None = None
    parent_space: str | None = None
    """The id of the space of the parent; None if it is the space of the session."""
    tags: tuple[str, ...] = ()


def key_for_append(ctx: WriteContext, key: SessionKey) -> SessionKey:
    """Return the key of the session that messages to this one go to: it may have been moved into another space.

    A move counts as long as the principal that made it may write to the space that the session has left. Otherwise it
    could lead the messages of others away after its right has ended, and a new session begins in that space.
    """
    present = sessions.present_key(ctx.tx, key)
    if present == key:
        return key
    for space, principal in sessions.movers(ctx.tx, key):
        if not ctx.permissions_of(Actor(principal)).may_write(ctx.spaces[space], ctx.spaces):
            sessions.forget_move(ctx.tx, key)
            return key
    return present


def reopen(ctx: WriteContext, session: Session) -> None:
    """Open a session again if it is closed."""
    if session.closed is not None:
        sessions.close(ctx.tx, session, None)
        ctx.log(session.space, "session.open", (), session=session.id)


def find_or_create(
    ctx: WriteContext, session_id: str, options: NewSessionOptions, locked: sessions.LockedSession | None = None
) -> Session:
    """Return the session, created if it does not exist; the parent of an existing one cannot be changed."""
    space = None
    if locked is None:
        space = ctx.require_writable_space(options.space)
        locked = sessions.lock_session(ctx.tx, key_for_append(ctx, (space.id, session_id)))
    session = _find(ctx, locked, options.space)
    if session is None and locked.is_moved:
        # It was moved while this waited for its lock.
        raise RetryTransaction
    if session is None:
        return _create(ctx, space or ctx.require_writable_space(options.space), session_id, options)
    # By name alone: the parent may be in another space, which an append cannot name.
    if options.parent is not None and options.parent != session.parent:
        raise Conflict(
            f"the session {session_id} does not go on from {options.parent}, and that cannot be changed",
            fix="leave the parent out, or use another session",
        )
    return session


def _find(ctx: WriteContext, locked: sessions.LockedSession, named_space: str) -> Session | None:
    session = locked.session(ctx.spaces)
    if session is not None and session.space.name != named_space and session.space.id not in ctx.readable:
        raise Conflict(
            f"the session {session.id} was moved out of the space {named_space!r}", fix="use another session id"
        )
    if session is not None and session.space.id not in ctx.writable:
        raise permissions.refusal(ctx.actor, session.space.name)
    return session


def _create(ctx: WriteContext, space: Space, session_id: str, options: NewSessionOptions) -> Session:
    if space_names.is_system(space.name):
        raise BadInput(f"the space {space.name!r} is for the book's own memories", fix="name another space")
    masking.require_no_secret(validation.validate_new_session_id(session_id), "id of the session")
    key, parent = (space.id, session_id), None
    if options.parent is not None:
        parent = sessions.present_key(ctx.tx, (options.parent_space or space.id, options.parent))
        _require_no_cycle(ctx.tx, key, parent)
    session = Session(
        id=session_id,
        space=space,
        parent=options.parent,
        tags=masking.mask_tags(options.tags)[0],
        created=ctx.tx.now,
        closed=None,
        generation=sessions.FIRST_GENERATION,
        last=0,
        parent_space=ctx.spaces[parent[0]].name if parent else None,
    )
    sessions.add(ctx.tx, session, parent=parent)
    # Readers of the log may not be allowed to read the space of the parent.
    logged = options.parent if parent and parent[0] == space.id else None
    ctx.log(session.space, "session.begin", (), session=session.id, parent=logged)
    return session


def _require_no_cycle(tx: Reading, session: SessionKey, parent: SessionKey) -> None:
    """Refuse a parent that descends from the session itself: a session may name a parent that does not exist yet."""
    if sessions.descends_from(tx, parent, session):
        raise BadInput(
            f"the session {session[1]} cannot go on from {parent[1]}, which goes on from it", fix="name another parent"
        )


def require_writable(ctx: WriteContext, key: SessionKey) -> Session:
    """Return a session that the actor may write to, locked; a session that it may not read is not found."""
    ctx.lock_sessions(key)
    if (present := sessions.present_key(ctx.tx, key)) != key:
        ctx.lock_sessions(present)
        key = present
    session = sessions.find(ctx.tx, ctx.readable, key)
    if session is None:
        raise no_session(key[1])
    if session.space.id not in ctx.writable:
        raise permissions.refusal(ctx.actor, session.space.name)
    return session
