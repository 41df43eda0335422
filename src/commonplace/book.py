"""The facade: every public verb of a book, each one line into a flow."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self

from commonplace import (
    arrange,
    capture,
    checkup,
    deciding,
    granting,
    limiting,
    reading,
    remember,
    rights,
    ruling,
    settings,
    share,
    spoken,
    sync,
    wording,
)
from commonplace import lineage as lineages
from commonplace import prefetch as prefetching
from commonplace import rebuild as rebuilding
from commonplace import settle as settling
from commonplace.errors import CommonplaceError, HomeIsNewer
from commonplace.model import (
    UNSET,
    ApiKey,
    Asked,
    Captured,
    Changes,
    CopyOf,
    Deleted,
    Draft,
    Filter,
    Finding,
    Grant,
    Limit,
    Lineage,
    Link,
    LogEntry,
    LogReport,
    Memory,
    Message,
    MessagePage,
    NewKey,
    Page,
    Pending,
    Progress,
    Recalled,
    Receipt,
    Revision,
    Rule,
    Sent,
    Session,
    Settled,
    Sharing,
    Space,
    Status,
    SyncReport,
    TransferReport,
    Unsent,
    Unset,
    Worked,
)
from commonplace.paths import PERSONAL
from commonplace.ports import Parts, Recalls, Transfers
from commonplace.settings import Settings
from commonplace.sync import quiet


class Commonplace:
    """A book of memories. Use it from any thread; close it, or use it in a `with` statement."""

    def __init__(
        self,
        parts: Parts,
        chosen: Settings,
        *,
        actor: str,
        transfers: Transfers,
        recalls: Recalls,
        unsent: Callable[[], Unsent] = Unsent,
    ) -> None:
        """Act on these parts in the name of the actor; `commonplace.open` makes one."""
        self._parts = parts
        self._transfers = transfers
        self._recalls = recalls
        self._prefetcher = prefetching.Prefetcher()
        self._settings = chosen
        self._actor = actor
        self._lent = False
        self._unsent = unsent if rights.is_owner(actor) else Unsent

    @property
    def home(self) -> str:
        """The folder with the Markdown; for a book on a server, where that is."""
        return self._settings.database.place if self._settings.database else self._settings.home

    @property
    def actor(self) -> str:
        """The principal in whose name this book acts."""
        return str(self._actor)

    def acting_as(self, principal: str) -> Commonplace:
        """Return this book in the hands of a principal, who may do what was granted to it. Only the owner lends it."""
        rights.require_owner(self._actor, "act in another's name")
        return self._in_hands_of(granting.principal_name(principal))

    def with_key(self, secret: str) -> Commonplace:
        """Return this book in the hands of whoever a key was made for, within the limits of the key."""
        return self._in_hands_of(granting.with_key(self._parts, secret))

    def _in_hands_of(self, actor: str) -> Commonplace:
        book = Commonplace(self._parts, self._settings, actor=actor, transfers=self._transfers, recalls=self._recalls)
        # Closing what was lent closes nothing of the book itself.
        book._lent = True
        return book

    @property
    def default_space(self) -> str:
        """The space that is meant when none is named: asked for, of the project, or `personal`."""
        return settings.default_space(self._settings)

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

    def get(self, memory_id: str) -> Memory:
        """Return one memory; a lazy copy that is stale takes over what its source says before."""
        return share.get(self._parts, self._actor, memory_id)

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

    def list(self, chosen: Filter | None = None, *, limit: int = 50, after: str | None = None) -> Page:
        """Return memories, newest first, of all spaces or as the filter says."""
        return reading.page(self._parts, self._actor, chosen or Filter(), limit=limit, after=after)

    def history(self, memory_id: str) -> tuple[Revision, ...]:
        """Return every title and text that a memory had, oldest first, also of a deleted one."""
        return reading.history(self._parts, self._actor, memory_id)

    def link(self, source: str, relation: str, target: str) -> Receipt:
        """Link a memory to another."""
        return remember.link(self._parts, self._actor, source, relation, target)

    def unlink(self, source: str, relation: str, target: str) -> Receipt:
        """Take a link away."""
        return remember.unlink(self._parts, self._actor, source, relation, target)

    def links(self, memory_id: str) -> tuple[Link, ...]:
        """Return the links of a memory in both directions, those that go out first."""
        return reading.links_of(self._parts, self._actor, memory_id)

    # --- recall

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

    def reindex(self, *, anew: bool = False, progress: Progress = quiet) -> int:
        """Bring vectors and index up to the book now, also after a change of embedder; `anew`, from nothing.

        Return how many memories were written down.
        """
        rights.require_owner(self._actor, "make the index anew")
        return self._recalls.reindex(self._parts, anew=anew, progress=progress)

    # --- sessions

    def append(
        self,
        session: str,
        messages: Iterable[Sent | str],
        *,
        space: str | None = None,
        parent: str | None = None,
        tags: Iterable[str] = (),
    ) -> Captured:
        """Store messages of a session in order, all or none; a client id that was sent before is a repeat.

        Space, parent and tags are those of a new session.
        """
        spoken.require_list(messages)
        sent = [Sent(message) if isinstance(message, str) else message for message in messages]
        return capture.append(self._parts, self._actor, session, sent, self._context(space, parent, tags))

    def messages(self, session: str, *, after: int = 0, limit: int = 100) -> MessagePage:
        """Return the messages of a session behind a number, in order, those that were taken back too."""
        return capture.show(self._parts, self._actor, session, after=after, limit=limit)

    def sessions(self, *, space: str | None = None, limit: int = 50) -> tuple[Session, ...]:
        """Return the newest sessions."""
        return capture.listed(self._parts, self._actor, space=space, limit=limit)

    def switch(
        self,
        old: str,
        new: str,
        *,
        reason: str = "new",
        space: str | None = None,
        tags: Iterable[str] = (),
    ) -> Settled:
        """Settle what is open in the old session and begin the new one, whose parent it is, in one step."""
        self._prefetcher.drop(old)
        context = self._context(space, None, tags)
        return capture.switch(
            self._parts, self._actor, old, new, reason=reason, context=context, likeness=self._likeness
        )

    def rewind(self, session: str, after: int | str) -> tuple[Message, ...]:
        """Take back every message behind one (its number or id): they leave recall and episodes, the log keeps them."""
        self._prefetcher.drop(session)
        return capture.rewind(self._parts, self._actor, session, after)

    def settle(self, session: str) -> Settled:
        """Make episodes of everything in a session that none holds yet."""
        capture.require_there(self._parts, self._actor, session)
        return settling.settle(self._parts, self._actor, session, flush=True, likeness=self._likeness)

    def close_session(self, session: str) -> Settled:
        """Settle everything and close a session; a later append opens it again."""
        return capture.close(self._parts, self._actor, session, likeness=self._likeness)

    def prefetch(self, session: str, query: str, **asked: Any) -> bool:  # noqa: ANN401 - as for `recall`
        """Begin a recall for a session in the background; take it with `prefetched`."""
        generation = capture.generation(self._parts, self._actor, session)
        return self._prefetcher.begin(session, generation, query, lambda: self.recall(query, **asked))

    def prefetched(self, session: str, query: str, *, wait: float = 0.0) -> Recalled | None:
        """Return what was fetched for just this session and query, once; None if it is not there in time."""
        generation = capture.generation(self._parts, self._actor, session)
        found = self._prefetcher.take(session, generation, query, wait=wait)
        # Somebody may have switched while this waited, in another process too.
        return found if capture.generation(self._parts, self._actor, session) == generation else None

    def work(
        self,
        *,
        seconds: float | None = None,
        retry: bool = False,
        noticed: Callable[[Worked], None] | None = None,
    ) -> int:
        """Settle what is due, for at most so many seconds; return how many sessions were looked at.

        With `retry`, what has failed for good is tried again too. `noticed` is told of each session.
        """
        if retry:
            settling.retry(self._parts, self._actor)
        until = None if seconds is None else self._parts.clock.now() + timedelta(seconds=seconds)
        settled = settling.work(self._parts, self._actor, likeness=self._likeness, until=until, noticed=noticed)
        return settled + share.work(self._parts, self._actor, until=until)

    @contextmanager
    def working(self, *, every: float = 1.0) -> Iterator[None]:
        """Settle what becomes due, in the background, for as long as the block lasts."""
        stop = threading.Event()

        def worker() -> None:
            while not stop.is_set():
                # A worker outlives a home that is busy or full for a while: what is due stays due.
                try:
                    self.work(seconds=every)
                except HomeIsNewer:
                    return
                except CommonplaceError:
                    pass
                stop.wait(every)

        thread = threading.Thread(target=worker, name="commonplace-worker", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def _likeness(self, before: Sequence[str], after: Sequence[str]) -> float:
        """Compare two runs of texts; whoever has nothing to compare need not wait until recall is loaded."""
        return self._recalls.likeness(before, after)

    def _context(self, space: str | None, parent: str | None, tags: Iterable[str]) -> capture.Context:
        return capture.Context(
            space=space or self.default_space,
            named=space is not None,
            parent=None if parent is None else spoken.session_name(parent),
            tags=wording.tags(wording.listed(tags, "tags")),
        )

    # --- spaces

    def spaces(self) -> tuple[Space, ...]:
        """Return the spaces, by name."""
        return reading.all_spaces(self._parts, self._actor)

    def create_space(self, name: str) -> Space:
        """Make a space."""
        return arrange.create(self._parts, self._actor, name)

    def rename_space(self, old: str, new: str) -> Space:
        """Give a space, and everything below it, another name; ids stay."""
        return arrange.rename(self._parts, self._actor, old, new)

    # --- sharing

    def share(self, memory_id: str, to: str, *, refresh: str = "live") -> Sharing:
        """Copy a memory into a space, tied to its source: `live`, `lazy` or a `snapshot`."""
        return share.share(self._parts, self._actor, memory_id, to, refresh=refresh)

    def pull(self, memory_id: str, to: str | None = None, *, refresh: str = "live") -> Sharing:
        """Copy a memory that one may read into a space of one's own, tied to its source."""
        return share.share(self._parts, self._actor, memory_id, to or self.default_space, refresh=refresh)

    def share_many(self, ids: Sequence[str], to: str, *, refresh: str = "live") -> tuple[Sharing, ...]:
        """Share several memories into a space, each for itself, and tell what became of each."""
        return share.share_many(self._parts, self._actor, ids, to, refresh=refresh)

    def share_with(self, memory_id: str, principal: str, *, refresh: str = "live") -> Sharing:
        """Share a memory with one principal alone."""
        return share.share_with(self._parts, self._actor, memory_id, principal, refresh=refresh)

    def unshare(self, copy_id: str) -> Receipt:
        """Remove a copy."""
        return share.unshare(self._parts, self._actor, copy_id)

    def refresh(self, copy_id: str) -> Receipt:
        """Let a copy take over what its source says now."""
        return share.refresh(self._parts, self._actor, copy_id)

    def detach(self, copy_id: str) -> Receipt:
        """End the tie between a copy and its source."""
        return share.detach(self._parts, self._actor, copy_id)

    def adopt(self, copy_id: str) -> Receipt:
        """Let a copy that was edited here say what its source says again."""
        return share.adopt(self._parts, self._actor, copy_id)

    def lineage(self, memory_id: str, *, depth: int = 32) -> Lineage:
        """Return where a memory came from and what was copied from it, at most so deep each way."""
        return lineages.lineage(self._parts, self._actor, memory_id, depth=depth)

    def copies(self, memory_id: str) -> tuple[CopyOf, ...]:
        """Return every copy of a memory, and theirs."""
        return lineages.listed(self._parts, self._actor, memory_id)

    # --- rules and requests

    def add_rule(
        self,
        space: str,
        from_space: str,
        *,
        kinds: Iterable[str] = (),
        tags: Iterable[str] = (),
        importance: float | None = None,
        approval: bool = False,
        refresh: str = "live",
    ) -> Rule:
        """Let a space take in from now on what another writes of these kinds, with all tags, at least so important.

        With `approval`, what is meant waits until somebody who administers the space agrees.
        """
        what = ruling.chosen(kinds, tags, importance, refresh, approval=approval)
        return ruling.add(self._parts, self._actor, space, from_space, what)

    def rules(self, *, space: str | None = None) -> tuple[Rule, ...]:
        """Return the rules that take into and from the spaces that one administers."""
        return ruling.listed(self._parts, self._actor, space=space)

    def remove_rule(self, rule_id: str) -> Rule:
        """Remove a rule, and what waits because of it; what it took in stays."""
        return ruling.remove(self._parts, self._actor, rule_id)

    def request_share(self, memory_id: str, to: str, *, refresh: str = "live") -> Pending:
        """Ask those who administer a space that one may read, and perhaps not write to, to take a memory in."""
        return deciding.request(self._parts, self._actor, memory_id, to, refresh=refresh)

    def pending(self, *, space: str | None = None, decided: bool = False) -> tuple[Pending, ...]:
        """Return what waits for one's decision and what one asked for oneself, or with it what was decided."""
        return deciding.listed(self._parts, self._actor, space=space, decided=decided)

    def approve(self, request_id: str, *, note: str = "") -> Pending:
        """Agree to a request: the memory is shared. Whoever asked cannot."""
        return deciding.approve(self._parts, self._actor, request_id, note=note)

    def reject(self, request_id: str, *, note: str = "") -> Pending:
        """Refuse a request, or take one's own back."""
        return deciding.reject(self._parts, self._actor, request_id, note=note)

    def set_limit(self, action: str, per_minute: int | None, *, principal: str | None = None) -> Limit:
        """Set how often a minute a principal may `share` or `request`, or everybody without a limit of its own."""
        return limiting.set_limit(self._parts, self._actor, action, per_minute, principal=principal)

    def limits(self) -> tuple[Limit, ...]:
        """Return the limits that there are, or one's own."""
        return limiting.listed(self._parts, self._actor)

    # --- rights

    def grant(self, principal: str, space: str, role: str, *, expires: datetime | str | None = None) -> Grant:
        """Let a principal be reader, writer or admin of a space and everything below it, until it expires."""
        return granting.grant(self._parts, self._actor, principal, space, role, expires=expires)

    def revoke(self, principal: str, space: str) -> None:
        """Take a grant away."""
        granting.revoke(self._parts, self._actor, principal, space)

    def grants(self, *, space: str | None = None) -> tuple[Grant, ...]:
        """Return the grants on the spaces that one administers, and one's own."""
        return granting.granted(self._parts, self._actor, space=space)

    def create_key(
        self,
        principal: str,
        *,
        label: str = "",
        limits: Iterable[tuple[str, str]] | None = None,
        expires: datetime | str | None = None,
    ) -> NewKey:
        """Make an API key; its secret is in the answer, and nowhere else. `limits`: pairs of a space and a role."""
        return granting.create_key(self._parts, self._actor, principal, label=label, limits=limits, expires=expires)

    def keys(self) -> tuple[ApiKey, ...]:
        """Return the keys that there are, or one's own."""
        return granting.listed_keys(self._parts, self._actor)

    def revoke_key(self, key_id: str) -> ApiKey:
        """Let a key open nothing from now on."""
        return granting.revoke_key(self._parts, self._actor, key_id)

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
        ended: list[CommonplaceError] = []

        def watch() -> None:
            try:
                sync.watch(self._parts, stop, noticed or (lambda _report: None))
            except CommonplaceError as error:
                ended.append(error)

        watcher = threading.Thread(target=watch, name="commonplace-watch")
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

    def status(self) -> Status:
        """Return numbers, what is pending and what is wrong."""
        return checkup.status(self._parts, self._actor, self.home, self._unsent())

    def doctor(self, *, progress: Progress = quiet) -> tuple[Finding, ...]:
        """Look at everything and return what is wrong, each with its fix."""
        rights.require_owner(self._actor, "look at everything")
        found = checkup.doctor(self._parts, self._actor, progress=progress)
        return (*found, *self._recalls.findings(), *self._unsent().findings)

    def verify_log(self, *, space: str | None = None, progress: Progress = quiet) -> LogReport:
        """Walk the signed log and name the first bad entry of each space."""
        return checkup.verify_log(self._parts, self._actor, space, progress=progress)

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
