"""A book as plain as can be: dicts and naive walks, to say what everybody should see of copies, reasoning and doubt.

It knows nothing of notices as memories: which there should be follows from links, deletions and decisions alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

OWNER = "user:local"
ROLES = ("reader", "writer", "admin")
REASONING = ("reflects_on", "derived_from")
CAP = 3

Key = tuple[str, str]
"""What was invalidated, and by what: an id, or the word `deleted`."""


@dataclass
class Known:
    """A memory as the model has it; `took` is the source's revision that a copy has."""

    id: str
    space: str
    text: str
    links: dict[tuple[str, str], int] = field(default_factory=dict)
    revision: int = 1
    deleted: bool = False
    retracted: bool = False
    decisions: set[Key] = field(default_factory=set)
    source: str | None = None
    root: str = ""
    mode: str = ""
    by: str = ""
    took: int = 0
    edited: bool = False

    @property
    def tied(self) -> bool:
        return self.source is not None and self.mode != "detached"

    def grounds(self) -> list[str]:
        return [target for relation, target in self.links if relation in REASONING]


@dataclass
class Model:
    """What there is, and who may do what."""

    known: dict[str, Known] = field(default_factory=dict)
    roles: dict[tuple[str, str], str] = field(default_factory=dict)

    # --- rights

    def may(self, who: str, space: str, role: str) -> bool:
        if who == OWNER:
            return True
        parts = space.split("/")
        above = ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]
        held = [self.roles[who, one] for one in above if (who, one) in self.roles]
        return any(ROLES.index(one) >= ROLES.index(role) for one in held)

    def sees(self, who: str, memory: Known) -> bool:
        return not memory.deleted and self.may(who, memory.space, "reader")

    # --- what rests on what

    def steps(self, id_: str, *, own: bool) -> Iterator[tuple[str, int]]:
        """What one memory rests on at once: with how much reasoning."""
        at = self.known[id_]
        for ground in at.grounds():
            yield ground, 1
        if at.tied and not own:
            yield at.source or "", 0

    def depths(self, id_: str, *, own: bool, avoiding: str = "") -> dict[str, int]:
        """Everything that a memory rests on, with the fewest steps of reasoning to it."""
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

    def rests_on(self, id_: str, other: str) -> bool:
        """Tell whether a memory rests on another, stands for it, or is it."""
        return id_ == other or any(self.rests_on(to, other) for to, _ in self.steps(id_, own=False))

    def deep(self, id_: str) -> int:
        """How many reflections stand on each other up to this memory."""
        at = self.known[id_]
        below = [self.deep(target) + (name == "reflects_on") for name, target in at.links if name in REASONING]
        return max([0, *below, *([self.deep(at.source or "")] if at.tied else [])])

    # --- doubt

    def superseding(self, id_: str) -> list[str]:
        return [one.id for one in self.known.values() if ("supersedes", id_) in one.links and not one.deleted]

    def causes(self, id_: str) -> dict[Key, int]:
        """What puts a memory in doubt by its own links, with the depth."""
        told: dict[Key, int] = {}
        for at in self.depths(id_, own=True):
            invalidating = [*self.superseding(at), *(["deleted"] if self.known[at].deleted else [])]
            for by in invalidating:
                spared = self.depths(id_, own=True, avoiding=by)
                if by != id_ and at in spared:
                    told[at, by] = spared[at]
        return told

    def waiting(self, id_: str) -> dict[Key, int]:
        """The notices that a memory should have, with the depth that each tells."""
        memory = self.known[id_]
        if memory.deleted:
            return {}
        return {key: depth for key, depth in self.causes(id_).items() if key not in memory.decisions}

    def invalidations(self, id_: str) -> set[Key]:
        """What a memory is suspect for: by its own links, and by those of what it is a copy of."""
        memory = self.known[id_]
        inherited = self.invalidations(memory.source or "") if memory.tied else set()
        # Whoever supersedes something has nothing to fear from that itself.
        inherited = {key for key in inherited if key[1] != id_}
        return (set(self.causes(id_)) | inherited) - memory.decisions

    def outdated(self, id_: str) -> bool:
        return any(
            not self.known[target].deleted and revision < self.known[target].revision
            for (relation, target), revision in self.known[id_].links.items()
            if relation in REASONING
        )

    def supersedes_in_turn(self, id_: str, other: str) -> bool:
        """Tell whether `other` supersedes a memory, by itself or through others."""
        return any(by == other or self.supersedes_in_turn(by, other) for by in self.superseding(id_))

    def successor(self, who: str, id_: str) -> str | None:
        shown = [by for by in self.superseding(id_) if self.sees(who, self.known[by])]
        return max(shown, default=None)

    def dependents(self, who: str, id_: str) -> dict[str, int]:
        """What rests on a memory by links of its own, as far as somebody may read, with the depth."""
        found = {one.id: self.depths(one.id, own=True).get(id_) for one in self.known.values() if self.sees(who, one)}
        return {one: depth for one, depth in found.items() if depth is not None}

    # --- copies

    def origin(self, memory: Known) -> str:
        return memory.root if memory.tied else memory.id

    def there(self, root: str, space: str) -> Known | None:
        """What a space has of a root."""
        here = [one for one in self.known.values() if one.space == space and not one.deleted]
        roots = [one for one in here if one.id == root]
        return next(iter(roots or [one for one in here if one.tied and one.root == root]), None)

    def holds(self, copy: Known) -> bool:
        """Tell whether a copy follows its source, or would if it were asked to."""
        if not copy.tied or copy.edited:
            return False
        source = self.known[copy.source or ""]
        return not source.deleted and self.may(copy.by, source.space, "reader")

    def behind(self, copy: Known) -> bool:
        if not self.holds(copy):
            return False
        source = self.known[copy.source or ""]
        return copy.took < source.revision or self.behind(source)

    def freshness(self, copy: Known) -> str | None:
        if copy.source is None:
            return None
        source = self.known[copy.source]
        if copy.mode == "detached":
            return "detached"
        if not self.may(copy.by, source.space, "reader"):
            return "revoked"
        if source.deleted:
            return "source_deleted"
        if copy.edited:
            return "diverged"
        if self.superseding(source.id):
            return "source_superseded"
        return "stale" if self.behind(copy) else "fresh"

    def take_over(self, copy: Known) -> None:
        """Let a copy say what its source says, and its own copies follow."""
        source = self.known[copy.source or ""]
        copy.took, copy.edited = source.revision, False
        if copy.text != source.text:
            copy.text = source.text
            copy.revision += 1
            self.spread(copy)

    def spread(self, source: Known) -> None:
        for copy in sorted(self.known.values(), key=lambda one: one.id):
            is_live = copy.source == source.id and copy.mode == "live" and not copy.deleted
            if is_live and self.holds(copy) and copy.took < source.revision:
                self.take_over(copy)

    def bring_up(self, copy: Known) -> None:
        """Let a copy and those that it came through take over what their sources say."""
        chain = [copy]
        while chain[-1].tied and not chain[-1].deleted and (chain[-1] is copy or chain[-1].mode != "snapshot"):
            chain.append(self.known[chain[-1].source or ""])
        for one in reversed(chain[:-1]):
            if self.holds(one) and not one.deleted and one.took < self.known[one.source or ""].revision:
                self.take_over(one)

    def edit(self, memory: Known, text: str) -> None:
        if text != memory.text:
            memory.text = text
            memory.revision += 1
            memory.edited = memory.source is not None
            self.spread(memory)

    def move(self, memory: Known, space: str) -> None:
        if space != memory.space:
            if memory.tied and self.there(memory.root, space):
                memory.mode = "detached"
            memory.space = space

    def restore(self, memory: Known) -> None:
        """Bring back what was deleted: what changed meanwhile is followed, and one copy of a root is enough."""
        if memory.tied and self.there(memory.root, memory.space):
            memory.mode = "detached"
        memory.deleted = False
        if memory.tied:
            self.spread(self.known[memory.source or ""])
        self.spread(memory)
