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

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise, takewhile

OWNER = "user:local"
ROLES = ("reader", "writer", "admin")
REASONING = ("reflects_on", "derived_from")
DELETED = "deleted"
ENDED = "ended"
_WORD = re.compile(r"zq\d+")
_NOTICE = re.compile(r"invalidation: (\S+) -> ([0-9a-f-]+)")

Words = tuple[str, ...]
Key = tuple[str, str]
"""The invalidated memory, and what invalidates it: an id, or the word `deleted`."""
SessionKey = tuple[str, str]
"""A session belongs to its space: the space and the name."""


def words_of(answer: object) -> Words:
    """Return the words of a text, or of everything in an answer, in their order."""
    return tuple(_WORD.findall(answer if isinstance(answer, str) else repr(answer)))


@dataclass
class Memory:
    """A memory of the model. `took` are the words that a copy took over from its source."""

    id: str
    space: str
    words: Words
    kind: str = "note"
    deleted: bool = False
    ends: datetime | None = None
    links: dict[tuple[str, str], Words] = field(default_factory=dict)
    """By relation and target: the words of the target when the link was made or confirmed."""
    decisions: set[Key] = field(default_factory=set)
    retracted: set[Key] = field(default_factory=set)
    """The decisions that retracted it, which `reinstate` takes back."""
    session: SessionKey | None = None
    """Of an episode: its session."""
    source: str | None = None
    root: str = ""
    mode: str = ""
    sharer: str = ""
    took: Words = ()
    claimed: bool = False
    noted: datetime | None = None
    """Of a copy: when its deleted source ends, as its own file says."""
    written_in: dict[Words, set[str]] = field(default_factory=dict)
    """All words that it ever had, with the spaces in which it was when they were written."""
    unsure: set[str] = field(default_factory=set)
    """Marks about which the promises say nothing at present."""
    forgotten: bool = False
    """Whether the database that knew of its deletion was lost."""
    noticed: set[Key] = field(default_factory=set)
    """The causes of open notices when a database was lost: their files may be all that is left of the causes."""
    evidence: set[str] = field(default_factory=set)
    """The forgotten grounds of which an open notice about it, or a decision of it, tells that they are gone."""

    @property
    def bound(self) -> bool:
        return self.source is not None and self.mode != "detached"

    def write(self, words: Words) -> None:
        self.words = words
        self.note_place()

    def note_place(self) -> None:
        self.written_in.setdefault(self.words, set()).add(self.space)

    def direct_sources(self) -> list[str]:
        return [target for relation, target in self.links if relation in REASONING]


@dataclass
class Message:
    """A message; `unsure` if a lost or older database leaves open whether it is there, or is rewound."""

    word: str
    episode: str | None = None
    rewound: bool = False
    unsure: bool = False


@dataclass
class Rule:
    """A sharing rule, in the name of its maker."""

    id: str
    space: str
    source: str
    maker: str


@dataclass
class Model:
    """Memories, sessions, rules, and the roles of all principals."""

    memories: dict[str, Memory] = field(default_factory=dict)
    sessions: dict[SessionKey, list[Message]] = field(default_factory=dict)
    roles: dict[tuple[str, str], str] = field(default_factory=dict)
    rules: dict[str, Rule] = field(default_factory=dict)

    def __getitem__(self, id_: str) -> Memory:
        return self.memories[id_]

    def live(self) -> list[Memory]:
        return [memory for memory in self.memories.values() if not memory.deleted]

    # --- rights

    def may(self, who: str, space: str, role: str) -> bool:
        """Tell whether a principal has a role on a space: by a grant on it, or on a space above it."""
        if who == OWNER:
            return True
        parts = space.split("/")
        above = ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]
        held = [self.roles[who, name] for name in above if (who, name) in self.roles]
        return any(ROLES.index(name) >= ROLES.index(role) for name in held)

    def may_read(self, who: str, memory: Memory) -> bool:
        return not memory.deleted and self.may(who, memory.space, "reader")

    def may_write(self, who: str, memory: Memory) -> bool:
        return not memory.deleted and self.may(who, memory.space, "writer")

    def readable_words(self, who: str) -> set[str]:
        """Return every word that a principal may meet in any answer about the present."""
        words = {word for memory in self.live() if self.may_read(who, memory) for word in memory.words}
        for (space, _name), messages in self.sessions.items():
            if self.may(who, space, "reader"):
                words.update(message.word for message in messages)
        return words

    def readable_history(self, who: str, memory: Memory) -> set[str]:
        """Return the words of a memory's history: of revisions that were written where the principal may read."""
        if not self.may(who, memory.space, "reader"):
            return set()
        return {
            word
            for words, spaces in memory.written_in.items()
            if words == memory.words or any(self.may(who, space, "reader") for space in spaces)
            for word in words
        }

    # --- copies

    def source_of(self, copy: Memory) -> Memory | None:
        """Return the live source of a bound copy."""
        source = self.memories.get(copy.source or "") if copy.bound else None
        return source if source is not None and not source.deleted else None

    def tie_holds(self, copy: Memory) -> bool:
        """Tell whether the sharer of a copy may read its source, so that the copy may follow."""
        source = self.source_of(copy)
        return source is not None and not copy.claimed and self.may(copy.sharer, source.space, "reader")

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

    def rewind(self, who: str, key: SessionKey, after: str | None) -> list[Message]:
        """Rewind a session after a word (None: all). Episodes change where the principal may write to them now."""
        messages = self.sessions[key]
        words = [message.word for message in messages]
        rewound = [one for one in messages[words.index(after) + 1 if after else 0 :] if not one.rewound]
        for message in rewound:
            message.rewound = True
            episode = self.memories.get(message.episode or "")
            if episode is not None and self.may_write(who, episode) and message.word in episode.words:
                episode.words = tuple(word for word in episode.words if word != message.word)
        for id_ in {one.episode or "" for one in rewound if one.episode in self.memories}:
            memory = self.memories[id_]
            memory.deleted = memory.deleted or not memory.words
            memory.note_place()
        return rewound

    def given_words(self, source: Memory) -> Words:
        """Return the words that a source gives to its copies: none that were rewound in the space of an episode."""
        return self.words_in(source, source.space)

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
        if memory.session is None or memory.session[0] != space:
            return memory.words
        messages = self.sessions.get(memory.session, ())
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
                memory.retracted |= source.retracted - memory.decisions
                memory.decisions |= source.retracted
        memory.mode = "detached"

    # --- what a lost or an older database leaves

    def lose_database(self) -> None:
        """Keep what the files hold: no grants, rules, tombstones, histories, nor messages outside of episodes."""
        self.roles.clear()
        self.rules.clear()
        self._keep_what_episodes_say(dict.fromkeys(self.sessions, ()))
        for memory in self.memories.values():
            memory.forgotten = memory.forgotten or memory.deleted
            memory.written_in = {memory.words: {memory.space}}
            if memory.deleted:
                memory.links = {}
        self._doubt_successors()

    def go_back(self, older: Model) -> None:
        """Take the grants, rules and unsettled messages of an older database; the files decide about memories."""
        self.roles, self.rules = dict(older.roles), dict(older.rules)
        self._keep_what_episodes_say({key: tuple(messages) for key, messages in older.sessions.items()})
        for memory in self.memories.values():
            then = older.memories.get(memory.id)
            if then is None:
                memory.forgotten = memory.forgotten or memory.deleted
            elif memory.deleted:
                # The older database knows it, and finds its file gone.
                memory.forgotten, memory.space = then.forgotten, then.space
                memory.links, memory.decisions = dict(then.links), set(then.decisions)
            memory.written_in = {words: set(spaces) for words, spaces in then.written_in.items()} if then else {}
            memory.note_place()
        self._doubt_successors()

    def keep_what_notices_tell(self) -> None:
        """Remember, before the database is lost, who is told by a notice or a decision that a ground was deleted."""
        for memory in self.live():
            doubts = self.own_doubts(memory.id, upper=False)
            chain = [memory, *self.deleted_sources(memory)]
            endings = {(successor.id, ENDED) for member in chain for successor in self.successors(member.id)}
            memory.noticed |= (self.noticed_doubts(memory.id, upper=False) | endings) - memory.decisions
            memory.evidence = {ground for ground, invalidating in doubts if invalidating == DELETED}

    def lose_notice(self, text: str) -> None:
        """Lose the file of a notice together with the database."""
        for ground, dependent in _NOTICE.findall(text):
            self.memories[dependent].evidence.discard(ground)

    def restore_messages(self, episode: Memory) -> None:
        """Take in the messages of an episode whose file came back; a number that is taken keeps one out.

        An episode in another space than its session brings no messages back.
        """
        if episode.session is None or episode.session[0] != episode.space:
            return
        messages = self.sessions.setdefault(episode.session, [])
        known = {message.word for message in messages}
        messages += [Message(word, episode.id, unsure=True) for word in episode.words if word not in known]

    def _doubt_successors(self) -> None:
        for memory in self.memories.values():
            memory.unsure.add("successor_ended")

    def _keep_what_episodes_say(self, stored: dict[SessionKey, Iterable[Message]]) -> None:
        """Keep the messages that are in live episodes or in the database; of a lost database, nothing is stored."""
        episodes = [one for one in self.live() if one.session]
        in_files = {word: one.id for one in episodes for word in one.words}
        restored = {word for one in episodes if one.session and one.session[0] == one.space for word in one.words}
        for key, messages in list(self.sessions.items()):
            before = {message.word: message for message in stored.get(key, ())}
            if not before.keys() <= {message.word for message in messages}:
                # The session was lost in between and went on: its numbers may be given twice.
                again = [message for word, message in before.items() if word not in {one.word for one in messages}]
                messages.extend(again)
                for message in messages:
                    message.unsure = True
            self.sessions[key] = [one for one in messages if one.word in restored or one.word in before]
            for message in self.sessions[key]:
                known = before.get(message.word)
                rewound_before = known.rewound if known else False
                message.unsure = message.unsure or rewound_before != message.rewound or bool(known and known.unsure)
                # A session that an older database knows gets no messages from files, unless files had restored it.
                message.unsure = message.unsure or (known is None and bool(before))
                message.episode = in_files.get(message.word) or (known.episode if known else None)
        for episode in episodes:
            # An episode that was away from its session and is back: others may have got its numbers since.
            count = len(self.sessions.get(episode.session or ("", ""), ()))
            self.restore_messages(episode)
            messages = self.sessions.get(episode.session or ("", ""), [])
            for message in messages if len(messages) > count else ():
                message.unsure = True
