"""The sessions of an export: a file for each, with the words of the messages that no exported episode has.

These are messages that are not settled, that were rewound, or whose episode is in another space, was deleted, or no
longer has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Final, NamedTuple

from commonbook.markdown import session_files, transcript
from commonbook.markdown.session_files import MessageLine, SessionPart
from commonbook.markdown.transcript import TranscriptMessage
from commonbook.model.ids import format_time
from commonbook.model.reports import Finding
from commonbook.model.session import Message, Session
from commonbook.model.spaces import Space, SpaceScope
from commonbook.ports.database import Reading
from commonbook.ports.files import ExportTarget
from commonbook.tables import memories, sessions, spaces

_PAGE: Final = 500
_LINE_BYTES: Final = 200
_PART_BYTES: Final = 1024 * 1024
"""A part is closed when it has this size; a single message may be as large, and an import reads files of 4 MiB."""


class WrittenSession(NamedTuple):
    """A file of a session that was written: its path, and how it compares with the one before.

    `words` are the messages whose words are in it, `edited` those whose episode has other words than the session.
    """

    path: str
    outcome: str
    part: int
    words: int
    edited: int


def write(
    tx: Reading, chosen: SpaceScope, out: ExportTarget, *, takes: Callable[[str], bool]
) -> Iterator[WrittenSession]:
    """Write the sessions of these spaces, by space and name, so that equal states of a book give equal archives.

    Files with paths that the export does not take are left out.
    """
    for space in sorted(chosen.values(), key=lambda space: space.name):
        for session in sorted(_sessions(tx, space), key=lambda session: session.id):
            for part, edited in _parts(tx, session):
                path = session_files.path_of(space.base, session.id, part.part)
                if not takes(path):
                    continue
                outcome = out.put(path, session_files.render(part), changed=_changed(part))
                yield WrittenSession(path, outcome, part.part, len(part.words), edited)


def left_out(tx: Reading, chosen: SpaceScope) -> Iterator[Finding]:
    """Yield a finding for each space with messages that an export without files of sessions leaves out."""
    for space in sorted(chosen.values(), key=lambda space: space.name):
        counts = [sum(len(part.words) for part, _ in _parts(tx, session)) for session in _sessions(tx, space)]
        if sum(counts):
            yield Finding(
                what="not exported",
                where=space.name,
                why=f"{sum(counts)} messages of {sum(map(bool, counts))} sessions are in no episode, and a bundle has"
                " no place for them",
                fix="export without --okf: that writes the sessions too",
            )


def _sessions(tx: Reading, space: Space) -> Iterator[Session]:
    """Yield the sessions of a space, with their parents in any space."""
    after = None
    readable = spaces.get_all(tx)
    while page := sessions.page(tx, {space.id: space}, after=after, limit=_PAGE):
        found = (sessions.find(tx, readable, (space.id, session.id)) for session in page)
        yield from (session for session in found if session is not None)
        after = (format_time(page[-1].created), page[-1].id)


def _parts(tx: Reading, session: Session) -> Iterator[tuple[SessionPart, int]]:
    """Yield the parts of a session, each with the number of its messages that were edited in their episodes.

    A session without messages has one part all the same.
    """
    header = SessionPart(
        id=session.id,
        created=session.created,
        closed=session.closed,
        tags=session.tags,
        parent=session.parent,
        parent_space=session.parent_space if session.parent_space != session.space.name else None,
        messages=len(sessions.sequence_numbers(tx, session)),
    )
    lines: list[MessageLine] = []
    words: list[TranscriptMessage] = []
    size, part, edited = 0, 1, 0
    sent = sessions.sent_hashes(tx, session, first=1, last=session.last)
    for message, in_episode in _messages(tx, session):
        is_edited = in_episode is not None and (in_episode.role, in_episode.text) != (message.role, message.text)
        lines.append(_line(message, edited=is_edited or sent.get(message.id) == sessions.SENT_OTHERWISE))
        size += _LINE_BYTES + len(message.client_id or "")
        if in_episode is None:
            words.append(_words(message))
            size += _LINE_BYTES + len(message.text.encode())
        else:
            edited += is_edited
        if size >= _PART_BYTES:
            yield header._replace(part=part, lines=tuple(lines), words=tuple(words)), edited
            lines, words, size, part, edited = [], [], 0, part + 1, 0
    if lines or part == 1:
        yield header._replace(part=part, lines=tuple(lines), words=tuple(words)), edited


def _messages(tx: Reading, session: Session) -> Iterator[tuple[Message, TranscriptMessage | None]]:
    """Yield the messages of a session, each as an episode in the same space has it, or None if none has it."""
    after = 0
    while page := sessions.messages(tx, session, after=after, limit=_PAGE):
        after = page[-1].seq
        held = _held_by_episodes(tx, session.space, {message.episode for message in page if message.episode})
        for message in page:
            yield message, held.get((message.episode, message.id)) if message.rewound_at is None else None


def _held_by_episodes(
    tx: Reading, space: Space, episodes: Iterable[str]
) -> dict[tuple[str | None, str], TranscriptMessage]:
    """Return the messages that live episodes in a space have, by episode and message."""
    by_id = memories.get_many(tx, {space.id: space}, sorted(episodes))
    live = [memory for memory in by_id.values() if memory.deleted is None]
    parsed = ((memory.id, message) for memory in live for message in transcript.parse(memory.text).messages)
    return {(episode, message.id): message for episode, message in parsed}


def _line(message: Message, *, edited: bool) -> MessageLine:
    return MessageLine(
        seq=message.seq,
        id=message.id,
        episode=message.episode,
        client_id=message.client_id,
        masked=message.masked,
        rewound=message.rewound_at,
        edited=edited and message.client_id is not None,
    )


def _words(message: Message) -> TranscriptMessage:
    return TranscriptMessage(message.id, message.seq, message.author, message.role, message.time, message.text)


def _changed(part: SessionPart) -> datetime:
    times = [part.created, part.closed, *(words.time for words in part.words), *(line.rewound for line in part.lines)]
    return max(time for time in times if time is not None)
