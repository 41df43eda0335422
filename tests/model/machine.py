"""The machine of the random test: it chooses arguments, runs verbs, compares, and keeps the steps of its history.

Its verbs are in the modules beside this one, by subject. `verb` makes a rule of Hypothesis of a method and records
each call, so that the steps of a failure can be printed and run again (`repeat`).
"""

from __future__ import annotations

import copy
import functools
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from commonbook.errors import CommonbookError, NotAllowed, NotFound, TooMany
from tests.support.promise_checks import Checks
from tests.support.promise_facts import OWNER, Memory
from tests.support.promise_model import Model
from tests.support.promise_world import SPACES, World

BOB, CAROL, AGENT, OTHER_AGENT = "user:bob", "user:carol", "agent:dave", "agent:eve"
PRINCIPALS = (OWNER, BOB, CAROL, AGENT, OTHER_AGENT)
NAMES = ("s1", "s2")

AT = st.integers(0, 30)
"""An index into whatever list a verb chooses from, modulo its length."""
WHO = st.sampled_from([OWNER, OWNER, OWNER, BOB, BOB, CAROL, AGENT, OTHER_AGENT])
OTHER = st.sampled_from([BOB, CAROL, AGENT, OTHER_AGENT])
WHERE = st.sampled_from(SPACES)
PLACE = st.sampled_from([None, *SPACES])
MODE = st.sampled_from(["live", "live", "lazy", "snapshot"])
ROLE = st.sampled_from([None, "reader", "writer", "writer", "admin"])

Step = tuple[str, dict[str, Any]]
T = TypeVar("T")
Verb = Callable[..., None]


def verb(**arguments: st.SearchStrategy[Any]) -> Callable[[Verb], Verb]:
    """Make a rule of a method, and keep what it was called with."""
    return lambda function: rule(**arguments)(_recorded(function))  # type: ignore[call-overload]


def beginning(**arguments: st.SearchStrategy[Any]) -> Callable[[Verb], Verb]:
    """Make a method the first step of every history."""
    return lambda function: initialize(**arguments)(_recorded(function))  # type: ignore[call-overload]


def _recorded(function: Verb) -> Verb:
    @functools.wraps(function)
    def recorded(machine: Machine, **chosen: Any) -> None:
        machine.steps.append((function.__name__, copy.deepcopy(chosen)))
        function(machine, **chosen)

    return recorded


class Machine(RuleBasedStateMachine):
    """A book with its model."""

    make_world: Callable[[], World]
    counts: ClassVar[Counter[str]] = Counter()
    last: ClassVar[list[Step]] = []
    """The steps of the newest history."""

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
        self.switched = False
        self.steps = type(self).last
        self.steps.clear()
        self.counts["histories"] += 1

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
        """Choose mostly another than the owner who may write to a space, if the chosen one may not and there is one."""
        others = [one for one in PRINCIPALS[1:] if self.model.may(one, space, "writer")]
        others = [one for one in others if reading is None or self.model.may_read(one, reading)]
        is_kept = who in others or who == OWNER or not others or self.checks.turn % 3 == 0
        self.who = who if is_kept else others[0]
        return self.who

    def _has_copies(self, memory: Memory) -> bool:
        return any(one.source == memory.id for one in self.model.live())

    def _is_needed(self, memory: Memory) -> bool:
        """Tell whether others depend on a memory, or are its copies."""
        links = (target for one in self.model.live() for _, target in one.links)
        return memory.id in set(links) or self._has_copies(memory)

    # --- running a verb

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

    def _expect_refusals(self, act: Callable[[str], object], principals: Iterable[str]) -> None:
        """Let principals try a verb that they may not run, before another one runs it."""
        chosen = self.who
        for self.who in principals:
            self._try(functools.partial(act, self.who), may=False)
        self.who = chosen

    def check_invariants(self, settings: Any, *args: Any, **named: Any) -> None:
        super().check_invariants(settings, *args, **named)
        self.compare()

    def compare(self) -> None:
        """Compare the book with the model after a step."""
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


def repeat(machine_type: type[Machine], steps: Iterable[Step]) -> list[Model]:
    """Run the steps of a history again; return the model after each."""
    machine, states = machine_type(), []
    try:
        machine.compare()
        for name, arguments in steps:
            getattr(machine, name)(**copy.deepcopy(arguments))
            machine.compare()
            states.append(copy.deepcopy(machine.model))
    finally:
        machine.teardown()
    return states


def steps_text(steps: Sequence[Step]) -> str:
    """Return the steps as a literal of Python, a line each."""
    return "\n".join(["[", *(f"  {step!r}," for step in steps), "]"])
