"""Convert between a memory and its Markdown file."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from commonbook.errors import BadTime
from commonbook.markdown import file_format
from commonbook.markdown.file_format import Dialect
from commonbook.markdown.front_matter import VERBATIM_FIELDS, Document
from commonbook.model.invalidation import Notice
from commonbook.model.memory import CopyInfo, Link, Memory
from commonbook.ports.engines import Engines
from commonbook.text import dates, titles


def dialect(engines: Engines) -> Dialect:
    """Return the dialect of this home: its YAML reader, and times in its time zone."""

    def read_time(field: str, value: str) -> datetime:
        try:
            return dates.parse_user_time(value, zone=engines.zone, edge=dates.field_edge(field))
        except BadTime as error:
            raise ValueError(error.message) from error

    return Dialect(engines.yaml, read_time)


def parse_file(data: bytes, engines: Engines) -> Document:
    """Parse a file; raises BadFile."""
    return file_format.parse(data, dialect(engines))


def render_memory(memory: Memory, engines: Engines) -> bytes:
    """Return the content of a memory's file."""
    return render_document(document_of(memory), engines)


def render_document(document: Document, engines: Engines) -> bytes:
    """Return the content of a document's file; raises TooLarge."""
    return file_format.render(document, dialect(engines))


def document_of(memory: Memory) -> Document:
    """Return a memory as the document of its file."""
    notice = memory.notice if memory.kind == "notice" else None
    return Document(
        id=memory.id,
        title=memory.title,
        kind=memory.kind,
        tags=memory.tags,
        created=memory.created,
        updated=memory.updated,
        author=memory.author,
        session_id=memory.session,
        session_space=memory.session_space,
        shared=memory.shared,
        dependent_id=notice.dependent if notice else None,
        invalidated_id=notice.invalidated if notice else None,
        invalidating_id=notice.invalidating if notice else None,
        timestamp=notice.at if notice else None,
        superseded_because=memory.supersede_reasons,
        invalidations_triaged=memory.decisions,
        links=tuple((link.relation, link.target, link.revision) for link in memory.links),
        revision=memory.revision,
        version=memory.version,
        text=memory.text,
        layout=memory.layout,
        has_front=True,
        **_verbatim(memory),
    )


def _verbatim(memory_or_file: Memory | Document) -> dict[str, Any]:
    return {name: getattr(memory_or_file, name) for name in VERBATIM_FIELDS}


def links_of(document: Document, source: str) -> tuple[Link, ...]:
    """Return the links of a file, each once, in the file's order."""
    revisions = {(relation, target): revision for relation, target, revision in document.links}
    return tuple(Link(source, relation, target, revision) for (relation, target), revision in revisions.items())


def memory_from_document(memory: Memory, document: Document) -> Memory:
    """Return a memory with the changes of its file; a file without front matter changes only the text.

    A file cannot change the id or the session, whose log has the messages. Nor can it change the properties of a copy
    (with the link to its source) or of a notice, or the decisions about it.
    """
    if not document.has_front:
        return memory._replace(text=document.text, layout=document.layout)
    if memory.notice is not None:
        document = document._replace(kind=memory.kind)
    return memory._replace(
        kind=document.kind or memory.kind,
        title=document.title or titles.derive_title(document.text),
        text=document.text,
        tags=document.tags,
        author=document.author or memory.author,
        created=document.created or memory.created,
        layout=document.layout,
        links=memory.links if memory.notice else _with_source_link(memory.source, links_of(document, memory.id)),
        **_verbatim(document),
    )


def new_memory_from_document(memory: Memory, document: Document, *, same_id: bool) -> Memory:
    """Return a new memory with the content of its file, including the session and its space.

    With `same_id` the file has this memory's id, so its revision, version, notice and decisions are taken over as well.
    In a file that somebody copied they belong to the memory that it was copied from.
    """
    session_space = document.session_space if document.session_space != memory.space.name else None
    memory = memory_from_document(memory, document)._replace(
        session=document.session_id, session_space=session_space if document.session_id else None
    )
    if not same_id:
        return memory
    return memory._replace(
        revision=document.revision or 1,
        version=document.version or 1,
        notice=notice_of(document),
        supersede_reasons=document.superseded_because,
        decisions=document.invalidations_triaged,
    )


def _with_source_link(source: Link | None, links: tuple[Link, ...]) -> tuple[Link, ...]:
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


def copy_info_of(document: Document) -> CopyInfo | None:
    """Return the copy information of a new file, if it has the link to its source."""
    is_linked = any(relation == "shared_from" for relation, _, _ in document.links)
    return document.shared if is_linked else None
