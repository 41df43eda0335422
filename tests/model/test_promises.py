"""A book keeps the promises that a small model states, through random histories of principals, editors and accidents.

Hypothesis chooses the verbs. After each one, `tests/support/promise_checks.py` compares words, rights and marks with
`tests/support/promise_model.py`.

COMMONBOOK_MODEL_MINUTES   how long each engine is tried with new seeds (0: a few fixed histories)
COMMONBOOK_SEED            the first of these seeds, as an earlier run has printed it
COMMONBOOK_MODEL_STEPS     how many steps each history has at most (25)
COMMONBOOK_MODEL_WITHOUT   names of checks and verbs to leave out, with commas between them; `shrink` to fail sooner
"""

from __future__ import annotations

import copy
import os
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from commonbook.errors import CommonbookError, NotAllowed, NotFound, TooMany
from commonbook.model.invalidation import Verdict
from commonbook.model.memory import Refresh
from commonbook.model.session import SwitchReason
from commonbook.model.spaces import Role
from commonbook.settings.settings import Settings
from tests.support.postgres_server import Server
from tests.support.promise_checks import WITHOUT, Checks
from tests.support.promise_model import OWNER, REASONING, Memory, Message, Model, Rule, SessionKey, words_of
from tests.support.promise_world import COPY_VERBS, DEFAULT_SPACE, SPACES, World, text, without_pauses

MINUTES = float(os.environ.get("COMMONBOOK_MODEL_MINUTES", "0"))
STEPS = int(os.environ.get("COMMONBOOK_MODEL_STEPS", "25"))
SEED = int(os.environ.get("COMMONBOOK_SEED") or 0)
PHASES = [phase for phase in hypothesis.Phase if phase.name not in {*WITHOUT, "explain"}]
HISTORIES = {"files": 16, "server": 4}
"""How many fixed histories there are; a database on a server is slower to make than a home."""
BATCH = 25

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600 + MINUTES * 90)]

BOB, CAROL = "user:bob", "user:carol"
PRINCIPALS = (OWNER, BOB, CAROL)
NAMES = ("s1", "s2")
VERDICTS = ("keep", "retract", "supersede", "dismiss")

AT = st.integers(0, 30)
"""An index into whatever list a verb chooses from, modulo its length."""
WHO = st.sampled_from([OWNER, OWNER, BOB, CAROL])
OTHER = st.sampled_from([BOB, CAROL])
WHERE = st.sampled_from(SPACES)
PLACE = st.sampled_from([None, *SPACES])
MODE = st.sampled_from(["live", "live", "lazy", "snapshot"])
ROLE = st.sampled_from([None, "reader", "writer", "writer", "admin"])
HAND = st.tuples(st.sampled_from(["text", "text", "older", "older", "move", "remove", "notice"]), AT, WHERE)

T = TypeVar("T")


class Promises(RuleBasedStateMachine):
    """A book with its model, and everything that may happen to it."""

    make_world: Callable[[], World]
    counts: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.world = type(self).make_world()
        self.model = Model()
        self.checks = Checks(self.world, self.model, NAMES)
        self.word_count = 0
        self.who, self.verb = OWNER, "begin"
        self.rebuilt = self.may_change_ties = False
        self.files: dict[str, list[tuple[Path, bytes, Memory]]] = {}
        self.requests: list[str] = []
        self.kept: Model | None = None

    def teardown(self) -> None:
        self.world.close()
        shutil.rmtree(self.world.scratch, ignore_errors=True)

    # --- choosing arguments

    def _word(self) -> str:
        self.word_count += 1
        return f"zq{self.word_count}"

    def _some(self, at: int, likely: Sequence[T], every: Sequence[T]) -> T | None:
        """Choose mostly from the likely ones, for which the verb makes a difference."""
        some = likely if likely and at % 8 != 7 else every
        return some[at % len(some)] if some else None

    def _memory(self, at: int, likely: Callable[[Memory], object] = lambda _: True) -> Memory | None:
        live = self.model.live()
        return self._some(at, [one for one in live if likely(one)], live)

    def _likely(self, who: str, space: str, reading: Memory | None = None) -> str:
        """Choose another than the owner who may write to a space, if the chosen one may not and there is one."""
        others = [one for one in PRINCIPALS[1:] if self.model.may(one, space, "writer")]
        others = [one for one in others if reading is None or self.model.may_read(one, reading)]
        self.who = who if who in others or who == OWNER or not others else others[0]
        return self.who

    def _begin(self, verb: str, who: str = OWNER, *, ties: bool = False) -> None:
        self.who, self.verb, self.may_change_ties = who, verb, ties
        self.counts[verb] += 1

    def _try(self, act: Callable[[], T], *, may: bool | None, must: bool = False) -> T | None:
        """Run a verb, and expect a refusal where the model says so; with `may` None, either is right.

        With `must`, an allowed verb must not fail for any other reason either.
        """
        try:
            result = act()
        except (NotAllowed, NotFound) as error:
            if may:
                self.checks.fail("refusals", f"{self.who} may {self.verb}, and is refused: {error}")
            return None
        except TooMany:
            return None
        except CommonbookError as error:
            if may and must:
                self.checks.fail("verbs", f"{self.verb} of {self.who} fails: {error!r}")
            return None
        if may is False:
            self.checks.fail("refusals", f"{self.who} may not {self.verb}, and does: {result}")
        self.counts[f"{self.verb} done"] += 1
        return result

    def check_invariants(self, settings: Any, *args: Any, **named: Any) -> None:
        super().check_invariants(settings, *args, **named)
        self.counts["steps"] += 1
        self.checks.run(self.who, rebuilt=self.rebuilt, may_change_ties=self.may_change_ties)
        self.rebuilt = False
        self._keep_files()

    def _keep_files(self) -> None:
        """Keep every state of every file with what it says, as a version control system does."""
        if not self.world.has_files:
            return
        for id_, shown in self.checks.shown.items():
            path = self.world.home / shown.path
            data, states = path.read_bytes(), self.files.setdefault(id_, [])
            if not states or states[-1][:2] != (path, data):
                states.append((path, data, copy.deepcopy(self.model[id_])))

    # --- memories

    @initialize(roles=st.lists(st.tuples(OTHER, WHERE, ROLE), max_size=3), modes=st.tuples(MODE, MODE))
    def begin(self, roles: list[tuple[str, str, Role | None]], modes: tuple[Refresh, Refresh]) -> None:
        """Begin with some rights, memories and copies, so that few of the following verbs are in vain."""
        self._begin("begin")
        self._grant(BOB, "personal", "reader")
        self._grant(BOB, "team", "writer")
        self._grant(CAROL, "vault", "writer")
        for space in SPACES[:2]:
            self._remember(space, [])
        first = self.model.live()[0]
        self._share(first, "vault", modes[0])
        self.who = BOB
        self._share(first, "team/core", modes[1])
        self.who = OWNER
        for grant in roles:
            self._grant(*grant)

    @rule(
        who=WHO,
        where=WHERE,
        links=st.lists(st.tuples(st.sampled_from(REASONING), AT), max_size=2),
        reflect=st.booleans(),
    )
    def remember(self, who: str, where: str, links: list[tuple[str, int]], reflect: bool) -> None:
        self._begin("reflect" if reflect and links else "remember", who)
        wanted = [(relation, one) for relation, at in links if (one := self._memory(at)) is not None]
        self._remember(where, wanted, reflect=reflect and bool(wanted))

    def _remember(self, where: str, wanted: list[tuple[str, Memory]], *, reflect: bool = False) -> None:
        word, book = self._word(), self.world.hands[self.who]
        may = self.model.may(self.who, where, "writer") and all(self.model.may_read(self.who, one) for _, one in wanted)
        if reflect:
            wanted = [("reflects_on", one) for _, one in wanted]
            receipt = self._try(lambda: book.reflect(text(word), [one.id for _, one in wanted], space=where), may=may)
        else:
            links = [(relation, one.id) for relation, one in wanted]
            receipt = self._try(lambda: book.remember(text(word), space=where, links=links), may=may)
        if receipt is not None:
            kind = "reflection" if reflect else "note"
            memory = Memory(receipt.id, where, (word,), kind, links={(name, one.id): one.words for name, one in wanted})
            memory.note_place()
            self.model.memories[receipt.id] = memory

    @rule(who=WHO, at=AT)
    def edit(self, who: str, at: int) -> None:
        self._begin("edit", who)
        memory = self._memory(at, lambda one: one.session is None and (at % 2 or self._has_copies(one)))
        if memory is None or memory.session is not None:
            return
        word, book = self._word(), self.world.hands[who]
        may = self.model.may_write(who, memory)
        if self._try(lambda: book.edit(memory.id, text=text(word)), may=may, must=True):
            memory.write((word,))

    @rule(who=WHO, at=AT, days=st.integers(1, 4))
    def expire(self, who: str, at: int, days: int) -> None:
        """Let a memory end in some days."""
        self._begin("expire", who)
        memory = self._memory(
            at, lambda one: ("supersedes" in {name for name, _ in one.links}) or self._has_copies(one)
        )
        if memory is None or memory.retracted:
            return
        ends, book = self.world.clock.now() + timedelta(days=days), self.world.hands[who]
        may = self.model.may_write(who, memory)
        if self._try(lambda: book.edit(memory.id, expires=ends), may=may, must=True):
            memory.ends = ends

    def _has_copies(self, memory: Memory) -> bool:
        return any(one.source == memory.id for one in self.model.live())

    @rule(who=WHO, at=AT, where=WHERE)
    def move(self, who: str, at: int, where: str) -> None:
        self._begin("move", who, ties=True)
        memory = self._memory(at, lambda one: one.session is not None)
        words = self.model.words_in(memory, where) if memory else ()
        if memory is None or not words:
            # Where all its messages were rewound, an episode does not come back.
            return
        may = self.model.may_write(who, memory) and self.model.may(who, where, "writer")
        if self._try(lambda: self.world.hands[who].move(memory.id, where), may=may, must=True):
            memory.space = where
            memory.write(words)

    @rule(who=WHO, at=AT)
    def delete(self, who: str, at: int) -> None:
        self._begin("delete", who)
        memory = self._memory(at, self._is_needed)
        if memory is None:
            return
        may = self.model.may_write(who, memory)
        if self._try(lambda: self.world.hands[who].delete(memory.id), may=may, must=True):
            memory.deleted = True

    def _is_needed(self, memory: Memory) -> bool:
        """Tell whether others depend on a memory, or are its copies."""
        links = (target for one in self.model.live() for _, target in one.links)
        return memory.id in set(links) or self._has_copies(memory)

    @rule(who=WHO, at=AT, relation=st.sampled_from([*REASONING, "supersedes", "related_to"]), to=AT)
    def link(self, who: str, at: int, relation: str, to: int) -> None:
        self._begin("link", who)
        memory, target = self._memory(at), self._memory(to)
        if memory is None or target is None or memory is target or (relation, target.id) in memory.links:
            return
        may = self.model.may_write(who, memory) and self.model.may_read(who, target)
        may = may and (relation != "supersedes" or self.model.may_write(who, target))
        if self._try(lambda: self.world.hands[who].link(memory.id, relation, target.id), may=may):
            memory.links[relation, target.id] = target.words

    @precondition(lambda self: any(one.links for one in self.model.live()))
    @rule(who=WHO, at=AT)
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
    @rule(who=WHO, at=AT)
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

    # --- copies

    @rule(who=WHO, at=AT, where=WHERE, mode=MODE)
    def share(self, who: str, at: int, where: str, mode: Refresh) -> None:
        self._begin("share", who, ties=True)
        source = self._memory(at, lambda one: at % 2 or one.bound or one.direct_sources())
        if source is not None:
            self._likely(who, where, reading=source)
            self._share(source, where, mode)

    def _share(self, source: Memory, where: str, mode: Refresh) -> None:
        may = self.model.may(self.who, where, "writer") and self.model.may_read(self.who, source)
        book = self.world.hands[self.who]
        receipt = self._try(lambda: book.share(source.id, where, refresh=mode), may=may, must=True)
        if receipt is not None and receipt.new:
            self.checks.add_copy(receipt.id, self.world.listed(OWNER))

    @precondition(lambda self: any(one.source for one in self.model.live()))
    @rule(who=WHO, at=AT, verb=st.sampled_from(COPY_VERBS), mode=MODE)
    def tend(self, who: str, at: int, verb: str, mode: Refresh) -> None:
        self._begin(verb, who, ties=verb in ("detach", "adopt", "set_refresh"))
        memory = self._memory(at, lambda one: one.source is not None)
        if memory is None:
            return
        # A copy that is detached, revoked or without its source cannot follow: the error says why.
        may = None if self.model.may_write(who, memory) else False
        if memory.source is not None and verb in ("unshare", "detach") and may is None:
            may = True
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

    @rule(who=WHO, where=WHERE, source=WHERE, at=AT)
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

    @rule(who=WHO, at=AT, where=WHERE, mode=MODE)
    def request(self, who: str, at: int, where: str, mode: Refresh) -> None:
        self._begin("request", who)
        memory = self._memory(at)
        if memory is None:
            return
        may = self.model.may(who, where, "reader") and self.model.may_read(who, memory)
        made = self._try(lambda: self.world.hands[who].request_share(memory.id, where, refresh=mode), may=may)
        if made is not None and made.id not in self.requests:
            self.requests.append(made.id)

    @precondition(lambda self: self.requests)
    @rule(who=WHO, at=AT, agree=st.booleans())
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

    # --- reasoning

    @rule(who=WHO, at=AT, by=AT)
    def supersede(self, who: str, at: int, by: int) -> None:
        self._begin("supersede", who)
        old, new = self._memory(at, self._is_needed), self._memory(by)
        if old is None or new is None or old is new:
            return
        may = self.model.may_write(who, old) and self.model.may_write(who, new)
        if self._try(lambda: self.world.hands[who].supersede(old.id, new.id, reason="newer"), may=may):
            new.links.setdefault(("supersedes", old.id), old.words)

    @precondition(lambda self: any(one.retracted or self.model.successors(one.id) for one in self.model.live()))
    @rule(who=WHO, at=AT)
    def reinstate(self, who: str, at: int) -> None:
        self._begin("reinstate", who)
        old = self._memory(at, lambda one: one.retracted or self.model.successors(one.id))
        if old is None:
            return
        may = None if self.model.may_write(who, old) else False
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
    @rule(who=WHO, at=AT, by=AT, verdict=st.sampled_from(VERDICTS))
    def triage(self, who: str, at: int, by: int, verdict: Verdict) -> None:
        self._begin("triage", who)
        shown = self.checks.shown
        memory, successor = self._memory(at, self._is_unsure), self._memory(by)
        if memory is None or successor is None or (verdict == "supersede" and memory is successor):
            return
        chosen = successor.id if verdict == "supersede" else None
        may = self.model.may_write(who, memory) and (not chosen or self.model.may_write(who, successor))
        must = verdict != "supersede" and bool(self.model.doubts(memory.id, upper=False))
        book = self.world.hands[who]
        if not self._try(lambda: book.triage(memory.id, verdict, note="so it is", by=chosen), may=may, must=must):
            return
        causes = {cause.key for cause in shown[memory.id].invalidations}
        memory.decisions |= causes
        memory.unsure.add("successor_ended")
        if verdict == "keep":
            memory.unsure.discard("source_changed")
            known = {target: self.model[target].words for _, target in memory.links if target in self.model.memories}
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

    # --- sessions

    @rule(who=WHO, name=st.sampled_from(NAMES), where=PLACE, count=st.integers(1, 3))
    def append(self, who: str, name: str, where: str | None, count: int) -> None:
        self._begin("append", who)
        words = [self._word() for _ in range(count)]
        space = where or DEFAULT_SPACE
        who, name = self._likely(who, space), self._name(name, space)
        # Only the owner has a default space here: others have no key that names one.
        may = self.model.may(who, space, "writer") and (where is not None or who == OWNER)
        receipt = self._try(lambda: self.world.append(who, name, words, where), may=may, must=True)
        if receipt is not None:
            self.model.sessions.setdefault((space, name), []).extend(Message(word) for word in words)

    def _name(self, name: str, space: str) -> str:
        """Return a name of a session; if that is left out, each space has names of its own."""
        return f"{name}.{space.replace(chr(47), chr(46))}" if "shared_names" in WITHOUT else name

    def _session(self, at: int) -> SessionKey | None:
        spoken = [key for key, messages in self.model.sessions.items() if messages]
        return spoken[at % len(spoken)] if spoken else None

    @precondition(lambda self: self._session(0))
    @rule(who=WHO, at=AT, close=st.booleans())
    def settle(self, who: str, at: int, close: bool) -> None:
        self._begin("close" if close else "settle", who)
        key = self._session(at)
        if key is None:
            return
        space, name = key
        who = self._likely(who, space)
        act = self.world.close_session if close else self.world.settle
        self._try(lambda: act(who, name, space), may=self.model.may(who, space, "writer"), must=True)

    @rule(who=WHO, names=st.permutations(NAMES), where=PLACE, reason=st.sampled_from(["new", "resume", "branch"]))
    def switch(self, who: str, names: list[str], where: str | None, reason: SwitchReason) -> None:
        self._begin("switch", who)
        space = where or DEFAULT_SPACE
        old, new = (self._name(name, space) for name in names)
        may = self.model.may(who, space, "writer") and (where is not None or who == OWNER)
        if self._try(lambda: self.world.switch(who, old, new, reason, where), may=may) is not None:
            for name in (old, new):
                self.model.sessions.setdefault((space, name), [])

    @precondition(lambda self: self._session(0))
    @rule(who=WHO, at=AT, after=st.integers(0, 4))
    def rewind(self, who: str, at: int, after: int) -> None:
        self._begin("rewind", who)
        key = self._session(at)
        if key is None:
            return
        space, name = key
        who = self._likely(who, space)
        messages = self.world.messages(OWNER, name, space) or ()
        last = messages[min(after, len(messages)) - 1] if after and messages else None
        may = self.model.may(who, space, "writer")
        if (
            self._try(lambda: self.world.rewind(who, name, last.id if last else 0, space), may=may, must=True)
            is not None
        ):
            word = words_of(last.text)[0] if last else None
            self.model.rewind(who, key, word)
            shown = self.world.listed(OWNER)
            for copy in self.model.rewound_copies():
                # A copy that was edited, or whose sharer lost the right, stays.
                copy.deleted = copy.id not in shown

    # --- principals and time

    @rule(who=OTHER, where=WHERE, role=ROLE)
    def grant(self, who: str, where: str, role: Role | None) -> None:
        self._begin("grant")
        self._grant(who, where, role or "reader")

    @precondition(lambda self: self.model.roles)
    @rule(at=AT)
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

    @rule(hours=st.sampled_from([2, 26, 26, 80, 200]), work=st.booleans())
    def wait(self, hours: int, work: bool) -> None:
        """Let time pass, and let a worker do what is due."""
        self._begin("wait")
        self.world.clock.forward(hours=hours)
        if work:
            self.world.book.work()

    # --- files, and what may happen to them and to the database

    @rule(who=WHO, at=AT)
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
    @rule(hand=HAND)
    def edit_by_hand(self, hand: tuple[str, int, str]) -> None:
        self._begin(f"hand {hand[0]}", ties=True)
        self._by_hand(*hand)
        self.world.sync()

    def _by_hand(self, verb: str, at: int, where: str, *, lost: bool = False) -> None:
        """Do to a file what a person, or a version control system, does."""
        if verb == "older":
            self._put_back(at, lost=lost)
            return
        if verb == "notice":
            self._remove_notice(at)
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
            memory.deleted, memory.forgotten = True, memory.forgotten or lost
        elif verb == "move" and where != memory.space:
            to = self.world.home / where / path.name
            if not to.exists():
                to.parent.mkdir(parents=True, exist_ok=True)
                path.rename(to)
                memory.space = where
                memory.write(self.model.words_in(memory, where) or memory.words)

    def _remove_notice(self, at: int) -> None:
        """Remove the file of a notice, as by a checkout of an older commit: that decides nothing."""
        for path in sorted(self.world.home.rglob("_invalidations/**/*.md"))[at % 3 :][:1]:
            if self.rebuilt:
                self.model.lose_notice(path.read_text())
            path.unlink()

    def _put_back(self, at: int, *, lost: bool) -> None:
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
        if lost or memory.forgotten:
            # No database knows more than this file.
            memory.decisions, memory.forgotten = set(then.decisions), False
            memory.source, memory.root, memory.mode, memory.sharer = then.source, then.root, then.mode, then.sharer
            memory.noted = then.noted
        memory.links, memory.ends, memory.took = dict(then.links), then.ends, then.took
        memory.write(then.words)
        self.model.restore_messages(memory)

    def _older(self, memory: Memory) -> list[tuple[Path, bytes, Memory]]:
        """Return the states of a file that can be put back: of an episode, only with the messages that it had."""
        states = self.files.get(memory.id, [])
        if memory.session is not None:
            return [state for state in states[-1:] if state[2].words == memory.words]
        return states if memory.deleted else states[:-1]

    @precondition(lambda self: self.world.has_files)
    @rule(hand=st.none() | HAND)
    def lose_database(self, hand: tuple[str, int, str] | None) -> None:
        """Lose `state.db`; the files are edited before anybody opens the book again."""
        self._begin("lose", ties=True)
        self.rebuilt = True
        self.model.keep_what_notices_tell()

        def meanwhile() -> None:
            self.world.lose_database()
            if hand is not None:
                self._by_hand(*hand, lost=True)

        self.world.reopen(meanwhile)
        self.model.lose_database()

    @precondition(lambda self: self.world.has_files and self.kept is not None)
    @rule(hand=st.none() | HAND)
    def put_back_database(self, hand: tuple[str, int, str] | None) -> None:
        """Put an older `state.db` back, with the files of today."""
        self._begin("older", ties=True)
        self.rebuilt = True
        self.model.keep_what_notices_tell()

        def meanwhile() -> None:
            self.world.put_back_database()
            if hand is not None:
                self._by_hand(*hand)

        self.world.reopen(meanwhile)
        assert self.kept is not None
        self.model.go_back(copy.deepcopy(self.kept))

    @rule(verb=st.sampled_from(["work", "reopen", "keep"]), again=st.booleans())
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


# --- the tests


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    """A folder for many short-lived homes: in memory where there is such a file system."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else tmp_path))
    undo = without_pauses()
    yield folder
    undo()
    shutil.rmtree(folder, ignore_errors=True)


def _machine(make_world: Callable[[], World]) -> type[Promises]:
    """Return the machine for these worlds, without the verbs that are left out."""
    left_out = {name: None for name in WITHOUT if name in vars(Promises)}
    return type("Promises", (Promises,), {"make_world": staticmethod(make_world), "counts": Counter(), **left_out})


def _run(machine: type[Promises], engine: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Try fixed histories; with the knob, new ones until the time is over, and tell what was tried."""
    if not MINUTES:
        _try(machine, HISTORIES[engine], derandomize=True)
        return
    until, begun = time.monotonic() + MINUTES * 60, time.monotonic()
    seeds: list[int] = []
    try:
        while time.monotonic() < until:
            seeds.append(SEED if SEED and not seeds else random.SystemRandom().getrandbits(32))
            _try(hypothesis.seed(seeds[-1])(type("Promises", (machine,), {})), BATCH, derandomize=False)
    finally:
        with capsys.disabled():
            print(f"\n{engine}: {time.monotonic() - begun:.0f} s, seeds {seeds}\n{dict(machine.counts)}")


def _try(machine: type[Promises], histories: int, *, derandomize: bool) -> None:
    settings = hypothesis.settings(
        max_examples=histories, stateful_step_count=STEPS, deadline=None, derandomize=derandomize, database=None,
        suppress_health_check=list(hypothesis.HealthCheck), print_blob=False, phases=PHASES, report_multiple_bugs=False,
    )  # fmt: skip
    run_state_machine_as_test(machine, settings=settings)


def test_whatever_happens_to_a_home_the_promises_hold(home, scratch, capsys):
    del home

    def make_world() -> World:
        folder = Path(tempfile.mkdtemp(dir=scratch))
        return World(Settings.load(folder / "home"), PRINCIPALS, folder)

    _run(_machine(make_world), "files", capsys)


def test_whatever_happens_to_a_book_on_a_server_the_promises_hold(
    postgres: Server, postgres_migrated: str, postgres_keys: str, scratch, capsys, monkeypatch
):
    def make_world() -> World:
        folder = Path(tempfile.mkdtemp(dir=scratch))
        address = postgres.make_database("promises", template=postgres_migrated)
        monkeypatch.setenv("COMMONBOOK_HOME", str(folder / "home"))
        monkeypatch.setenv("COMMONBOOK_DATABASE", address)
        monkeypatch.setenv("COMMONBOOK_KEYS", postgres_keys)
        return World(Settings.load(), PRINCIPALS, folder)

    _run(_machine(make_world), "server", capsys)
    postgres.drop_database("promises")
