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
        Ambiguous,
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
    from commonbook.model.invalidation import Decision, Invalidation, Notice, SupersedeReason
    from commonbook.model.memory import (
        UNSET,
        CopyInfo,
        Deleted,
        Draft,
        Filter,
        Link,
        Memory,
        Page,
        Receipt,
        Revision,
        Unset,
    )
    from commonbook.model.reasoning import Dependent, Inbox, InboxItem, MemoryReference, SupersedeReport, TriageReport
    from commonbook.model.recall import CopyPlace, Hit, RecallResult
    from commonbook.model.reports import (
        Finding,
        LogEntry,
        LogReport,
        Progress,
        SchemaMigration,
        Status,
        SyncReport,
        TransferReport,
    )
    from commonbook.model.session import (
        AppendReceipt,
        Message,
        MessagePage,
        MessageReceipt,
        NewMessage,
        Session,
        SettleReport,
        WorkReport,
    )
    from commonbook.model.sharing import Ancestor, CopyNode, Lineage, RateLimit, ShareReceipt, ShareRequest, SharingRule
    from commonbook.model.spaces import ApiKey, Grant, NewKey, Space
    from commonbook.ports.outbox import (
        EnqueuedMessage,
        OutboxCounts,
        OutboxEntry,
        OutboxMessage,
        OutboxReceipt,
        SessionContext,
        StoredMessage,
        Transport,
    )


# fmt: off
__all__ = [
    "__version__", "open", "Book",
    # values that callers pass in
    "Draft", "Filter", "NewMessage", "Progress", "UNSET", "Unset",
    # values that methods return
    "Ancestor", "ApiKey", "AppendReceipt", "CopyInfo", "CopyNode", "CopyPlace", "Decision", "Deleted", "Dependent",
    "Finding", "Grant", "Hit", "Inbox", "InboxItem", "Invalidation", "Lineage", "Link", "LogEntry", "LogReport",
    "Memory", "MemoryReference", "Message", "MessagePage", "MessageReceipt", "NewKey", "Notice", "Page",
    "RateLimit", "RecallResult", "Receipt", "Revision", "SchemaMigration", "Session", "SettleReport",
    "ShareReceipt", "ShareRequest", "SharingRule", "Space", "Status", "SupersedeReason", "SupersedeReport",
    "SyncReport", "TransferReport", "TriageReport", "WorkReport",
    # the client of a remote book
    "Client", "EnqueuedMessage", "OutboxCounts", "OutboxEntry", "OutboxMessage", "OutboxReceipt",
    "SessionContext", "StoredMessage", "Transport",
    # errors
    "Ambiguous", "BadFile", "BadInput", "BadSpaceName", "BadText", "BadTime", "Busy", "CommonbookError", "Conflict",
    "DatabaseError", "DatabaseRefused", "DatabaseUnfit", "DatabaseUnreachable", "DiskFull", "EmbedderFailed",
    "FileInTheWay", "HomeDamaged", "HomeError", "HomeIsNewer", "HomeReadOnly", "KeyConflict", "KeyMissing",
    "Moved", "NetworkFileSystem", "NotAllowed", "NotFound", "NotReplicated", "Refused", "ServerBusy",
    "ServerFailed", "ServerLost", "SpaceExists", "TooLarge", "TooMany", "TransportError", "Unreachable",
    "VersionConflict",
]

# The module that defines each of them.
_MODULES: Final[dict[str, tuple[str, ...]]] = {
    "commonbook.book.book": ("Book",),
    "commonbook.client.client": ("Client",),
    "commonbook.errors": (
        "Ambiguous", "BadFile", "BadInput", "BadSpaceName", "BadText", "BadTime", "Busy", "CommonbookError", "Conflict",
        "DatabaseError", "DatabaseRefused", "DatabaseUnfit", "DatabaseUnreachable", "DiskFull",
        "EmbedderFailed", "FileInTheWay", "HomeDamaged", "HomeError", "HomeIsNewer", "HomeReadOnly",
        "KeyConflict", "KeyMissing", "Moved", "NetworkFileSystem", "NotAllowed", "NotFound", "NotReplicated",
        "Refused", "ServerBusy", "ServerFailed", "ServerLost", "SpaceExists", "TooLarge", "TooMany",
        "TransportError", "Unreachable", "VersionConflict",
    ),
    "commonbook.model.invalidation": ("Decision", "Invalidation", "Notice", "SupersedeReason"),
    "commonbook.model.memory": (
        "CopyInfo", "Deleted", "Draft", "Filter", "Link", "Memory", "Page", "Receipt", "Revision", "UNSET",
        "Unset",
    ),
    "commonbook.model.reasoning": (
        "Dependent", "Inbox", "InboxItem", "MemoryReference", "SupersedeReport", "TriageReport",
    ),
    "commonbook.model.recall": ("CopyPlace", "Hit", "RecallResult"),
    "commonbook.model.reports": (
        "Finding", "LogEntry", "LogReport", "Progress", "SchemaMigration", "Status", "SyncReport",
        "TransferReport",
    ),
    "commonbook.model.session": (
        "AppendReceipt", "Message", "MessagePage", "MessageReceipt", "NewMessage", "Session", "SettleReport",
        "WorkReport",
    ),
    "commonbook.model.sharing": (
        "Ancestor", "CopyNode", "Lineage", "RateLimit", "ShareReceipt", "ShareRequest", "SharingRule",
    ),
    "commonbook.model.spaces": ("ApiKey", "Grant", "NewKey", "Space"),
    "commonbook.ports.outbox": (
        "EnqueuedMessage", "OutboxCounts", "OutboxEntry", "OutboxMessage", "OutboxReceipt", "SessionContext",
        "StoredMessage", "Transport",
    ),
}
# fmt: on


def open(  # noqa: A001 - the name is the point
    home: str | os.PathLike[str] | None = None, *, space: str | None = None, create: bool = False
) -> Book:
    """Open a book in a home folder, or at the address of a PostgreSQL server.

    Without `home`, COMMONBOOK_DATABASE is used, else COMMONBOOK_HOME, else `~/commonbook`. With `create` a book that
    does not exist is made; pass it wherever a new book is wanted.
    """
    from commonbook.compose.book import open_book
    from commonbook.settings.settings import Settings

    return open_book(Settings.load(home, space=space), create=create)


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
