"""Transfer of memories and books: import, export and migration. The book loads the package at first use."""

from commonbook.subjects.transfer.export import export
from commonbook.subjects.transfer.import_folder import import_folder

__all__ = ["export", "import_folder"]
