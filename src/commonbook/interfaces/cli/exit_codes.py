"""Exit codes of the command line: each branch of the error tree has one."""

from __future__ import annotations

from typing import Final

from commonbook.errors import BadInput, CommonbookError, Conflict, NotAllowed, NotFound

FAILED: Final = 1
"""The exit code of every error that has none of its own."""

_EXIT_CODES: Final[tuple[tuple[type[CommonbookError], int], ...]] = (
    (BadInput, 2),
    (NotFound, 3),
    (NotAllowed, 4),
    (Conflict, 5),
)


def exit_code(error: CommonbookError) -> int:
    """Return the exit code of an error."""
    return next((code for branch, code in _EXIT_CODES if isinstance(error, branch)), FAILED)
