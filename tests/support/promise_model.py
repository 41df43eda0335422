"""A model of the promises: plain values that say what every principal may see, whatever happened to the book.

The model knows words, not numbers. Every text that a test writes has one word that no other text has, so the words of
an answer show where they come from. The model says what must be, what may be, and what must not be:

- Rights: a principal sees what is in a space that it may read now, and changes what is in a space that it may write to.
- Words: a memory says what was last written to it. A copy keeps its words or takes those of its source, and nothing
  else. A session has its messages once and in order.
- Marks: doubt, changed sources and ended sources follow from links, deletions, times and decisions alone.

Where the promises leave something open, the model has a lower and an upper bound (`must` and `may`), or a flag.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from itertools import pairwise, takewhile

from tests.support.promise_facts import (
    DELETED,
    ENDED,
    PROPOSED,
    REASONING,
    SUPERSEDES,
    WOULD_SUPERSEDE,
    Key,
    Memory,
    Message,
    SessionKey,
    Words,
)
from tests.support.promise_rights import Rights


class Model(Rights):
    """Tells what must be, may be and must not be, as it follows from memories, links, sessions and rights."""

    # --- copies

    def source_of(self, copy: Memory) -> Memory | None:
        """Return the live source of a bound copy."""
        source = self.memories.get(copy.source or "") if copy.bound else None
        return source if source is not None and not source.deleted else None

    def tie_holds(self, copy: Memory) -> bool:
        """Tell whether a copy may follow: its sharer may read the source and write to the space of the copy.

        The second right is that of the principal that approved the share, if it was requested.
        """
        source = self.source_of(copy)
        if source is None or copy.claimed:
            return False
        return self.may(copy.sharer, source.space, "reader") and self.may(copy.writer, copy.space, "writer")

    def diverged(self, copy: Memory) -> bool:
        """Tell whether a copy says neither what it took over nor what its source says: somebody edited it."""
        source = self.source_of(copy)
        return copy.words != copy.took and (source is None or copy.words != source.words)

    def chain(self, copy: Memory) -> Iterator[tuple[Memory, Memory]]:
        """Yield the ties from a copy up to its root, as pairs of a copy and its live source."""
        seen: set[str] = set()
        while copy.id not in seen and (source := self.source_of(copy)) is not None:
            seen.add(copy.id)
            yield copy, source
            copy = source

    def held_chain(self, copy: Memory) -> Iterator[tuple[Memory, Memory]]:
        """Yield the ties from a copy up, as far as they hold; a deleted source still counts if the book knows it."""

        def holds(tie: tuple[Memory, Memory]) -> bool:
            member, source = tie
            return not source.forgotten and not member.claimed if source.deleted else self.tie_holds(member)

        return takewhile(holds, pairwise([copy, *self.sources(copy)]))

    def deleted_sources(self, copy: Memory) -> list[Memory]:
        """Return the deleted sources directly above a copy: the copy has notices in their place."""
        return list(takewhile(lambda one: one.deleted, self.sources(copy)))

    def lost_source(self, copy: Memory) -> bool:
        """Tell whether the source of a copy was deleted; that of an imported copy may never have been here."""
        source = self.memories.get(copy.source or "")
        is_unknown = source is None or source.forgotten
        return copy.bound and self.source_of(copy) is None and not (copy.claimed and is_unknown)

    def sources(self, copy: Memory) -> list[Memory]:
        """Return all sources of a copy up to its root, also deleted ones: a tombstone keeps its time and successors."""
        members = [copy]
        while members[-1].bound and (source := self.memories.get(members[-1].source or "")) is not None:
            if source in members:
                break
            members.append(source)
        return members[1:]

    def says_what_its_sources_say(self, copy: Memory) -> bool:
        """Tell whether a copy has the words of its source, and so on up; an edited copy on the way is a source."""
        last = copy
        for member, source in self.chain(copy):
            if member is not copy and self.diverged(member):
                return True
            if member.words != source.words:
                return False
            last = source
        return self.source_of(copy) is not None and not self.lost_source(last)

    def sources_ended(self, copy: Memory, now: datetime) -> bool:
        """Tell whether a source of a copy has ended or is superseded, through ties that hold.

        A copy that supersedes its own source holds in its place. Of a copy that was edited, nothing is promised.
        """
        members = {copy.id}
        for member, source in self.held_chain(copy):
            if self.diverged(member):
                return False
            if self.ended(source, now) or {one.id for one in self.superseding(source.id, now)} - members:
                return True
            members.add(source.id)
        return False

    # --- ends and successors

    def ended(self, memory: Memory, now: datetime) -> bool:
        return memory.ends is not None and memory.ends < now

    def successors(self, id_: str) -> list[Memory]:
        """Return every memory that superseded another, also if it is deleted or has ended since."""
        return [one for one in self.memories.values() if ("supersedes", id_) in one.links]

    def superseding(self, id_: str, now: datetime) -> list[Memory]:
        """Return the successors that still hold for certain; behind an ended one, its own successors count."""
        reached = self._reach(id_, lambda one: one.deleted or self.ended(one, now))
        return [one for one in reached if not one.deleted and not self.ended(one, now) and not self._ends(one, now)]

    def perhaps_superseding(self, id_: str, now: datetime) -> list[Memory]:
        """Return the successors that may still hold: of a copy whose source has ended, nothing is promised."""
        reached = self._reach(id_, lambda one: one.deleted or self.ended(one, now) or self._ends(one, now))
        return [one for one in reached if not one.deleted and not self.ended(one, now)]

    def _reach(self, id_: str, through: Callable[[Memory], bool]) -> list[Memory]:
        """Return the successors of a memory, and those of the successors through which they are looked for."""
        reached: dict[str, Memory] = {}
        waiting = [id_]
        while waiting:
            new = [one for one in self.successors(waiting.pop()) if one.id not in {id_, *reached}]
            reached |= {one.id: one for one in new}
            waiting += [one.id for one in new if through(one)]
        return list(reached.values())

    def may_supersede_again(
        self, who: str, space: str, targets: Iterable[str], now: datetime, *, by: Memory | None = None
    ) -> bool | None:
        """Tell whether a principal may let a memory of a space supersede others.

        That needs the right to write to every other space that these are in, and what ended ones of them superseded.
        None if that depends on whether a copy has ended with its source, or on whether `by` has ended itself.
        """
        chosen = list(targets)
        may = self._may_write_to(who, space, self._superseded_by(chosen, lambda one: self.ended(one, now)))
        ended = self._superseded_by(chosen, lambda one: self.ended(one, now) or self._ends(one, now))
        if may and not self._may_write_to(who, space, ended):
            return None
        is_over = by is not None and (self.ended(by, now) or self._ends(by, now))
        return may or (None if is_over else False)

    def _may_write_to(self, who: str, space: str, others: Iterable[Memory]) -> bool:
        return all(one.space == space or self.may(who, one.space, "writer") for one in others)

    def _superseded_by(self, targets: Iterable[str], ended: Callable[[Memory], bool]) -> list[Memory]:
        """Return the memories that one would supersede by these links; behind ended ones, what they superseded."""
        reached: dict[str, Memory] = {}
        waiting = list(targets)
        while waiting:
            one = self.memories.get(waiting.pop())
            if one is None or one.forgotten or one.id in reached:
                continue
            reached[one.id] = one
            if one.deleted or ended(one):
                waiting += one.superseded()
        return list(reached.values())

    def may_revive(self, who: str, memory: Memory, now: datetime) -> bool | None:
        """Tell whether a principal may let an ended memory hold again, by what it superseded."""
        may = self.may_supersede_again(who, memory.space, memory.superseded(), now)
        return None if may is False and self._ends(memory, now) else may

    def _is_replaced(self, id_: str) -> bool:
        """Tell whether a memory that is not deleted stands behind a deleted successor."""
        return any(not one.deleted for one in self._reach(id_, lambda one: one.deleted))

    def left_by_successors(self, memory: Memory, now: datetime) -> bool:
        """Tell whether all successors were deleted or retracted; one that only expired is noticed by a worker."""
        successors = self.successors(memory.id)
        gone = all(one.deleted or (one.retracted and self.ended(one, now)) for one in successors)
        return gone and self.lacks_successor(memory, now)

    def lacks_successor(self, memory: Memory, now: datetime) -> bool:
        """Tell whether all successors of a memory that holds itself have ended, and nobody decided about that."""
        if self.ended(memory, now) or "successor_ended" in memory.unsure:
            return False
        return bool(self.successors(memory.id)) and not self.perhaps_superseding(memory.id, now)

    def _ends(self, copy: Memory, now: datetime) -> bool:
        return any(self.ended(source, now) for source in self.sources(copy))

    def recalled(self, memory: Memory, now: datetime) -> bool:
        """Tell whether recall must find a memory of the searched spaces."""
        if memory.deleted or self.ended(memory, now) or self.perhaps_superseding(memory.id, now):
            return False
        return not any(
            self.ended(source, now) or self.perhaps_superseding(source.id, now) for source in self.sources(memory)
        )

    # --- doubt

    def dependencies(self, id_: str, *, own: bool) -> Iterator[tuple[str, bool]]:
        """Yield the direct dependencies of a memory, and whether by reasoning (else as a copy)."""
        memory = self.memories.get(id_)
        if memory is None or memory.forgotten:
            return
        for target in memory.direct_sources():
            yield target, True
        if memory.bound and not own:
            yield memory.source or "", False

    def ancestors(self, id_: str, *, avoiding: str = "") -> set[str]:
        """Return everything that a memory depends on by reasoning links of its own; a copy stands for its source."""
        seen: set[tuple[str, bool]] = set()
        waiting = [(id_, False)]
        while waiting:
            at, reasoned = waiting.pop()
            for to, more in self.dependencies(at, own=at == id_ and not reasoned):
                state = (to, reasoned or more)
                if to not in (avoiding, id_) and state not in seen:
                    seen.add(state)
                    waiting.append(state)
        return {at for at, reasoned in seen if reasoned}

    def own_doubts(self, id_: str, *, upper: bool) -> set[Key]:
        """Return the invalidations of a memory by its own links.

        The upper bound also counts deleted successors: whether their notices are withdrawn at once is left open.
        """
        doubts = self._last_traces(id_) if upper else set[Key]()
        ancestors = self.ancestors(id_)
        evidence = {at for one in (id_, *ancestors) if one in self.memories for at in self.memories[one].evidence}
        for at in ancestors:
            ancestor = self.memories.get(at)
            if ancestor is None or (ancestor.forgotten and not upper and at not in evidence):
                continue
            # A successor that expires or is retracted leaves the dependents in doubt. One that is deleted does so only
            # if another one stands behind it.
            by = [one for one in self.successors(at) if upper or not one.deleted or self._is_replaced(one.id)]
            invalidating = [one.id for one in by] + ([DELETED] if ancestor.deleted else [])
            doubts |= {(at, one) for one in invalidating if one != id_ and at in self.ancestors(id_, avoiding=one)}
        return doubts

    def _last_traces(self, id_: str) -> set[Key]:
        """Return the causes that only a notice may tell of, since a lost database knew what is between.

        What the files tell of the cause must not disprove it. The notice about a memory that was lost itself still
        tells of the doubt about its copies.
        """
        memory = self.memories[id_]
        keys = memory.noticed
        endings = {key for key in keys if key[1] == ENDED and self.memories[key[0]].forgotten}
        is_lost = memory.forgotten or self._has_forgotten_ancestor(id_)
        return endings | ({key for key in keys if self._may_stand(*key)} if is_lost else set())

    def note_traces(self) -> None:
        """Remember the notices about memories that depend on a lost one: each stays until somebody decides about it."""
        for memory in self.live():
            if self._has_forgotten_ancestor(memory.id):
                memory.noticed |= self.noticed_doubts(memory.id, upper=False)

    def _has_forgotten_ancestor(self, id_: str) -> bool:
        waiting, seen = [id_], {id_}
        while waiting:
            for to, _ in self.dependencies(waiting.pop(), own=False):
                if to not in self.memories or self.memories[to].forgotten:
                    return True
                waiting += [to] if to not in seen else []
                seen.add(to)
        return False

    def _may_stand(self, invalidated: str, invalidating: str) -> bool:
        if invalidating in (DELETED, ENDED):
            return invalidating == DELETED and self.memories[invalidated].deleted
        by = self.memories[invalidating]
        return by.forgotten or by in self._reach(invalidated, lambda _: True)

    def doubts(self, id_: str, *, upper: bool) -> set[Key]:
        """Return the undecided invalidations of a memory: by its own links, and by those of a copy's source."""
        memory = self.memories[id_]
        sources = self.sources(memory) if upper else [source for _, source in self.held_chain(memory)]
        return self._undecided([memory, *sources], upper=upper)

    def noticed_doubts(self, id_: str, *, upper: bool) -> set[Key]:
        """Return the doubts for which a memory has notices: its own, and those that deleted sources left to it."""
        memory = self.memories[id_]
        deleted = self.deleted_sources(memory)
        if not upper:
            held = [source for _, source in self.held_chain(memory)]
            deleted = [source for source in deleted if source in held]
        left = {key for key in self._undecided(deleted, upper=upper) if id_ not in key}
        return (left | self.own_doubts(id_, upper=upper)) - memory.decisions

    def _undecided(self, members: list[Memory], *, upper: bool) -> set[Key]:
        """Return the undecided doubts of the first of a chain of copies, the nearest first."""
        doubts = set[Key]()
        for member in reversed(members):
            inherited = {key for key in doubts if member.id not in key}
            doubts = (self.own_doubts(member.id, upper=upper) | inherited) - member.decisions
        return doubts

    def source_changed(self, memory: Memory) -> bool:
        """Tell whether a live direct source says something else than when it was linked or confirmed."""
        return any(
            target in self.memories and not self.memories[target].deleted and self.memories[target].words != words
            for (relation, target), words in memory.links.items()
            if relation in REASONING
        )

    # --- sessions

    def message(self, word: str) -> Message | None:
        every = (message for messages in self.sessions.values() for message in messages)
        return next((message for message in every if message.word == word), None)

    def messages_of(self, episode: Memory) -> list[Message]:
        """Return the messages that an episode has, wherever its session is."""
        every = (message for messages in self.sessions.values() for message in messages)
        return [message for message in every if message.episode == episode.id]

    def rewind(self, who: str, key: SessionKey, after: str | None) -> list[Message]:
        """Rewind a session after a word (None: all). Episodes change where the principal may write to them now."""
        rewound = self._to_rewind(key, after)
        for message in rewound:
            message.rewound = True
            episode = self.memories.get(message.episode or "")
            if episode is not None and self._may_rewind(who, key, episode) and message.word in episode.words:
                episode.words = tuple(word for word in episode.words if word != message.word)
        for id_ in {one.episode or "" for one in rewound if one.episode in self.memories}:
            memory = self.memories[id_]
            memory.deleted = memory.deleted or not memory.words
            memory.note_place()
        return rewound

    def are_own(self, who: str, key: SessionKey, after: str | None) -> bool:
        """Tell whether a principal may have appended all messages that a rewind takes back."""
        return all(message.by in (None, who) or message.unsure for message in self._to_rewind(key, after))

    def _to_rewind(self, key: SessionKey, after: str | None) -> list[Message]:
        messages = self.sessions[key]
        words = [message.word for message in messages]
        return [one for one in messages[words.index(after) + 1 if after else 0 :] if not one.rewound]

    def _may_rewind(self, who: str, key: SessionKey, episode: Memory) -> bool:
        """Tell whether a rewind reaches an episode: beside its session, or where its principal may write."""
        may = self.granted if episode.space == key[0] else self.may
        return not episode.deleted and may(who, episode.space, "writer")

    def present(self, key: SessionKey) -> SessionKey:
        """Return where a session is now, if it was moved."""
        while key in self.moved:
            key = self.moved[key]
        return key

    def reached(self, key: SessionKey) -> SessionKey:
        """Return where messages to a session go: a move counts as long as its maker may write to the former space."""
        left = key
        while left in self.moved:
            if not self.may(self.movers[left], left[0], "writer"):
                return key
            left = self.moved[left]
        return left

    def move_session(self, who: str, key: SessionKey, space: str) -> None:
        """Move a session, with the episodes that are beside it; those in the new space are beside it again."""
        to = (space, key[1])
        self.sessions[to] = self.sessions.pop(key)
        self.moved.pop(to, None)
        self.moved[key], self.movers[key] = to, who
        for episode in {one.episode: self.memories[one.episode] for one in self.sessions[to] if one.episode}.values():
            episode.session = to
            if episode.space in (key[0], space):
                episode.space = space
                episode.write(self.words_in(episode, space))
                episode.deleted = episode.deleted or not episode.words
            else:
                # The file of an episode in a third space names the former space of the session until it is moved.
                episode.session_unsure = True

    def accept(self, memory: Memory, space: str, *, by_hand: bool = False) -> None:
        """Move a memory into a space: what was proposed takes effect, for what is not deleted."""
        memory.space = space
        for target in memory.replaced() if not space.endswith(PROPOSED) else ():
            words = memory.links.pop((WOULD_SUPERSEDE, target))
            if by_hand or target not in self.memories or not self.memories[target].deleted:
                memory.links.setdefault((SUPERSEDES, target), words)
        memory.note_place()

    def given_words(self, source: Memory) -> Words:
        """Return the words that a source gives to its copies: none that were rewound in the space of an episode."""
        return self.words_in(source, source.space)

    def surely_gives(self, source: Memory) -> bool:
        """Tell whether a source has words for a copy; a person may have put back a file of rewound messages alone."""
        episodes = {one.id for one in (source, *self.sources(source)) if one.session is not None}
        every = (message for messages in self.sessions.values() for message in messages)
        withheld = {one.word for one in every if one.episode in episodes and (one.rewound or one.unsure)}
        return not episodes or not withheld.issuperset(source.words)

    def rewound_copies(self) -> list[Memory]:
        """Return the copies that follow an episode that a rewind deleted: they are deleted with it."""
        gone = {one.id for one in self.memories.values() if one.deleted and one.session and not one.words}
        copies: list[Memory] = []
        while found := [one for one in self.live() if one.source in gone and one.mode in {"live", "lazy"}]:
            new = [one for one in found if one not in copies]
            if not new:
                break
            copies += new
            gone |= {one.id for one in new}
        return copies

    def words_in(self, memory: Memory, space: str) -> Words:
        """Return the words of a memory in a space that it moves to: there, its session may have been rewound since."""
        if memory.session is None:
            return memory.words
        # An older database may have some of its messages in a space that its session has left.
        messages = self.sessions.get((space, memory.session[1]), ())
        rewound = {one.word for one in messages if one.rewound and one.episode == memory.id}
        return tuple(word for word in memory.words if word not in rewound)

    def detach(self, memory: Memory, now: datetime) -> None:
        """Detach a copy: what has ended with its sources stays ended; of a forgotten one, the copy may know the end."""
        for copy, source in pairwise([memory, *self.sources(memory)]):
            ends = copy.noted if source.forgotten else source.ends
            if ends is not None and ends < now:
                memory.ends = min(memory.ends or now, ends)
            if source.forgotten:
                break
            if self.ended(source, now):
                memory.retracted |= source.retracted
                memory.decisions |= source.retracted
        memory.mode = "detached"
