"""Convert between a memory and its Markdown file.

The file of an episode also has a MAC of each message, under the hashing key of the home.
"""

from __future__ import annotations

import hmac
import re
from datetime import datetime
from operator import attrgetter
from typing import Any, Final, NamedTuple

from commonbook.core.markdown import file_format, transcript
from commonbook.core.markdown.file_format import Dialect
from commonbook.core.markdown.front_matter import ROW_FIELDS, VERBATIM_FIELDS, Document
from commonbook.core.markdown.transcript import TranscriptMessage
from commonbook.core.text import titles, user_times
from commonbook.core.text.content_hashes import HASH_DIGITS, is_foreign
from commonbook.errors import BadTime
from commonbook.ports.engines import Engines
from commonbook.ports.keys import Keys
from commonbook.values.ids import format_time
from commonbook.values.invalidation import RETRACT, Notice
from commonbook.values.memory import DEFAULT_KIND, NO_METADATA, Kind
from commonbook.values.stored_memory import StoredCopyInfo, StoredLink, StoredMemory


def dialect(engines: Engines) -> Dialect:
    """Return the dialect of this home: its YAML reader, and times in its time zone."""

    def read_time(field: str, value: str) -> datetime:
        try:
            return user_times.parse_user_time(value, zone=engines.zone, edge=user_times.field_edge(field))
        except BadTime as error:
            raise ValueError(error.message) from error

    return Dialect(engines.yaml, read_time)


def parse_file(data: bytes, engines: Engines) -> Document:
    """Parse a file; raises BadFile."""
    return file_format.parse(data, dialect(engines))


def render_memory(memory: StoredMemory, engines: Engines) -> bytes:
    """Return the content of a memory's file."""
    return render_document(document_of(memory), engines)


def render_document(document: Document, engines: Engines) -> bytes:
    """Return the content of a document's file; raises TooLarge."""
    return file_format.render(document, dialect(engines))


def document_of(memory: StoredMemory) -> Document:
    """Return a memory as the document of its file.

    A file that had no author or time of creation gets none, and a title or a kind only if it is not the default.
    """
    notice = memory.notice if memory.kind == "notice" else None
    absent = file_format.absent_fields(memory.layout)
    has_title = "title" not in absent or memory.title != title_of_note(memory, memory.text)
    return Document(
        id=memory.id,
        title=memory.title if has_title else None,
        kind=_kind_in_file(memory),
        tags=memory.tags,
        created=memory.created if "created" not in absent else None,
        author=memory.author if "author" not in absent else None,
        session_id=memory.session,
        session_space=memory.session_space,
        # What a file says of a tie is always a claim, so that no file need say so.
        shared=memory.shared._replace(claimed=False) if memory.shared else None,
        dependent_id=notice.dependent if notice else None,
        invalidated_id=notice.invalidated if notice else None,
        invalidating_id=notice.invalidating if notice else None,
        timestamp=notice.at if notice else None,
        superseded_because=memory.supersede_reasons,
        invalidations_triaged=memory.decisions,
        messages=memory.message_lines,
        links=tuple((link.relation, link.target, link.target_hash) for link in memory.links),
        text=memory.text,
        layout=memory.layout,
        has_front=True,
        **_verbatim(memory),
    )


def _kind_in_file(memory: StoredMemory) -> Kind | None:
    is_absent = "kind" in file_format.absent_fields(memory.layout)
    return None if is_absent and memory.kind == DEFAULT_KIND else memory.kind


def title_of_note(memory: StoredMemory, text: str) -> str:
    """Return the title that a memory has with this text if its file names none."""
    return titles.title_of_note(memory.path, memory.id, text)


def says_the_same(document: Document, memory: StoredMemory, engines: Engines) -> bool:
    """Return whether a file says what its memory says, so that it need not be written again.

    The form of the file does not count. Nor do hashes of another home, of which this one is a clone: each would put its
    own in their place for ever.
    """
    keys = engines.keys
    hashes = {(link.relation, link.target): link.target_hash for link in memory.links}
    links = tuple(
        (relation, target, hashes.get((relation, target)) if hash_ and is_foreign(keys, hash_) else hash_)
        for relation, target, hash_ in document.links
    )
    return render_document(document._replace(links=links), engines) == render_memory(memory, engines)


def with_absent_filled(document: Document, memory: StoredMemory) -> Document:
    """Return the file of a memory with the id and the kind of the memory, where the file names none.

    It is known by its path, and a kind that is absent is the one that the memory has. A notice must have its kind.
    """
    kind = document.kind or (_kind_in_file(memory) if memory.notice is None else None)
    return document._replace(id=document.id or memory.id, kind=kind, has_front=True)


def require_understood(document: Document, memory: StoredMemory | None) -> None:
    """Raise BadFile if a field of ours was mistyped; a field of a person may have any value.

    Ours are the times and the importance that the memory has. In a file that a verb made, it is every field that the
    memory has.
    """
    if memory is None or not document.unread:
        return
    ours = [name for name in VERBATIM_FIELDS if getattr(memory, name) not in (None, NO_METADATA)]
    if not file_format.absent_fields(memory.layout):
        ours += [*ROW_FIELDS, *(name for name in ("tags", "links") if getattr(memory, name))]
    file_format.require_read(document, ours)


def _verbatim(memory_or_file: StoredMemory | Document) -> dict[str, Any]:
    return dict(zip(VERBATIM_FIELDS, _verbatim_values(memory_or_file), strict=True))


_verbatim_values: Final = attrgetter(*VERBATIM_FIELDS)


def _links_of(document: Document, memory: StoredMemory) -> tuple[StoredLink, ...]:
    """Return the links of a memory's file, each once, in the file's order."""
    taken = {(relation, target): hash_ for relation, target, hash_ in document.links}
    return tuple(StoredLink(memory.id, relation, target, hash_) for (relation, target), hash_ in taken.items())


def memory_from_document(memory: StoredMemory, document: Document) -> StoredMemory:
    """Return a memory with the changes of its file; a file without the front matter of a verb changes only the text.

    In a note of a person, no front matter means that the fields are empty: an older commit may have none.
    A file cannot change the id, the session, whose log has the messages, or the lines that prove these. Nor can it
    change the properties of a copy (with the link to its source) or of a notice, or the decisions about it, or the
    times that a retraction has set.
    """
    absent = file_format.absent_fields(memory.layout)
    if not document.has_front and not absent:
        layout = file_format.with_absent_fields(document.layout, absent)
        return memory._replace(text=document.text, layout=layout)
    if memory.notice is not None:
        document = document._replace(kind=memory.kind)
    edited = memory._replace(
        kind=document.kind or memory.kind,
        title=document.title or title_of_note(memory, document.text),
        text=document.text,
        tags=document.tags,
        author=document.author or memory.author,
        created=document.created or memory.created,
        layout=document.layout,
        links=memory.links if memory.notice else _with_source_link(memory.source, _links_of(document, memory)),
        **_verbatim(document),
    )
    return _with_times_kept(memory, edited)


def new_memory_from_document(memory: StoredMemory, document: Document, *, same_id: bool) -> StoredMemory:
    """Return a new memory with the content of its file, including the session and its space.

    With `same_id` the file has this memory's id, so its notice and its decisions are taken over as well. In a file that
    somebody copied they belong to the memory that it was copied from. Its tie to a source is only a claim. A memory
    that was retracted has ended, even if its file lacks the time.
    """
    session_space = document.session_space if document.session_space != memory.space.name else None
    if not document.has_front:
        memory = memory._replace(layout=document.layout)
    memory = memory_from_document(memory, document)._replace(
        session=document.session_id, session_space=session_space if document.session_id else None
    )
    if not same_id:
        return memory
    memory = memory._replace(
        notice=notice_of(document),
        message_lines=document.messages,
        supersede_reasons=document.superseded_because,
        decisions=document.invalidations_triaged,
        shared=claim_of(document),
    )
    return _with_times_restored(memory)


def claim_of(document: Document) -> StoredCopyInfo | None:
    """Return the copy information of a new file as a claim, if it has the link to its source."""
    is_linked = any(relation == "shared_from" for relation, _, _ in document.links)
    return document.shared._replace(claimed=True) if document.shared and is_linked else None


def _with_times_kept(memory: StoredMemory, edited: StoredMemory) -> StoredMemory:
    """Return a memory as its file edits it; if it was retracted, with the times that it has.

    Only `reinstate` takes a retraction back. A file with the line of the decision and without the end that it gave the
    memory was edited by hand.
    """
    times = _retraction_times(memory)
    if times and memory.expires is not None and memory.expires <= max(times):
        return edited._replace(expires=memory.expires, valid_until=memory.valid_until)
    return edited


def _with_times_restored(memory: StoredMemory) -> StoredMemory:
    """Return a memory from a file with the end that its decision to retract gave it, if its times say less."""
    times = _retraction_times(memory)
    if not times:
        return memory
    end = max(times)
    expires, until = memory.expires, memory.valid_until
    has_begun = memory.valid_from is None or memory.valid_from < end
    return memory._replace(
        expires=end if expires is None else min(expires, end),
        valid_until=until if not has_begun else end if until is None else min(until, end),
    )


def _retraction_times(memory: StoredMemory) -> list[datetime]:
    return [decision.at for decision in memory.decisions if decision.verdict == RETRACT]


def _with_source_link(source: StoredLink | None, links: tuple[StoredLink, ...]) -> tuple[StoredLink, ...]:
    """Return the links of a file; a copy keeps exactly the one link to its source that it had."""
    if source is None:
        return links
    allowed = tuple(link for link in links if link == source or link.relation != source.relation)
    return allowed if source in allowed else (*allowed, source)


def notice_of(document: Document) -> Notice | None:
    """Return the notice of a new file, if it has all the fields of one."""
    if document.kind != "notice":
        return None
    if document.dependent_id is None or document.invalidated_id is None or document.invalidating_id is None:
        return None
    at = document.timestamp or document.created
    if at is None:
        return None
    return Notice(document.dependent_id, document.invalidated_id, document.invalidating_id, at)


def is_valid(mac: str | None, expected: str) -> bool:
    """Compare a MAC that a file has with the expected one, in constant time."""
    return mac is not None and hmac.compare_digest(mac, expected)


# --- the lines that prove the messages of an episode

# Each message has a line in the file of its episode: its number, the MAC under the key of the home, and for a message
# with a client id also a keyed hash of what was sent, and that id. The MAC covers the heading of the message in the
# transcript too, and the session. So the messages come back into the log of a session that an older database has,
# together with their client ids.

_MESSAGE_LINE: Final = re.compile(
    r"(?P<seq>\d{1,15}) mac:(?P<mac>[0-9a-f]{16})(?: (?P<sent>[0-9a-f]{16}|[?-]) (?P<client_id>\S+))?"
)
_TO_ENCODE: Final = re.compile(r"[%\s\x00-\x1f\x7f-\x9f]")
_ENCODED: Final = re.compile(r"%([0-9A-F]{2,6});")
_NOT_SENT: Final = "-"


class ClientIds(NamedTuple):
    """The client id of a message, and the beginning of the hash of what was sent under it; None for what is unknown."""

    client_id: str | None = None
    sent: str | None = None


def message_line(keys: Keys, space_id: str, session: str, message: TranscriptMessage, ids: ClientIds) -> str:
    """Return the line of a message in the file of its episode."""
    ids = ids._replace(sent=ids.sent[:HASH_DIGITS] if ids.sent else None)
    words = [str(message.seq), f"mac:{_message_mac(keys, space_id, session, message, ids)}"]
    if ids.client_id is not None:
        words += [ids.sent or _NOT_SENT, _TO_ENCODE.sub(lambda match: f"%{ord(match[0]):02X};", ids.client_id)]
    return " ".join(words)


def proven_messages(keys: Keys, memory: StoredMemory) -> dict[str, ClientIds]:
    """Return the messages of an episode that this home wrote into its file, by id, with their client ids."""
    if not memory.message_lines or memory.session is None:
        return {}
    by_seq = {message.seq: message for message in transcript.parse(memory.text).messages}
    found: dict[str, ClientIds] = {}
    for match in filter(None, map(_MESSAGE_LINE.fullmatch, memory.message_lines)):
        message = by_seq.get(int(match["seq"]))
        ids = _client_ids_in(match)
        if message is not None and is_valid(
            match["mac"], _message_mac(keys, memory.space.id, memory.session, message, ids)
        ):
            found[message.id] = ids
    return found


def _client_ids_in(match: re.Match[str]) -> ClientIds:
    if match["client_id"] is None:
        return ClientIds()
    client_id = _ENCODED.sub(lambda code: chr(int(code[1], 16)), match["client_id"])
    return ClientIds(client_id, None if match["sent"] == _NOT_SENT else match["sent"])


def _message_mac(keys: Keys, space_id: str, session: str, message: TranscriptMessage, ids: ClientIds) -> str:
    """Return the MAC of a message, over everything but its words, which a person may edit."""
    return keys.keyed_hash(
        "message",
        space_id,
        session,
        str(message.seq),
        message.id,
        message.author,
        message.role,
        format_time(message.time),
        "" if ids.client_id is None else f"+{ids.client_id}",
        ids.sent or "",
    )[:HASH_DIGITS]
