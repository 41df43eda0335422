"""The import of sessions: an import makes sessions that are not here, and changes none that exists.

An export has files of sessions (`core.markdown.session_files`). A session with such files is stored whole, in one
transaction, after all memories: it has the messages of its files, and of the imported episodes that they name.
The episodes of a folder without such files begin a session with the messages that they have.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from commonbook.core.files import episode_files
from commonbook.core.markdown import session_files, transcript
from commonbook.core.markdown.session_files import MessageLine, SessionPart
from commonbook.core.tables import jobs, memories, sessions
from commonbook.core.text import masking, validation
from commonbook.errors import BadFile, CommonbookError
from commonbook.ports.files import ExternalFiles, SourceFile
from commonbook.subjects.transfer import import_spaces
from commonbook.subjects.transfer.import_spaces import Place, SourceSpaces
from commonbook.values.reports import Finding
from commonbook.values.session import Message, Session

if TYPE_CHECKING:
    from commonbook.core.markdown.transcript import TranscriptMessage
    from commonbook.core.tables.sessions import SessionKey
    from commonbook.core.write.context import WriteContext
    from commonbook.values.spaces import Space
    from commonbook.values.stored_memory import StoredMemory

_GROUP: Final = 200
_GROUP_BYTES: Final = 32 * 1024 * 1024
_MAX_ID: Final = 200
_MAX_GAP: Final = 1_000_000
_MAX_NAMED: Final = 20
"""The maximum of message numbers that a finding names."""

SessionName = tuple[Place, str, str]
"""The place of a session, without its path there; the folder of its files; and the session's own id."""


class _File(NamedTuple):
    """A file of a session: its path in the folder or archive, and its size."""

    path: str
    size: int


class ImportedSession(NamedTuple):
    """A session as its files have it, checked; `words` are those in the files, by the ids of the messages.

    `place` is the space that it goes into, and `parent_place` that of its parent: None if it has no parent, or one in
    its own space.
    """

    place: Place
    path: str
    about: SessionPart
    lines: tuple[MessageLine, ...]
    words: Mapping[str, TranscriptMessage]
    parent_place: Place | None


class SessionOutcome(NamedTuple):
    """The result for one session: whether it was stored, with how many messages, and what was left out."""

    stored: bool = False
    messages: int = 0
    findings: tuple[Finding, ...] = ()


class SessionImport:
    """The sessions of one import: those that have files, and those that episodes have begun."""

    def __init__(self) -> None:
        """Begin with none."""
        self.begun: set[SessionKey] = set()
        self._files: dict[SessionName, list[_File]] = {}
        self._places: dict[str, set[Place]] = {}
        self._with_parent_elsewhere: set[SessionName] = set()

    def takes(self, file: SourceFile, place: Place, skipped: list[Finding]) -> bool:
        """Note the file of a session, and return whether it is one; `skipped` gets a finding if it does not parse."""
        if not session_files.is_session_file(file.data):
            return False
        try:
            part = session_files.parse(file.data)
        except BadFile as error:
            skipped.append(_not_imported(file.path, error.message, error.fix))
            return True
        # Sessions of one name that come from two spaces into one are distinguished by the folders of their files.
        name = (place._replace(rest=""), file.path.rpartition("/")[0], part.id)
        self._files.setdefault(name, []).append(_File(file.path, len(file.data)))
        self._places.setdefault(part.id, set()).add(name[0])
        if part.parent_space is not None:
            self._with_parent_elsewhere.add(name)
        return True

    def places(self) -> list[Place]:
        """Return the places of the sessions that have files."""
        return [place for places in self._places.values() for place in places]

    def has_file(self, ctx: WriteContext, space: Space, session_id: str) -> bool:
        """Return whether a session has a file of its own, which decides about its messages."""
        found = (import_spaces.find_space(ctx.spaces, place) for place in self._places.get(session_id, ()))
        return any(one is not None and one.id == space.id for one in found)

    def groups(
        self, files: ExternalFiles, folder: str, source: SourceSpaces
    ) -> Iterator[list[ImportedSession | Finding]]:
        """Read the sessions in groups, one transaction each; `source` has the spaces that they come from.

        A session whose parent is in another space comes last, so that the space of its parent is there.
        """
        group: list[SessionName] = []
        size = 0
        for name in sorted(self._files, key=lambda name: (name in self._with_parent_elsewhere, _order(name))):
            group.append(name)
            size += sum(file.size for file in self._files[name])
            if len(group) == _GROUP or size > _GROUP_BYTES:
                yield self._read(group, files, folder, source)
                group, size = [], 0
        if group:
            yield self._read(group, files, folder, source)

    def _read(
        self, group: Sequence[SessionName], files: ExternalFiles, folder: str, source: SourceSpaces
    ) -> list[ImportedSession | Finding]:
        paths = {file.path for name in group for file in self._files[name]}
        data = {file.path: file.data for file in files.files(folder, only=paths) if isinstance(file, SourceFile)}
        return [_parsed(name[0], sorted(self._files[name]), data, source) for name in group]


def _order(name: SessionName) -> tuple[str, str, str]:
    place, folder, session_id = name
    return place.space, folder, session_id


def _parsed(
    place: Place, files: Sequence[_File], data: Mapping[str, bytes], source: SourceSpaces
) -> ImportedSession | Finding:
    try:
        parts = sorted((session_files.parse(data.get(file.path, b"")) for file in files), key=lambda part: part.part)
        return _checked(place, files[0].path, parts, source)
    except CommonbookError as error:
        return _not_imported(files[0].path, error.message, error.fix)


# --- checks without the book


def _checked(place: Place, path: str, parts: Sequence[SessionPart], source: SourceSpaces) -> ImportedSession:
    """Return the session of these parts, or raise an error if a book could not have written them."""
    about = parts[0]
    lines = tuple(line for part in parts for line in part.lines)
    words = {message.id: message for part in parts for message in part.words}
    if [part.part for part in parts] != list(range(1, len(parts) + 1)) or len(lines) != about.messages:
        raise BadFile(
            f"the files of the session have {len(lines)} of its {about.messages} messages",
            fix="import all files of the session together",
        )
    _require_order(lines)
    numbers = {line.id: line.seq for line in lines}
    if any(numbers.get(id_) != message.seq for id_, message in words.items()):
        raise BadFile("the file of a session has a message that is not in its list", fix="export it again")
    validation.validate_session_id(about.id)
    if about.parent is not None:
        validation.validate_session_id(about.parent)
    for message in words.values():
        validation.validate_message(message.text, role=message.role, author=message.author or None, client_id=None)
    for line in lines:
        if line.client_id is not None:
            validation.validate_key(line.client_id)
    parent_place = source.place_named(about.parent_space) if about.parent_space else None
    masking.require_no_secret(about.id, "id of the session")
    checked = about._replace(tags=masking.mask_tags(validation.validate_tags(about.tags))[0])
    return ImportedSession(place, path, checked, lines, words, parent_place)


def _require_order(lines: Sequence[MessageLine]) -> None:
    """Refuse numbers that do not rise or leap far ahead, and ids that are there twice."""
    numbers = [0, *(line.seq for line in lines)]
    rising = all(0 < later - earlier <= _MAX_GAP for earlier, later in pairwise(numbers))
    ids = {line.id for line in lines}
    client_ids = [line.client_id for line in lines if line.client_id is not None]
    unique = len(ids) == len(lines) and len(set(client_ids)) == len(client_ids)
    if not rising or not unique or any(not 0 < len(id_) <= _MAX_ID or id_.split() != [id_] for id_ in ids):
        raise BadFile("the messages in the file of a session are not in order, or not distinct", fix="export it again")


# --- storing


def store(ctx: WriteContext, group: Collection[ImportedSession | Finding], *, dry_run: bool) -> list[SessionOutcome]:
    """Store the sessions of a group that are not here yet; in a dry run the episodes that they name are not here."""
    return [
        SessionOutcome(findings=(one,)) if isinstance(one, Finding) else _store_session(ctx, one, dry_run=dry_run)
        for one in group
    ]


def _store_session(ctx: WriteContext, imported: ImportedSession, *, dry_run: bool) -> SessionOutcome:
    space = import_spaces.find_space(ctx.spaces, imported.place)
    existing = episode_files.find_locked(ctx, space, imported.about.id) if space else None
    known = sessions.get_many(ctx.tx, ctx.spaces, [line.id for line in imported.lines])
    own = {
        id_
        for id_, (message, space_id) in known.items()
        if existing and (space_id, message.session) == (existing.space.id, existing.id)
    }
    missing = [line.seq for line in imported.lines if line.id not in own]
    if existing is not None:
        return _skipped(imported, "the session exists here, and an import changes no session", missing)
    if known:
        return _skipped(imported, "some of its messages are in other sessions here", missing)
    return _create(ctx, imported, dry_run=dry_run)


def _skipped(imported: ImportedSession, why: str, missing: Sequence[int]) -> SessionOutcome:
    """Return the outcome for a session that is not stored: nothing is left out if all of its messages are there."""
    if not missing:
        return SessionOutcome()
    why = f"{why}: not imported are {_numbered(missing)} of {imported.about.id}"
    fix = "import into another space or book to have them, or append them by hand"
    return SessionOutcome(findings=(_not_imported(imported.path, why, fix),))


def _create(ctx: WriteContext, imported: ImportedSession, *, dry_run: bool) -> SessionOutcome:
    about = imported.about
    space = import_spaces.require_space(ctx, imported.place)
    episodes = _episodes(ctx, imported, space)
    words = {**_words_of(episodes.values()), **imported.words}
    messages = [_message(about.id, line, words[line.id], episodes) for line in imported.lines if line.id in words]
    lost = [line.seq for line in imported.lines if line.id not in words]
    parent, findings = _parent(ctx, imported, space)
    session = Session(about.id, space, None, about.tags, about.created, None, sessions.FIRST_GENERATION, last=0)
    sessions.forget_move(ctx.tx, (space.id, about.id))
    sessions.add(ctx.tx, session, parent=parent)
    if messages:
        sent = {line.id: sessions.SENT_OTHERWISE for line in imported.lines if line.edited}
        sessions.restore(ctx.tx, session, [(message, sent.get(message.id)) for message in messages])
    if about.closed is not None:
        sessions.close(ctx.tx, session, about.closed)
    _note_changes(ctx, session, messages, episodes)
    if lost and not dry_run:
        findings.append(
            _not_imported(
                imported.path,
                f"the episode with the words is not here of {_numbered(lost)} of {about.id}",
                "import the episodes of the session together with its file",
            )
        )
    stored = len(imported.lines) if dry_run else len(messages)
    return SessionOutcome(stored=True, messages=stored, findings=tuple(findings))


def _episodes(ctx: WriteContext, imported: ImportedSession, space: Space) -> dict[str, StoredMemory | None]:
    """Return the episodes that a session names; None for one that is not here: it was deleted, or not exported.

    A memory that is here and is not an episode of the session is left out: an import does not make it one.
    """
    ids = sorted({line.episode for line in imported.lines if line.episode})
    found = memories.get_many(ctx.tx, ctx.spaces, ids)
    episodes: dict[str, StoredMemory | None] = {}
    for id_ in ids:
        memory = found.get(id_)
        if memory is None or _is_episode_of(memory, imported.about.id, space):
            episodes[id_] = memory
    return episodes


def _is_episode_of(memory: StoredMemory, session_id: str, space: Space) -> bool:
    """Return whether an episode names this session, or, where it was moved away from it, none yet."""
    if memory.kind != "episode":
        return False
    if memory.session is None:
        return memory.space.id != space.id
    return memory.session == session_id and (memory.session_space or memory.space.name) == space.name


def _words_of(episodes: Collection[StoredMemory | None]) -> dict[str, TranscriptMessage]:
    texts = [memory.text for memory in episodes if memory is not None and memory.deleted is None]
    return {message.id: message for text in texts for message in transcript.parse(text).messages}


def _message(
    session_id: str, line: MessageLine, words: TranscriptMessage, episodes: Mapping[str, StoredMemory | None]
) -> Message:
    """Return a message as it is stored: a file may have been written by hand, so secrets are masked here too."""
    text, masked = masking.mask(words.text)
    return Message(
        id=line.id,
        session=session_id,
        seq=line.seq,
        role=words.role,
        author=words.author,
        text=text,
        time=words.time,
        client_id=line.client_id,
        masked=line.masked + masked,
        episode=line.episode if line.episode in episodes else None,
        rewound_at=line.rewound,
    )


def _parent(ctx: WriteContext, imported: ImportedSession, space: Space) -> tuple[SessionKey | None, list[Finding]]:
    """Return the key of the parent, which may be one that is not here; none, with a finding, if it cannot be kept."""
    about, place = imported.about, imported.parent_place
    if about.parent is None:
        return None, []
    parent_space = import_spaces.find_space(ctx.spaces, place) if place else space
    key = (parent_space.id, about.parent) if parent_space else None
    if key is not None and not sessions.descends_from(ctx.tx, key, (space.id, about.id)):
        return key, []
    name = place.space if place else space.name
    why = f"the parent {about.parent} of {about.id} is in the space {name}, which is not here, or goes on from it"
    return None, [_not_imported(imported.path, why, "import the space of the parent together with this one")]


def _note_changes(
    ctx: WriteContext, session: Session, messages: Sequence[Message], episodes: Mapping[str, StoredMemory | None]
) -> None:
    """Log the new session, have it indexed and settled, and tie the episodes to it that are in other spaces."""
    ctx.log(
        session.space,
        "session.import",
        (),
        session=session.id,
        messages=len(messages),
        said=ctx.engines.keys.keyed_hash(*(message.text for message in messages)),
    )
    ctx.touch(session.space, (message.id for message in messages))
    for memory in episodes.values():
        if memory is not None and memory.session is None:
            _tie(ctx, memory, session)
        if memory is not None:
            ctx.touch(memory.space, [memory.id])
    if any(message.episode is None and message.rewound_at is None for message in messages):
        jobs.enqueue(ctx.tx, space=session.space.id, kind=jobs.SETTLE_JOB, subject=session.id, due=ctx.tx.now)


def _tie(ctx: WriteContext, memory: StoredMemory, session: Session) -> None:
    """Let an episode that was moved away from its session name it again."""
    tied = memory._replace(session=session.id, session_space=session.space.name)
    memories.replace(ctx.tx, ctx.engines.keys, memory, tied)
    if tied.deleted is None:
        ctx.enqueue_files([tied])


def _numbered(numbers: Sequence[int]) -> str:
    named = ", ".join(map(str, numbers[:_MAX_NAMED]))
    more = f" and {len(numbers) - _MAX_NAMED} more" if len(numbers) > _MAX_NAMED else ""
    return f"the messages {named}{more}" if len(numbers) > 1 else f"the message {named}"


def _not_imported(path: str, why: str, fix: str) -> Finding:
    return Finding(what="not imported", where=path, why=why, fix=fix)


# --- episodes of a folder without files of sessions


def begin_session(ctx: WriteContext, memory: StoredMemory, run: SessionImport) -> None:
    """Make the session that an imported episode names, in the space of the episode, with the messages of the episode.

    Only a session that the same import has made gets more: nobody appends to a log by an import. A session that has a
    file of its own is stored later.
    """
    if memory.kind != "episode" or not memory.session or run.has_file(ctx, memory.space, memory.session):
        return
    key = (memory.space.id, memory.session)
    session = episode_files.find_locked(ctx, memory.space, memory.session)
    unknown = episode_files.unknown_messages(ctx, memory, session) if session is None or key in run.begun else []
    if unknown:
        run.begun.add(key)
        session = session or episode_files.create_session(
            ctx, memory, memory.session, generation=sessions.FIRST_GENERATION
        )
        episode_files.add_messages(ctx, session, memory, unknown)
