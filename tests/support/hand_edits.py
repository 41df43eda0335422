"""Edits of Markdown files, as people make them in an editor."""

from __future__ import annotations

from pathlib import Path

from commonbook.service.book import Book
from commonbook.values.ids import new_id
from commonbook.values.spaces import PERSONAL, SPACE_FILE


def change(path: Path, old: str, new: str) -> None:
    """Edit a file as a person does."""
    text = path.read_bytes().decode()
    assert old in text
    path.write_bytes(text.replace(old, new).encode())


def texts(book: Book, memory_id: str) -> list[str]:
    return [revision.text for revision in book.history(memory_id)]


def space_folder(top: Path, name: str) -> Path:
    """Return the folder of a space, made a space by hand if it is none yet: with a space file, as in a clone."""
    folder = top / name
    folder.mkdir(parents=True, exist_ok=True)
    if name != PERSONAL and not (folder / SPACE_FILE).exists():
        (folder / SPACE_FILE).write_text(f'name = "{name}"\nid = "{new_id()}"\n')
    return folder
