"""The permission to import, for interfaces: one that receives an archive asks before it, and not only after it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from commonbook.book.book import Book


def require_importer(book: Book) -> None:
    """Raise NotAllowed if `Book.import_folder` would."""
    book._require_owner("read folders of this machine")  # noqa: SLF001 - this module is a part of the facade
