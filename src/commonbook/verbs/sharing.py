"""The verbs of a book: share memories, manage the copies, and decide about sharing rules and requests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from commonbook.verbs.declaration import Declarations, verb

if TYPE_CHECKING:
    from commonbook.values.memory import Kind, Receipt, Refresh
    from commonbook.values.sharing import CopyNode, Lineage, ShareReceipt, ShareRequest, SharingRule


class Sharing(Declarations):
    """Share memories, manage the copies, and decide about sharing rules and requests."""

    @verb("POST", "/v1/memories/{memory_id}/share", changes=True)
    def share(self, memory_id: str, to: str, *, refresh: Refresh = "live") -> ShareReceipt:
        """Copy a memory into a space; the copy stays bound to its source.

        With `refresh="live"` it follows the source at once, with `lazy` when it is read, and a `snapshot` never by
        itself. If the space has a copy already, that one is returned, unchanged. But a copy that no longer follows
        anything, since its source is gone or its sharer may not read it any more, is tied again in your name: the
        receipt says `retied`.
        """

    @verb("POST", "/v1/memories/{memory_id}/pull", changes=True)
    def pull(self, memory_id: str, to: str | None = None, *, refresh: Refresh = "live") -> ShareReceipt:
        """Copy a memory that you may read into a space of yours (by default the default space); see `share`."""

    @verb("POST", "/v1/memories/share", changes=True, in_parts=True)
    def share_many(self, ids: Sequence[str], to: str, *, refresh: Refresh = "live") -> tuple[ShareReceipt, ...]:
        """Share several memories into a space, each in a transaction of its own; a failed one has an `error`."""

    @verb("POST", "/v1/memories/{memory_id}/share_with", changes=True)
    def share_with(self, memory_id: str, principal: str, *, refresh: Refresh = "live") -> ShareReceipt:
        """Share a memory with one principal: into a space that only the two of you can read."""

    @verb("POST", "/v1/memories/{copy_id}/unshare", changes=True, versioned=True)
    def unshare(self, copy_id: str) -> Receipt:
        """Delete a copy; copies that were made from it stay."""

    @verb("POST", "/v1/memories/{copy_id}/refresh", changes=True, versioned=True)
    def refresh(self, copy_id: str) -> Receipt:
        """Update a copy from its source now."""

    @verb("POST", "/v1/memories/{copy_id}/set_refresh", changes=True, versioned=True)
    def set_refresh(self, copy_id: str, mode: Refresh) -> Receipt:
        """Change when a copy follows its source: `live`, `lazy` or `snapshot`; see `share`."""

    @verb("POST", "/v1/memories/{copy_id}/detach", changes=True, versioned=True)
    def detach(self, copy_id: str) -> Receipt:
        """Unbind a copy from its source, which it no longer follows; its origin stays known."""

    @verb("POST", "/v1/memories/{copy_id}/adopt", changes=True, versioned=True)
    def adopt(self, copy_id: str) -> Receipt:
        """Overwrite a copy that was edited here with its source; the edited text stays in its history.

        An imported copy, and one whose sharer may no longer share it, follow their source from then on, by
        your permissions.
        """

    @verb("POST", "/v1/adopt_all", changes=True, in_parts=True)
    def adopt_all(self) -> tuple[Receipt, ...]:
        """Tie every copy that is only claimed to its source again, in your name; return those that were tied.

        A copy is claimed if its tie came from its file alone: the database was lost, or the copy was imported. One
        that was edited here keeps its words. Left out are copies whose source you may not read, and imported ones that
        do not say what their source says. The mode is what the file says: a live copy then shows what its source says
        now to all who read its space, so look at claimed copies before.
        """

    @verb("GET", "/v1/memories/{memory_id}/lineage")
    def lineage(self, memory_id: str, *, depth: int = 32) -> Lineage:
        """Return the sources of a memory and the copies made from it, at most `depth` steps each way."""

    @verb("GET", "/v1/memories/{memory_id}/copies")
    def copies(self, memory_id: str) -> tuple[CopyNode, ...]:
        """Return every copy of a memory, direct or not and however deep, as a flat list in depth-first order.

        `lineage` returns the tree, to a depth.
        """

    @verb("POST", "/v1/rules", changes=True)
    def add_rule(
        self,
        space: str,
        from_space: str,
        *,
        kinds: Iterable[Kind] = (),
        tags: Iterable[str] = (),
        importance: float | None = None,
        approval: bool = False,
        refresh: Refresh = "live",
    ) -> SharingRule:
        """Add a rule that shares memories from one space into another as they are written from now on.

        It matches memories of one of the `kinds`, with all `tags`, and at least this `importance`. With `approval`, a
        match waits as a request until an admin of the space approves it. The rule acts with your permissions.
        """

    @verb("GET", "/v1/rules")
    def rules(self, *, space: str | None = None) -> tuple[SharingRule, ...]:
        """Return the sharing rules into and from the spaces that you administer; or those of one space."""

    @verb("DELETE", "/v1/rules/{rule_id}", changes=True)
    def remove_rule(self, rule_id: str) -> SharingRule:
        """Remove a sharing rule and its waiting requests; the copies that it made stay."""

    @verb("POST", "/v1/memories/{memory_id}/request_share", changes=True)
    def request_share(self, memory_id: str, to: str, *, refresh: Refresh = "live") -> ShareRequest:
        """Ask the admins of a space, which you can read but need not be able to write to, to accept a memory.

        Asking again while the request waits returns the same request.
        """

    @verb("GET", "/v1/requests")
    def pending(self, *, space: str | None = None, decided: bool = False) -> tuple[ShareRequest, ...]:
        """Return the requests and proposed memories that wait for your decision, and your own.

        With `decided`, also the decided ones.
        """

    @verb("POST", "/v1/requests/{request_id}/approve", changes=True)
    def approve(self, request_id: str, *, note: str = "", expected_version: int | None = None) -> ShareRequest:
        """Approve a request: the memory is shared now. You cannot approve your own request.

        For a proposed memory, whose id is that of the request: it is accepted into its space now, and supersedes what
        it was to replace. Agents cannot approve one. With `expected_version`, the memory must be the one that you saw.
        """

    @verb("POST", "/v1/requests/{request_id}/reject", changes=True)
    def reject(self, request_id: str, *, note: str = "") -> ShareRequest:
        """Reject a request, or withdraw your own. A proposed memory is deleted; `undelete` proposes it again."""
