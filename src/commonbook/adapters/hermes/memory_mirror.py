"""The memory mirror copies the entries of Hermes' own memory into the book: each entry once, in its present text.

Its files decide, MEMORY.md and USER.md. They are read when Hermes reports a write of its memory tool, and when a
provider or a turn starts and they have changed: its background review, `hermes memory reset` and a person's editor
report nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from commonbook.adapters.hermes.transcripts import clean
from commonbook.core.text import masking
from commonbook.values.memory import Filter, Memory

if TYPE_CHECKING:
    from commonbook.service.book import Book
    from commonbook.values.memory import Kind


_KINDS: Final[Mapping[str, Kind]] = {"user": "preference"}
_FILES: Final[Mapping[str, str]] = {"memory": "MEMORY.md", "user": "USER.md"}
_FOLDER: Final = "memories"
_DELIMITER: Final = "\n§\n"
_PAGE: Final = 200


def file_state(hermes_home: str) -> tuple[object, ...] | None:
    """Return what changes whenever one of the files of Hermes' memory is written; None if there is no memory."""
    folder = Path(hermes_home) / _FOLDER
    if not folder.is_dir():
        return None
    return tuple(_stat(folder / name) for name in _FILES.values())


def _stat(path: Path) -> tuple[int, int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def mirror_files(book: Book, space: str, hermes_home: str) -> None:
    """Bring the mirrored memories of a space up to date with the files: a file that is gone has no entries."""
    if file_state(hermes_home) is None:
        return
    for target, name in _FILES.items():
        try:
            text = (Path(hermes_home) / _FOLDER / name).read_text(encoding="utf-8")
        except FileNotFoundError:
            text = ""
        except (OSError, UnicodeDecodeError):
            # A file that cannot be read says nothing about its entries.
            continue
        _mirror_entries(book, space, target, [entry for part in text.split(_DELIMITER) if (entry := clean(part))])


def _mirror_entries(book: Book, space: str, target: str, entries: Sequence[str]) -> None:
    tags = ("hermes", f"hermes-{target}")
    wanted = dict.fromkeys(masking.mask(entry).text.strip() for entry in entries)
    gone: list[Memory] = []
    for memory in _mirrored(book, space, tags):
        if memory.text.strip() in wanted:
            del wanted[memory.text.strip()]
        else:
            gone.append(memory)
    if len(gone) == len(wanted) == 1:
        # One entry has another text: its history continues.
        book.edit(gone[0].id, text=next(iter(wanted)))
        return
    for memory in gone:
        book.delete(memory.id)
    for text in wanted:
        book.remember(text, kind=_KINDS.get(target, "note"), tags=tags, space=space)


def _mirrored(book: Book, space: str, tags: tuple[str, ...]) -> Iterator[Memory]:
    after: str | None = None
    while True:
        page = book.list(Filter(space=space, tags=tags), limit=_PAGE, after=after)
        yield from page.items
        after = page.next
        if after is None:
            return
