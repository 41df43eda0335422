"""Commonbook: long-term memory for AI agents, kept as Markdown that people can read and edit.

    with commonbook.open() as book:                  # ~/commonbook, or COMMONBOOK_HOME
        book.remember("Alice owns the billing service", tags=["billing"])
        for hit in book.recall("who is responsible for payments").hits:
            print(hit.score, hit.title, hit.passage, hit.path)

A `Book` has these verbs; `help(commonbook.Book.recall)` explains one. `commonbook.aio` has them for asyncio.

    memories   remember, remember_many, get, find_id, edit, move, delete, delete_where, undelete, list, history,
               link, unlink, links, uses, record_uses, session_uses
    recall     recall, prefetch, prefetched, reindex
    sessions   append, messages, sessions, switch, rewind, settle, close_session, move_session, work, working
    sharing    share, share_many, share_with, pull, unshare, refresh, set_refresh, detach, adopt, adopt_all
    and more   lineage, copies, add_rule, rules, remove_rule, request_share, pending, approve, reject, set_limit, limits
    reasoning  reflect, supersede, reinstate, dependents, inbox, triage, set_depth
    access     acting_as, with_key, whoami, create_key, keys, revoke_key, create_login, exchange_login, create_sign_in
    spaces     spaces, create_space, rename_space, space_for_writing, set_review, grant, revoke, grants
    upkeep     sync, watching, status, doctor, rebuild, accept_deletions, import_folder, export, verify_log, log,
               log_size, changes, metrics, close

They take and return values such as `Draft`, `Filter`, `NewMessage`, `Memory`, `Hit` and `Receipt`: immutable, and all
importable from here, as are the types of fixed words (`Kind`, `Role`, `Verdict`). Every error is a `CommonbookError`
with a `fix`. `connect(url)` opens a `RemoteBook`, which has the verbs of a book on a server, and an outbox. `backup`
copies a home while it is in use, and `restore` makes a home of the copy. Names are loaded at their first use (PEP 562).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from commonbook.version import __version__

if TYPE_CHECKING:
    import os

    from commonbook.errors import (
        AddressTaken,
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
        ForeignHome,
        HomeDamaged,
        HomeError,
        HomeOfAnotherBuild,
        HomeReadOnly,
        KeyConflict,
        KeyMissing,
        Moved,
        NetworkFileSystem,
        NoHome,
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
        UnsupportedSystem,
        UntrustedServer,
        VersionConflict,
    )
    from commonbook.ports.embedding import Embedder, EmbedderChoice, EmbeddingInput
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
    from commonbook.remote.outbox_client import Client
    from commonbook.remote.remote_book import RemoteBook
    from commonbook.service.book import Book
    from commonbook.values.hit import Bars, CopyPlace, Hit, HitType
    from commonbook.values.invalidation import Decision, Invalidation, Notice, SupersedeReason, Verdict
    from commonbook.values.memory import (
        UNSET,
        CopyInfo,
        CopyMode,
        Deleted,
        Deletion,
        Draft,
        Filter,
        Freshness,
        Kind,
        Link,
        Mark,
        Memory,
        Metadata,
        MetadataValue,
        Page,
        Receipt,
        Refresh,
        Relation,
        Revision,
        Scalar,
        Unset,
    )
    from commonbook.values.reasoning import Dependent, Inbox, InboxItem, MemoryReference, SupersedeReport, TriageReport
    from commonbook.values.recall import Include, RecallResult, Wish
    from commonbook.values.reports import (
        BackupReport,
        ChangeEvent,
        ChangePage,
        Finding,
        LogEntry,
        LogReport,
        Metrics,
        Progress,
        RestoreReport,
        SchemaMigration,
        Status,
        SyncReport,
        TransferReport,
    )
    from commonbook.values.session import (
        AppendReceipt,
        ChatMessage,
        ChatObject,
        Message,
        MessagePage,
        MessageReceipt,
        NewMessage,
        PromptPassage,
        PromptUse,
        Session,
        SettleReport,
        SwitchReason,
        WorkReport,
    )
    from commonbook.values.sharing import (
        Ancestor,
        CopyNode,
        LimitedAction,
        Lineage,
        RateLimit,
        RequestPurpose,
        RequestState,
        ShareReceipt,
        ShareRequest,
        SharingRule,
    )
    from commonbook.values.spaces import (
        ApiKey,
        Grant,
        Identity,
        LoginCode,
        NewKey,
        Review,
        Role,
        SignInCode,
        Space,
        SpaceRole,
    )


# fmt: off
__all__ = [
    "__version__", "open", "Book", "backup", "restore",
    # values that callers pass in
    "ChatMessage", "ChatObject", "Draft", "Filter", "Metadata", "MetadataValue", "NewMessage", "Progress",
    "PromptPassage", "Scalar", "UNSET", "Unset",
    # values that methods return
    "Ancestor", "ApiKey", "AppendReceipt", "BackupReport", "Bars", "ChangeEvent", "ChangePage", "CopyInfo", "CopyNode",
    "CopyPlace", "Decision", "Deleted", "Deletion",
    "Dependent", "Finding", "Grant", "Hit", "Identity", "Inbox", "InboxItem", "Invalidation", "Lineage", "Link",
    "LogEntry", "LogReport", "LoginCode", "Memory", "MemoryReference", "Message", "MessagePage", "MessageReceipt",
    "Metrics", "NewKey", "Notice", "Page", "PromptUse", "RateLimit", "RecallResult", "Receipt", "RestoreReport",
    "Revision", "SchemaMigration", "Session", "SettleReport",
    "ShareReceipt", "ShareRequest", "SharingRule", "SignInCode", "Space", "SpaceRole", "Status", "SupersedeReason",
    "SupersedeReport", "SyncReport", "TransferReport", "TriageReport", "Wish", "WorkReport",
    # types of fixed words
    "CopyMode", "Freshness", "HitType", "Include", "Kind", "LimitedAction", "Mark", "Refresh",
    "Relation", "RequestPurpose", "RequestState", "Review", "Role", "SwitchReason", "Verdict",
    # the client of a remote book
    "connect", "RemoteBook", "open_client", "Client", "EnqueuedMessage", "OutboxCounts", "OutboxEntry", "OutboxMessage",
    "OutboxReceipt", "SessionContext", "StoredMessage", "Transport",
    # the parts of an embedder of one's own
    "Embedder", "EmbedderChoice", "EmbeddingInput",
    # errors
    "AddressTaken", "Ambiguous", "BadFile", "BadInput", "BadSpaceName", "BadText", "BadTime", "Busy",
    "CommonbookError", "Conflict", "DatabaseError", "DatabaseRefused", "DatabaseUnfit", "DatabaseUnreachable",
    "DiskFull", "EmbedderFailed",
    "FileInTheWay", "ForeignHome", "HomeDamaged", "HomeError", "HomeOfAnotherBuild", "HomeReadOnly", "KeyConflict",
    "KeyMissing", "Moved", "NetworkFileSystem", "NoHome", "NotAllowed", "NotFound", "NotReplicated", "Refused",
    "ServerBusy", "ServerFailed", "ServerLost", "SpaceExists", "TooLarge", "TooMany", "TransportError", "Unreachable",
    "UnsupportedSystem", "UntrustedServer", "VersionConflict",
]

# The module that defines each of them.
_MODULES: Final[dict[str, tuple[str, ...]]] = {
    "commonbook.service.book": ("Book",),
    "commonbook.remote.outbox_client": ("Client",),
    "commonbook.remote.remote_book": ("RemoteBook",),
    "commonbook.errors": (
        "AddressTaken", "Ambiguous", "BadFile", "BadInput", "BadSpaceName", "BadText", "BadTime", "Busy",
        "CommonbookError", "Conflict", "DatabaseError", "DatabaseRefused", "DatabaseUnfit", "DatabaseUnreachable",
        "DiskFull", "EmbedderFailed", "FileInTheWay", "ForeignHome", "HomeDamaged", "HomeError", "HomeOfAnotherBuild",
        "HomeReadOnly", "KeyConflict", "KeyMissing", "Moved", "NetworkFileSystem", "NoHome", "NotAllowed", "NotFound",
        "NotReplicated", "Refused", "ServerBusy", "ServerFailed", "ServerLost", "SpaceExists", "TooLarge", "TooMany",
        "TransportError", "Unreachable", "UnsupportedSystem", "UntrustedServer", "VersionConflict",
    ),
    "commonbook.values.invalidation": ("Decision", "Invalidation", "Notice", "SupersedeReason", "Verdict"),
    "commonbook.values.memory": (
        "CopyInfo", "CopyMode", "Deleted", "Deletion", "Draft", "Filter", "Freshness", "Kind", "Link", "Mark",
        "Memory", "Metadata", "MetadataValue", "Page", "Receipt", "Refresh", "Relation", "Revision", "Scalar", "UNSET",
        "Unset",
    ),
    "commonbook.values.reasoning": (
        "Dependent", "Inbox", "InboxItem", "MemoryReference", "SupersedeReport", "TriageReport",
    ),
    "commonbook.values.hit": ("Bars", "CopyPlace", "Hit", "HitType"),
    "commonbook.values.recall": ("Include", "RecallResult", "Wish"),
    "commonbook.values.reports": (
        "BackupReport", "ChangeEvent", "ChangePage", "Finding", "LogEntry", "LogReport", "Metrics", "Progress",
        "RestoreReport", "SchemaMigration", "Status", "SyncReport", "TransferReport",
    ),
    "commonbook.values.session": (
        "AppendReceipt", "ChatMessage", "ChatObject",
        "Message", "MessagePage", "MessageReceipt", "NewMessage", "PromptPassage", "PromptUse", "Session",
        "SettleReport", "SwitchReason", "WorkReport",
    ),
    "commonbook.values.sharing": (
        "Ancestor", "CopyNode", "LimitedAction", "Lineage", "RateLimit", "RequestPurpose", "RequestState",
        "ShareReceipt", "ShareRequest", "SharingRule",
    ),
    "commonbook.values.spaces": (
        "ApiKey", "Grant", "Identity", "LoginCode", "NewKey", "Review", "Role", "SignInCode", "Space", "SpaceRole",
    ),
    "commonbook.ports.embedding": ("Embedder", "EmbedderChoice", "EmbeddingInput"),
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

    Without `home`, COMMONBOOK_DATABASE is used, else COMMONBOOK_HOME, else `~/commonbook`.

    A folder that is no home raises `NoHome`, and nothing is written. With `create` it becomes one: its Markdown files
    become memories, and each gets an id. Two places need no `create`: the default home `~/commonbook`, as long as
    nothing is there, and the database of an address.
    """
    from commonbook.compose.book import may_be_made, open_book
    from commonbook.core.settings.settings import Settings

    settings = Settings.load(home, space=space)
    return open_book(settings, create=create or may_be_made(settings))


def backup(
    target: str | os.PathLike[str],
    home: str | os.PathLike[str] | None = None,
    *,
    progress: Progress | None = None,
) -> BackupReport:
    """Copy a whole home, which may be in use, to a new tar file (`.tar`, `.tar.gz`) or a new folder.

    The copy has the memories, sessions, history, rights and keys as they were at one moment. It is read again before it
    gets its name. The report names what was left out. Without `home`, COMMONBOOK_HOME is used, else `~/commonbook`.
    """
    from commonbook.compose.backup import backup_home
    from commonbook.core.settings.settings import Settings
    from commonbook.values.reports import no_progress

    return backup_home(Settings.load(home), target, progress=progress or no_progress)


def restore(
    backup: str | os.PathLike[str],
    home: str | os.PathLike[str] | None = None,
    *,
    progress: Progress | None = None,
) -> RestoreReport:
    """Make a home of a backup, where there is none, build its index, and let `doctor` check it.

    A damaged backup raises `BadFile`, and something at the place of the home `Conflict`: then nothing is changed.
    """
    from commonbook.compose.backup import restore_home
    from commonbook.core.settings.settings import Settings
    from commonbook.values.reports import no_progress

    return restore_home(Settings.load(home), backup, progress=progress or no_progress)


def connect(
    url: str | None = None,
    key: str | None = None,
    *,
    space: str | None = None,
    outbox: str | os.PathLike[str] | None = None,
    allow_http: bool = False,
    answer_seconds: float = 15.0,
    patience_seconds: float = 30.0,
) -> RemoteBook:
    """Connect to a book on a server (`commonbook serve`); see `RemoteBook`.

    Without `url`, COMMONBOOK_URL is used, else the server that is the default book of the user (`commonbook use`).
    Without `key`, it is COMMONBOOK_KEY, else the key that `commonbook login` has saved. `space` is the space of calls
    that name none, in place of the default space of the key. Nothing is sent before the first call.

    - `outbox`: the file for messages that cannot be sent at once; by default one for each server and each key.
    - `allow_http`: whether an address other than this machine's may do without encryption.
    - `answer_seconds`: how long to wait for one answer.
    - `patience_seconds`: how long to try in all, before `Unreachable` is raised.
    """
    from commonbook.compose.client import connect as compose_remote
    from commonbook.core.settings.remote import RemoteSettings

    return compose_remote(
        RemoteSettings.load(),
        url,
        key,
        space=space,
        outbox=outbox,
        allow_http=allow_http,
        answer_seconds=answer_seconds,
        patience_seconds=patience_seconds,
    )


def open_client(
    transport: Transport,
    home: str | os.PathLike[str] | None = None,
    *,
    space: str | None = None,
    background: bool = True,
    senders: int = 4,
    answer_seconds: float = 15.0,
) -> Client:
    """Open the outbox of this machine, and send its messages to a server through a transport; see `Client`.

    The outbox is COMMONBOOK_OUTBOX, else in the home. Without `background`, messages are sent only while a call waits.
    """
    from commonbook.compose.client import open_client as compose_client
    from commonbook.core.settings.settings import Settings

    return compose_client(
        Settings.load(home, space=space),
        transport,
        background=background,
        senders=senders,
        answer_seconds=answer_seconds,
    )


# Type checkers see the imports above; a `__getattr__` would let every misspelt name pass.
if not TYPE_CHECKING:
    _PYDOC_FRAMES = 4
    """How far up the stack `pydoc` is looked for: it asks through `inspect`."""

    def __getattr__(name: str) -> object:
        """Import a public name from the module that defines it, and keep it here."""
        for module, names in _MODULES.items():
            if name in names:
                from importlib import import_module

                value = globals()[name] = getattr(import_module(module), name)
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        """List all public names; but for `help`, which would print each class in full, only those of the overview."""
        import sys

        frame = sys._getframe()  # noqa: SLF001 - there is no public name for it that is as cheap
        for _ in range(_PYDOC_FRAMES):
            frame = frame.f_back or frame
            if frame.f_globals.get("__name__") == "pydoc":
                return ["open"]
        return sorted({*globals(), *__all__})
