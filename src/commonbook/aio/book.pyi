"""The types of `commonbook.aio.book`; made by `tools/make_aio.py`, which a test compares with this file."""

import builtins
import os
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import commonbook
from commonbook import (
    ApiKey,
    AppendReceipt,
    ChangePage,
    ChatMessage,
    Client,
    CommonbookError,
    CopyNode,
    Deleted,
    Dependent,
    Draft,
    Filter,
    Finding,
    Grant,
    Identity,
    Inbox,
    Include,
    Kind,
    LimitedAction,
    Lineage,
    Link,
    LogEntry,
    LoginCode,
    LogReport,
    Memory,
    Message,
    MessagePage,
    MetadataValue,
    Metrics,
    NewKey,
    NewMessage,
    Page,
    Progress,
    PromptPassage,
    PromptUse,
    RateLimit,
    RecallResult,
    Receipt,
    Refresh,
    Relation,
    Review,
    Revision,
    Role,
    SchemaMigration,
    Session,
    SettleReport,
    ShareReceipt,
    ShareRequest,
    SharingRule,
    SignInCode,
    Space,
    Status,
    SupersedeReport,
    SwitchReason,
    SyncReport,
    TransferReport,
    TriageReport,
    Unset,
    Verdict,
    WorkReport,
)
from commonbook.aio.threads import BookThreads

_Opened = TypeVar("_Opened", bound=AsyncBook)

class AsyncBook:
    def __init__(
        self, book: commonbook.Book | commonbook.RemoteBook, threads: BookThreads, *, is_view: bool = False
    ) -> None: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    async def accept_deletions(self) -> int: ...
    async def add_rule(
        self,
        space: str,
        from_space: str,
        *,
        kinds: Iterable[Kind] = (),
        tags: Iterable[str] = (),
        importance: float | None = None,
        approval: bool = False,
        refresh: Refresh = "live",
    ) -> SharingRule: ...
    async def adopt(self, copy_id: str) -> Receipt: ...
    async def adopt_all(self) -> tuple[Receipt, ...]: ...
    async def append(
        self,
        session: str,
        messages: Iterable[NewMessage | str | ChatMessage],
        *,
        space: str | None = None,
        parent: str | None = None,
        tags: Iterable[str] = (),
    ) -> AppendReceipt: ...
    async def approve(
        self, request_id: str, *, note: str = "", expected_version: int | None = None
    ) -> ShareRequest: ...
    async def changes(self, *, after: str | None = None, space: str | None = None, limit: int = 100) -> ChangePage: ...
    async def close(self) -> None: ...
    async def close_session(self, session: str, *, space: str | None = None) -> SettleReport: ...
    async def copies(self, memory_id: str) -> tuple[CopyNode, ...]: ...
    async def create_key(
        self,
        principal: str,
        *,
        label: str = "",
        limits: Iterable[tuple[str, Role]] | None = None,
        expires: datetime | str | None = None,
        space: str | None = None,
    ) -> NewKey: ...
    async def create_login(self, key_id: str) -> LoginCode: ...
    async def create_sign_in(self) -> SignInCode: ...
    async def create_space(self, name: str) -> Space: ...
    async def delete(self, *ids: str, expected_version: int | None = None, dry_run: bool = False) -> Deleted: ...
    async def delete_where(self, chosen: Filter, *, dry_run: bool = False) -> Deleted: ...
    async def dependents(self, memory_id: str) -> tuple[Dependent, ...]: ...
    async def detach(self, copy_id: str) -> Receipt: ...
    async def doctor(self, *, progress: Progress = ...) -> tuple[Finding, ...]: ...
    async def edit(
        self,
        memory_id: str,
        *,
        text: str | Unset = ...,
        title: str | None | Unset = ...,
        kind: Kind | Unset = ...,
        tags: Iterable[str] | Unset = ...,
        importance: float | None | Unset = ...,
        occurred: datetime | str | None | Unset = ...,
        valid_from: datetime | str | None | Unset = ...,
        valid_until: datetime | str | None | Unset = ...,
        expires: datetime | str | None | Unset = ...,
        metadata: Mapping[str, MetadataValue] | None | Unset = ...,
        to_revision: int | None = None,
        expected_version: int | None = None,
        mask: bool = True,
    ) -> Receipt: ...
    async def exchange_login(self, code: str, *, nonce: str | None = None) -> NewKey: ...
    async def export(
        self,
        target: str,
        *,
        space: str | None = None,
        okf: bool = False,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        progress: Progress = ...,
    ) -> TransferReport: ...
    async def find_id(self, part: str) -> str: ...
    async def get(self, memory_id: str) -> Memory: ...
    async def grant(
        self, principal: str, space: str, role: Role, *, expires: datetime | str | None = None
    ) -> Grant: ...
    async def grants(self, *, space: str | None = None) -> tuple[Grant, ...]: ...
    async def history(self, memory_id: str) -> tuple[Revision, ...]: ...
    async def import_folder(
        self,
        folder: str,
        *,
        space: str | None = None,
        folders_as_spaces: bool = False,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        okf: bool = False,
        dry_run: bool = False,
        mask: bool = True,
        progress: Progress = ...,
    ) -> TransferReport: ...
    async def inbox(
        self, *, space: str | None = None, expired: bool = False, limit: int = 100, after: str | None = None
    ) -> Inbox: ...
    async def keys(self) -> tuple[ApiKey, ...]: ...
    async def limits(self) -> tuple[RateLimit, ...]: ...
    async def lineage(self, memory_id: str, *, depth: int = 32) -> Lineage: ...
    async def link(self, source: str, relation: Relation | str, target: str) -> Receipt: ...
    async def links(self, memory_id: str) -> tuple[Link, ...]: ...
    async def list(self, chosen: Filter | None = None, *, limit: int = 50, after: str | None = None) -> Page: ...
    async def log(self, *, space: str, after: int = 0, limit: int = 100) -> tuple[LogEntry, ...]: ...
    async def log_size(self) -> int: ...
    async def messages(
        self, session: str, *, space: str | None = None, after: int = 0, limit: int = 100
    ) -> MessagePage: ...
    async def metrics(self) -> Metrics: ...
    async def move(self, memory_id: str, space: str, *, expected_version: int | None = None) -> Receipt: ...
    async def move_session(self, session: str, to: str, *, space: str | None = None) -> Session: ...
    async def pending(self, *, space: str | None = None, decided: bool = False) -> tuple[ShareRequest, ...]: ...
    async def prefetch(self, session: str, query: str, *, space: str | None = None, **options: Any) -> bool: ...
    async def prefetched(
        self, session: str, query: str, *, space: str | None = None, wait: float = 0.0
    ) -> RecallResult | None: ...
    async def pull(self, memory_id: str, to: str | None = None, *, refresh: Refresh = "live") -> ShareReceipt: ...
    async def rebuild(self, *, progress: Progress = ...) -> SyncReport: ...
    async def recall(
        self,
        query: str = "",
        *,
        spaces: str | Iterable[str] | None = None,
        k: int = 10,
        kinds: Iterable[Kind] = (),
        tags: Iterable[str] = (),
        session: str | None = None,
        exclude_session: str | None = None,
        exclude_last: int | None = None,
        author: str | None = None,
        metadata: Mapping[str, MetadataValue] = ...,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        as_of: datetime | str | None = None,
        min_confidence: float | None = None,
        budget_tokens: int | None = None,
        include: Iterable[Include] = (),
        explain: bool = False,
        progress: Progress = ...,
    ) -> RecallResult: ...
    async def record_uses(
        self, session: str, passages: Iterable[PromptPassage], *, message: int | str = 0, space: str | None = None
    ) -> int: ...
    async def reflect(
        self,
        text: str,
        on: Iterable[str],
        *,
        space: str | None = None,
        title: str | None = None,
        tags: Iterable[str] = (),
        importance: float | None = None,
        occurred: datetime | str | None = None,
        key: str | None = None,
        mask: bool = True,
    ) -> Receipt: ...
    async def refresh(self, copy_id: str) -> Receipt: ...
    async def reindex(self, *, anew: bool = False, progress: Progress = ...) -> int: ...
    async def reinstate(self, old: str, *, by: str | None = None) -> SupersedeReport: ...
    async def reject(self, request_id: str, *, note: str = "") -> ShareRequest: ...
    async def remember(
        self,
        text: str,
        *,
        space: str | None = None,
        kind: Kind = "note",
        title: str | None = None,
        tags: Iterable[str] = (),
        importance: float | None = None,
        occurred: datetime | str | None = None,
        valid_from: datetime | str | None = None,
        valid_until: datetime | str | None = None,
        expires: datetime | str | None = None,
        links: Iterable[tuple[Relation | str, str]] = (),
        replaces: str | None = None,
        key: str | None = None,
        metadata: Mapping[str, MetadataValue] = ...,
        mask: bool = True,
    ) -> Receipt: ...
    async def remember_many(self, drafts: Sequence[Draft]) -> builtins.list[Receipt]: ...
    async def remove_rule(self, rule_id: str) -> SharingRule: ...
    async def rename_space(self, space: str, name: str) -> Space: ...
    async def request_share(self, memory_id: str, to: str, *, refresh: Refresh = "live") -> ShareRequest: ...
    async def revoke(self, principal: str, space: str) -> None: ...
    async def revoke_key(self, key_id: str) -> ApiKey: ...
    async def rewind(self, session: str, after: int | str, *, space: str | None = None) -> tuple[Message, ...]: ...
    async def rules(self, *, space: str | None = None) -> tuple[SharingRule, ...]: ...
    async def session_uses(
        self, session: str, *, space: str | None = None, first: int = 0, last: int | None = None
    ) -> tuple[PromptUse, ...]: ...
    async def sessions(self, *, space: str | None = None, limit: int = 50) -> tuple[Session, ...]: ...
    async def set_depth(self, space: str, depth: int | None) -> Space: ...
    async def set_limit(
        self, action: LimitedAction, per_minute: int | None, *, principal: str | None = None
    ) -> RateLimit: ...
    async def set_refresh(self, copy_id: str, mode: Refresh) -> Receipt: ...
    async def set_review(self, space: str, review: Review | None) -> Space: ...
    async def settle(self, session: str, *, space: str | None = None) -> SettleReport: ...
    async def share(self, memory_id: str, to: str, *, refresh: Refresh = "live") -> ShareReceipt: ...
    async def share_many(
        self, ids: Sequence[str], to: str, *, refresh: Refresh = "live"
    ) -> tuple[ShareReceipt, ...]: ...
    async def share_with(self, memory_id: str, principal: str, *, refresh: Refresh = "live") -> ShareReceipt: ...
    async def space_for_writing(self) -> str: ...
    async def spaces(self) -> tuple[Space, ...]: ...
    async def status(self) -> Status: ...
    async def supersede(self, old: str, by: str, *, reason: str = "") -> SupersedeReport: ...
    async def switch(
        self,
        old: str,
        new: str,
        *,
        reason: SwitchReason = "new",
        space: str | None = None,
        to_space: str | None = None,
        tags: Iterable[str] = (),
    ) -> SettleReport: ...
    async def sync(self, *, progress: Progress = ...) -> SyncReport: ...
    async def triage(
        self, memory_id: str, verdict: Verdict, *, note: str = "", by: str | None = None
    ) -> TriageReport: ...
    async def undelete(self, memory_id: str) -> Receipt: ...
    async def unlink(self, source: str, relation: Relation | str, target: str) -> Receipt: ...
    async def unshare(self, copy_id: str) -> Receipt: ...
    async def uses(self, memory_id: str, *, limit: int = 100) -> tuple[PromptUse, ...]: ...
    async def verify_log(self, *, space: str | None = None, progress: Progress = ...) -> LogReport: ...
    async def whoami(self) -> Identity: ...
    async def work(
        self,
        *,
        seconds: float | None = None,
        retry: bool = False,
        index: bool = False,
        noticed: Callable[[WorkReport], None] | None = None,
    ) -> int: ...

class Book(AsyncBook):
    async def acting_as(
        self, principal: str, *, space: str | None = None, within: Iterable[str] | None = None, proposing: bool = False
    ) -> Book: ...
    @property
    def actor(self) -> str: ...
    @property
    def default_space(self) -> str: ...
    @property
    def home(self) -> str: ...
    @property
    def moved_to(self) -> str | None: ...
    @property
    def schema_migration(self) -> SchemaMigration | None: ...
    def watching(
        self,
        noticed: Callable[[SyncReport], None] | None = None,
        *,
        failed: Callable[[CommonbookError], None] | None = None,
    ) -> AbstractAsyncContextManager[None]: ...
    async def with_key(self, secret: str, *, space: str | None = None) -> Book: ...
    def working(self, *, every: float = 1.0) -> AbstractAsyncContextManager[None]: ...

class RemoteBook(AsyncBook):
    @property
    def actor(self) -> Coroutine[Any, Any, str]: ...
    @property
    def default_space(self) -> Coroutine[Any, Any, str]: ...
    @property
    def home(self) -> Coroutine[Any, Any, str]: ...
    @property
    def moved_to(self) -> Coroutine[Any, Any, str | None]: ...
    @property
    def outbox(self) -> Coroutine[Any, Any, Client]: ...
    @property
    def schema_migration(self) -> Coroutine[Any, Any, SchemaMigration | None]: ...

class Opening(Generic[_Opened]):
    def __init__(self, open_book: Callable[[], object], kind: type[_Opened]) -> None: ...
    def __await__(self) -> Generator[Any, None, _Opened]: ...
    async def __aenter__(self) -> _Opened: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

def open(
    home: str | os.PathLike[str] | None = None, *, space: str | None = None, create: bool = False
) -> Opening[Book]: ...
def connect(
    url: str | None = None,
    key: str | None = None,
    *,
    space: str | None = None,
    outbox: str | os.PathLike[str] | None = None,
    allow_http: bool = False,
    answer_seconds: float = 15.0,
    patience_seconds: float = 30.0,
) -> Opening[RemoteBook]: ...
