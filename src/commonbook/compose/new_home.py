"""The composition root of `init`: shows what making a folder a home will change, and makes it one.

The preview of a scan: counts what a scan makes of a folder, for a person who decides whether it becomes a home. The
scan itself runs, over a folder that cannot be written to and with a database that is thrown away. The contents that
wait in its journal are compared with the files. So a preview cannot differ from what happens later.
"""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from difflib import SequenceMatcher
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from commonbook.compose.book import open_book, prepare_home, require_folder, wire_folder
from commonbook.core.files import scan
from commonbook.core.markdown import memory_conversion, space_file
from commonbook.core.settings.settings import Settings
from commonbook.core.tables import file_journal, memories, spaces
from commonbook.core.text import masking, space_names
from commonbook.core.write.transaction import write
from commonbook.engines.disk import machine_marker
from commonbook.engines.disk.home_folder import HIDDEN_FOLDER, is_home
from commonbook.engines.disk.no_files import ReadOnlyFolder
from commonbook.engines.process import SystemClock
from commonbook.errors import BadFile, Conflict, ForeignHome
from commonbook.runtime import in_batches
from commonbook.values.ids import new_id
from commonbook.values.reports import Finding, HomePlan, Progress, no_progress
from commonbook.values.request import OWNER_CONTEXT
from commonbook.values.spaces import PERSONAL, SPACE_FILE, Space, is_space_file

if TYPE_CHECKING:
    from commonbook.ports.database import Reading
    from commonbook.ports.engines import Engines

_NOT_COPIED: Final = ("index", "out", "*.lock*", "outbox.db*", "state.db.before-*")


def is_home_already(settings: Settings) -> bool:
    """Return whether the folder is a home that was made, or was trusted, on this machine."""
    return is_home(settings.home) and machine_marker.is_marked(settings.home)


def plan_home(
    settings: Settings, *, space: str | None = None, trust: bool = False, progress: Progress = no_progress
) -> HomePlan:
    """Return what making a folder a home will change; nothing in the folder is written.

    The folder becomes the space of that name, in place of `personal`. A `.commonbook/` of another machine raises
    ForeignHome, unless `trust` is set. A folder inside a home raises Conflict: its files would belong to two books.
    """
    require_folder(settings.home)
    refuse_nested(settings.home)
    brings = machine_marker.brings_hidden_folder(settings.home) and not machine_marker.is_marked(settings.home)
    if brings and not trust:
        raise ForeignHome(
            f"{settings.home} brings a {HIDDEN_FOLDER}/ that was not made on this machine: its keys, database and "
            "settings are those of its maker",
            fix=f"remove {HIDDEN_FOLDER}/ to begin with the notes alone; or, if you know where it comes from, use "
            "`commonbook init --trust` (a home of your own that you put there opens without `init`)",
        )
    space = _require_space(settings.home, space, brings=brings)
    if not os.path.isdir(settings.home):
        return HomePlan(settings.home, new_files=(SPACE_FILE,) if space else ())
    return _preview(settings, space, progress)._replace(trusts=brings)


def _require_space(folder: str, name: str | None, *, brings: bool) -> str | None:
    """Return the name of the space that a folder is still to become, or None; Conflict if it is another one."""
    if name is None or space_names.require_new_name(name) == PERSONAL:
        return None
    if brings:
        raise Conflict(
            f"the {HIDDEN_FOLDER}/ that {folder} brings says which spaces there are",
            fix="leave --space out; `commonbook space rename` gives a space another name",
        )
    stated = _space_at_top(folder)
    if stated is not None and stated != name:
        raise Conflict(
            f"{folder} is the space {stated}, by its {SPACE_FILE}", fix=f"leave --space out, or remove {SPACE_FILE}"
        )
    return None if stated else name


def _space_at_top(folder: str) -> str | None:
    """Return the name of the space that a folder says it is; None if it does not."""
    try:
        with open(os.path.join(folder, SPACE_FILE), "rb") as file:
            return space_file.parse(file.read()).name
    except (OSError, BadFile):
        return None


def refuse_nested(folder: str) -> None:
    """Raise Conflict if a folder lies in a home: its files would belong to two books."""
    above = os.path.dirname(folder)
    while above != os.path.dirname(above):
        if is_home(above):
            raise Conflict(
                f"{folder} lies in the home {above}", fix=f"its notes are memories of that home: --home {above}"
            )
        above = os.path.dirname(above)


def _preview(settings: Settings, space: str | None, progress: Progress) -> HomePlan:
    """Scan the folder with a database and keys in a temporary folder: new ones, or copies of those that it brings."""
    with TemporaryDirectory(prefix="commonbook-init-") as hidden, ExitStack() as opened:
        brought = os.path.join(settings.home, HIDDEN_FOLDER)
        if os.path.isdir(brought):
            ignore = shutil.ignore_patterns(*_NOT_COPIED)
            shutil.copytree(brought, hidden, ignore=ignore, dirs_exist_ok=True)
        engines = wire_folder(settings, SystemClock(), hidden, ReadOnlyFolder(settings.home))
        opened.callback(engines.folder.close)
        opened.callback(engines.db.close)
        if space is not None:
            write(engines, OWNER_CONTEXT, lambda ctx: ctx.add_space(space, "", origin="new"))
        return preview(engines, settings.home, progress=progress)


def make_home(
    settings: Settings, *, space: str | None = None, trust: bool = False, progress: Progress = no_progress
) -> None:
    """Make the folder a home, and its Markdown files memories of a space; or make the book of a database."""
    if settings.database is None and (name := _require_space(settings.home, space, brings=trust)):
        _write_space_file(settings.home, name)
    if trust and settings.database is None:
        machine_marker.write_marker(prepare_home(settings.home))
    open_book(settings, create=True, progress=progress).close()


def _write_space_file(folder: str, name: str) -> None:
    """Write the file that makes a folder a space, which the first scan applies."""
    prepare_home(folder)
    clock = SystemClock()
    data = space_file.render(Space(new_id(), name, clock.now()))
    with open(os.path.join(folder, SPACE_FILE), "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


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
