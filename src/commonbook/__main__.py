"""Runs the command line with `python -m commonbook`."""

from __future__ import annotations

import sys

from commonbook.interfaces.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
