"""The checks of the promises, each by its name: they compare what a book shows with what the model says.

A check that fails raises `Broken`, with its name. A check whose name is in COMMONBOOK_MODEL_WITHOUT is left out, so
that one known mistake does not hide others: the model then takes over what the book shows.
"""

from __future__ import annotations

from collections import Counter

from commonbook.values.memory import Memory as Shown
from tests.support.promise_facts import OWNER, Memory, Message, SessionKey, words_of
from tests.support.promise_reads import WITHOUT, ReadChecks
from tests.support.promise_world import is_marked_ended, settled_causes


class Checks(ReadChecks):
    """Compares a world with its model after each step, and lets the model take over what is left open."""

    # --- after a step

    def run(self, who: str, *, rebuilt: bool, may_change_ties: bool) -> None:
        """Check everything after a step of a principal; `rebuilt` says that the database was lost or put back."""
        self.turn += 1
        following = {memory.id for memory in self.model.live() if self._follows(memory)}
        self.shown = self.world.listed(OWNER)
        self._take_over_new_memories()
        self._compare_memories(may_change_ties=may_change_ties)
        self._take_over_words(may_change_ties=may_change_ties)
        self._check_copies(following, rebuilt=rebuilt)
        self._check_log(who, rebuilt=rebuilt)
        for principal in self.world.principals:
            self._check_reads(principal)
        self._check_sessions()
        self._check_marks()
        principals = self.world.principals
        for principal in dict.fromkeys((who, principals[self.turn % len(principals)])):
            self._check_one_memory(principal)
        # Recall takes longest: always for the owner, who sees everything, and in turn for the others.
        self._check_recall(OWNER)
        if self.turn % 4 == 0:
            self._check_recall(principals[1 + self.turn // 4 % (len(principals) - 1)])
        self._check_notices()
        self.model.note_traces()
        if self.turn % 5 == 0 or rebuilt:
            self.check_health()

    def _follows(self, copy: Memory) -> bool:
        """Tell whether a live copy says what its source says, and may follow it."""
        source = self.model.source_of(copy)
        return source is not None and copy.mode == "live" and copy.words == source.words and self.model.tie_holds(copy)

    # --- words

    def _take_over_new_memories(self) -> None:
        """Take over what the book makes by itself: episodes, and copies by rules."""
        new = [one for one in self.shown.values() if one.id not in self.model.memories]
        for memory in sorted(new, key=lambda one: one.id):
            if memory.kind == "episode" and memory.session and memory.shared is None:
                self._take_over_episode(memory)
            elif memory.shared is not None:
                self._take_over_copy(memory)
            else:
                self.fail("words", f"nobody made {_line(memory)}")

    def _take_over_episode(self, shown: Shown) -> None:
        key = (shown.space, shown.session or "")
        words = words_of(shown.text)
        messages = {message.word: message for message in self.model.sessions.get(key, [])}
        strange = [word for word in words if word not in messages]
        if strange:
            self.fail("words", f"an episode of {key} has words that were not said there: {strange}")
        for word in words:
            message = messages.get(word)
            if message is None:
                continue
            if message.episode in self.model.memories and not message.unsure:
                self.fail("episodes", f"{word} of {key} is in a second episode")
            if message.rewound and not message.unsure:
                self.fail("rewound", f"{word} of {key} was rewound and is settled now")
            message.episode = shown.id
        self._add(Memory(shown.id, shown.space, words, kind="episode", session=key))

    def _take_over_copy(self, shown: Shown) -> None:
        assert shown.shared is not None
        sharer, source = shown.shared.by, self.model.memories.get(shown.shared.source)
        made = [rule for rule in self.model.rules.values() if (rule.space, rule.maker) == (shown.space, sharer)]
        if not made:
            self.fail("words", f"nobody shared {_line(shown)}")
        elif source is not None and not (
            self.model.may(sharer, source.space, "reader") and self.model.may(sharer, shown.space, "writer")
        ):
            self.fail("rights", f"a rule of {sharer} shared without the right: {_line(shown)}")
        self.add_copy(shown.id, self.shown)

    def add_copy(self, id_: str, listed: dict[str, Shown]) -> None:
        """Add a copy that was just made to the model; its source may have followed another in the same step."""
        shown = listed[id_]
        assert shown.shared is not None
        source, words = listed.get(shown.shared.source), words_of(shown.text)
        known = self.model.memories.get(shown.shared.source)
        given = self.model.given_words(known) if known is not None else ()
        if source is not None and words not in (words_of(source.text), given):
            self.fail("words", f"a new copy does not say what its source says: {_line(shown)}, {_line(source)}")
        self._add(
            Memory(
                shown.id,
                shown.space,
                words,
                kind=shown.kind,
                author=shown.author,
                ends=shown.expires,
                source=shown.shared.source,
                root=shown.shared.root,
                mode=shown.shared.mode,
                sharer=shown.shared.by,
                writer=shown.shared.approved_by or shown.shared.by,
                took=words,
            )
        )

    def _add(self, memory: Memory) -> None:
        memory.note_place()
        self.model.memories[memory.id] = memory

    def _compare_memories(self, *, may_change_ties: bool) -> None:
        """Compare presence, space, words and ties; words of copies that follow are compared with their sources."""
        for memory in list(self.model.memories.values()):
            shown = self.shown.get(memory.id)
            if (shown is None) != memory.deleted:
                self.fail("words", f"{memory} is {'lost' if shown is None else 'back'}")
                memory.deleted = shown is None
            if shown is None:
                continue
            if shown.space != memory.space:
                self.fail("words", f"{memory} is in {shown.space}")
                memory.space = shown.space
            if memory.session_unsure and shown.session:
                memory.session = (shown.session_space or memory.space, shown.session)
            words = words_of(shown.text)
            if words != memory.words and not (memory.bound and not self.model.diverged(memory)):
                self.fail("words", f"{memory} says {words}")
                memory.write(words)
            if memory.source is not None:
                self._compare_tie(memory, shown, may_change=may_change_ties)

    def _compare_tie(self, memory: Memory, shown: Shown, *, may_change: bool) -> None:
        tie = (shown.shared.source, shown.shared.mode, shown.shared.by) if shown.shared else None
        if tie != (memory.source, memory.mode, memory.sharer) and not may_change:
            self.fail("ties", f"{memory} is tied as {tie}")
        if tie is None:
            memory.mode = "detached"
            return
        if shown.shared is not None and shown.shared.mode == "detached" and memory.bound:
            self.model.detach(memory, self.world.clock.now())
        memory.source, memory.mode, memory.sharer = tie
        if shown.shared is not None:
            memory.claimed, memory.root = shown.shared.claimed, shown.shared.root
            memory.writer = shown.shared.approved_by or shown.shared.by
            memory.noted = shown.shared.source_ends

    def _note_passing_words(self) -> None:
        """Note what live copies may have said for a moment: what a file put back made a source say, which follows."""
        for memory in self.model.live():
            if memory.mode == "live" and self.model.tie_holds(memory):
                for _, source in self.model.chain(memory):
                    memory.written_in.setdefault(source.words, set()).add(memory.space)

    def _take_over_words(self, *, may_change_ties: bool) -> None:
        """Let copies keep their words or take those of their sources, and nothing else."""
        self._note_passing_words()
        for memory in self.model.live():
            shown = self.shown.get(memory.id)
            words = words_of(shown.text) if shown is not None else memory.words
            if not memory.bound or words == memory.words:
                continue
            # A source may have refreshed and changed in one step, so every present text along the chain counts.
            present = {words_of(self.shown[one.id].text) for _, one in self.model.chain(memory) if one.id in self.shown}
            present |= {self.model.given_words(one) for _, one in self.model.chain(memory)}
            if words not in present:
                self.fail("words", f"{memory} says {words}, which none of its sources says")
            if not may_change_ties and not self.model.tie_holds(memory):
                self.fail("revoked", f"{memory} follows its source to {words}, and its sharer may not share it")
            memory.took = words
            memory.write(words)

    def _check_copies(self, following: set[str], *, rebuilt: bool) -> None:
        """Check the states of copies, and that those that followed their sources still do."""
        for memory in self.model.live():
            shown = self.shown.get(memory.id)
            if any(source is memory for _, source in self.model.chain(memory)):
                self.fail("ties", f"{memory} is its own source, in the end")
            if shown is not None and memory.source is not None:
                self._check_freshness(memory, shown)
            if memory.id not in following or rebuilt:
                continue
            source = self.model.source_of(memory)
            follows = memory.mode == "live" and self.model.tie_holds(memory) and not self.model.diverged(memory)
            if source is not None and follows and memory.words not in (source.words, self.model.given_words(source)):
                self.fail("live", f"{memory} does not follow {source}")

    def _check_freshness(self, memory: Memory, shown: Shown) -> None:
        source = self.model.source_of(memory)
        same = self.model.says_what_its_sources_say(memory)
        if shown.freshness == "fresh" and not same:
            chain = [(copy.id, copy.words, source.words) for copy, source in self.model.chain(memory)]
            self.fail("fresh", f"{memory} is `fresh` and does not say what its sources say: {chain}")
        is_revoked = not memory.claimed and not self.model.tie_holds(memory)
        if source is not None and is_revoked != (shown.freshness == "revoked"):
            self.fail("revoked", f"{memory} is `{shown.freshness}`; its sharer may {'not ' * is_revoked}share it")
        ties = all(self.model.tie_holds(copy) for copy, _ in self.model.chain(memory))
        if source is not None and same and ties and shown.freshness in {"stale", "diverged"}:
            self.fail("unlike", f"{memory} is `{shown.freshness}` and says what its sources say")

    # --- sessions

    def _check_sessions(self) -> None:
        for key, messages in self.model.sessions.items():
            shown = self.world.messages(OWNER, key[1], key[0])
            stored = [(word, one.rewound_at is not None) for one in shown or () for word in words_of(one.text)]
            self._compare_session(key, messages, stored)
        twice = [word for word, times in self._words_in_episodes().items() if times > 1]
        if twice:
            self.fail("episodes", f"{twice} are in several episodes")

    def _compare_session(self, key: SessionKey, messages: list[Message], stored: list[tuple[str, bool]]) -> None:
        words = [word for word, _ in stored]
        known = {message.word: message for message in messages}
        certain = [message.word for message in messages if not message.unsure]
        if [word for word in words if word in certain] != certain or not set(words) <= set(known):
            self.fail("sessions", f"{key} has {words}, not {certain} and perhaps {sorted(set(known) - set(certain))}")
        for word, rewound in stored:
            message = known.get(word)
            if message is not None and not message.unsure and message.rewound != rewound:
                self.fail("rewound", f"{word} of {key} is {'' if rewound else 'not '}rewound")
            elif message is not None and message.unsure:
                message.rewound = rewound
                # Files may have made a session again in a space that it had left: it is not looked for elsewhere.
                self.model.moved.pop(key, None)
        self.model.sessions[key] = [message for message in messages if message.word in words]

    def _words_in_episodes(self) -> Counter[str]:
        own = [one for one in self.model.live() if one.session is not None]
        return Counter(word for episode in own for word in episode.words)

    # --- marks and decisions

    def _check_marks(self) -> None:
        now = self.world.clock.now()
        for memory in self.model.live():
            shown = self.shown.get(memory.id)
            if shown is None:
                continue
            marks = set(shown.marks)
            ended = self.model.ended(memory, now)
            if ended != ("expired" in marks) and not (memory.bound and not ended):
                self.fail("expired", f"{memory} has the marks {marks}")
            superseding, perhaps = (
                self.model.superseding(memory.id, now),
                self.model.perhaps_superseding(memory.id, now),
            )
            wrong = not perhaps and not memory.bound if "superseded" in marks else bool(superseding)
            if wrong:
                self.fail("superseded", f"{memory} has the marks {marks}, superseded by {superseding}")
            if self.model.lacks_successor(memory, now) and "successor_ended" not in marks:
                self.fail("successor_ended", f"the successors of {memory} have ended, and it has the marks {marks}")
            if memory.bound and self.model.sources_ended(memory, now) and not is_marked_ended(shown):
                self.fail("ended", f"a source of {memory} ended, and it is {shown.freshness} with the marks {marks}")
            self._check_doubt(memory, shown)
            decisions = settled_causes(shown)
            if not memory.decisions <= decisions:
                self.fail("decisions", f"{memory} lost {memory.decisions - decisions}")
            memory.decisions |= decisions

    def _check_doubt(self, memory: Memory, shown: Shown) -> None:
        suspect = "suspect" in shown.marks
        must = self.model.doubts(memory.id, upper=False)
        may = self.model.doubts(memory.id, upper=True) or self.model.successors(memory.id)
        if (must and not suspect) or (suspect and not may):
            self.fail("suspect", f"{memory} is {'' if suspect else 'not '}suspect; in doubt: {must or may}")
        changed = self.model.source_changed(memory)
        if "source_changed" in memory.unsure or (memory.bound and not changed):
            return
        if changed != ("source_changed" in shown.marks):
            self.fail("source_changed", f"{memory} has the marks {shown.marks}")

    def _check_notices(self) -> None:
        now = self.world.clock.now()
        items = self.world.book.inbox(limit=500, expired=True).items
        causes = Counter((one.dependent.id, one.invalidated.id, one.invalidating, one.successor_ended) for one in items)
        wrong: list[object] = [cause for cause, count in causes.items() if count > 1]
        wrong += [one for one in items if (one.path[0], one.path[-1]) != (one.invalidated.id, one.dependent.id)]
        if wrong:
            self.fail("notices", f"a notice is there twice, or its path does not lead to its dependent: {wrong}")
        about = {one.dependent.id for one in items}
        for memory in self.model.live():
            must: object = self.model.noticed_doubts(memory.id, upper=False)
            must = must or (self.model.left_by_successors(memory, now) and "successor_ended" not in WITHOUT)
            may = self.model.noticed_doubts(memory.id, upper=True)
            chain = [memory, *self.model.deleted_sources(memory)]
            open_cause = bool(may or any(self.model.successors(member.id) for member in chain))
            if (must and memory.id not in about) or (memory.id in about and not open_cause):
                self.fail("notices", f"{memory} has {'a' if memory.id in about else 'no'} notice; in doubt: {must}")

    # --- the whole book

    def check_health(self) -> None:
        # A save of an older text is named until somebody has looked.
        findings = [finding for finding in self.world.book.doctor() if finding.what != "reverted save"]
        unlike = {finding.where for finding in findings if finding.what == "space file"}
        # The folder of `personal` is the whole home.
        folders = {
            "" if space == "personal" else f"{space}/" for space in self.model.reviews ^ self.model.filed_reviews
        }
        expected = {f"{folder}.space.toml" for folder in folders}
        if self.world.has_files and unlike != expected:
            self.fail("doctor", f"doctor finds {sorted(unlike)}, and {sorted(expected)} say something else")
        if any(finding.what != "space file" for finding in findings):
            self.fail("doctor", f"doctor finds {findings}")
        report = self.world.book.verify_log()
        if not report.ok:
            self.fail("audit", f"the log does not verify: {report}")


def _line(memory: Shown) -> str:
    return f"{memory.kind} {memory.id} in {memory.space}: {words_of(memory.text)} {memory.shared}"
