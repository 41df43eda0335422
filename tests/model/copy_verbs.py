"""Verbs of the random test: copies, sharing rules, and requests to share."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition

from commonbook.values.memory import Refresh
from tests.model.machine import AGENT, AT, MODE, OTHER_AGENT, WHERE, WHO, Machine, verb
from tests.support.promise_facts import OWNER, Memory, Rule, words_of
from tests.support.promise_world import COPY_VERBS


class CopyVerbs(Machine):
    """Principals share memories, and tend their copies."""

    @verb(who=WHO, at=AT, where=WHERE, mode=MODE)
    def share(self, who: str, at: int, where: str, mode: Refresh) -> None:
        self._begin("share", who, ties=True)
        source = self._memory(at, lambda one: at % 2 or one.bound or one.direct_sources())
        if source is not None:
            held_back = [one for one in (AGENT, OTHER_AGENT) if self.model.holds_back(one, where)]
            self._expect_refusals(lambda one: self.world.hands[one].share(source.id, where, refresh=mode), held_back)
            self._likely(who, where, reading=source)
            self._share(source, where, mode)

    def _share(self, source: Memory, where: str, mode: Refresh) -> None:
        may: bool | None = self.model.may(self.who, where, "writer") and self.model.may_read(self.who, source)
        may = may and not source.proposed
        there = [one for one in self.model.live() if one.space == where and one.root == (source.root or source.id)]
        if may and any(one.superseded() for one in there):
            # A copy that is tied to another source may supersede again, where the principal may not write.
            may = None
        book = self.world.hands[self.who]
        must = self.model.surely_gives(source)
        receipt = self._try(lambda: book.share(source.id, where, refresh=mode), may=may, must=must)
        if receipt is not None and receipt.new:
            self.checks.add_copy(receipt.id, self.world.listed(OWNER))

    @precondition(lambda self: any(one.source for one in self.model.live()))
    @verb(who=WHO, at=AT, verb=st.sampled_from(COPY_VERBS), mode=MODE)
    def tend(self, who: str, at: int, verb: str, mode: Refresh) -> None:
        self._begin(verb, who, ties=verb in ("detach", "adopt", "set_refresh"))
        memory = self._memory(at, lambda one: one.source is not None)
        if memory is None:
            return
        # A copy that is detached, revoked or without its source cannot follow: the error says why.
        may = None if self.model.may_write(who, memory) else False
        if memory.source is not None and verb in ("unshare", "detach") and may is None:
            may = True
        if may is None and self._pulls_words(memory, verb, mode):
            may = False
        if not self._try(lambda: self.world.tend_copy(who, verb, memory.id, mode), may=may):
            return
        source = self.model.source_of(memory)
        if verb == "unshare":
            memory.deleted = True
        elif verb == "detach":
            self.model.detach(memory, self.world.clock.now())
        elif verb == "set_refresh":
            memory.mode = mode
        elif source is not None:
            shown = self.world.listed(OWNER)
            words, source_words = words_of(shown[memory.id].text), words_of(shown[source.id].text)
            if words != source_words:
                self.checks.fail("refreshed", f"after {verb}, {memory} has {words}; its source says {source_words}")
            memory.took = words
            memory.write(words)

    def _pulls_words(self, copy: Memory, verb: str, mode: Refresh) -> bool:
        """Tell whether a verb would bring words into a copy that did not follow, and that its caller may not read."""
        source = self.model.source_of(copy)
        if source is None or self.model.may_read(self.who, source):
            return False
        if verb == "set_refresh":
            return copy.mode == "snapshot" != mode
        return copy.mode == "snapshot" or (verb == "adopt" and self.model.diverged(copy))

    @verb(who=WHO, where=WHERE, source=WHERE, at=AT)
    def share_by_rule(self, who: str, where: str, source: str, at: int) -> None:
        """Add a rule, or remove one."""
        self._begin("rule", who)
        book = self.world.hands[who]
        if self.model.rules and at % 2:
            rule_id = list(self.model.rules)[at % len(self.model.rules)]
            if self._try(lambda: book.remove_rule(rule_id), may=True if who == OWNER else None):
                del self.model.rules[rule_id]
            return
        made = self._try(lambda: book.add_rule(where, source), may=None)
        if made is not None:
            self.model.rules[made.id] = Rule(made.id, where, source, who)

    @verb(who=WHO, at=AT, where=WHERE, mode=MODE)
    def request(self, who: str, at: int, where: str, mode: Refresh) -> None:
        self._begin("request", who)
        memory = self._memory(at)
        if memory is None:
            return
        may = self.model.may(who, where, "reader") and self.model.may_read(who, memory) and not memory.proposed
        made = self._try(lambda: self.world.hands[who].request_share(memory.id, where, refresh=mode), may=may)
        if made is not None and made.id not in self.requests:
            self.requests.append(made.id)

    @precondition(lambda self: self.requests)
    @verb(who=WHO, at=AT, agree=st.booleans())
    def decide_request(self, who: str, at: int, agree: bool) -> None:
        self._begin("approve" if agree else "reject", who, ties=True)
        book, id_ = self.world.hands[who], self.requests[at % len(self.requests)]
        decided = self._try(lambda: book.approve(id_) if agree else book.reject(id_), may=None)
        if decided is not None and agree:
            if not self.model.may(who, decided.space, "admin"):
                self.checks.fail("refusals", f"{who} may not decide about {decided}")
            listed = self.world.listed(OWNER)
            if decided.copy in listed and decided.copy not in self.model.memories:
                self.checks.add_copy(decided.copy, listed)
