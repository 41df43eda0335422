"""The facade: every public verb of a book, each one line into a flow."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from commonbook import rights
from commonbook.book_reasoning import ReasoningVerbs
from commonbook.book_ruling import RulingVerbs
from commonbook.book_sessions import SessionVerbs
from commonbook.book_sharing import SharingVerbs
from commonbook.errors import CommonbookError
from commonbook.lazy_modules import LazyModule
from commonbook.model import (
    UNSET,
    Asked,
    Changes,
    Deleted,
    Draft,
    Filter,
    Finding,
    Link,
    LogEntry,
    LogReport,
    Memory,
    Page,
    Progress,
    Recalled,
    Receipt,
    Revision,
    Space,
    Status,
    SyncReport,
    TransferReport,
    Unset,
    quiet,
)
from commonbook.paths import PERSONAL
from commonbook.ports import asking
from commonbook.principals import Actor

if TYPE_CHECKING:
    from commonbook import arrange, capture, checkup, granting, reading, remember, share, sync, wording
    from commonbook import rebuild as rebuilding
else:
    # A verb loads the module that it needs, so that a command loads no more than its own subject.
    arrange = LazyModule("commonbook.arrange")
    capture = LazyModule("commonbook.capture")
    checkup = LazyModule("commonbook.checkup")
    granting = LazyModule("commonbook.granting")
    reading = LazyModule("commonbook.reading")
    rebuilding = LazyModule("commonbook.rebuild")
    remember = LazyModule("commonbook.remember")
    share = LazyModule("commonbook.share")
    sync = LazyModule("commonbook.sync")
    wording = LazyModule("commonbook.wording")


class Book(SessionVerbs, SharingVerbs, RulingVerbs, ReasoningVerbs):
    """A book of memories. Use it from any thread; close it, or use it in a `with` statement."""

    def acting_as(self, principal: str) -> Book:
        """Return this book in the hands of a principal, who may do what was granted to it. Only the owner lends it."""
        rights.require_owner(self._actor, "act in another's name")
        return self._in_hands_of(Actor(granting.principal_name(principal)))

    def with_key(self, secret: str) -> Book:
        """Return this book in the hands of whoever a key was made for, within the limits of the key."""
        return self._in_hands_of(granting.with_key(self._parts, secret))

    def _in_hands_of(self, actor: Actor) -> Book:
        book = Book(
            self._parts,
            self._settings,
            actor=actor,
            transfers=self._transfers,
            recalls=self._recalls,
            appender=self._appender,
        )
        # Closing what was lent closes nothing of the book itself.
        book._lent = True
        return book

    # --- memories

    def remember(
        self,
        text: str,
        *,
        space: str | None = None,
        kind: str = "note",
        title: str | None = None,
        tags: Iterable[str] = (),
        importance: float | None = None,
        occurred: datetime | str | None = None,
        valid_from: datetime | str | None = None,
        valid_until: datetime | str | None = None,
        expires: datetime | str | None = None,
        links: Iterable[tuple[str, str]] = (),
        replaces: str | None = None,
        key: str | None = None,
    ) -> Receipt:
        """Store a new memory; with a `key` used before, return the first receipt and store nothing."""
        draft = Draft(
            text=text,
            space=space,
            kind=kind,
            title=title,
            tags=wording.listed(tags, "tags"),
            importance=importance,
            occurred=occurred,
            valid_from=valid_from,
            valid_until=valid_until,
            expires=expires,
            links=tuple(links),
            replaces=replaces,
            key=key,
        )
        return self.remember_many([draft])[0]

    def remember_many(self, drafts: Sequence[Draft]) -> list[Receipt]:
        """Store many memories in one transaction, all or none."""
        space = "" if all(draft.space for draft in drafts) else self.default_space
        asked = [draft if draft.space else draft._replace(space=space) for draft in drafts]
        return remember.remember(self._parts, self._actor, asked)

    @asking
    def get(self, memory_id: str) -> Memory:
        """Return one memory; a lazy copy that is stale takes over what its source says before."""
        return share.get(self._parts, self._actor, memory_id)

    @asking
    def find_id(self, part: str) -> str:
        """Return the id that begins or ends with these digits, or of the memory whose file this is."""
        return reading.find_id(self._parts, self._actor, part)

    def edit(
        self,
        memory_id: str,
        *,
        text: str | Unset = UNSET,
        title: str | None | Unset = UNSET,
        kind: str | Unset = UNSET,
        tags: Iterable[str] | Unset = UNSET,
        importance: float | None | Unset = UNSET,
        occurred: datetime | str | None | Unset = UNSET,
        valid_from: datetime | str | None | Unset = UNSET,
        valid_until: datetime | str | None | Unset = UNSET,
        expires: datetime | str | None | Unset = UNSET,
        expected_version: int | None = None,
    ) -> Receipt:
        """Change what is given; None takes a value away. With `expected_version`, only that version."""
        changes = Changes(
            text=text,
            title=title,
            kind=kind,
            tags=tags if isinstance(tags, Unset) else wording.listed(tags, "tags"),
            importance=importance,
            occurred=occurred,
            valid_from=valid_from,
            valid_until=valid_until,
            expires=expires,
        )
        return remember.edit(self._parts, self._actor, memory_id, changes, expected_version=expected_version)

    def move(self, memory_id: str, space: str, *, expected_version: int | None = None) -> Receipt:
        """Move a memory into another space, with its file and its history."""
        return remember.move(self._parts, self._actor, memory_id, space, expected_version=expected_version)

    def delete(self, *ids: str, expected_version: int | None = None, dry_run: bool = False) -> Deleted:
        """Delete memories, all or none; tombstones and history stay."""
        return remember.delete(self._parts, self._actor, ids, expected_version=expected_version, dry_run=dry_run)

    def delete_where(self, chosen: Filter, *, dry_run: bool = False) -> Deleted:
        """Delete every memory that the filter lets through, all or none."""
        return remember.delete_where(self._parts, self._actor, chosen, dry_run=dry_run)

    @asking
    def list(self, chosen: Filter | None = None, *, limit: int = 50, after: str | None = None) -> Page:
        """Return memories, newest first, of all spaces or as the filter says."""
        return reading.page(self._parts, self._actor, chosen or Filter(), limit=limit, after=after)

    @asking
    def history(self, memory_id: str) -> tuple[Revision, ...]:
        """Return every title and text that a memory had, oldest first, also of a deleted one."""
        return reading.history(self._parts, self._actor, memory_id)

    def link(self, source: str, relation: str, target: str) -> Receipt:
        """Link a memory to another."""
        return remember.link(self._parts, self._actor, source, relation, target)

    def unlink(self, source: str, relation: str, target: str) -> Receipt:
        """Take a link away."""
        return remember.unlink(self._parts, self._actor, source, relation, target)

    @asking
    def links(self, memory_id: str) -> tuple[Link, ...]:
        """Return the links of a memory in both directions, those that go out first."""
        return reading.links_of(self._parts, self._actor, memory_id)

    # --- recall

    @asking
    def recall(
        self,
        query: str = "",
        *,
        spaces: str | Iterable[str] | None = None,
        k: int = 10,
        kinds: Iterable[str] = (),
        tags: Iterable[str] = (),
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        as_of: datetime | str | None = None,
        min_score: float | None = None,
        budget_tokens: int | None = None,
        include: Iterable[str] = (),
        explain: bool = False,
        progress: Progress = quiet,
    ) -> Recalled:
        """Return the passages that answer a question best, of the space meant and `personal` if none is named.

        Without a question, the newest. `as_of` asks for what was valid then; `include` for what is left out otherwise.
        """
        named = (spaces,) if isinstance(spaces, str) else tuple(spaces or ())
        asked = Asked(
            query=query,
            spaces=named or tuple(dict.fromkeys((self.default_space, PERSONAL))),
            k=k,
            kinds=wording.listed(kinds, "kinds"),
            tags=wording.listed(tags, "tags"),
            since=since,
            until=until,
            as_of=as_of,
            min_score=min_score,
            budget_tokens=budget_tokens,
            include=wording.listed(include, "include"),
            explain=explain,
        )
        return self._recalls.recall(self._parts, self._actor, asked, progress=progress)

    def prefetch(self, session: str, query: str, **asked: Any) -> bool:  # noqa: ANN401 - as for `recall`
        """Begin a recall for a session in the background; take it with `prefetched`."""
        generation = capture.generation(self._parts, self._actor, session)
        return self._prefetcher.begin(session, generation, query, lambda: self.recall(query, **asked))

    def prefetched(self, session: str, query: str, *, wait: float = 0.0) -> Recalled | None:
        """Return what was fetched for just this session and query, once; None if it is not there in time."""
        generation = capture.generation(self._parts, self._actor, session)
        found = self._prefetcher.take(session, generation, query, wait=wait)
        # Somebody may have switched while this waited, in another process too, or taken a right away since.
        if found is None or capture.generation(self._parts, self._actor, session) != generation:
            return None
        return found if reading.may_have(self._parts, self._actor, found.hits) else None

    def reindex(self, *, anew: bool = False, progress: Progress = quiet) -> int:
        """Bring vectors and index up to the book now, also after a change of embedder; `anew`, from nothing.

        Return how many memories were written down.
        """
        rights.require_owner(self._actor, "make the index anew")
        return self._recalls.reindex(self._parts, anew=anew, progress=progress)

    # --- spaces

    @asking
    def spaces(self) -> tuple[Space, ...]:
        """Return the spaces, by name."""
        return reading.all_spaces(self._parts, self._actor)

    def create_space(self, name: str) -> Space:
        """Make a space."""
        return arrange.create(self._parts, self._actor, name)

    def rename_space(self, old: str, new: str) -> Space:
        """Give a space, and everything below it, another name; ids stay."""
        return arrange.rename(self._parts, self._actor, old, new)

    # --- the folder

    def sync(self, *, progress: Progress = quiet) -> SyncReport:
        """Carry out what is pending and take in what people did to the files."""
        rights.require_owner(self._actor, "look at the files of the home")
        return sync.look(self._parts, progress=progress)

    @contextmanager
    def watching(self, noticed: Callable[[SyncReport], None] | None = None) -> Iterator[None]:
        """Take in what people do to the files, as it happens, for as long as the block lasts."""
        rights.require_owner(self._actor, "look at the files of the home")
        stop = threading.Event()
        ended: list[CommonbookError] = []

        def watch() -> None:
            try:
                sync.watch(self._parts, stop, noticed or (lambda _report: None))
            except CommonbookError as error:
                ended.append(error)

        watcher = threading.Thread(target=watch, name="commonbook-watch")
        watcher.start()
        try:
            yield
        finally:
            stop.set()
            watcher.join()
        if ended:
            raise ended[0]

    def import_folder(
        self, folder: str, *, space: str | None = None, dry_run: bool = False, progress: Progress = quiet
    ) -> TransferReport:
        """Take in a folder of Markdown, as if it lay in the home or in a space's folder; again changes nothing."""
        return self._transfers.import_folder(
            self._parts, self._actor, folder, space=space, dry_run=dry_run, progress=progress
        )

    def export(self, target: str, *, space: str | None = None, progress: Progress = quiet) -> TransferReport:
        """Write a space or all of them as a folder of Markdown, or as an archive (.zip, .tar.gz)."""
        return self._transfers.export(self._parts, self._actor, target, space=space, progress=progress)

    def rebuild(self, *, progress: Progress = quiet) -> SyncReport:
        """Make anew everything that only serves search, from files and rows."""
        rights.require_owner(self._actor, "rebuild the home")
        report = rebuilding.rebuild(self._parts, progress=progress)
        self.reindex(anew=True, progress=progress)
        return report

    def accept_deletions(self) -> int:
        """Delete the memories whose files are gone and were kept back for a person to agree; return how many."""
        rights.require_owner(self._actor, "agree to deletions")
        return sync.accept_deletions(self._parts)

    # --- how it is

    @asking
    def status(self) -> Status:
        """Return numbers, what is pending and what is wrong."""
        return checkup.status(self._parts, self._actor, self.home, self._unsent())

    @asking
    def doctor(self, *, progress: Progress = quiet) -> tuple[Finding, ...]:
        """Look at everything and return what is wrong, each with its fix."""
        rights.require_owner(self._actor, "look at everything")
        found = checkup.doctor(self._parts, self._actor, progress=progress)
        return (*found, *self._recalls.findings(), *self._unsent().findings)

    @asking
    def verify_log(self, *, space: str | None = None, progress: Progress = quiet) -> LogReport:
        """Walk the signed log and name the first bad entry of each space."""
        return checkup.verify_log(self._parts, self._actor, space, progress=progress)

    @asking
    def log(self, *, space: str, after: int = 0, limit: int = 100) -> tuple[LogEntry, ...]:
        """Return entries of a space's log, in order."""
        return checkup.log(self._parts, self._actor, space, after=after, limit=limit)

    # --- life

    def close(self) -> None:
        """Let go of everything; nothing is held that a crash could take."""
        if self._lent:
            return
        self._recalls.close()
        self._parts.db.close()
        self._parts.folder.close()

    def __enter__(self) -> Self:
        """Use the book in a `with` statement."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the book."""
        self.close()
