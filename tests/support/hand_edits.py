"""What people do to the files, for the tests about them."""

from __future__ import annotations

from pathlib import Path

from commonbook.book.book import Book


def change(path: Path, old: str, new: str) -> None:
    """Edit a file as a person does."""
    text = path.read_bytes().decode()
    assert old in text
    path.write_bytes(text.replace(old, new).encode())


def texts(book: Book, memory_id: str) -> list[str]:
    return [one.text for one in book.history(memory_id)]
