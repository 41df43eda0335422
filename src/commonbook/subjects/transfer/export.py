"""The export of memories as a folder of Markdown or an archive, with the same paths and bytes as in the home.

Sessions have files of their own (`export_sessions`). The sessions of an export: a file for each, with the words of the
messages that no exported episode has. These are messages that are not settled, that were rewound, or whose episode is
in another space, was deleted, or no longer has them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple, TypeAlias

from commonbook.core.access import permissions
from commonbook.core.files import refused_files
from commonbook.core.markdown import file_format, okf, session_files, space_file, transcript
from commonbook.core.markdown.memory_conversion import dialect, render_memory
from commonbook.core.markdown.session_files import MessageLine, SessionPart
from commonbook.core.markdown.transcript import TranscriptMessage
from commonbook.core.tables import (
    api_keys,
    file_journal,
    grants,
    memories,
    rate_counts,
    revisions,
    sessions,
    sharing_requests,
    sharing_rules,
    spaces,
    supersession,
)
from commonbook.core.text import space_names, titles
from commonbook.errors import NotFound
from commonbook.ports.database import Reading
from commonbook.ports.engines import Engines
from commonbook.ports.files import ExportTarget, HomeEntry
from commonbook.subjects.transfer import attachments
from commonbook.values.ids import format_time
from commonbook.values.path_filter import PathFilter
from commonbook.values.reports import Finding, Progress, TransferReport, not_exported
from commonbook.values.session import Message, Session
from commonbook.values.spaces import Actor, Space, SpaceScope, is_space_file
from commonbook.values.stored_memory import StoredMemory

_BATCH: Final = 200
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_Written: TypeAlias = tuple[str | None, str, str]
"""A file of an export: the id of its memory (None for others), its path, and how it compares with the one before."""


def export(
    engines: Engines,
    actor: Actor,
    target: str,
    *,
    space: str | None,
    files: PathFilter,
    as_okf: bool,
    progress: Progress,
) -> TransferReport:
    """Write the live memories and the sessions of a space (with a final '/', also of all spaces below it), or of all.

    With `as_okf` the export is a bundle in the Open Knowledge Format, without sessions: the report names what that
    leaves out.
    """
    permissions.require_owner(actor, "write folders of this machine")
    outcomes: Counter[str] = Counter()
    foreign: list[Finding] = []
    ids: list[str] = []
    with engines.db.reading() as tx:
        chosen = permissions.select(tx, actor, space)
        if as_okf:
            # Other programs would take proposals for memories.
            chosen = permissions.without_proposals(chosen, space)
        if space is not None and not chosen:
            raise NotFound(f"there is no space {space!r}", fix="`commonbook space list` shows the spaces")
        paths = [(path, memory_id) for path, memory_id in _paths(tx, chosen) if files.takes(path)]
        with engines.external_files.target(target) as out:
            written = (
                _write_okf(engines, tx, chosen, paths, out) if as_okf else _write_files(engines, tx, chosen, paths, out)
            )
            for memory_id, path, outcome in written:
                if outcome == "foreign":
                    foreign.append(not_exported(path))
                elif memory_id is not None:
                    ids.append(memory_id)
                if memory_id is not None:
                    outcomes[outcome] += 1
                progress("exporting", outcomes.total(), len(paths))
            sessions = () if as_okf else tuple(write(tx, chosen, out, takes=files.takes))
            in_export = _exported_spaces(chosen, paths, sessions)
            foreign += _put_space_files(out, in_export)
            is_attachment, lies_in = attachments.selects(files), attachments.lies_in(tx, chosen, whole=space is None)
            attached = attachments.export_attachments(engines, lambda path: is_attachment(path) and lies_in(path), out)
        foreign += attached.findings
        foreign += [not_exported(file.path) for file in sessions if file.outcome == "foreign"]
        foreign += left_out(tx, chosen) if as_okf else ()
        exported = {path for path, _ in paths} | attached.paths
        skipped = _with_unexported_files(
            engines, tx, foreign, lambda path: files.takes(path) and lies_in(path), exported=exported
        )
        edited = sum(file.edited for file in sessions)
        not_in_files = _left_out(
            tx, chosen, edited_messages=edited, empty_spaces=_count_empty(chosen, in_export), whole=space is None
        )
    written_sessions = [file for file in sessions if file.outcome != "foreign"]
    return TransferReport(
        done=outcomes["new"],
        updated=outcomes["changed"],
        unchanged=outcomes["same"],
        skipped=skipped,
        ids=tuple(ids),
        sessions=sum(file.part == 1 for file in written_sessions),
        messages=sum(file.words for file in written_sessions),
        left_out=not_in_files,
        attachments=attached.copied,
    )


def _write_files(
    engines: Engines, tx: Reading, chosen: SpaceScope, paths: Sequence[tuple[str, str]], out: ExportTarget
) -> Iterator[_Written]:
    """Write each memory as the home has it."""
    for batch in _by_path(tx, chosen, paths):
        for memory in batch:
            outcome = out.put(memory.path, render_memory(memory, engines), changed=memory.updated)
            yield memory.id, memory.path, outcome


def _write_okf(
    engines: Engines, tx: Reading, chosen: SpaceScope, paths: Sequence[tuple[str, str]], out: ExportTarget
) -> Iterator[_Written]:
    """Write each memory as a concept of a bundle, and then the listings of the folders."""
    targets = _targets_of(tx, chosen, paths)
    entries: list[okf.Entry] = []
    changed = _EPOCH
    for batch in _by_path(tx, chosen, paths):
        for memory, path, data in _bundle_files(engines, tx, batch, targets):
            entries.append(okf.Entry(path, memory.title, okf.describe(memory)))
            changed = max(changed, memory.updated)
            yield memory.id, path, out.put(path, data, changed=memory.updated)
    # The newest change of a memory, so that equal states of a book give equal archives.
    for path, outcome in _write_indexes(out, entries, changed=changed):
        yield None, path, outcome


def _paths(tx: Reading, chosen: SpaceScope) -> list[tuple[str, str]]:
    """Return (path, id) of each live memory, sorted, so that equal states of a book give equal archives."""
    paths: list[tuple[str, str]] = []
    for space in chosen:
        after = ""
        while batch := memories.in_space(tx, chosen, space, after=after):
            after = batch[-1].id
            paths += [(memory.path, memory.id) for memory in batch if memory.deleted is None]
    return sorted(paths)


def _by_path(tx: Reading, chosen: SpaceScope, paths: Sequence[tuple[str, str]]) -> Iterator[list[StoredMemory]]:
    for at in range(0, len(paths), _BATCH):
        ids = [memory_id for _, memory_id in paths[at : at + _BATCH]]
        by_id = memories.get_many(tx, chosen, ids)
        yield [by_id[memory_id] for memory_id in ids]


def _exported_spaces(
    chosen: SpaceScope, paths: Sequence[tuple[str, str]], sessions: Sequence[WrittenSession]
) -> list[Space]:
    """Return the spaces that have a file in the export, be it a proposal to them."""
    written = [*(path for path, _ in paths), *(file.path for file in sessions)]
    with_file = [space for space in chosen.values() if space_names.has_space_file(space.name)]
    found = (titles.space_at(path, with_file) for path in written)
    return list({space.id: space for space in found if space is not None}.values())


def _count_empty(chosen: SpaceScope, exported: Iterable[Space]) -> int:
    """Return how many of the chosen spaces are not in the export, since they have no file in it."""
    others = {space.name for space in chosen.values()} - {space.name for space in exported} - {space_names.PERSONAL}
    return sum(map(space_names.has_space_file, others))


def _put_space_files(out: ExportTarget, spaces: Iterable[Space]) -> list[Finding]:
    """Write the files that make the exported folders spaces; return findings for those that others changed."""
    foreign = []
    for space in sorted(spaces, key=lambda space: space.folder):
        path = titles.space_file(space.folder)
        if (
            space_names.has_space_file(space.name)
            and out.put(path, space_file.render(space), changed=space.created) == "foreign"
        ):
            foreign.append(not_exported(path))
    return foreign


# --- a bundle in the Open Knowledge Format


_Targets = Mapping[str, tuple[str, str]]
"""The path in the bundle and the title of each memory of it, by its id."""


def _bundle_files(
    engines: Engines, tx: Reading, batch: Sequence[StoredMemory], targets: _Targets
) -> list[tuple[StoredMemory, str, bytes]]:
    """Return the path and content in the bundle of each of these memories."""
    everywhere = spaces.get_all(tx)
    successors = supersession.successors_of(tx, everywhere, [memory.id for memory in batch])
    now = engines.clock.now()
    files: list[tuple[StoredMemory, str, bytes]] = []
    for memory in batch:
        ends, own = _end(memory), _own_fields(engines, memory)
        has_ended = ends is not None and ends <= now
        concept = okf.Concept(
            memory=memory,
            sources=[_source(link.target, targets) for link in memory.links if link.relation in okf.SOURCE_RELATIONS],
            # What an import took from one of these fields is not said again by the other.
            is_deprecated=bool(successors.standing(memory.id, now)) or (has_ended and own.ends != ends),
            stale_after=None if own.is_deprecated else ends,
        )
        data = file_format.add_fields(
            render_memory(memory, engines), okf.fields(concept, engines.zone), dialect(engines)
        )
        files.append((memory, okf.bundle_path(memory.path, memory.id), data))
    return files


def _own_fields(engines: Engines, memory: StoredMemory) -> okf.ForeignConcept:
    """Return what the front matter of a person says about the end of a memory."""
    if not any(name in memory.layout or name in memory.metadata for name in ("status", "stale_after")):
        return okf.ForeignConcept()
    return okf.read_concept(memory, dialect(engines))


def _targets_of(tx: Reading, chosen: SpaceScope, paths: Iterable[tuple[str, str]]) -> _Targets:
    """Return where each memory of an export lies in the bundle, and its title."""
    ids = [memory_id for _, memory_id in paths]
    return {
        header.id: (okf.bundle_path(header.path, header.id), header.title)
        for header in memories.get_headers(tx, chosen, ids).values()
    }


def _end(memory: StoredMemory) -> datetime | None:
    """Return the moment from which a memory does not hold any more, if it has one."""
    return min((moment for moment in (memory.expires, memory.valid_until) if moment is not None), default=None)


def _source(target: str, targets: _Targets) -> tuple[str, str, str | None]:
    if target in targets:
        path, title = targets[target]
        return target, f"/{path}", title
    return target, f"urn:uuid:{target}", None


def _write_indexes(out: ExportTarget, entries: Iterable[okf.Entry], *, changed: datetime) -> list[tuple[str, str]]:
    """Write the listing of every folder; return the path and the outcome of each."""
    return [(path, out.put(path, text.encode(), changed=changed)) for path, text in okf.indexes(entries).items()]


# --- what an export leaves out


_MARKDOWN: Final = (".md", ".markdown")
_COPY_IT: Final = "copy it yourself if it belongs to the export"
_UNKNOWN_ENDING: Final = Finding(
    what="not exported",
    where="",
    why="it is neither Markdown nor of a kind that is known as an attachment",
    fix="`--include '*'` exports files of every kind",
)


def _left_out(
    tx: Reading, chosen: SpaceScope, *, edited_messages: int, empty_spaces: int, whole: bool
) -> tuple[str, ...]:
    """Return what an export of these spaces leaves out, with numbers; `whole` is an export of all spaces.

    Of messages that were edited in their episodes, the words that they had before are left out.
    """
    if not chosen:
        return ()
    _, deleted, _ = memories.counts(tx, chosen)
    requests = [sharing_requests.into_spaces(tx, chosen, decided=decided) for decided in (False, True)]
    counts = [
        (revisions.count(tx, chosen), "past revision", "past revisions"),
        (edited_messages, "earlier text of a message", "earlier texts of messages"),
        (deleted, "deleted memory", "deleted memories"),
        (empty_spaces, "empty space", "empty spaces"),
        (len(grants.on_spaces(tx, chosen)), "grant", "grants"),
        (sum(sharing_rules.count(tx, space) for space in chosen), "sharing rule", "sharing rules"),
        (len({request.id for page in requests for request in page}), "share request", "share requests"),
    ]
    if whole:
        limits = [limit for limit in rate_counts.get_limits(tx) if limit.set_by]
        counts += [
            (len(api_keys.get_all(tx)), "API key", "API keys"),
            (len(limits), "rate limit", "rate limits"),
        ]
    named = [f"{count:,} {one if count == 1 else many}" for count, one, many in counts if count]
    return (*named, "the signed log")


def _with_unexported_files(
    engines: Engines,
    tx: Reading,
    findings: Sequence[Finding],
    wanted: Callable[[str], bool],
    *,
    exported: Collection[str],
) -> tuple[Finding, ...]:
    """Return these findings, and one for each other wanted file of the home that is not as it is in the export.

    `exported` are the paths in the home of everything that the export has.
    """
    known = {*exported, *(finding.where for finding in findings)}
    return (*findings, *_unexported_files(engines, tx, wanted, known))


def _unexported_files(
    engines: Engines, tx: Reading, wanted: Callable[[str], bool], exported: Collection[str]
) -> Iterator[Finding]:
    troubles = {file.path: file.trouble or "" for file in file_journal.troubles(tx)}
    for entry in engines.external_files.home_entries():
        if is_space_file(entry.path) or not wanted(entry.path):
            continue
        if entry.path in exported:
            if entry.path in troubles:
                yield _older_state(entry.path, troubles[entry.path])
        else:
            yield _finding(engines, entry, troubles.get(entry.path))


def _finding(engines: Engines, entry: HomeEntry, trouble: str | None) -> Finding:
    if entry.skipped is not None:
        return Finding("not exported", entry.path, entry.skipped, _COPY_IT)
    if trouble is not None:
        return Finding("not exported", entry.path, trouble, refused_files.fix_of(entry.path, trouble, is_memory=False))
    if entry.path.lower().endswith(_MARKDOWN) and not entry.path.endswith(".md"):
        return Finding("not exported", entry.path, "a memory's file ends with `.md`, in small letters", "rename it")
    if not entry.path.endswith(".md"):
        return _UNKNOWN_ENDING._replace(where=entry.path)
    if refused_files.is_blank(engines.folder.read(entry.path) or b""):
        return Finding("not exported", entry.path, "the note is empty: it is no memory yet", "write something into it")
    return Finding(
        "not exported", entry.path, "the file was not read yet", "run `commonbook status`, which reads it, then export"
    )


def _older_state(path: str, trouble: str) -> Finding:
    return Finding(
        what="older state exported",
        where=path,
        why=f"{trouble}; the export has the memory as it was before",
        fix=refused_files.fix_of(path, trouble, is_memory=True),
    )


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
