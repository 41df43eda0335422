"""The rights of the model of the promises: who may read and write what, by grants and reviews."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.support.promise_facts import OWNER, PROPOSED, ROLES, Memory, Message, Rule, SessionKey, proposals_of


def is_agent(who: str) -> bool:
    """Tell whether a principal is an agent, whose memories can be reviewed."""
    return who.startswith("agent:")


def _with_spaces_above(space: str) -> list[str]:
    parts = space.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]


@dataclass
class Rights:
    """Holds memories, sessions and rules, and tells who may do what to them."""

    memories: dict[str, Memory] = field(default_factory=dict)
    sessions: dict[SessionKey, list[Message]] = field(default_factory=dict)
    roles: dict[tuple[str, str], str] = field(default_factory=dict)
    rules: dict[str, Rule] = field(default_factory=dict)
    reviews: set[str] = field(default_factory=set)
    """The spaces that have the memories of agents reviewed, there and below."""
    filed_reviews: set[str] = field(default_factory=set)
    """The same as the files of the spaces say it: an older database does not take it from there."""
    moved: dict[SessionKey, SessionKey] = field(default_factory=dict)
    """Where the sessions are that were moved out of a space."""
    movers: dict[SessionKey, str] = field(default_factory=dict)
    """The principals that moved them out."""

    def __getitem__(self, id_: str) -> Memory:
        return self.memories[id_]

    def live(self) -> list[Memory]:
        return [memory for memory in self.memories.values() if not memory.deleted]

    # --- rights

    def may(self, who: str, space: str, role: str) -> bool:
        """Tell whether a principal has a role on a space; a review lets an agent read and propose, and no more."""
        if is_agent(who) and self.reviewed(space):
            return role == "reader" and self.granted(who, space, role)
        if is_agent(who) and self.reviewed(space.removesuffix(PROPOSED)):
            return role != "admin" and self.granted(who, space, role)
        return self.granted(who, space, role)

    def granted(self, who: str, space: str, role: str) -> bool:
        """Tell whether a principal was granted a role on a space, or on a space above it: no review limits sessions."""
        if who == OWNER:
            return True
        held = [self.roles[who, name] for name in _with_spaces_above(space) if (who, name) in self.roles]
        return any(ROLES.index(name) >= ROLES.index(role) for name in held)

    def reviewed(self, space: str) -> bool:
        """Tell whether agents only propose in a space."""
        return not space.endswith(PROPOSED) and not self.reviews.isdisjoint(_with_spaces_above(space))

    def set_review(self, space: str, *, review: bool) -> None:
        """Begin or end a review; the file of the space is written if that changes something."""
        if review != (space in self.reviews):
            for reviews in (self.reviews, self.filed_reviews):
                (reviews.add if review else reviews.discard)(space)

    def holds_back(self, who: str, space: str) -> bool:
        return is_agent(who) and self.reviewed(space)

    def place_for(self, who: str, space: str) -> str:
        """Return the space into which a new memory of a principal goes."""
        return proposals_of(space) if self.holds_back(who, space) else space

    def may_read(self, who: str, memory: Memory) -> bool:
        return not memory.deleted and self.may(who, memory.space, "reader")

    def may_write(self, who: str, memory: Memory) -> bool:
        """Tell whether a principal may change a memory; of what was proposed, an agent changes its own only."""
        is_foreign = is_agent(who) and memory.proposed and memory.author != who
        return not memory.deleted and not is_foreign and self.may(who, memory.space, "writer")

    def may_supersede(self, who: str, memory: Memory) -> bool:
        """Tell whether a principal may let a memory supersede another: not one that is only proposed."""
        return self.may_write(who, memory) and not memory.proposed

    def may_accept(self, who: str, memory: Memory, space: str) -> bool:
        """Tell whether a principal may move a memory into a space: its links take effect if it was proposed."""
        replaced = [self.memories[target] for target in memory.replaced() if target in self.memories]
        may = all(self.may_write(who, one) for one in replaced if not one.deleted)
        return may and self.may_write(who, memory) and self.may(who, space, "writer")

    def decides(self, who: str, memory: Memory) -> bool:
        """Tell whether a principal is shown a proposed memory among those to decide about."""
        return self.may_read(who, memory) and self.may(who, memory.space.removesuffix(PROPOSED), "writer")

    def readable_words(self, who: str) -> set[str]:
        """Return every word that a principal may meet in any answer about the present."""
        words = {word for memory in self.live() if self.may_read(who, memory) for word in memory.words}
        for (space, _name), messages in self.sessions.items():
            if self.may(who, space, "reader"):
                words.update(message.word for message in messages)
        return words

    def readable_history(self, who: str, memory: Memory) -> set[str]:
        """Return the words of a memory's history: of revisions that were written where the principal may read.

        An episode that was rewound moves with its session, whose readers read the rewound messages in its log too.
        """
        if not self.may(who, memory.space, "reader"):
            return set()
        log = self.sessions.get(memory.session, ()) if memory.session and memory.deleted else ()
        is_read = memory.session is not None and self.may(who, memory.session[0], "reader")
        return {message.word for message in log if is_read} | {
            word
            for words, spaces in memory.written_in.items()
            if words == memory.words or any(self.may(who, space, "reader") for space in spaces)
            for word in words
        }
