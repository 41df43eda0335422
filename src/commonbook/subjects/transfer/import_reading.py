"""Reads the files of an import: each is parsed or refused, and its secrets are masked before anything is stored."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from commonbook.core.files import refused_files
from commonbook.core.markdown.front_matter import Document
from commonbook.core.markdown.memory_conversion import parse_file
from commonbook.core.text import masking, titles
from commonbook.errors import BadFile
from commonbook.ports.engines import Engines
from commonbook.ports.files import SourceFile
from commonbook.subjects.transfer import import_file
from commonbook.subjects.transfer.import_file import HomePlaces, ImportedFile, Note
from commonbook.subjects.transfer.import_spaces import Place
from commonbook.values.reports import Finding


class ReadFile(NamedTuple):
    """A file of the folder or archive, and what it says; `written` is its time by a field that is not one of ours."""

    file: SourceFile
    document: Document
    written: datetime | None = None


def read_file(engines: Engines, file: SourceFile, place: Place, places: HomePlaces) -> ReadFile | Finding:
    """Parse a file, or return why it cannot be imported to this place."""
    try:
        document = parse_file(file.data, engines)
    except BadFile as error:
        return not_imported(file.path, error.message, error.fix)
    if not import_file.has_room(document):
        return not_imported(
            file.path, "the front matter is too long: no room is left for our fields", "move some of it into the text"
        )
    if not places.has(place):
        return not_imported(
            file.path,
            "the home has no place for it",
            "look at the home's .commonbookignore, and for links or files in place of its folders",
        )
    for name, what in ((place.space, "name of its space"), (document.session_id or "", "id of its session")):
        if masking.tells_secret(name):
            return not_imported(file.path, f"the {what} has a secret in it", "give it another one, then import again")
    return ReadFile(file, document)


def not_imported(path: str, why: str, fix: str) -> Finding:
    """Return the finding for a file that an import skips."""
    return Finding(what="not imported", where=path, why=why, fix=fix)


def imported_file(read: ReadFile, note: Note, place: Place, *, mask: bool) -> ImportedFile:
    """Return a file as it will be imported, with `mask` without its secrets."""
    document = read.document
    imported = ImportedFile(
        note=note, file=read.file, document=document, place=place, original=document, written=read.written
    )
    return _without_secrets(imported) if mask else imported


def without_conflict_copies(notes: Mapping[str, Note]) -> tuple[dict[str, Note], list[Finding]]:
    """Return the notes without the second versions that a sync program left beside them, and findings for those."""
    originals = {path: refused_files.marked_original(path) for path in notes}
    copies = {path: original for path, original in originals.items() if original in notes}
    findings = [
        not_imported(
            path,
            f"it is a second version, made by a sync program, of {original}",
            "settle which of the two counts, remove the other, then import again",
        )
        for path, original in copies.items()
    ]
    return {path: note for path, note in notes.items() if path not in copies}, findings


# --- secrets


def _without_secrets(imported: ImportedFile) -> ImportedFile:
    """Return a file without the secrets of its text, title and name, and of the fields of others."""
    document, place = imported.document, imported.place
    text, title = masking.mask(document.text), masking.mask_title(document.title or "")
    if not document.title:
        title = masking.mask_title(posixpath.splitext(posixpath.basename(imported.note.path))[0])
        if title.count:
            place = place._replace(rest=posixpath.join(posixpath.dirname(place.rest), f"{titles.slug(title.text)}.md"))
    tags, in_tags = masking.mask_tags(document.tags)
    metadata, in_metadata = masking.mask_metadata(document.metadata)
    layout, in_layout = _masked_layout(document.layout)
    # The front matter as it was has the title, the tags and the metadata too.
    count = max(in_layout, title.count + in_tags + in_metadata) + text.count
    document = document._replace(
        text=text.text, layout=layout, title=title.text if title.count else document.title, tags=tags, metadata=metadata
    )
    return imported._replace(document=document, place=place, masked=count)


def _masked_layout(layout: str) -> tuple[str, int]:
    """Return a layout without the secrets of its front matter; their placeholder has no colon, to stay YAML."""
    fields = json.loads(layout) if layout else {}
    masked, count = masking.mask(fields.get("front", ""))
    if not count:
        return layout, 0
    fields["front"] = masking.PLACEHOLDERS.sub("(masked)", masked)
    return json.dumps(fields, ensure_ascii=False), count
