"""Shared by the tests of import and export: folders to import, and the content of a home afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

import commonbook
from commonbook.ports.database import Row
from commonbook.service.book import Book
from commonbook.subjects.transfer.migrate import TABLES
from commonbook.values.memory import Memory


def write(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    for name, text in files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def everything(book: Book) -> dict[str, Memory]:
    found: list[Memory] = []
    page = book.list(limit=500)
    found += page.items
    while page.next:
        page = book.list(limit=500, after=page.next)
        found += page.items
    return {memory.path: memory for memory in found}


def titled(book: Book, title: str) -> Memory:
    (found,) = [memory for memory in everything(book).values() if memory.title == title]
    return found


def mentioned(book: Book, memory: Memory) -> set[str]:
    """Return the titles of the memories that a text links to."""
    return {book.get(target).title for target in mentioned_ids(book, memory)}


def mentioned_ids(book: Book, memory: Memory) -> list[str]:
    links = [link for link in book.links(memory.id) if link.source == memory.id]
    assert {link.relation for link in links} <= {"mentions"}
    return [link.target for link in links]


def dump(book: Book) -> dict[str, list[Row]]:
    """Return the rows of every table that the engines have in common."""
    with book._engines.db.reading() as tx:
        return {
            table.name: tx.rows(f"SELECT {', '.join(table.columns)} FROM {table.name} ORDER BY {', '.join(table.key)}")
            for table in TABLES
        }


def texts(folder: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*.md"))
        if ".commonbook" not in file.parts
    }


@contextmanager
def opened(home: Path | str) -> Iterator[Book]:
    with commonbook.open(home, create=True) as book:
        yield book


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    """A vault as Obsidian's users keep it."""
    return write(
        tmp_path / "vault",
        {
            "Home.md": "Start at [[Projects/Garden|the garden]] or [[alice]]. #Start\n",
            "Projects/Garden.md": "---\ntags: [outdoor, plan]\naliases: [Yard] # me\n---\nSee [[Alice#Phone]] #plan\n",
            "People/Alice.md": "# Alice\r\n\r\nKnows [[Garden]], [[Nobody]] and `[[Home]]`. #people/friends\r\n",
            "work/todo.md": "Water the [[garden]].\n\n```\n#not-a-tag [[Home]]\n```\n",
            ".obsidian/app.md": "not a note",
            ".trash/Old.md": "thrown away",
        },
    )
