"""The composition root: the only place that knows engines and wires a book.

Everything that opens a book or a client passes here, before an engine is loaded that needs a POSIX system.
"""

from __future__ import annotations

import sys

from commonbook.errors import UnsupportedSystem

if sys.platform == "win32":
    raise UnsupportedSystem(
        "Commonbook runs on Linux and macOS, not on Windows itself",
        fix="use it in WSL, the Linux of Windows: `wsl --install` in a terminal, then install Commonbook there",
    )
