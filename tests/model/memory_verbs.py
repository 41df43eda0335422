"""Verbs of the random test: remember, edit, expire, move, delete, undelete and link."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from hypothesis import strategies as st
from hypothesis.stateful import precondition

from tests.model.machine import AT, PRINCIPALS, WHERE, WHO, Machine, verb
from tests.support.promise_facts import OWNER, REASONING, SUPERSEDES, WOULD_SUPERSEDE, Memory, words_of
from tests.support.promise_world import text


class MemoryVerbs(Machine):
    """Principals change single memories."""

    @verb(
        who=WHO,
        where=WHERE,
        links=st.lists(st.tuples(st.sampled_from([*REASONING, SUPERSEDES]), AT), max_size=2),
        reflect=st.booleans(),
    )
    def remember(self, who: str, where: str, links: list[tuple[str, int]], reflect: bool) -> None:
        self._begin("reflect" if reflect and links else "remember", who)
        wanted = [(relation, one) for relation, at in links if (one := self._memory(at)) is not None]
        self._remember(where, wanted, reflect=reflect and bool(wanted))

    def _remember(self, where: str, wanted: list[tuple[str, Memory]], *, reflect: bool = False) -> None:
        word, book = self._word(), self.world.hands[self.who]
        place = self.model.place_for(self.who, where)
        may: bool | None = self.model.may(self.who, place, "writer")
        may = may and all(self.model.may_read(self.who, one) for _, one in wanted)
        if not reflect:
            replaced = [one for relation, one in wanted if relation == SUPERSEDES]
            may = may and (place != where or all(self.model.may_write(self.who, one) for one in replaced))
            may = may and (place != where or self._may_supersede(where, replaced))
        if reflect:
            wanted = [("reflects_on", one) for _, one in wanted]
            receipt = self._try(lambda: book.reflect(text(word), [one.id for _, one in wanted], space=where), may=may)
        else:
            links = [(relation, one.id) for relation, one in wanted]
            receipt = self._try(lambda: book.remember(text(word), space=where, links=links), may=may)
        if receipt is not None:
            kind = "reflection" if reflect else "note"
            made = {(relation, one.id): one.words for relation, one in wanted}
            if place != where:
                made = {(WOULD_SUPERSEDE if name == SUPERSEDES else name, id_): made[name, id_] for name, id_ in made}
            memory = Memory(receipt.id, place, (word,), kind, self.who, links=made)
            memory.note_place()
            self.model.memories[receipt.id] = memory

    def _may_supersede(self, space: str, replaced: list[Memory], *, by: Memory | None = None) -> bool | None:
        now = self.world.clock.now()
        return self.model.may_supersede_again(self.who, space, [one.id for one in replaced], now, by=by)

    @verb(who=WHO, at=AT)
    def edit(self, who: str, at: int) -> None:
        self._begin("edit", who)
        memory = self._memory(at, lambda one: one.session is None and (at % 2 or self._has_copies(one)))
        if memory is None or memory.session is not None:
            return
        self._edit(memory)

    def _edit(self, memory: Memory) -> None:
        word, book = self._word(), self.world.hands[self.who]
        may = self.model.may_write(self.who, memory)
        if self._try(lambda: book.edit(memory.id, text=text(word)), may=may, must=True):
            memory.write((word,))

    @verb(who=WHO, at=AT, days=st.integers(1, 4))
    def expire(self, who: str, at: int, days: int) -> None:
        """Let a memory end in some days."""
        self._begin("expire", who)
        memory = self._memory(at, lambda one: (SUPERSEDES in {name for name, _ in one.links}) or self._has_copies(one))
        if memory is None or memory.retracted:
            return
        now, book = self.world.clock.now(), self.world.hands[who]
        ends = now + timedelta(days=days)
        may: bool | None = self.model.may_write(who, memory)
        if self.model.ended(memory, now):
            may = may and self.model.may_revive(who, memory, now)
        if self._try(lambda: book.edit(memory.id, expires=ends), may=may, must=True):
            memory.ends = ends

    @verb(who=WHO, at=AT, where=WHERE)
    def move(self, who: str, at: int, where: str) -> None:
        self._begin("move", who, ties=True)
        memory = self._memory(at, lambda one: one.session is not None or one.proposed)
        words = self.model.words_in(memory, where) if memory else ()
        if memory is None or not words:
            # Where all its messages were rewound, an episode does not come back.
            return
        readers = [
            one for one in PRINCIPALS if self.model.may_read(one, memory) and self.model.may(one, where, "writer")
        ]
        self._expect_refusals(
            lambda one: self.world.hands[one].move(memory.id, where),
            [one for one in readers if one != who and not self.model.may_write(one, memory)],
        )
        replaced = [self.model[target] for target in memory.replaced() if not self.model[target].deleted]
        must = not memory.replaced()
        may = self.model.may_accept(who, memory, where) and self._may_supersede(where, replaced)
        if self._try(lambda: self.world.hands[who].move(memory.id, where), may=may, must=must):
            self.model.accept(memory, where)
            memory.write(words)

    @verb(who=WHO, at=AT)
    def delete(self, who: str, at: int) -> None:
        self._begin("delete", who)
        memory = self._memory(at, self._is_needed)
        if memory is None:
            return
        may = self.model.may_write(who, memory)
        if self._try(lambda: self.world.hands[who].delete(memory.id), may=may, must=True):
            memory.deleted = True

    @precondition(lambda self: any(one.deleted and not one.forgotten for one in self.model.memories.values()))
    @verb(who=WHO, at=AT)
    def undelete(self, who: str, at: int) -> None:
        """Bring a memory back. A copy is tied as is true then, and an episode has what was not rewound since."""
        self._begin("undelete", who, ties=True)
        deleted = [one for one in self.model.memories.values() if one.deleted and not one.forgotten]
        memory = self._some(at, [one for one in deleted if one.superseded() or self._has_copies(one)], deleted)
        if memory is None:
            return
        who = self._likely(who, memory.space)
        now, book = self.world.clock.now(), self.world.hands[who]
        may = self.model.may_write(who, replace(memory, deleted=False)) and self.model.may_revive(who, memory, now)
        if self._try(lambda: book.undelete(memory.id), may=may):
            memory.deleted = False
            if memory.kind == "episode":
                words = words_of(self.world.listed(OWNER)[memory.id].text)
                rewound = {one.word for one in self.model.messages_of(memory) if one.rewound and not one.unsure}
                if not words or not set(words) <= set(memory.words) - rewound:
                    self.checks.fail("rewound", f"{memory} is back with {words}, and {rewound} were rewound")
                memory.write(words)
            memory.note_place()

    @verb(who=WHO, at=AT, relation=st.sampled_from([*REASONING, SUPERSEDES, "related_to"]), to=AT)
    def link(self, who: str, at: int, relation: str, to: int) -> None:
        self._begin("link", who)
        memory, target = self._memory(at), self._memory(to)
        if memory is None or target is None or memory is target or (relation, target.id) in memory.links:
            return
        may: bool | None = self.model.may_write(who, memory) and self.model.may_read(who, target)
        is_open = self.model.may_write(who, target) and not memory.proposed
        may = may and (relation != SUPERSEDES or (is_open and self._may_supersede(memory.space, [target], by=memory)))
        if self._try(lambda: self.world.hands[who].link(memory.id, relation, target.id), may=may):
            memory.links[relation, target.id] = target.words

    @precondition(lambda self: any(one.links for one in self.model.live()))
    @verb(who=WHO, at=AT)
    def unlink(self, who: str, at: int) -> None:
        self._begin("unlink", who)
        linked = [(one, *link) for one in self.model.live() for link in one.links]
        if not linked:
            return
        memory, relation, target = linked[at % len(linked)]
        may = self.model.may_write(who, memory)
        if self._try(lambda: self.world.hands[who].unlink(memory.id, relation, target), may=may, must=True):
            del memory.links[relation, target]

    @precondition(lambda self: any(one.bound and one.mode == "lazy" for one in self.model.live()))
    @verb(who=WHO, at=AT)
    def look(self, who: str, at: int) -> None:
        """Get a memory: a lazy copy that may follow has the words of its source then."""
        self._begin("look", who)
        memory = self._memory(at, lambda one: one.bound and one.mode == "lazy")
        if memory is None:
            return
        shown = self._try(lambda: self.world.hands[who].get(memory.id), may=self.model.may_read(who, memory), must=True)
        source = self.model.source_of(memory)
        if shown is None or source is None or memory.mode != "lazy":
            return
        source_words = words_of(self.world.listed(OWNER)[source.id].text)
        follows = self.model.tie_holds(memory) and not self.model.diverged(memory)
        if follows and words_of(shown.text) != source_words:
            self.checks.fail("lazy", f"{who} gets {memory} with {words_of(shown.text)}; its source says {source_words}")
