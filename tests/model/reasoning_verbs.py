"""Verbs of the random test: supersede, reinstate and triage."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition

from commonbook.values.invalidation import Verdict
from tests.model.machine import AT, WHO, Machine, verb
from tests.support.promise_facts import OWNER, REASONING, Memory

VERDICTS = ("keep", "retract", "supersede", "dismiss")


class ReasoningVerbs(Machine):
    """Principals decide about memories that hold no longer, or are in doubt."""

    @verb(who=WHO, at=AT, by=AT)
    def supersede(self, who: str, at: int, by: int) -> None:
        self._begin("supersede", who)
        old, new = self._memory(at, self._is_needed), self._memory(by)
        if old is None or new is None or old is new:
            return
        may = self.model.may_write(who, old) and self._may_succeed(old, new)
        if self._try(lambda: self.world.hands[who].supersede(old.id, new.id, reason="newer"), may=may):
            new.links.setdefault(("supersedes", old.id), old.words)

    def _may_succeed(self, old: Memory, new: Memory) -> bool | None:
        """Tell whether the principal may let a memory supersede another; to say so again changes nothing."""
        now = self.world.clock.now()
        is_new = old.id not in new.superseded()
        may = not is_new or self.model.may_supersede_again(self.who, new.space, [old.id], now, by=new)
        return may if self.model.may_supersede(self.who, new) else False

    @precondition(lambda self: any(one.retracted or self.model.successors(one.id) for one in self.model.live()))
    @verb(who=WHO, at=AT)
    def reinstate(self, who: str, at: int) -> None:
        self._begin("reinstate", who)
        old = self._memory(at, lambda one: one.retracted or self.model.successors(one.id))
        if old is None:
            return
        is_held_back = any(
            self.model.holds_back(who, one.space) for one in self.model.successors(old.id) if not one.deleted
        )
        now = self.world.clock.now()
        holds_again = old.retracted and self.model.ended(old, now)
        may_revive = not holds_again or self.model.may_revive(who, old, now)
        may = None if self.model.may_write(who, old) and not is_held_back and may_revive is not False else False
        if not self._try(lambda: self.world.hands[who].reinstate(old.id), may=may):
            return
        for one in self.model.successors(old.id):
            del one.links["supersedes", old.id]
        if old.retracted:
            self._take_back_retraction(old)

    def _take_back_retraction(self, memory: Memory) -> None:
        """Let a retracted memory hold again, in doubt as before; the time at which it ends by itself stays its own."""
        ends = self.world.listed(OWNER)[memory.id].expires
        if ends is not None and memory.ends is not None and ends <= memory.ends:
            self.checks.fail("reinstated", f"{memory} was reinstated, and ends at {ends}")
        memory.ends = ends
        memory.decisions -= memory.retracted
        memory.retracted.clear()

    @precondition(lambda self: self._any_unsure())
    @verb(who=WHO, at=AT, by=AT, verdict=st.sampled_from(VERDICTS))
    def triage(self, who: str, at: int, by: int, verdict: Verdict) -> None:
        self._begin("triage", who)
        shown = self.checks.shown
        memory, successor = self._memory(at, self._is_unsure), self._memory(by)
        if memory is None or successor is None or (verdict == "supersede" and memory is successor):
            return
        chosen = successor.id if verdict == "supersede" else None
        may = self.model.may_write(who, memory) and (not chosen or self._may_succeed(memory, successor))
        must = verdict != "supersede" and bool(self.model.doubts(memory.id, upper=False))
        book = self.world.hands[who]
        if not self._try(lambda: book.triage(memory.id, verdict, note="so it is", by=chosen), may=may, must=must):
            return
        causes = {cause.key for cause in shown[memory.id].invalidations}
        memory.decisions |= causes
        memory.unsure.add("successor_ended")
        if verdict == "keep":
            # A decision confirms the grounds that its maker may read, also deleted ones.
            grounds = [self.model[target] for _, target in memory.links if target in self.model.memories]
            known = {one.id: one.words for one in grounds if self.model.may(who, one.space, "reader")}
            if len(known) == len({one.id for one in grounds}):
                memory.unsure.discard("source_changed")
            for (relation, target), words in memory.links.items():
                memory.links[relation, target] = known.get(target, words) if relation in REASONING else words
        if verdict == "retract":
            memory.ends = self.world.clock.now()
            memory.retracted |= causes
        if chosen:
            successor.links.setdefault(("supersedes", memory.id), memory.words)

    def _is_unsure(self, memory: Memory) -> bool:
        doubts = self.model.doubts(memory.id, upper=False)
        return bool(doubts) or self.model.source_changed(memory)

    def _any_unsure(self) -> bool:
        return any(self._is_unsure(memory) for memory in self.model.live())
