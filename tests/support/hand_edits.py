"""Edits of Markdown files, as people make them in an editor."""

from __future__ import annotations

from pathlib import Path

from commonbook.book.book import Book


def change(path: Path, old: str, new: str) -> None:
    """Edit a file as a person does."""
    text = path.read_bytes().decode()
    assert old in text
    path.write_bytes(text.replace(old, new).encode())


def texts(book: Book, memory_id: str) -> list[str]:
    return [revision.text for revision in book.history(memory_id)]
