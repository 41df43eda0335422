"""What Hermes writes into its own memory, mirrored as memories of the book: each entry once, as it is now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from commonbook.adapters.hermes.transcript_diff import clean
from commonbook.model.memory import Filter, Memory

if TYPE_CHECKING:
    from commonbook.book.book import Book


_KINDS: Final = {"user": "preference"}
_PAGE: Final = 200


def mirror(book: Book, action: str, target: str, content: str, metadata: Mapping[str, Any]) -> None:
    """Do to the mirrored memories what was done to an entry of Hermes."""
    tags = ("hermes", f"hermes-{target}")
    text = clean(content)
    there = list(_mirrored(book, tags))
    before = _entry(there, metadata)
    if action == "remove":
        if before is not None:
            book.delete(before.id)
    elif any(one.text.strip() == text for one in there) or not text:
        if action == "replace" and before is not None and before.text.strip() != text:
            book.delete(before.id)
    elif action == "replace" and before is not None:
        book.edit(before.id, text=text)
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


def _entry(there: list[Memory], metadata: Mapping[str, Any]) -> Memory | None:
    """Return the memory that mirrors the entry before the change: by its whole text, or by a part that only it has."""
    whole, part = (clean(str(metadata.get(name) or "")) for name in ("previous_content", "old_text"))
    if whole:
        return next((one for one in there if one.text.strip() == whole), None)
    found = [one for one in there if part and part in one.text]
    return found[0] if len(found) == 1 else None
