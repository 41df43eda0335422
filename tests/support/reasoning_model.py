"""A reference model of a book: dicts and naive recursion predict what each principal sees of copies and reasoning.

It has no notices as memories: the expected ones follow from links, deletions and decisions alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

OWNER = "user:local"
ROLES = ("reader", "writer", "admin")
REASONING = ("reflects_on", "derived_from")
CAP = 3

Key = tuple[str, str]
"""The invalidated memory, and what invalidates it: an id, or one of the words `deleted` and `ended`."""


@dataclass
class Known:
    """A memory of the model; `took` is the source's revision that a copy has.

    `retracted` says that it has expired, `retractions` has the causes for which that was decided.
    """

    id: str
    space: str
    text: str
    links: dict[tuple[str, str], int] = field(default_factory=dict)
    revision: int = 1
    deleted: bool = False
    retracted: bool = False
    decisions: set[Key] = field(default_factory=set)
    retractions: set[Key] = field(default_factory=set)
    source: str | None = None
    root: str = ""
    mode: str = ""
    by: str = ""
    took: int = 0
    edited: bool = False
    past: dict[int, str] = field(default_factory=dict)

    @property
    def bound(self) -> bool:
        return self.source is not None and self.mode != "detached"

    def set_text(self, text: str) -> None:
        """Set another text, as a new revision."""
        self.past[self.revision] = self.text
        self.text = text
        self.revision += 1

    def text_of(self, revision: int) -> str:
        """Return the text of a revision."""
        return self.past.get(revision, self.text)

    def direct_sources(self) -> list[str]:
        return [target for relation, target in self.links if relation in REASONING]


@dataclass
class Model:
    """All memories, and the roles of all principals."""

    known: dict[str, Known] = field(default_factory=dict)
    roles: dict[tuple[str, str], str] = field(default_factory=dict)

    # --- permissions

    def may(self, who: str, space: str, role: str) -> bool:
        if who == OWNER:
            return True
        parts = space.split("/")
        ancestors = ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]
        held = [self.roles[who, name] for name in ancestors if (who, name) in self.roles]
        return any(ROLES.index(name) >= ROLES.index(role) for name in held)

    def sees(self, who: str, memory: Known) -> bool:
        return not memory.deleted and self.may(who, memory.space, "reader")

    # --- dependencies

    def steps(self, id_: str, *, own: bool) -> Iterator[tuple[str, int]]:
        """Yield the direct dependencies of a memory, each with its depth: 1 by a reasoning link, 0 as a copy."""
        at = self.known[id_]
        for source in at.direct_sources():
            yield source, 1
        if at.bound and not own:
            yield at.source or "", 0

    def depths(self, id_: str, *, own: bool, avoiding: str = "") -> dict[str, int]:
        """Return all ancestors of a memory, each with the smallest depth."""
        best: dict[tuple[str, bool], int] = {(id_, False): 0}
        changed = True
        while changed:
            changed = False
            for (at, reasoned), depth in list(best.items()):
                first = at == id_ and not reasoned
                for to, more in self.steps(at, own=own and first):
                    state = (to, reasoned or more > 0)
                    if to not in (avoiding, id_) and depth + more < best.get(state, 10**9):
                        best[state] = depth + more
                        changed = True
        return {at: depth for (at, reasoned), depth in best.items() if reasoned}

    def depends_on(self, id_: str, other: str) -> bool:
        """Tell whether a memory depends on another, is a copy of it, or is it."""
        return id_ == other or any(self.depends_on(to, other) for to, _ in self.steps(id_, own=False))

    def reflection_depth(self, id_: str) -> int:
        """Return the largest number of links `reflects_on` on a path up from this memory."""
        at = self.known[id_]
        below = [
            self.reflection_depth(target) + (name == "reflects_on") for name, target in at.links if name in REASONING
        ]
        return max([0, *below, *([self.reflection_depth(at.source or "")] if at.bound else [])])

    # --- invalidations

    def superseding(self, id_: str) -> list[str]:
        return [one.id for one in self.known.values() if ("supersedes", id_) in one.links and not one.deleted]

    def doubted(self, id_: str) -> list[str]:
        """Return the direct successors of a memory that are not deleted, or that another one stands behind."""
        return [by for by in self.direct_successors(id_) if not self.known[by].deleted or self.doubted(by)]

    def chain(self, id_: str) -> list[Known]:
        """Return a memory and the sources along its tie."""
        memory = self.known[id_]
        return [memory, *(self.chain(memory.source or "") if memory.bound else [])]

    def expired(self, id_: str) -> bool:
        return any(member.retracted for member in self.chain(id_))

    def ended(self, id_: str) -> bool:
        return self.known[id_].deleted or self.expired(id_)

    def direct_successors(self, id_: str) -> list[str]:
        return [one.id for one in self.known.values() if ("supersedes", id_) in one.links]

    def standing(self, id_: str) -> set[str]:
        """Return the successors of a memory that have not ended; those of an ended one count in its place."""
        found: set[str] = set()
        for by in self.direct_successors(id_):
            found |= self.standing(by) if self.ended(by) else {by}
        return found

    def endings(self, id_: str) -> set[Key]:
        """Return the successors that have ended; a deleted memory has them too, for its copies."""
        if self.known[id_].retracted or self.standing(id_):
            return set()
        return {(by, "ended") for by in self.direct_successors(id_) if self.ended(by)}

    def own_invalidations(self, id_: str) -> dict[Key, int]:
        """Return the invalidations of a memory by its own links, each with the depth."""
        depths: dict[Key, int] = {}
        for at in self.depths(id_, own=True):
            invalidating = [*self.doubted(at), *(["deleted"] if self.known[at].deleted else [])]
            for by in invalidating:
                spared = self.depths(id_, own=True, avoiding=by)
                if by != id_ and at in spared:
                    depths[at, by] = spared[at]
        return depths

    def open_invalidations(self, id_: str) -> dict[Key, int]:
        """Return the invalidations for which a memory should have a notice, each with the depth."""
        memory = self.known[id_]
        if memory.deleted:
            return {}
        causes = {**self.left(id_), **self.own_invalidations(id_), **dict.fromkeys(self.endings(id_), 0)}
        return {key: depth for key, depth in causes.items() if key not in memory.decisions}

    def left(self, id_: str) -> dict[Key, int]:
        """Return what a copy has notices for in place of its deleted source, each with the depth."""
        memory = self.known[id_]
        source = self.known[memory.source or ""] if memory.bound else None
        if source is None or not source.deleted:
            return {}
        causes = {**self.left(source.id), **self.own_invalidations(source.id)}
        causes |= dict.fromkeys(self.endings(source.id), 0)
        return {
            key: depth
            for key, depth in causes.items()
            if id_ not in key and key not in source.decisions and not (key[1] == "ended" and memory.retracted)
        }

    def invalidations(self, id_: str) -> set[Key]:
        """Return the undecided invalidations of a memory: by its own links, and by those of a copy's source."""
        memory = self.known[id_]
        inherited = self.invalidations(memory.source or "") if memory.bound else set()
        # A successor does not invalidate itself.
        inherited = {key for key in inherited if id_ not in key}
        return (set(self.own_invalidations(id_)) | inherited | self.endings(id_)) - memory.decisions

    def outdated(self, id_: str) -> bool:
        return any(
            not self.known[target].deleted and self.known[target].text_of(revision) != self.known[target].text
            for (relation, target), revision in self.known[id_].links.items()
            if relation in REASONING
        )

    def supersedes_in_turn(self, id_: str, other: str) -> bool:
        """Tell whether `other` supersedes a memory, directly or through others."""
        return any(by == other or self.supersedes_in_turn(by, other) for by in self.superseding(id_))

    def successor(self, who: str, id_: str) -> tuple[bool, str | None]:
        """Return whether a memory is superseded, by itself or through its tie, and by which that one may see."""
        nearest, before = set[str](), set[str]()
        for member in self.chain(id_):
            # A copy that supersedes one of its sources is not superseded by itself.
            before.add(member.id)
            nearest = nearest or self.standing(member.id) - before
        return bool(nearest), max((by for by in nearest if self.sees(who, self.known[by])), default=None)

    def dependents(self, who: str, id_: str) -> dict[str, int]:
        """Return the readable dependents of a memory by links of their own, each with the depth."""
        depths = {one.id: self.depths(one.id, own=True).get(id_) for one in self.known.values() if self.sees(who, one)}
        return {one: depth for one, depth in depths.items() if depth is not None}

    # --- copies

    def origin(self, memory: Known) -> str:
        return memory.root if memory.bound else memory.id

    def memory_of_root(self, root: str, space: str) -> Known | None:
        """Return the memory that stands for a root in a space: the root itself, or its copy."""
        here = [memory for memory in self.known.values() if memory.space == space and not memory.deleted]
        roots = [memory for memory in here if memory.id == root]
        return next(iter(roots or [memory for memory in here if memory.bound and memory.root == root]), None)

    def can_follow(self, copy: Known) -> bool:
        """Tell whether a copy follows its source, at once or on request."""
        if not copy.bound or copy.edited:
            return False
        source = self.known[copy.source or ""]
        return not source.deleted and self.may(copy.by, source.space, "reader")

    def is_stale(self, copy: Known) -> bool:
        if not self.can_follow(copy):
            return False
        source = self.known[copy.source or ""]
        return copy.took < source.revision or self.is_stale(source)

    def broken_tie(self, copy: Known) -> str | None:
        """Return why a copy cannot follow its own source; None if it can, or is no copy."""
        if copy.source is None:
            return None
        if copy.mode == "detached":
            return "detached"
        if not self.may(copy.by, self.known[copy.source].space, "reader"):
            return "revoked"
        if self.known[copy.source].deleted:
            return "source_deleted"
        return "diverged" if copy.edited else None

    def followed_sources(self, copy: Known) -> list[Known]:
        """Return the sources whose words a copy has, the nearest first: up to one that is its own, or is deleted."""
        if not copy.bound or copy.edited:
            return []
        source = self.known[copy.source or ""]
        return [source, *(self.followed_sources(source) if not source.deleted else [])]

    def superseding_source(self, copy: Known) -> str | None:
        """Return the newest successor of the nearest superseded source of a copy."""
        before = {copy.id}
        for source in self.followed_sources(copy):
            # A copy that supersedes one of its sources holds in its place.
            before.add(source.id)
            if successors := self.standing(source.id) - before:
                return max(successors)
        return None

    def freshness(self, copy: Known) -> str | None:
        if copy.source is None:
            return None
        if broken := self.broken_tie(copy):
            return broken
        if any(source.bound and self.known[source.source or ""].deleted for source in self.followed_sources(copy)):
            return "source_deleted"
        if self.superseding_source(copy):
            return "source_superseded"
        return "stale" if self.is_stale(copy) else "fresh"

    def can_tie_again(self, copy: Known, source: Known) -> bool:
        """Tell whether sharing a source ties an existing copy to it: not to itself, nor to a copy of it."""
        lost = self.broken_tie(copy) in {"revoked", "source_deleted"}
        return lost and copy.id not in {member.id for member in self.chain(source.id)}

    def tie_again(self, copy: Known, source: Known, *, mode: str, by: str) -> None:
        """Tie a copy that followed nothing to a source; words that were edited here stay."""
        copy.source, copy.root, copy.mode, copy.by = source.id, self.origin(source), mode, by
        copy.took = source.revision
        if not copy.edited:
            self.overwrite(copy)

    def overwrite(self, copy: Known) -> None:
        """Overwrite a copy with its source, and propagate that to its own copies."""
        source = self.known[copy.source or ""]
        copy.took, copy.edited = source.revision, False
        if copy.text != source.text:
            copy.set_text(source.text)
            self.propagate(copy)

    def propagate(self, source: Known) -> None:
        for copy in sorted(self.known.values(), key=lambda one: one.id):
            is_live = copy.source == source.id and copy.mode == "live" and not copy.deleted
            if is_live and self.can_follow(copy) and copy.took < source.revision:
                self.overwrite(copy)

    def refresh_chain(self, copy: Known) -> None:
        """Refresh the chain of copies up to this one."""
        chain = [copy]
        while chain[-1].bound and not chain[-1].deleted and (chain[-1] is copy or chain[-1].mode != "snapshot"):
            chain.append(self.known[chain[-1].source or ""])
        for member in reversed(chain[:-1]):
            if (
                self.can_follow(member)
                and not member.deleted
                and member.took < self.known[member.source or ""].revision
            ):
                self.overwrite(member)

    def edit(self, memory: Known, text: str) -> None:
        if text != memory.text:
            memory.set_text(text)
            memory.edited = memory.source is not None
            self.propagate(memory)

    def move(self, memory: Known, space: str, *, by: str) -> None:
        if space != memory.space:
            if memory.bound and not self.may(by, self.known[memory.source or ""].space, "reader"):
                # A principal without the right to read the source brings no new words of it into another space.
                memory.mode = "snapshot"
            if memory.bound and self.memory_of_root(memory.root, space):
                self.detach(memory)
            memory.space = space

    def detach(self, memory: Known) -> None:
        """Detach a copy: a retraction of its sources stays with it."""
        for source in self.chain(memory.id)[1:]:
            if source.retracted:
                memory.retracted = True
                memory.retractions |= source.retractions - memory.decisions
                memory.decisions |= source.retractions
        memory.mode = "detached"

    def restore(self, memory: Known) -> None:
        """Restore a deleted memory: it follows its source again, or is detached if its space has another copy."""
        if memory.bound and self.memory_of_root(memory.root, memory.space):
            self.detach(memory)
        memory.deleted = False
        if memory.bound:
            self.propagate(self.known[memory.source or ""])
        self.propagate(memory)
