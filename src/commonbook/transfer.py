"""Bringing memories in from elsewhere and out again: what `compose` loads when it is first asked for."""

from commonbook.exporting import export
from commonbook.importing import import_folder

__all__ = ["export", "import_folder"]
