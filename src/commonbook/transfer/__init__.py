"""Bringing memories in from elsewhere and out again: what `compose` loads when it is first asked for."""

from commonbook.transfer.export import export
from commonbook.transfer.import_folder import import_folder

__all__ = ["export", "import_folder"]
