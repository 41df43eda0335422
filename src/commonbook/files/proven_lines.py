"""Takes in the lines of a file that only this program may write, if their MAC proves that it wrote them.

These are the tie of a copy to its source and the decisions about a suspect memory. After an older state of the database
was put back, a file may know more of them than the database.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from commonbook.markdown import keyed_hashes, retracted_times
from commonbook.markdown.memory_conversion import memory_from_document, proven_decisions, proven_tie

if TYPE_CHECKING:
    from commonbook.markdown.front_matter import Document
    from commonbook.model.invalidation import SupersedeReason
    from commonbook.model.stored_memory import StoredLink, StoredMemory
    from commonbook.write.context import WriteContext


def apply_document(ctx: WriteContext, memory: StoredMemory, document: Document) -> StoredMemory:
    """Return a memory with the changes of its file, and with those of our lines that the database has yet to learn.

    The times of a retracted memory stay as they are, unless such a line takes the retraction back.
    """
    edited = _with_proven_lines(ctx, memory, document)
    return retracted_times.with_times_of_decisions(memory, edited, document)


def _with_proven_lines(ctx: WriteContext, memory: StoredMemory, document: Document) -> StoredMemory:
    """Return a memory with the changes of its file, and with the lines of ours that the database does not know.

    Such a line has a valid MAC, and is later than what the database has: of two decisions about one cause by its time,
    of two ties by `CopyInfo.order`. An older state of the database was put back. Every other line of ours stays as the
    database has it, so that the file of an older commit takes nothing back.
    """
    edited = _with_own_hashes(ctx, memory, memory_from_document(memory, document))
    decisions = {decision.key: decision for decision in memory.decisions}
    for decision in proven_decisions(document, memory.id, ctx.engines.keys):
        if decision.key not in decisions or decision.at > decisions[decision.key].at:
            decisions[decision.key] = decision
    edited = edited._replace(
        decisions=tuple(decisions.values()), supersede_reasons=_reasons_of(document, memory, edited.links)
    )
    return _with_tie(ctx, edited, document)


def _reasons_of(document: Document, memory: StoredMemory, links: tuple[StoredLink, ...]) -> tuple[SupersedeReason, ...]:
    """Return the reasons of a memory, and those of its file for memories that it supersedes and has no reason for.

    The memory lost such a reason together with the link, when a file without the link was checked out.
    """
    own = {reason.superseded: reason for reason in memory.supersede_reasons}
    superseded = {link.target for link in links if link.relation == "supersedes"}
    in_file = {reason.superseded: reason for reason in document.superseded_because if reason.superseded in superseded}
    return tuple((in_file | own).values())


def _with_own_hashes(ctx: WriteContext, memory: StoredMemory, edited: StoredMemory) -> StoredMemory:
    """Return an edited memory whose links keep the hashes that they have, where the file has those of another home."""
    own = {(link.relation, link.target): link for link in memory.links}
    keys = ctx.engines.keys
    links = tuple(
        own.get((link.relation, link.target), link)
        if link.target_hash and keyed_hashes.is_foreign(keys, link.target_hash)
        else link
        for link in edited.links
    )
    return edited._replace(links=links) if links != edited.links else edited


def _with_tie(ctx: WriteContext, edited: StoredMemory, document: Document) -> StoredMemory:
    tie = proven_tie(document, edited.id, ctx.engines.keys) if edited.shared is not None else None
    if tie is None or edited.shared is None:
        return edited
    copy, source = tie
    if copy.order > edited.shared.order:
        return _with_source(edited._replace(shared=copy), source)
    if edited.shared.source_ends is None and copy.source_ends is not None:
        edited = edited._replace(shared=edited.shared._replace(source_ends=copy.source_ends))
    return _with_words_taken(ctx, edited, source)


def _with_words_taken(ctx: WriteContext, copy: StoredMemory, source: StoredLink) -> StoredMemory:
    """Return a copy whose file has words that it took over at another time: it was not edited."""
    taken = keyed_hashes.content_hash(ctx.engines.keys, source.target, copy.title, copy.text)
    is_same_source = copy.source is not None and copy.source.target == source.target
    return _with_source(copy, source) if is_same_source and taken == source.target_hash else copy


def _with_source(copy: StoredMemory, source: StoredLink) -> StoredMemory:
    """Return a copy with this link to its source, in the place of the one that it has."""
    return copy._replace(links=tuple(source if link == copy.source else link for link in copy.links))
