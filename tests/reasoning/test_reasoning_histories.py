"""Histories at random: several principals reason, supersede, share and decide, and a simple model says what each sees.

COMMONBOOK_HISTORIES   how many histories each engine has (8)
COMMONBOOK_STEPS       how many steps each of them has at most (25)
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from commonbook.book.book import Book
from commonbook.errors import BadInput, CommonbookError, Conflict, NotAllowed, NotFound
from commonbook.model.invalidation import Invalidation, Verdict
from commonbook.model.memory import Filter, Memory, Refresh
from commonbook.model.reasoning import InboxItem
from commonbook.model.spaces import Role
from commonbook.reasoning.open_notices import notice_id
from tests.sharing.test_sharing_races import wrong_with_copies
from tests.support.reasoning_model import CAP, OWNER, REASONING, Known, Model

HISTORIES = int(os.environ.get("COMMONBOOK_HISTORIES", "8"))
STEPS = int(os.environ.get("COMMONBOOK_STEPS", "25"))
SPACES = ("a", "b", "b/x", "c")
NAMES = ("alice", "bob")

pytestmark = pytest.mark.timeout(300 + HISTORIES * STEPS)

AT = st.integers(0, 30)
"""An index into whatever list a rule chooses from, modulo its length."""

WHO = st.sampled_from(["owner", "owner", "owner", "owner", *NAMES])
WHERE = st.sampled_from(SPACES)
ROLE = st.sampled_from(["reader", "writer"])
MODE = st.sampled_from(["live", "lazy", "snapshot"])

VERDICTS = ("keep", "retract", "supersede", "dismiss")
TENDING = ("unlink", "unlink", "move", "move", "detach", "unshare", "adopt", "refresh", "look", "restore")

T = TypeVar("T")


class Histories(RuleBasedStateMachine):
    """A subtree of a book with spaces and principals of its own, its model, and all operations."""

    book: Book
    number = 0

    def __init__(self) -> None:
        super().__init__()
        type(self).number += 1
        self.top = f"h{self.number}"
        self.people = {"owner": OWNER, **{name: f"user:{name}{self.number}" for name in NAMES}}
        self.hands = {who: self.book if who == OWNER else self.book.acting_as(who) for who in self.people.values()}
        self.model = Model()
        self.text_count = self.checked = 0
        self.files: dict[str, tuple[Path, bytes, dict[tuple[str, str], int]]] = {}
        self.reinstated: list[tuple[Known, Known]] = []
        self.book.create_space(self.top)
        self.book.set_depth(self.top, CAP)
        for space in SPACES:
            self.book.create_space(self._space(space))

    # --- choosing arguments

    def _space(self, where: str) -> str:
        return f"{self.top}/{where}"

    def _some(self, at: int, likely: Sequence[T], every: Sequence[T]) -> T:
        """Choose mostly from the likely ones, for which the operation makes a difference."""
        some = likely if likely and at % 8 != 7 else every
        return some[at % len(some)]

    def _memories(self) -> list[Known]:
        return list(self.model.known.values())

    def _memory(self, at: int) -> Known:
        live = [one for one in self._memories() if not one.deleted]
        return self._some(at, live, self._memories())

    def _ground(self, at: int) -> Known:
        """Choose a source: mostly a copy, or a memory that has sources itself."""
        likely = [one for one in self._memories() if not one.deleted and (one.bound or one.direct_sources())]
        return self._memory(at // 2) if at % 2 else self._some(at // 2, likely, self._memories())

    def _text(self) -> str:
        self.text_count += 1
        return f"text {self.text_count}"

    def _refusal(self, who: str, memory: Known) -> type[CommonbookError] | None:
        if not self.model.sees(who, memory):
            return NotFound
        return None if self.model.may(who, memory.space, "writer") else NotAllowed

    def _do(self, refused: type[CommonbookError] | None, act: Callable[[], T]) -> T | None:
        """Run an operation, and expect the refusal that the model predicts."""
        if refused is None:
            return act()
        with pytest.raises(refused):
            act()
        return None

    def _refused_links(self, who: str, id_: str, wanted: Sequence[tuple[str, Known]]) -> type[CommonbookError] | None:
        """Return the error with which new links of a memory are refused, if so."""
        for relation, target in wanted:
            if not self.model.sees(who, target):
                return NotFound
            if relation == "supersedes" and not self.model.may(who, target.space, "writer"):
                return NotAllowed
        memory = self.model.known[id_]
        before = dict(memory.links)
        try:
            if any(name in REASONING and self.model.depends_on(to.id, id_) for name, to in wanted):
                return Conflict
            memory.links.update({(relation, target.id): target.revision for relation, target in wanted})
            if any(name == "reflects_on" for name, _ in wanted) and self.model.reflection_depth(id_) > CAP:
                return Conflict
        finally:
            memory.links = before
        if any(name == "supersedes" and self.model.supersedes_in_turn(id_, to.id) for name, to in wanted):
            return Conflict
        return None

    # --- what people do

    @initialize(roles=st.lists(st.tuples(st.sampled_from(NAMES), WHERE, ROLE), min_size=2, max_size=4), mode=MODE)
    def begin(self, roles: list[tuple[str, str, Role]], mode: Refresh) -> None:
        """Grant roles and create some of everything, so that few of the following operations are refused."""
        for name, where, role in roles:
            self._grant(self.people[name], self._space(where), role)
        for where in SPACES[:2]:
            self._remember(OWNER, self._space(where), self._text(), [], None)
        self._share(OWNER, self._memories()[0], self._space("c"), mode)
        self._remember(OWNER, self._space("a"), self._text(), [("reflects_on", self._memories()[-1])], None)
        self._share(OWNER, self._memories()[-1], self._space("b/x"), mode)

    @rule(who=WHO, where=WHERE, at=AT, links=st.lists(st.tuples(st.sampled_from(REASONING), AT), max_size=3))
    def remember(self, who: str, where: str, at: int, links: list[tuple[str, int]]) -> None:
        wanted = [(relation, self._ground(one)) for relation, one in links]
        replaced = self._memory(at) if at % 4 == 1 else None
        self._remember(self.people[who], self._space(where), self._text(), wanted, replaced)

    @rule(who=WHO, where=WHERE, on=st.lists(AT, min_size=1, max_size=3))
    def reflect(self, who: str, where: str, on: list[int]) -> None:
        wanted = [("reflects_on", self._ground(one)) for one in on]
        self._remember(self.people[who], self._space(where), self._text(), wanted, None, reflect=True)

    def _remember(
        self,
        who: str,
        space: str,
        text: str,
        wanted: list[tuple[str, Known]],
        replaced: Known | None,
        *,
        reflect: bool = False,
    ) -> None:
        links = [(relation, one.id) for relation, one in wanted]
        every = [*wanted, *([("supersedes", replaced)] if replaced else [])]
        new = Known("new", space, text)
        self.model.known["new"] = new
        refused = NotAllowed if not self.model.may(who, space, "writer") else self._refused_links(who, "new", every)
        del self.model.known["new"]
        by = self.hands[who]

        def act() -> Any:
            if reflect:
                return by.reflect(text, [one for _, one in links], space=space)
            return by.remember(text, space=space, links=links, replaces=replaced.id if replaced else None)

        made = self._do(refused, act)
        if made is not None:
            new.id = made.id
            new.links = {(relation, one.id): one.revision for relation, one in every}
            self.model.known[made.id] = new

    @rule(who=WHO, at=AT)
    def edit(self, who: str, at: int) -> None:
        memory, by = self._memory(at), self.people[who]
        # Now and then the same text: nothing changes. The model knows revisions and not words, so no copy gets the
        # words of its source in another way than from there.
        text = self._text() if at % 4 else memory.text
        if self._do(self._refusal(by, memory), lambda: self.hands[by].edit(memory.id, text=text)):
            self.model.edit(memory, text)

    @rule(who=WHO, at=AT, relation=st.sampled_from([*REASONING, "supersedes", "related_to"]), to=AT)
    def link(self, who: str, at: int, relation: str, to: int) -> None:
        memory, target, by = self._memory(at), self._ground(to), self.people[who]
        refused = self._refusal(by, memory)
        there = (relation, target.id) in memory.links
        if refused is None and memory is target:
            refused = BadInput
        elif refused is None and not there:
            refused = self._refused_links(by, memory.id, [(relation, target)])
        if self._do(refused, lambda: self.hands[by].link(memory.id, relation, target.id)) and not there:
            memory.links[relation, target.id] = target.revision

    def unlink(self, who: str, at: int) -> None:
        linked = [(one, *link) for one in self._memories() for link in one.links]
        if not linked:
            return
        (memory, relation, target), by = linked[at % len(linked)], self.people[who]
        if self._do(self._refusal(by, memory), lambda: self.hands[by].unlink(memory.id, relation, target)):
            del memory.links[relation, target]

    def _refused_supersession(self, who: str, old: Known, new: Known) -> type[CommonbookError] | None:
        refused = self._refusal(who, new)
        if refused is not None:
            return refused
        if old is new:
            return BadInput
        in_turn = self.model.supersedes_in_turn(new.id, old.id)
        return Conflict if in_turn and ("supersedes", old.id) not in new.links else None

    @rule(who=WHO, at=AT, by=AT)
    def supersede(self, who: str, at: int, by: int) -> None:
        old, new, actor = self._ancestor(at), self._memory(by), self.people[who]
        if self.reinstated and at % 4 == 3:
            old, new = self.reinstated[at % len(self.reinstated)]
        refused = self._refusal(actor, old) or self._refused_supersession(actor, old, new)
        before = self._notices()
        report = self._do(refused, lambda: self.hands[actor].supersede(old.id, new.id, reason="because"))
        if report is not None:
            assert report.new == (("supersedes", old.id) not in new.links)
            new.links.setdefault(("supersedes", old.id), old.revision)
            fresh = [one for one in self._notices() - before if self.model.sees(actor, self.model.known[one[0]])]
            assert report.notified == len(fresh)

    def _ancestor(self, at: int) -> Known:
        """Choose mostly a memory that others depend on."""
        ancestors = {ancestor for id_ in self.model.known for ancestor in self.model.depths(id_, own=False)}
        live = [one for one in self._memories() if one.id in ancestors and not one.deleted]
        return self._some(at, live, self._memories())

    def _notices(self) -> set[tuple[str, str, str]]:
        return {(id_, *key) for id_ in self.model.known for key in self.model.open_invalidations(id_)}

    @rule(who=WHO, at=AT, one=st.booleans())
    def reinstate(self, who: str, at: int, one: bool) -> None:
        live = [each for each in self._memories() if not each.deleted]
        gone = [each for each in live if self.model.direct_successors(each.id) or each.retractions]
        old, actor = self._some(at, gone, self._memories()), self.people[who]
        ended = self.model.direct_successors(old.id)
        by = ended[at % len(ended)] if one and ended else None
        taken_back = old.retractions if by is None else set()
        refused = self._refusal(actor, old) or (None if ended or taken_back else Conflict)
        if self._do(refused, lambda: self.hands[actor].reinstate(old.id, by=by)):
            if taken_back:
                old.decisions -= taken_back
                old.retracted, old.retractions = False, set()
            for id_ in [by] if by else ended:
                del self.model.known[id_].links["supersedes", old.id]
                self.reinstated.append((old, self.model.known[id_]))

    @rule(who=WHO, at=AT)
    def delete(self, who: str, at: int) -> None:
        memory, by = self._ancestor(at), self.people[who]
        self._keep_file(memory)
        if self._do(self._refusal(by, memory), lambda: self.hands[by].delete(memory.id)):
            memory.deleted = True

    def _keep_file(self, memory: Known) -> None:
        """Keep the content of a file that may be deleted, to restore it later; a server has no files."""
        if os.path.isdir(self.book.home) and not memory.deleted:
            path = Path(self.book.home) / next(one.path for one in self._listed(OWNER) if one.id == memory.id)
            self.files[memory.id] = (path, path.read_bytes(), dict(memory.links))

    def restore(self, _who: str, at: int) -> None:
        """Bring back the file of a memory that was deleted, by hand."""
        gone = [one for one in self._memories() if one.deleted and one.id in self.files]
        if gone:
            memory = gone[at % len(gone)]
            path, data, links = self.files[memory.id]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            self.book.sync()
            # The file still has the link that a reinstatement took from the deleted memory.
            memory.links = {**links, **memory.links}
            self.model.restore(memory)

    def move(self, who: str, at: int, where: str) -> None:
        suspect = [one for one in self._memories() if self.model.open_invalidations(one.id)]
        memory, by, space = self._some(at, suspect, self._memories()), self.people[who], self._space(where)
        refused = self._refusal(by, memory) or (None if self.model.may(by, space, "writer") else NotAllowed)
        if self._do(refused, lambda: self.hands[by].move(memory.id, space)):
            self.model.move(memory, space, by=by)

    @rule(who=WHO, at=AT, where=WHERE, verb=st.sampled_from(TENDING))
    def tend(self, who: str, at: int, where: str, verb: str) -> None:
        """Run one of the less frequent operations."""
        if verb == "move":
            self.move(who, at, where)
        else:
            getattr(self, verb)(who, at)

    # --- deciding

    @rule(who=WHO, at=AT, by=AT, how=st.sampled_from(["memory", "notice", "delete"]), verdict=st.sampled_from(VERDICTS))
    def decide(self, who: str, at: int, by: int, how: str, verdict: Verdict) -> None:
        """Decide about all invalidations of a memory, or about one notice, or try to delete the notice."""
        if how == "memory" or not self._notices():
            self.triage_a_memory(who, at, by, verdict)
        elif how == "notice":
            self.triage_a_notice(who, at, by, verdict)
        else:
            self.delete_a_notice(who, at)

    def triage_a_memory(self, who: str, at: int, by: int, verdict: Verdict) -> None:
        live = [one for one in self._memories() if not one.deleted]
        unsure = [one for one in live if self.model.invalidations(one.id) or self.model.outdated(one.id)]
        memory = self._some(at, unsure, self._memories())
        self._triage(
            self.people[who], memory, memory.id, verdict, self._memory(by), self.model.invalidations(memory.id)
        )

    def triage_a_notice(self, who: str, at: int, by: int, verdict: Verdict) -> None:
        dependent, invalidated, invalidating = self._notice(at)
        id_ = notice_id(dependent, Invalidation(invalidated, invalidating))
        memory, successor = self.model.known[dependent], self._memory(by)
        self._triage(self.people[who], memory, id_, verdict, successor, {(invalidated, invalidating)})

    def _notice(self, at: int) -> tuple[str, str, str]:
        every = sorted(self._notices(), key=lambda one: (list(self.model.known).index(one[0]), *one))
        return every[at % len(every)]

    def _triage(
        self, who: str, memory: Known, id_: str, verdict: Verdict, successor: Known, settled: set[tuple[str, str]]
    ) -> None:
        renewing = verdict == "keep" and id_ == memory.id and self.model.outdated(memory.id)
        refused = self._refusal(who, memory)
        if refused is None and not settled and not renewing:
            refused = Conflict
        by = successor.id if verdict == "supersede" else None
        if refused is None and by:
            refused = self._refused_supersession(who, memory, successor)
        report = self._do(refused, lambda: self.hands[who].triage(id_, verdict, note="so it is", by=by))
        if report is None:
            return
        assert (report.id, report.resolved) == (memory.id, len(settled))
        memory.decisions |= settled
        if verdict == "keep":
            memory.links = {
                (name, to): self.model.known[to].revision if name in REASONING else revision
                for (name, to), revision in memory.links.items()
            }
        if verdict == "retract":
            memory.retracted = True
            memory.retractions |= settled
        if by:
            successor.links.setdefault(("supersedes", memory.id), memory.revision)

    def delete_a_notice(self, who: str, at: int) -> None:
        dependent, invalidated, invalidating = self._notice(at)
        memory, by = self.model.known[dependent], self.people[who]
        id_ = notice_id(dependent, Invalidation(invalidated, invalidating))
        self._do(self._refusal(by, memory) or BadInput, lambda: self.hands[by].delete(id_))

    # --- copies

    @rule(who=WHO, at=AT, where=WHERE, mode=MODE)
    def share(self, who: str, at: int, where: str, mode: Refresh) -> None:
        self._share(self.people[who], self._memory(at), self._space(where), mode)

    def _share(self, by: str, source: Known, space: str, mode: Refresh) -> None:
        refused: type[CommonbookError] | None = None if self.model.sees(by, source) else NotFound
        if not self.model.may(by, space, "writer"):
            refused = NotAllowed
        made = self._do(refused, lambda: self.hands[by].share(source.id, space, refresh=mode))
        if made is None:
            return
        there = self.model.memory_of_root(self.model.origin(source), space)
        assert made.new == (there is None)
        if there is not None:
            assert made.id == there.id
            assert made.retied == (there.bound and self.model.can_tie_again(there, source))
            if made.retied:
                self.model.tie_again(there, source, mode=mode, by=by)
            return
        self.model.known[made.id] = Known(
            made.id,
            space,
            source.text,
            retracted=source.retracted,
            source=source.id,
            root=self.model.origin(source),
            mode=mode,
            by=by,
            took=source.revision,
        )

    def _with_copy(self, who: str, at: int, verb: str, refusals: dict[str, type[CommonbookError]]) -> Known | None:
        copies = [one for one in self._memories() if one.source is not None]
        copy, by = self._some(at, copies, self._memories()), self.people[who]
        refused = self._refusal(by, copy) or (BadInput if copy.source is None else None)
        refused = refused or refusals.get(self.model.broken_tie(copy) or "")
        source = self.model.known[copy.source] if copy.source else copy
        if refusals and (copy.mode == "snapshot" or copy.edited) and not self.model.may(by, source.space, "reader"):
            # Only a principal that may read the source brings new words of it to a copy that does not follow.
            refused = refused or NotAllowed
        return copy if self._do(refused, lambda: getattr(self.hands[by], verb)(copy.id)) else None

    def unshare(self, who: str, at: int) -> None:
        for one in self._memories():
            self._keep_file(one)
        if copy := self._with_copy(who, at, "unshare", {}):
            copy.deleted = True

    def detach(self, who: str, at: int) -> None:
        if copy := self._with_copy(who, at, "detach", {}):
            self.model.detach(copy)

    def adopt(self, who: str, at: int) -> None:
        copy = self._with_copy(
            who, at, "adopt", {"detached": Conflict, "revoked": NotAllowed, "source_deleted": NotFound}
        )
        if copy and (copy.edited or copy.took < self.model.known[copy.source or ""].revision):
            self.model.overwrite(copy)

    def refresh(self, who: str, at: int) -> None:
        refusals = {"detached": Conflict, "revoked": NotAllowed, "source_deleted": NotFound, "diverged": Conflict}
        if copy := self._with_copy(who, at, "refresh", refusals):
            self.model.refresh_chain(copy)

    def look(self, who: str, at: int) -> None:
        """Get one memory: that refreshes a stale lazy copy if its sharer may still read the source."""
        memory, by = self._memory(at), self.people[who]
        found = self._do(None if self.model.sees(by, memory) else NotFound, lambda: self.hands[by].get(memory.id))
        if found is not None:
            if memory.mode == "lazy" and self.model.can_follow(memory):
                self.model.refresh_chain(memory)
            assert self._seen(found) == self._expected(by, memory)

    # --- permissions

    @rule(name=st.sampled_from(NAMES), where=WHERE, role=st.none() | ROLE)
    def grant(self, name: str, where: str, role: Role | None) -> None:
        """Grant a role, or revoke it."""
        who, space = self.people[name], self._space(where)
        if role is not None:
            self._grant(who, space, role)
        elif (who, space) in self.model.roles:
            self.book.revoke(who, space)
            del self.model.roles[who, space]

    def _grant(self, who: str, space: str, role: Role) -> None:
        self.book.grant(who, space, role)
        self.model.roles[who, space] = role

    # --- what everybody sees

    def check_invariants(self, settings: Any, *args: Any, **named: Any) -> None:
        super().check_invariants(settings, *args, **named)
        self._check()

    def _check(self) -> None:
        for who, book in self.hands.items():
            seen = {one.id: self._seen(one) for one in self._listed(who)}
            expected = {one.id: self._expected(who, one) for one in self._memories() if self.model.sees(who, one)}
            assert seen == expected, who
            self._check_inbox(who, book)
            self.checked = (self.checked + 1) % max(1, len(self.model.known))
            for memory in self._memories()[self.checked :][:1]:
                self._check_dependents(who, book, memory)
        self._check_places()

    def _listed(self, who: str) -> tuple[Memory, ...]:
        filter_ = Filter(space=f"{self.top}/") if who == OWNER else Filter()
        return self.hands[who].list(filter_, limit=1000).items

    def _seen(self, found: Memory) -> dict[str, Any]:
        marks = [mark for mark in found.marks if mark != "ended"]
        return {
            "text": found.text,
            "space": found.space.name,
            "revision": found.revision,
            "freshness": found.freshness,
            "successor": found.successor,
            "marks": sorted(marks),
            "superseded_by": found.superseded_by,
            "doubts": sorted(cause.key for cause in found.invalidations),
            "decisions": sorted(found.settled_causes),
        }

    def _expected(self, who: str, memory: Known) -> dict[str, Any]:
        freshness, doubts = self.model.freshness(memory), self.model.invalidations(memory.id)
        followed = self.model.superseding_source(memory)
        named = freshness == "source_superseded" and followed and self.model.sees(who, self.model.known[followed])
        is_superseded, successor = self.model.successor(who, memory.id)
        chain = self.model.chain(memory.id)
        marks = {
            "superseded": is_superseded,
            "retracted": any(member.retracted and member.retractions for member in chain),
            "expired": self.model.expired(memory.id),
            "suspect": any(cause != "ended" for _, cause in doubts),
            "successor_ended": any(cause == "ended" for _, cause in doubts),
            "source_changed": self.model.outdated(memory.id),
        }
        return {
            "text": memory.text,
            "space": memory.space,
            "revision": memory.revision,
            "freshness": freshness,
            "successor": followed if named else None,
            "marks": sorted(mark for mark, holds in marks.items() if holds),
            "superseded_by": successor,
            "doubts": sorted(doubts),
            "decisions": sorted(memory.decisions),
        }

    def _check_inbox(self, who: str, book: Book) -> None:
        items = book.inbox(limit=1000).items
        if who == OWNER:
            items = tuple(one for one in items if one.space.startswith(f"{self.top}/"))
        assert len({one.id for one in items}) == len(items)
        seen = {(one.dependent.id, *self._cause(one), one.depth) for one in items}
        expected = {
            (one.id, *key, depth)
            for one in self._memories()
            if self.model.sees(who, one)
            for key, depth in self.model.open_invalidations(one.id).items()
        }
        assert seen == expected, who
        for one in items:
            self._check_notice(who, one)

    def _cause(self, one: InboxItem) -> tuple[str, str]:
        word = "ended" if one.successor_ended else "deleted"
        return one.invalidated.id, one.invalidating.id if one.invalidating else word

    def _check_notice(self, who: str, one: InboxItem) -> None:
        assert one.space == self.model.known[one.dependent.id].space
        assert one.text == self.model.known[one.dependent.id].text
        assert (one.path[0], one.path[-1]) == (one.invalidated.id, one.dependent.id)
        for mention in (one.invalidated, one.invalidating):
            if mention is not None:
                memory = self.model.known[mention.id]
                shown = memory.space if self.model.may(who, memory.space, "reader") else None
                assert (mention.space, mention.title is None) == (shown, shown is None)
        for id_ in one.path[1:-1]:
            assert id_ is None or self.model.may(who, self.model.known[id_].space, "reader")
        # The ended successor of a memory is not one of its sources.
        for at, above in zip(one.path[1:], () if one.successor_ended else one.path, strict=False):
            assert at is None or above is None or above in {to for to, _ in self.model.steps(at, own=False)}

    def _check_dependents(self, who: str, book: Book, memory: Known) -> None:
        if not self.model.may(who, memory.space, "reader"):
            with pytest.raises(NotFound):
                book.dependents(memory.id)
            return
        dependents = book.dependents(memory.id)
        assert {one.id: one.depth for one in dependents} == self.model.dependents(who, memory.id), who
        assert [one.depth for one in dependents] == sorted(one.depth for one in dependents)
        for one in dependents:
            assert (one.suspect, one.source_changed) == (
                any(cause != "ended" for _, cause in self.model.invalidations(one.id)),
                self.model.outdated(one.id),
            )
            for id_ in one.path:
                assert id_ is None or self.model.may(who, self.model.known[id_].space, "reader")

    def _check_places(self) -> None:
        """Check that each notice exists once, in the notice space of its dependent."""
        notices = self.book.list(Filter(space=f"{self.top}/", kinds=("notice",)), limit=1000).items
        places = Counter((one.notice.dependent, *one.notice.key, one.space.name) for one in notices if one.notice)
        expected = Counter(
            (id_, *key, f"{self.model.known[id_].space}/_invalidations") for id_, *key in self._notices()
        )
        assert places == expected


@pytest.mark.slow
def test_whatever_people_reason_everybody_is_told_what_a_simple_model_says(book):
    histories = type("Histories", (Histories,), {"book": book})
    run_state_machine_as_test(
        histories, settings=hypothesis.settings(max_examples=HISTORIES, stateful_step_count=STEPS, deadline=None)
    )
    assert wrong_with_copies(book) == []
    assert book.verify_log().ok
