"""Lost and older databases, and files that come back, take away and bring back parts of the model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tests.support.promise_facts import DELETED, ENDED, NOTICE_PATTERN, Memory, Message, SessionKey
from tests.support.promise_model import Model


def lose_database(model: Model) -> None:
    """Keep what the files hold: no grants, rules, tombstones, histories, nor messages outside of episodes."""
    model.roles.clear()
    model.rules.clear()
    model.moved.clear()
    model.reviews = set(model.filed_reviews)
    _keep_what_episodes_say(model, dict.fromkeys(model.sessions, ()))
    for memory in model.memories.values():
        memory.forgotten = memory.forgotten or memory.deleted
        memory.written_in = {memory.words: {memory.space}}
        if memory.deleted:
            memory.links = {}
    _doubt_successors(model)


def go_back(model: Model, older: Model) -> None:
    """Take the grants, rules and unsettled messages of an older database; the files decide about memories."""
    model.roles, model.rules = dict(older.roles), dict(older.rules)
    # The stricter one holds: a file begins a review, and does not end one.
    model.reviews = older.reviews | model.filed_reviews
    _forget_moves(model, older)
    for key in older.sessions:
        # A session that was moved since is where it was.
        model.sessions.setdefault(key, [])
    _keep_what_episodes_say(model, {key: tuple(messages) for key, messages in older.sessions.items()})
    for memory in model.memories.values():
        then = older.memories.get(memory.id)
        if then is None:
            memory.forgotten = memory.forgotten or memory.deleted
        elif memory.deleted:
            # The older database knows it, and finds its file gone.
            memory.forgotten, memory.space = then.forgotten, then.space
            memory.links, memory.decisions = dict(then.links), set(then.decisions)
        else:
            put_back_decisions(memory, then, then)
            memory.retracted = set(then.retracted)
            memory.ends = then.ends if then.retracted else memory.ends
        if then is not None and then.proposed and not memory.proposed:
            # The older database has it among the proposals, and finds its file in the space: somebody accepted it.
            model.accept(memory, memory.space, by_hand=True)
        memory.written_in = {words: set(spaces) for words, spaces in then.written_in.items()} if then else {}
        memory.note_place()
    _doubt_successors(model)


def _forget_moves(model: Model, older: Model) -> None:
    """Leave open where the messages of sessions are that were moved since: rows are in one space, files in another."""
    moved = {name for _, name in dict(set(model.moved.items()) ^ set(older.moved.items()))}
    for name in moved | _names_in_other_spaces(model, older):
        messages = [one for key, messages in model.sessions.items() if key[1] == name for one in messages]
        for key in {key for key in (*model.sessions, *older.sessions) if key[1] == name}:
            model.sessions[key] = [replace(message, unsure=True) for message in messages]
        for memory in model.memories.values():
            memory.session_unsure |= memory.session is not None and memory.session[1] == name
    model.moved, model.movers = dict(older.moved), dict(older.movers)


def _names_in_other_spaces(model: Model, older: Model) -> set[str]:
    """Return the sessions with a message that was in another space: a database lost since had known of their moves."""
    before = {message.word: key for key, messages in older.sessions.items() for message in messages}
    now = ((message.word, key) for key, messages in model.sessions.items() for message in messages)
    return {key[1] for word, key in now if before.get(word, key) != key}


def keep_what_notices_tell(model: Model) -> None:
    """Remember, before the database is lost, who is told by a notice or a decision that a ground was deleted."""
    for memory in model.live():
        doubts = model.own_doubts(memory.id, upper=False)
        chain = [memory, *model.deleted_sources(memory)]
        endings = {(successor.id, ENDED) for member in chain for successor in model.successors(member.id)}
        memory.noticed |= (model.noticed_doubts(memory.id, upper=False) | endings) - memory.decisions
        memory.evidence = {ground for ground, invalidating in doubts if invalidating == DELETED}


def lose_notice(model: Model, text: str) -> None:
    """Lose the file of a notice together with the database."""
    for ground, dependent in NOTICE_PATTERN.findall(text):
        model.memories[dependent].evidence.discard(ground)


def put_back_decisions(memory: Memory, file: Memory, row: Memory | None) -> None:
    """Take the decisions of the row in an older database, and without one those of an older file.

    A decision that is gone no longer tells that a ground was deleted.
    """
    decisions = set(file.decisions if row is None else row.decisions)
    memory.evidence -= {ground for ground, invalidating in memory.decisions - decisions if invalidating == DELETED}
    memory.decisions, memory.retracted = decisions, memory.retracted & decisions


def move_unknown_episode(model: Model, episode: Memory, space: str) -> None:
    """Take the messages of an episode along that is moved by hand while no database knows it.

    Beside its session, its file names no space: the session is then where the file is.
    """
    if episode.session is None or episode.session[0] != episode.space:
        return
    messages, episode.session = model.sessions.get(episode.session, []), (space, episode.session[1])
    own = [message for message in messages if message.episode == episode.id]
    messages[:] = [message for message in messages if message.episode != episode.id]
    model.sessions.setdefault(episode.session, []).extend(replace(message, unsure=True) for message in own)


def restore_messages(model: Model, episode: Memory) -> None:
    """Take in the messages of an episode whose file came back; a number that is taken keeps one out.

    An episode in another space than its session brings no messages back.
    """
    if episode.session is None or episode.session[0] != episode.space:
        return
    messages = model.sessions.setdefault(episode.session, [])
    known = {message.word for message in messages}
    messages += [Message(word, episode.id, unsure=True) for word in episode.words if word not in known]


def _doubt_successors(model: Model) -> None:
    for memory in model.memories.values():
        memory.unsure.add("successor_ended")


def _keep_what_episodes_say(model: Model, stored: dict[SessionKey, Iterable[Message]]) -> None:
    """Keep the messages that are in live episodes or in the database; of a lost database, nothing is stored."""
    episodes = [one for one in model.live() if one.session]
    in_files = {word: one.id for one in episodes for word in one.words}
    restored = {word for one in episodes if one.session and one.session[0] == one.space for word in one.words}
    for key, messages in list(model.sessions.items()):
        before = {message.word: message for message in stored.get(key, ())}
        if not before.keys() <= {message.word for message in messages}:
            # The session was lost in between and went on: its numbers may be given twice.
            again = [message for word, message in before.items() if word not in {one.word for one in messages}]
            messages.extend(again)
            for message in messages:
                message.unsure = True
        model.sessions[key] = [one for one in messages if one.word in restored or one.word in before]
        for message in model.sessions[key]:
            known = before.get(message.word)
            rewound_before = known.rewound if known else False
            message.unsure = message.unsure or rewound_before != message.rewound or bool(known and known.unsure)
            # A session that an older database knows gets no messages from files, unless files had restored it.
            message.unsure = message.unsure or (known is None and bool(before))
            message.episode = in_files.get(message.word) or (known.episode if known else None)
    for episode in episodes:
        # An episode that was away from its session and is back: others may have got its numbers since.
        count = len(model.sessions.get(episode.session or ("", ""), ()))
        restore_messages(model, episode)
        messages = model.sessions.get(episode.session or ("", ""), [])
        for message in messages if len(messages) > count else ():
            message.unsure = True
