"""Verbs of the random test: what happens to the files and to the database."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import precondition

from tests.model.machine import AT, WHERE, WHO, Machine, verb
from tests.support import promise_losses
from tests.support.promise_facts import OWNER, Memory, words_of
from tests.support.promise_model import Model
from tests.support.promise_world import text

HAND = st.tuples(st.sampled_from(["text", "text", "older", "older", "move", "remove", "notice"]), AT, WHERE)


class Accidents(Machine):
    """Editors, version control systems and losses change the files and the database."""

    @verb(who=WHO, at=AT)
    def transfer(self, who: str, at: int) -> None:
        """Export what one may read; the owner edits a file of it and imports the folder again."""
        self._begin("transfer", who, ties=True)
        folder = self.world.scratch / f"export{self.word_count}"
        if self._try(lambda: self.world.hands[who].export(str(folder)), may=True if who == OWNER else None) is None:
            return
        files = sorted(folder.rglob("*.md"))
        strange = {word for path in files for word in words_of(path.read_text())} - self.model.readable_words(who)
        if strange:
            self.checks.fail("rights", f"{who} exports {sorted(strange)}")
        chosen = self._memory(at, lambda one: one.session is None)
        if who == OWNER and chosen is not None and chosen.session is None and chosen.words:
            path = next(path for path in files if f"\nid: {chosen.id}" in path.read_text())
            word = self._word()
            path.write_text(path.read_text().replace(text(chosen.words[-1]), text(word)))
            self.world.book.import_folder(str(folder))
            chosen.write((*chosen.words[:-1], word))
        shutil.rmtree(folder)

    @precondition(lambda self: self.world.has_files)
    @verb(hand=HAND)
    def edit_by_hand(self, hand: tuple[str, int, str]) -> None:
        self._begin(f"hand {hand[0]}", ties=True)
        self._by_hand(*hand, database=self.model)
        self.world.sync()

    def _by_hand(self, verb: str, at: int, where: str, *, database: Model | None) -> None:
        """Do to a file what a person, or a version control system, does; `database` is what the database knows."""
        if verb == "older":
            self._put_back(at, database)
            return
        if verb == "notice":
            self._spoil_notice(at)
            return
        memory = self._memory(at, lambda one: self._is_needed(one) or one.bound)
        if memory is None or memory.id not in self.files:
            return
        path = self.files[memory.id][-1][0]
        if verb == "text" and memory.session is None and memory.words:
            word = self._word()
            path.write_text(path.read_text().replace(text(memory.words[-1]), text(word)))
            memory.write((*memory.words[:-1], word))
        elif verb == "remove":
            path.unlink()
            memory.deleted, memory.forgotten = True, memory.forgotten or database is None
        elif verb == "move" and where != memory.space:
            to = self.world.home / where / path.name
            if not to.exists():
                to.parent.mkdir(parents=True, exist_ok=True)
                path.rename(to)
                if database is None or memory.id not in database.memories:
                    promise_losses.move_unknown_episode(self.model, memory, where)
                self.model.accept(memory, where, by_hand=True)
                memory.write(self.model.words_in(memory, where) or memory.words)

    def _spoil_notice(self, at: int) -> None:
        """Remove the file of a notice, as by a checkout of an older commit, or edit it: that decides nothing."""
        for path in sorted(self.world.home.rglob("_invalidations/**/*.md"))[at % 3 :][:1]:
            content = path.read_text()
            if self.rebuilt:
                promise_losses.lose_notice(self.model, content)
            if at % 2:
                path.unlink()
            else:
                path.write_text(content.replace("dependent_id: 0", "dependent_id: f"))

    def _put_back(self, at: int, database: Model | None) -> None:
        """Put an older state of a file back, or the file of a deleted memory."""
        deleted = [one for one in self.model.memories.values() if one.deleted and self._older(one)]
        changed = [one for one in self.model.live() if one.session is None and self._older(one)]
        memory = self._some(at, deleted if at % 2 else changed, [*deleted, *changed])
        if memory is None:
            return
        states = self._older(memory)
        path, data, then = states[at % len(states)]
        now = self.files[memory.id][-1][0]
        self.world.write_file(path if memory.deleted else now, data)
        if memory.deleted:
            memory.space = then.space
        memory.deleted = False
        if memory.links != then.links:
            memory.unsure.add("source_changed")
        if database is None or memory.forgotten:
            # No database knows more than this file.
            promise_losses.put_back_decisions(memory, then, None)
            memory.forgotten = False
            memory.source, memory.root, memory.mode, memory.sharer = then.source, then.root, then.mode, then.sharer
            memory.noted = then.noted
        elif database is not self.model:
            promise_losses.put_back_decisions(memory, then, database.memories.get(memory.id))
        memory.links, memory.took = dict(then.links), then.took
        # A file whose decision is known to be a retraction gets the time of that back.
        memory.ends = memory.ends if memory.retracted else then.ends
        memory.write(then.words)
        # What a file would supersede, it supersedes outside of the proposals.
        self.model.accept(memory, memory.space, by_hand=True)
        promise_losses.restore_messages(self.model, memory)

    def _older(self, memory: Memory) -> list[tuple[Path, bytes, Memory]]:
        """Return the states of a file that can be put back: of an episode, only with the messages that it had."""
        states = self.files.get(memory.id, [])
        if memory.session is not None:
            return [state for state in states[-1:] if state[2].words == memory.words]
        return states if memory.deleted else states[:-1]

    @precondition(lambda self: self.world.has_files)
    @verb(hand=st.none() | HAND)
    def lose_database(self, hand: tuple[str, int, str] | None) -> None:
        """Lose `state.db`; the files are edited before anybody opens the book again."""
        self._begin("lose", ties=True)
        self.rebuilt = True
        promise_losses.keep_what_notices_tell(self.model)

        def meanwhile() -> None:
            self.world.lose_database()
            if hand is not None:
                self._by_hand(*hand, database=None)

        self.world.reopen(meanwhile)
        promise_losses.lose_database(self.model)

    @precondition(lambda self: self.world.has_files and self.kept is not None)
    @verb(hand=st.none() | HAND)
    def put_back_database(self, hand: tuple[str, int, str] | None) -> None:
        """Put an older `state.db` back, with the files of today."""
        self._begin("older", ties=True)
        self.rebuilt = True
        promise_losses.keep_what_notices_tell(self.model)

        def meanwhile() -> None:
            self.world.put_back_database()
            if hand is not None:
                self._by_hand(*hand, database=self.kept)

        self.world.reopen(meanwhile)
        assert self.kept is not None
        promise_losses.go_back(self.model, copy.deepcopy(self.kept))

    @verb(who=WHO, where=WHERE, between=st.sampled_from(["nothing", "reopen", "work", "save", "save"]), at=AT)
    def rename(self, who: str, where: str, between: str, at: int) -> None:
        """Rename a space and back, so that everything is as before; in between, somebody may save at an old path."""
        self._begin("rename", who, ties=True)
        away = f"{where}-away"
        if not self.model.may(who, where, "admin"):
            self._try(lambda: self.world.hands[who].rename_space(where, away), may=False)
        self.who = OWNER
        below = [one for one in self.model.live() if one.space == where and one.session is None and one.words]
        memory = self._some(at, below, below)
        self.world.book.rename_space(where, away)
        if between == "reopen":
            self.world.reopen(make_spaces=False)
        elif between == "work":
            self.world.book.work()
        elif between == "save" and memory is not None and memory.id in self.files:
            path, data, _ = self.files[memory.id][-1]
            word = self._word()
            self.world.write_file(path, data.replace(text(memory.words[-1]).encode(), text(word).encode()))
            self.world.sync()
            memory.write((*memory.words[:-1], word))
        self.world.book.rename_space(away, where)

    @verb(verb=st.sampled_from(["work", "reopen", "keep"]), again=st.booleans())
    def maintain(self, verb: str, again: bool) -> None:
        """Run the worker, open the book anew, or keep a copy of its database."""
        self._begin(verb)
        if verb == "work":
            self.world.book.work(retry=again)
        elif verb == "reopen" or not self.world.has_files:
            self.world.reopen()
        else:
            self.world.keep_database()
            self.kept = copy.deepcopy(self.model)
