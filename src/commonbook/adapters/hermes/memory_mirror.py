"""The memory mirror copies the entries of Hermes' own memory into the book: each entry once, in its present text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from commonbook.adapters.hermes.transcript_diff import clean
from commonbook.model.memory import Filter, Memory

if TYPE_CHECKING:
    from commonbook.book.book import Book
    from commonbook.model.memory import Kind


_KINDS: Final[Mapping[str, Kind]] = {"user": "preference"}
_PAGE: Final = 200


def mirror(book: Book, action: str, target: str, content: str, metadata: Mapping[str, Any]) -> None:
    """Apply a change of an entry of Hermes to its mirrored memory."""
    tags = ("hermes", f"hermes-{target}")
    text = clean(content)
    mirrored = list(_mirrored(book, tags))
    previous = _find_previous(mirrored, metadata)
    if action == "remove":
        if previous is not None:
            book.delete(previous.id)
    elif any(memory.text.strip() == text for memory in mirrored) or not text:
        if action == "replace" and previous is not None and previous.text.strip() != text:
            book.delete(previous.id)
    elif action == "replace" and previous is not None:
        book.edit(previous.id, text=text)
    elif action in ("add", "replace"):
        book.remember(text, kind=_KINDS.get(target, "note"), tags=tags)


def _mirrored(book: Book, tags: tuple[str, ...]) -> Iterator[Memory]:
    after: str | None = None
    while True:
        page = book.list(Filter(tags=tags), limit=_PAGE, after=after)
        yield from page.items
        after = page.next
        if after is None:
            return


def _find_previous(mirrored: list[Memory], metadata: Mapping[str, Any]) -> Memory | None:
    """Return the memory of the entry before the change: by its whole text, or by a part that is unique to it."""
    text, part = (clean(str(metadata.get(name) or "")) for name in ("previous_content", "old_text"))
    if text:
        return next((memory for memory in mirrored if memory.text.strip() == text), None)
    matches = [memory for memory in mirrored if part and part in memory.text]
    return matches[0] if len(matches) == 1 else None
