"""The import of a bundle in the Open Knowledge Format, which another program wrote.

A concept is imported as any note, with all bytes of its front matter. Four things of it are understood besides: when it
was written, until when it holds, whether it is deprecated, and which concepts of the bundle it was made from. These
become links `derived_from`. The listings of folders are left out, since an export makes them again.
"""

from __future__ import annotations

import posixpath
from collections.abc import Container, Mapping, Sequence
from typing import Final

from commonbook.core.files import hand_edits
from commonbook.core.markdown import okf
from commonbook.core.markdown.front_matter import Document
from commonbook.core.markdown.memory_conversion import dialect, parse_file
from commonbook.core.tables import memories
from commonbook.core.text import user_times
from commonbook.core.write import store_version
from commonbook.core.write.context import WriteContext
from commonbook.errors import BadFile, FileInTheWay
from commonbook.ports.engines import Engines
from commonbook.ports.files import SourceFile
from commonbook.subjects.transfer.import_file import ImportPlan, ImportRecord
from commonbook.subjects.transfer.import_reading import ReadFile, not_imported
from commonbook.values.memory import MAX_FRONT_BYTES
from commonbook.values.reports import Finding
from commonbook.values.stored_memory import StoredLink, StoredMemory

_DERIVED: Final = "derived_from"
_STORED: Final = ("done", "updated")
# Every link is a line of front matter, whose size is limited; further sources stay in the field `sources` alone.
_LINK_BYTES: Final = 80
_OWN_BYTES: Final = 8192


def find_bundle(engines: Engines, folder: str, *, required: bool) -> Bundle | None:
    """Return the bundle that a folder or an archive is, or that a folder in it is; None if there is none.

    The `index.md` at the root of a bundle says that it is one. Archives often have one folder around everything. With
    `required` the caller says that it is a bundle.
    """
    files = engines.external_files.files(folder, only=_UpperIndexes())
    indexes = [file for file in files if isinstance(file, SourceFile)]
    roots = [
        file.path.removesuffix(okf.INDEX) for file in indexes if okf.VERSION_FIELD in (_fields(engines, file) or {})
    ]
    if "" in roots or (required and len(roots) != 1):
        return Bundle(engines)
    has_upper_index = any(file.path == okf.INDEX for file in indexes)
    return Bundle(engines, roots[0]) if len(roots) == 1 and not has_upper_index else None


class _UpperIndexes(Container[str]):
    """The paths of `index.md` at the top of a source, and in the folders there."""

    def __contains__(self, path: object) -> bool:
        return isinstance(path, str) and posixpath.basename(path) == okf.INDEX and path.count("/") <= 1


def _fields(engines: Engines, file: SourceFile) -> dict[str, object] | None:
    """Return the fields of a file's front matter; None if it cannot be read."""
    try:
        return okf.front_fields(parse_file(file.data, engines).layout, dialect(engines))
    except BadFile:
        return None


class Bundle:
    """A bundle while it is imported: the sources of its concepts, and the memories that they have become.

    Files outside of its root, the folder that is the bundle, are notes as any other.
    """

    def __init__(self, engines: Engines, root: str = "") -> None:
        """Begin with no concept; `root` ends with `/` if it is not the top of the source."""
        self._engines = engines
        self._root = root
        self._paths: dict[str, str] = {}
        self._listings = 0
        self._superseded: set[str] = set()
        self._resources: dict[str, tuple[str, ...]] = {}
        self._memories: dict[str, str] = {}
        self._added: set[str] = set()
        self._linked: dict[str, frozenset[str]] = {}

    # --- the first pass

    def is_listing(self, file: SourceFile | Finding) -> bool:
        """Return whether a file lists the content of its folder, and count it; one with other fields is a concept."""
        if isinstance(file, Finding) or posixpath.basename(file.path) != okf.INDEX:
            return False
        if not file.path.startswith(self._root):
            return False
        fields = _fields(self._engines, file)
        is_listing = fields is not None and fields.keys() <= {okf.VERSION_FIELD}
        self._listings += is_listing
        return is_listing

    def findings(self) -> list[Finding]:
        """Return one finding for all listings that were left out."""
        if not self._listings:
            return []
        listings = "a listing of a folder" if self._listings == 1 else f"{self._listings} listings of folders"
        return [
            not_imported(
                self._root + okf.INDEX, f"the bundle has {listings}", "nothing: `export --okf` writes listings again"
            )
        ]

    def read(self, read: ReadFile) -> ReadFile:
        """Note the sources of a concept, and return it with the times that its fields of OKF say."""
        path, document = read.file.path, read.document
        if not path.startswith(self._root):
            return read
        self._paths[path.removeprefix(self._root)] = path
        concept = okf.read_concept(document, dialect(self._engines))
        room = max(0, MAX_FRONT_BYTES - _OWN_BYTES - len(document.layout.encode())) // _LINK_BYTES
        self._resources[path] = concept.sources[:room]
        self._superseded |= {target for relation, target, _ in document.links if relation == "supersedes"}
        return read._replace(document=self._with_end(read, concept), written=concept.written)

    def _with_end(self, read: ReadFile, concept: okf.ForeignConcept) -> Document:
        """Return a document with the end of what it says, unless it names one: the day it is stale, or deprecated.

        What is deprecated has expired besides: recall leaves it out unless asked.
        """
        document = read.document
        if document.valid_until is not None or document.expires is not None:
            return document
        # A memory of ours that another one of the bundle supersedes has no end of its own.
        if not concept.is_deprecated or document.id in self._superseded:
            return document._replace(valid_until=concept.ends)
        now = self._engines.clock.now()
        written = concept.written or user_times.time_of_file(read.file.mtime_ns, now=now)
        ends = min(written, concept.ends or now, now)
        return document._replace(valid_until=ends, expires=ends)

    # --- links to sources

    def know(self, records: Mapping[str, ImportRecord]) -> None:
        """Take over the memories that the files at these paths became in earlier imports."""
        self._memories |= {path: record.memory for path, record in records.items()}

    def with_sources(self, ctx: WriteContext, plans: Sequence[ImportPlan]) -> list[ImportPlan]:
        """Return plans with links to those sources that are here already, or are in the same batch."""
        planned = {plan.path: plan.proposed for plan in plans if plan.proposed is not None}
        self._memories |= {path: memory.id for path, memory in planned.items()}
        self._added |= {plan.path for plan in plans if plan.outcome == "done"}
        proposed = [plan.proposed for plan in plans if plan.proposed and plan.outcome in _STORED]
        new = {memory.id: store_version.with_hashes(ctx, memory) for memory in proposed}
        return [plan._replace(proposed=self._with_links(ctx, plan, new)) for plan in plans]

    def _with_links(self, ctx: WriteContext, plan: ImportPlan, new: Mapping[str, StoredMemory]) -> StoredMemory | None:
        if plan.proposed is None or plan.outcome not in _STORED:
            return plan.proposed
        linked = _linked(ctx, plan.proposed, self._source_ids(plan.path), new)
        self._linked[plan.path] = frozenset(link.target for link in linked.links)
        return linked

    def _source_ids(self, path: str) -> list[str]:
        """Return the memories that a concept was made from, as far as they are known."""
        origin = path.removeprefix(self._root)
        named = (okf.concept_path(each, origin=origin, paths=self._paths) for each in self._resources.get(path, ()))
        sources = (self._paths[each] for each in named if each is not None and each != origin)
        return [self._memories[each] for each in sources if each in self._memories]

    def count_links(self, path: str) -> int:
        """Return the number of links to sources that the import of a file has made."""
        return len(self._linked.get(path, frozenset()) & {*self._source_ids(path)})

    def late_sources(self) -> dict[str, list[str]]:
        """Return the sources that were imported after the concepts that name them, by the paths of these."""
        added = {self._memories[path] for path in self._added}
        late: dict[str, list[str]] = {}
        for path in self._resources.keys() & self._memories.keys():
            wanted = [source for source in self._source_ids(path) if path in self._linked or source in added]
            if missing := [source for source in wanted if source not in self._linked.get(path, ())]:
                late[path] = missing
        return dict(sorted(late.items()))


def add_late_links(
    ctx: WriteContext, late: Mapping[str, Sequence[str]], records: Mapping[str, ImportRecord], *, scanned: bool
) -> dict[str, int]:
    """Add links to sources that were imported after these files; return how many each memory got."""
    ctx.lock(record.memory for record in records.values())
    return {record.memory: _add_late(ctx, record, late[path], scanned=scanned) for path, record in records.items()}


def _add_late(ctx: WriteContext, record: ImportRecord, sources: Sequence[str], *, scanned: bool) -> int:
    memory = memories.find(ctx.tx, ctx.writable, record.memory)
    if memory is None or memory.deleted is not None:
        return 0
    try:
        memory = hand_edits.with_file_changes(ctx, memory, scanned=scanned)
    except FileInTheWay:
        return 0
    linked = _linked(ctx, memory, sources, {})
    if linked == memory:
        return 0
    new = store_version.store_version(ctx, memory, linked, ["links"], how="import")
    # A memory that was changed here since the import must still count as changed.
    if record.version == memory.version:
        record._replace(version=new.version).store(ctx)
    return len(linked.links) - len(memory.links)


def _linked(
    ctx: WriteContext, memory: StoredMemory, sources: Sequence[str], new: Mapping[str, StoredMemory]
) -> StoredMemory:
    """Return a memory with links to live sources, unless it has a link that says that it was made from them."""
    known = {link.target for link in memory.links if link.relation in okf.SOURCE_RELATIONS}
    wanted = [source for source in dict.fromkeys(sources) if source not in known and source != memory.id]
    stored = memories.get_many(ctx.tx, ctx.readable, [source for source in wanted if source not in new])
    found = (new.get(source) or stored.get(source) for source in wanted)
    links = [
        StoredLink(memory.id, _DERIVED, each.id, each.content_hash) for each in found if each and each.deleted is None
    ]
    if not links:
        return memory
    by_key = {(link.relation, link.target): link for link in (*memory.links, *links)}
    return memory._replace(links=tuple(by_key[key] for key in sorted(by_key)))
