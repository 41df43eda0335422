"""A server that stops itself (SIGSTOP) inside a transaction: `python -m tests.support.freezing_server serve ...`.

It does so once, in the first transaction that logs an append, after all rows are written and before the commit.
"""

from __future__ import annotations

import signal
import sys
import threading
from typing import Any

from commonbook.core.log import chain
from commonbook.interfaces.cli.main import main

append_to_log = chain.append


def append_and_freeze(*args: Any, **options: Any) -> tuple[int, str]:
    """Append to the log, and stop the whole process the first time an append of messages is logged."""
    seq, digest = append_to_log(*args, **options)
    if any(change.action == "append" for change in args[3]):
        chain.append = append_to_log
        # Sent to this thread: another one would take it a little later, and this one could commit meanwhile.
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
    return seq, digest


if __name__ == "__main__":
    chain.append = append_and_freeze
    sys.exit(main())
