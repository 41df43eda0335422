"""Transfer of memories and books: import, export and migration. `compose` loads the package on first use."""

from commonbook.transfer.export import export
from commonbook.transfer.import_folder import import_folder

__all__ = ["export", "import_folder"]
