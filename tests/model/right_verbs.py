"""Verbs of the random test: grants, reviews, and the time that passes."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition

from commonbook.values.spaces import Role
from tests.model.machine import AGENT, AT, BOB, OTHER, OTHER_AGENT, ROLE, WHERE, WHO, Machine, verb
from tests.support.promise_facts import OWNER, PROPOSED, Memory
from tests.support.promise_rights import is_agent


class RightVerbs(Machine):
    """Principals grant and revoke, have spaces reviewed, approve and reject."""

    @verb(who=OTHER, where=WHERE, role=ROLE)
    def grant(self, who: str, where: str, role: Role | None) -> None:
        self._begin("grant")
        self._grant(who, where, role or "reader")

    @precondition(lambda self: self.model.roles)
    @verb(at=AT)
    def revoke(self, at: int) -> None:
        """Revoke a grant: mostly one by which a copy follows its source."""
        self._begin("revoke")
        ties = [(one.sharer, source.space) for one in self.model.live() if (source := self.model.source_of(one))]
        who, where = self._some(at, [tie for tie in ties if tie in self.model.roles], list(self.model.roles)) or (
            "",
            "",
        )
        self._grant(who, where, None)

    def _grant(self, who: str, where: str, role: Role | None) -> None:
        if role is not None:
            self.world.book.grant(who, where, role)
            self.model.roles[who, where] = role
        elif (who, where) in self.model.roles:
            self.world.book.revoke(who, where)
            del self.model.roles[who, where]

    @verb(hours=st.sampled_from([2, 26, 26, 80, 200]), work=st.booleans())
    def wait(self, hours: int, work: bool) -> None:
        """Let time pass, and let a worker do what is due."""
        self._begin("wait")
        self.world.clock.forward(hours=hours)
        if work:
            self.world.book.work()

    # --- reviews

    def _set_review(self, space: str, *, review: bool) -> None:
        self.world.book.set_review(space, "agents" if review else None)
        self.model.set_review(space, review=review)

    @verb(who=WHO, where=WHERE, review=st.booleans(), at=AT)
    def review(self, who: str, where: str, review: bool, at: int) -> None:
        """Have the memories of agents reviewed in a space, or no longer."""
        self._begin("review" if review else "end review", who, ties=True)
        if not review:
            where = self._some(at, sorted(self.model.reviews), [where]) or where
        may = self.model.may(who, where, "admin") and not is_agent(who)
        if self._try(lambda: self.world.hands[who].set_review(where, "agents" if review else None), may=may, must=True):
            self.model.set_review(where, review=review)

    @precondition(lambda self: self._proposals())
    @verb(who=st.sampled_from([OWNER, BOB, AGENT, OTHER_AGENT]), at=AT, agree=st.booleans())
    def decide_proposal(self, who: str, at: int, agree: bool) -> None:
        """Approve or reject what an agent has proposed: no agent approves, and an agent withdraws its own only."""
        self._begin("accept" if agree else "turn down", who, ties=True)
        proposals = self._proposals()
        if not proposals:
            return
        memory = proposals[at % len(proposals)]
        book, space = self.world.hands[who], memory.space.removesuffix(PROPOSED)
        self._expect_refusals(lambda one: self.world.hands[one].approve(memory.id), (AGENT, OTHER_AGENT))
        if agree:
            must, now = not memory.replaced(), self.world.clock.now()
            replaced = [one.id for one in self.model.live() if one.id in memory.replaced()]
            may: bool | None = self.model.may_accept(who, memory, space) and not is_agent(who)
            may = may and self.model.may_supersede_again(who, space, replaced, now, by=memory)
            if self._try(lambda: book.approve(memory.id), may=may, must=must) is not None:
                self.model.accept(memory, space)
        elif self._try(lambda: book.reject(memory.id), may=self.model.may_write(who, memory), must=True) is not None:
            memory.deleted = True

    def _proposals(self) -> list[Memory]:
        return [memory for memory in self.model.live() if memory.proposed]
