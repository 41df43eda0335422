"""The checks of what principals read: lists, histories, logs and recall show what they may, and nothing else."""

from __future__ import annotations

import os

from commonbook.errors import CommonbookError, NotAllowed, NotFound
from commonbook.values.memory import Memory as Shown
from commonbook.values.reports import LogEntry
from commonbook.values.sharing import ShareRequest
from tests.support.promise_facts import OWNER, PROPOSED, Memory, words_of
from tests.support.promise_model import Model
from tests.support.promise_world import World

WITHOUT = frozenset(filter(None, os.environ.get("COMMONBOOK_MODEL_WITHOUT", "").split(",")))
_IN_ANOTHERS_SPACE = frozenset({"refused", "share.ask", "share.withdraw", "reinstate"})
"""Actions that may be logged in a space to which the principal may not write.

`reinstate` needs the right on the superseded memory only: its successors lose nothing but that link.
"""
_OF_NOTICES = frozenset({"space.create", "notify", "withdraw", "move.in", "move.out"})
"""The same for the spaces of notices, which come and go with what they are about."""


class Broken(AssertionError):
    """A promise that does not hold."""


class ReadChecks:
    """Compares what the principals of a world read with its model."""

    def __init__(self, world: World, model: Model, names: tuple[str, ...]) -> None:
        self.world, self.model, self.names = world, model, names
        self.shown: dict[str, Shown] = {}
        self.turn = 0
        self.log_seen: dict[str, int] = {}

    def fail(self, check: str, message: str) -> None:
        if check not in WITHOUT:
            raise Broken(f"[{check}] {message}")

    # --- rights

    def _check_reads(self, who: str) -> None:
        """Check that a principal sees all and only what is in spaces that it may read."""
        book, model = self.world.hands[who], self.model
        listed = self.shown if who == OWNER else self.world.listed(who)
        readable = {memory.id for memory in model.live() if model.may_read(who, memory)}
        if listed.keys() != readable:
            self.fail("rights", f"{who} lists {sorted(listed.keys() ^ readable)} wrongly")
        words = model.readable_words(who)
        pending, inbox = book.pending(), book.inbox(limit=500)
        for answer in (listed, inbox, book.sessions(limit=500)):
            self._require_known(who, answer, words)
        for request in pending:
            self._require_known(who, request, words | self._requested_words(who, request))
        self._check_proposals(who, {one.id for one in pending if one.purpose == "proposal"})
        self._check_proposals(who, {one.id for one in inbox.proposals})
        about = [model.memories[one.dependent.id] for one in inbox.items if one.dependent.id in model.memories]
        if any(one.proposed and one.author != who and not model.decides(who, one) for one in about):
            self.fail("proposed", f"{who} is shown a notice about what another has proposed: {about}")
        hidden = [id_ for id_ in self.world.listed_widely(who) if id_ in model.memories and model[id_].proposed]
        if hidden:
            self.fail("proposed", f"{who} lists {hidden} without naming the space of the proposals")
        for session in book.sessions(limit=500):
            if not model.may(who, session.space.name, "reader"):
                self.fail("rights", f"{who} lists the session {session}")
        self._check_session_names(who, words)

    def _requested_words(self, who: str, request: ShareRequest) -> set[str]:
        """Return the words that an admin of a space is shown of a request: what the one it acts for may read."""
        memory = self.model.memories.get(request.memory)
        if memory is None or not self.model.may(who, request.space, "admin"):
            return set()
        return set(memory.words) if self.model.may_read(request.on_behalf_of, memory) else set()

    def _check_proposals(self, who: str, shown: set[str]) -> None:
        """Check that those are shown proposals who decide about them, or have made them."""
        every = [memory for memory in self.model.live() if memory.proposed and self.model.may_read(who, memory)]
        expected = {one.id for one in every if one.author == who or self.model.decides(who, one)}
        if shown != expected:
            self.fail("proposed", f"{who} is shown the proposals {sorted(shown)}, not {sorted(expected)}")

    def _require_known(self, who: str, answer: object, words: set[str]) -> None:
        strange = set(words_of(answer)) - words
        if strange:
            self.fail("rights", f"{who} reads {sorted(strange)}: {str(answer)[:600]}")

    def _check_session_names(self, who: str, words: set[str]) -> None:
        free = self.world.answer_about(who, "free")
        for name in self.names:
            answer = self.world.answer_about(who, name)
            self._require_known(who, answer, words)
            spaces = [space for space, known in self.model.sessions if known == name]
            exists = any(self.model.may(who, space, "reader") for space in spaces)
            if spaces and not exists and answer != free:
                self.fail("names", f"{who} is told of the session {name}, which is in {spaces}: {answer}")

    def _check_one_memory(self, who: str) -> None:
        """Read one memory, each time another, in every way, as one who may perhaps not."""
        if not self.model.memories:
            return
        memory = list(self.model.memories.values())[self.turn % len(self.model.memories)]
        book, words = self.world.hands[who], self.model.readable_words(who)
        readable = self.model.may(who, memory.space, "reader") and not memory.forgotten
        try:
            history = book.history(memory.id)
            answers = (book.lineage(memory.id), book.dependents(memory.id), book.copies(memory.id))
        except NotFound:
            if readable:
                self.fail("rights", f"{who} may read {memory} and does not find it")
            return
        except CommonbookError as error:
            self.fail("rights", f"{who} reads {memory}: {error}")
            return
        if not readable:
            self.fail("rights", f"{who} may not read {memory} and finds it")
        for answer in answers:
            self._require_known(who, answer, words)
        strange = set(words_of(history)) - self.model.readable_history(who, memory)
        if strange and who != OWNER:
            self.fail("history", f"{who} reads {sorted(strange)} in the history of {memory}")

    def _check_log(self, who: str, *, rebuilt: bool) -> None:
        """Check that the log of a space has no change by a principal that may not write to it."""
        if rebuilt:
            self.log_seen.clear()
        for space in self.world.book.spaces():
            first = space.id not in self.log_seen
            entries = self.world.book.log(space=space.name, after=self.log_seen.get(space.id, 0), limit=500)
            if entries:
                self.log_seen[space.id] = entries[-1].seq
            if (first and rebuilt) or self.model.may(who, space.name, "writer"):
                continue
            for entry in entries:
                if entry.actor == who and not self._in_anothers_name(who, space.name, entry):
                    self.fail("log", f"{who} may not write to {space.name}: {entry.action} {entry.subjects}")

    def _in_anothers_name(self, who: str, space: str, entry: LogEntry) -> bool:
        """Tell whether an entry is one of those that need no right on the space where they are logged."""
        if space.endswith("/_invalidations"):
            # An agent under review decides about its own proposals.
            decides = entry.action == "triage" and self.model.granted(who, space, "writer")
            return decides or entry.action in _OF_NOTICES
        if space == "_home":
            # A refused attempt on something that nobody knows is logged there.
            return entry.action in {"space.create", "refused"}
        if self.model.granted(who, space, "writer") and _is_conversation(entry):
            # No review limits what is recorded of conversations.
            return True
        return entry.action in _IN_ANOTHERS_SPACE

    # --- recall

    def _check_recall(self, who: str) -> None:
        model, now = self.model, self.world.clock.now()
        if who != OWNER:
            self._check_recall_without_a_space(who)
        spaces = [space.name for space in self.world.book.spaces() if model.may(who, space.name, "reader")]
        hits = self.world.recalled(who, [space for space in spaces if "/_" not in space])
        self._require_known(
            who, [(hit.text, hit.before, hit.after, hit.title) for hit in hits], model.readable_words(who)
        )
        for hit in hits:
            memory = model.memories.get(hit.memory)
            if memory is None:
                message = model.message("".join(words_of(hit.passage)))
                if message is not None and message.rewound and not message.unsure:
                    self.fail("rewound", f"{who} recalls {message}")
                continue
            if memory.proposed:
                self.fail("proposed", f"{who} recalls {memory} without naming the space of the proposals")
            if not set(words_of(hit.passage)) <= set(memory.words):
                self.fail("recall", f"{who} recalls {words_of(hit.passage)} of {memory}")
            if model.ended(memory, now) or model.superseding(memory.id, now) or model.sources_ended(memory, now):
                self.fail("outdated", f"{who} recalls {memory}, which holds no longer")
        words = {word for hit in hits for word in words_of(hit.passage)}
        self._check_found(who, words, {hit.memory for hit in hits})
        self._check_recall_of_proposals(who, [space for space in spaces if space.endswith(PROPOSED)])

    def _check_recall_of_proposals(self, who: str, spaces: list[str]) -> None:
        """Check that those who name the spaces of the proposals find what waits there."""
        now = self.world.clock.now()
        waiting = [one for one in self.model.live() if one.proposed and self.model.may_read(who, one)]
        waiting = [one for one in waiting if self.model.recalled(one, now) and not self._ranks_low(one)]
        found = {hit.memory for hit in self.world.recalled(who, spaces)} if waiting else set()
        missing = [one for one in waiting if one.id not in found and one.source is None]
        if missing:
            self.fail("proposed", f"{who} does not recall {missing} in {spaces}")

    def _check_recall_without_a_space(self, who: str) -> None:
        try:
            self._require_known(who, self.world.hands[who].recall(""), self.model.readable_words(who))
        except NotAllowed as error:
            self.fail("default", f"{who} recalls without a space: {error}")

    def _check_found(self, who: str, found: set[str], hit: set[str]) -> None:
        """Check that recall finds everything that holds; of the copies of one root, one is enough.

        A copy of an episode is one hit, with the best of its passages.
        """
        model, now = self.model, self.world.clock.now()
        every = [memory for memory in model.live() if model.may_read(who, memory) and not memory.proposed]
        for memory in every:
            roots = {memory.root or memory.id, memory.id}
            alike = [one for one in every if {one.root or one.id, one.id} & roots]
            if (
                not self._ranks_low(memory)
                and model.recalled(memory, now)
                and not any(set(one.words) <= found or (_is_long(one) and one.id in hit) for one in alike)
            ):
                self.fail("recall", f"{who} does not recall {memory}, but {sorted(found)}")
        for (space, _name), messages in model.sessions.items():
            if not model.may(who, space, "reader"):
                continue
            missing = [one for one in messages if one.episode is None and not one.rewound and not one.unsure]
            missing = [one for one in missing if one.word not in found]
            if missing:
                self.fail("recall", f"{who} does not recall {missing} of {space}")

    def _ranks_low(self, memory: Memory) -> bool:
        """Tell whether a memory ranks lower, and so perhaps below the least score: in doubt, or an outdated copy."""
        shown = self.shown.get(memory.id)
        return shown is None or "suspect" in shown.marks or shown.freshness not in (None, "fresh")


def _is_conversation(entry: LogEntry) -> bool:
    """Tell whether an entry is about a conversation that goes on; to move a session is more than that."""
    if entry.action.startswith("session."):
        return not entry.action.startswith("session.move")
    return entry.action in {"append", "settle", "rewind"} or (entry.action == "delete" and "rewind" in entry.payload)


def _is_long(memory: Memory) -> bool:
    """Tell whether a memory may have several passages: a copy of an episode."""
    return memory.kind == "episode" and memory.session is None
