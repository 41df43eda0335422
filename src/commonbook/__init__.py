"""Commonbook: long-term memory for AI agents, kept as Markdown that people can read and edit.

The public names are loaded when they are first used (PEP 562): `import commonbook` alone loads none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from commonbook.version import __version__

if TYPE_CHECKING:
    import os

    from commonbook.book.book import Book
    from commonbook.client.client import Client
    from commonbook.errors import (
        BadFile,
        BadInput,
        BadSpaceName,
        BadText,
        BadTime,
        Busy,
        CommonbookError,
        Conflict,
        DatabaseError,
        DatabaseRefused,
        DatabaseUnfit,
        DatabaseUnreachable,
        DiskFull,
        EmbedderFailed,
        FileInTheWay,
        HomeDamaged,
        HomeError,
        HomeIsNewer,
        HomeReadOnly,
        KeyConflict,
        KeyMissing,
        Moved,
        NetworkFileSystem,
        NotAllowed,
        NotFound,
        NotReplicated,
        Refused,
        ServerBusy,
        ServerFailed,
        ServerLost,
        SpaceExists,
        TooLarge,
        TooMany,
        TransportError,
        Unreachable,
        VersionConflict,
    )
    from commonbook.model.invalidation import Because, Cause, Decision, Notice
    from commonbook.model.memory import (
        UNSET,
        Deleted,
        Draft,
        Filter,
        Link,
        Memory,
        Page,
        Receipt,
        Revision,
        Shared,
        Unset,
    )
    from commonbook.model.reasoning import Dependent, Inbox, Mention, Superseded, Triaged, Waiting
    from commonbook.model.recall import Hit, Recalled
    from commonbook.model.reports import Finding, LogEntry, LogReport, Progress, Status, SyncReport, TransferReport
    from commonbook.model.session import Appended, Captured, Message, MessagePage, Sent, Session, Settled, Worked
    from commonbook.model.sharing import Ancestor, CopyOf, Limit, Lineage, Pending, Rule, Sharing
    from commonbook.model.spaces import ApiKey, Grant, NewKey, Space
    from commonbook.ports.outbox import Context, Counts, Entry, Held, Kept, OutboxReceipt, OutMessage, Transport


# fmt: off
__all__ = [
    "__version__", "open", "Book",
    # values that callers pass in
    "Draft", "Filter", "Sent", "Progress", "UNSET", "Unset",
    # values that verbs return
    "Ancestor", "ApiKey", "Appended", "Because", "Captured", "Cause", "CopyOf", "Decision", "Deleted", "Dependent",
    "Finding", "Grant", "Hit", "Inbox", "Limit", "Lineage", "Link", "LogEntry", "LogReport", "Memory", "Mention",
    "Message", "MessagePage", "NewKey", "Notice", "Page", "Pending", "Recalled", "Receipt", "Revision", "Rule",
    "Session", "Settled", "Shared", "Sharing", "Space", "Status", "Superseded", "SyncReport", "TransferReport",
    "Triaged", "Waiting", "Worked",
    # the client of a remote book
    "Client", "Transport", "Context", "Counts", "Entry", "Held", "Kept", "OutMessage", "OutboxReceipt",
    # errors
    "BadFile", "BadInput", "BadSpaceName", "BadText", "BadTime", "Busy", "CommonbookError", "Conflict",
    "DatabaseError", "DatabaseRefused", "DatabaseUnfit", "DatabaseUnreachable", "DiskFull", "EmbedderFailed",
    "FileInTheWay", "HomeDamaged", "HomeError", "HomeIsNewer", "HomeReadOnly", "KeyConflict", "KeyMissing", "Moved",
    "NetworkFileSystem", "NotAllowed", "NotFound", "NotReplicated", "Refused", "ServerBusy", "ServerFailed",
    "ServerLost", "SpaceExists", "TooLarge", "TooMany", "TransportError", "Unreachable", "VersionConflict",
]

# Where each of them is defined.
_MODULES: Final[dict[str, tuple[str, ...]]] = {
    "commonbook.book.book": ("Book",),
    "commonbook.client.client": ("Client",),
    "commonbook.errors": (
        "BadFile", "BadInput", "BadSpaceName", "BadText", "BadTime", "Busy", "CommonbookError", "Conflict",
        "DatabaseError", "DatabaseRefused", "DatabaseUnfit", "DatabaseUnreachable", "DiskFull",
        "EmbedderFailed", "FileInTheWay", "HomeDamaged", "HomeError", "HomeIsNewer", "HomeReadOnly",
        "KeyConflict", "KeyMissing", "Moved", "NetworkFileSystem", "NotAllowed", "NotFound", "NotReplicated",
        "Refused", "ServerBusy", "ServerFailed", "ServerLost", "SpaceExists", "TooLarge", "TooMany",
        "TransportError", "Unreachable", "VersionConflict",
    ),
    "commonbook.model.invalidation": ("Because", "Cause", "Decision", "Notice"),
    "commonbook.model.memory": (
        "Deleted", "Draft", "Filter", "Link", "Memory", "Page", "Receipt", "Revision", "Shared", "UNSET",
        "Unset",
    ),
    "commonbook.model.reasoning": ("Dependent", "Inbox", "Mention", "Superseded", "Triaged", "Waiting"),
    "commonbook.model.recall": ("Hit", "Recalled"),
    "commonbook.model.reports": (
        "Finding", "LogEntry", "LogReport", "Progress", "Status", "SyncReport", "TransferReport",
    ),
    "commonbook.model.session": (
        "Appended", "Captured", "Message", "MessagePage", "Sent", "Session", "Settled", "Worked",
    ),
    "commonbook.model.sharing": ("Ancestor", "CopyOf", "Limit", "Lineage", "Pending", "Rule", "Sharing"),
    "commonbook.model.spaces": ("ApiKey", "Grant", "NewKey", "Space"),
    "commonbook.ports.outbox": (
        "Context", "Counts", "Entry", "Held", "Kept", "OutMessage", "OutboxReceipt", "Transport",
    ),
}
# fmt: on


def open(home: str | os.PathLike[str] | None = None, *, space: str | None = None) -> Book:  # noqa: A001 - the name is the point
    """Open a book: the home named here, or the address of a PostgreSQL server; made if it is not there.

    If nothing is named, COMMONBOOK_DATABASE, else COMMONBOOK_HOME, else `~/commonbook`.
    """
    from commonbook.compose.book import open_book
    from commonbook.settings.settings import Settings

    return open_book(Settings.load(home, space=space))


# Type checkers see the imports above; a `__getattr__` would let every misspelt name pass.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import a public name from the module that defines it, and keep it here."""
        for module, names in _MODULES.items():
            if name in names:
                from importlib import import_module

                value = globals()[name] = getattr(import_module(module), name)
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
