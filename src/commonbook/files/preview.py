"""The preview of a scan: counts what a scan makes of a folder, for a person who decides whether it becomes a home.

The scan itself runs, over a folder that cannot be written to and with a database that is thrown away. The contents
that wait in its journal are compared with the files. So a preview cannot differ from what happens later.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Final

from commonbook.files import scan
from commonbook.markdown import memory_conversion
from commonbook.model.reports import Finding, HomePlan, Progress
from commonbook.model.spaces import is_space_file
from commonbook.runtime import in_batches
from commonbook.tables import file_journal, memories, spaces
from commonbook.text import masking

if TYPE_CHECKING:
    from commonbook.ports.database import Reading
    from commonbook.ports.engines import Engines

_BATCH: Final = 200
_FIELD: Final = re.compile(rb"([A-Za-z_][A-Za-z0-9_-]*):")
_FIX: Final = "correct the file if it should become a memory; it is left as it is"


def preview(engines: Engines, home: str, *, progress: Progress) -> HomePlan:
    """Scan the folder, which must be a read-only one, and return what the scan would write."""
    scan.scan(engines, progress=progress)
    with engines.db.reading() as tx:
        found = [file.memory for file in file_journal.synced_files(tx).values() if file.memory and not file.trouble]
        by_space = _notes_by_space(tx, found)
        secrets = _count_secrets(tx, found)
        added: Counter[str] = Counter()
        changed_files = replaced_lines = 0
        for before, after in _pending_contents(tx, engines):
            fields, replaced = _compare(before, after)
            added.update(fields)
            replaced_lines += replaced
            changed_files += 1
        new_files = _new_files(tx, engines)
        skipped = {file.path: file.trouble or "" for file in file_journal.troubles(tx)}
    skipped.update(engines.folder.unreadable_paths())
    return HomePlan(
        home=home,
        notes=by_space.total(),
        spaces=dict(sorted(by_space.items())),
        changed_files=changed_files,
        added=dict(added),
        replaced_lines=replaced_lines,
        new_files=new_files,
        secrets=secrets,
        skipped=tuple(Finding("left out", path, why, _FIX) for path, why in sorted(skipped.items())),
    )


def _notes_by_space(tx: Reading, found: Sequence[str]) -> Counter[str]:
    """Count the memories that have a file, by the name of their space."""
    names = {space.id: space.name for space in spaces.get_all(tx).values()}
    counted: Counter[str] = Counter()
    for batch in in_batches(found, _BATCH):
        counted.update(names[space] for space in memories.spaces_of(tx, batch).values())
    return counted


def _count_secrets(tx: Reading, found: Sequence[str]) -> int:
    """Count the secrets that an import would mask in the texts of these memories."""
    everywhere = spaces.get_all(tx)
    return sum(
        masking.mask(memory.text).count
        for batch in in_batches(found, _BATCH)
        for memory in memories.get_many(tx, everywhere, batch).values()
    )


def _pending_contents(tx: Reading, engines: Engines) -> Iterator[tuple[bytes, bytes]]:
    """Yield the present and the future content of each file that would be written."""
    everywhere = spaces.get_all(tx)
    for batch in in_batches(file_journal.pending(tx), _BATCH):
        for memory in memories.get_many(tx, everywhere, batch).values():
            yield engines.folder.read(memory.path) or b"", memory_conversion.render_memory(memory, engines)


def _new_files(tx: Reading, engines: Engines) -> tuple[str, ...]:
    """Return the paths of the space files that would be added."""
    entries = file_journal.journal_entries(tx, file_journal.pending(tx)).values()
    paths = sorted(entry.path for entry in entries if entry.path is not None and is_space_file(entry.path))
    return tuple(path for path in paths if not engines.folder.exists(path))


def _compare(before: bytes, after: bytes) -> tuple[list[str], int]:
    """Return the names of the fields that are added, and how many lines of before are gone or changed."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    # The text is the same, so only the front matter is left to be compared line by line.
    while old and new and old[-1] == new[-1]:
        old.pop()
        new.pop()
    fields: dict[str, None] = {}
    replaced = 0
    for what, first, last, begin, end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if what != "equal":
            replaced += last - first
            fields |= dict.fromkeys(match[1].decode() for line in new[begin:end] if (match := _FIELD.match(line)))
    return list(fields), replaced
