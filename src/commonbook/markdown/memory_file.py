"""Between a memory and its Markdown: what a file would say, and what a file said."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from commonbook.errors import BadTime
from commonbook.markdown import document as markdown_document
from commonbook.markdown.document import Dialect
from commonbook.markdown.front_matter import VERBATIM, Document
from commonbook.model.invalidation import Notice
from commonbook.model.memory import CopyInfo, Link, Memory
from commonbook.ports.engines import Engines
from commonbook.text import dates, titles


def dialect(engines: Engines) -> Dialect:
    """Return how this home reads front matter: its YAML reader and its time zone."""

    def read_time(field: str, value: str) -> datetime:
        try:
            return dates.read_time(value, zone=engines.zone, edge=dates.field_edge(field))
        except BadTime as error:
            raise ValueError(error.message) from error

    return Dialect(engines.yaml, read_time)


def parse_file(data: bytes, engines: Engines) -> Document:
    """Read a file; raises BadFile."""
    return markdown_document.parse(data, dialect(engines))


def render_memory(memory: Memory, engines: Engines) -> bytes:
    """Write the file of a memory."""
    return render_document(document_of(memory), engines)


def render_document(document: Document, engines: Engines) -> bytes:
    """Write the file that says this; raises TooLarge."""
    return markdown_document.render(document, dialect(engines))


def document_of(memory: Memory) -> Document:
    """Return what a memory's file says."""
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
    return {name: getattr(memory_or_file, name) for name in VERBATIM}


def links_of(document: Document, source: str) -> tuple[Link, ...]:
    """Return the links that a file names, each once, in the file's order."""
    named = {(relation, target): revision for relation, target, revision in document.links}
    return tuple(Link(source, relation, target, revision) for (relation, target), revision in named.items())


def memory_from_document(memory: Memory, document: Document) -> Memory:
    """Return the memory as its file says it now; without front matter only the text is said.

    Its session is, like its id, not a file's to change: its messages are in that session's log. Nor is what makes it
    a copy, with the link to its source, or a notice, nor what was decided about it.
    """
    if not document.has_front:
        return memory._replace(text=document.text, layout=document.layout)
    if memory.notice is not None:
        document = document._replace(kind=memory.kind)
    return memory._replace(
        kind=document.kind or memory.kind,
        title=document.title or titles.title_from(document.text),
        text=document.text,
        tags=document.tags,
        author=document.author or memory.author,
        created=document.created or memory.created,
        layout=document.layout,
        links=memory.links if memory.notice else _still_from(memory.source, links_of(document, memory.id)),
        **_verbatim(document),
    )


def filled_from_file(memory: Memory, document: Document, *, same_id: bool) -> Memory:
    """Return a new memory with what its file says, its session too.

    With `same_id` the file names this memory, so that its numbers, its notice and the decisions in it are its own.
    Those of a file that somebody copied belong to the memory from which it was copied.
    """
    memory = memory_from_document(memory, document)._replace(session=document.session_id)
    if not same_id:
        return memory
    return memory._replace(
        revision=document.revision or 1,
        version=document.version or 1,
        notice=notice_of(document),
        supersede_reasons=document.superseded_because,
        decisions=document.invalidations_triaged,
    )


def _still_from(source: Link | None, links: tuple[Link, ...]) -> tuple[Link, ...]:
    """Return the links that a file names; the one of a copy to its source stays as it was, and the only one."""
    if source is None:
        return links
    kept = tuple(link for link in links if link == source or link.relation != source.relation)
    return kept if source in kept else (*kept, source)


def notice_of(document: Document) -> Notice | None:
    """Return what makes a new file a notice, if all of it is there."""
    if document.kind != "notice":
        return None
    if document.dependent_id is None or document.invalidated_id is None or document.invalidating_id is None:
        return None
    at = document.timestamp or document.created
    if at is None:
        return None
    return Notice(document.dependent_id, document.invalidated_id, document.invalidating_id, at)


def copy_info_of(document: Document) -> CopyInfo | None:
    """Return what makes a new file a copy: its tie, if the link to its source is there."""
    is_linked = any(relation == "shared_from" for relation, _, _ in document.links)
    return document.shared if is_linked else None
