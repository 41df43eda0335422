"""A book keeps the promises that a small model states, through random histories of principals, editors and accidents.

Hypothesis chooses the verbs. After each one, `tests/support/promise_checks.py` compares words, rights and marks with
`tests/support/promise_model.py`.

COMMONBOOK_MODEL_MINUTES   how long each engine is tried with new seeds (0: a few fixed histories)
COMMONBOOK_SEED            the first of these seeds; COMMONBOOK_EXPLORE=1 begins with another one in each run
COMMONBOOK_MODEL_STEPS     how many steps each history has at most (25)
COMMONBOOK_MODEL_REPEAT    a file with steps, as a failure has printed them: they alone are run
COMMONBOOK_MODEL_WITHOUT   names of checks and verbs to leave out, with commas between them; `shrink` to fail sooner
"""

from __future__ import annotations

import ast
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

from commonbook.core.settings.settings import Settings
from commonbook.values.memory import Refresh
from commonbook.values.spaces import Role
from tests.model.accidents import Accidents
from tests.model.copy_verbs import CopyVerbs
from tests.model.machine import (
    AGENT,
    BOB,
    CAROL,
    MODE,
    OTHER,
    OTHER_AGENT,
    PRINCIPALS,
    ROLE,
    WHERE,
    Step,
    beginning,
    repeat,
    steps_text,
)
from tests.model.memory_verbs import MemoryVerbs
from tests.model.reasoning_verbs import ReasoningVerbs
from tests.model.right_verbs import RightVerbs
from tests.model.session_verbs import SessionVerbs
from tests.support.postgres_server import Server
from tests.support.promise_facts import OWNER, SUPERSEDES
from tests.support.promise_reads import WITHOUT
from tests.support.promise_world import SPACES, World, repeatable

MINUTES = float(os.environ.get("COMMONBOOK_MODEL_MINUTES", "0"))
STEPS = int(os.environ.get("COMMONBOOK_MODEL_STEPS", "25"))
SEED = int(os.environ["COMMONBOOK_SEED"])
REPEAT = os.environ.get("COMMONBOOK_MODEL_REPEAT")
PHASES = [phase for phase in hypothesis.Phase if phase.name not in {*WITHOUT, "explain"}]
HISTORIES = {"files": 16, "server": 4}
"""How many fixed histories there are; a database on a server is slower to make than a home."""
BATCH = 25

pytestmark = [pytest.mark.promise("model.random"), pytest.mark.slow, pytest.mark.timeout(600 + MINUTES * 90)]


class Promises(MemoryVerbs, CopyVerbs, ReasoningVerbs, SessionVerbs, RightVerbs, Accidents):
    """A book with its model, and everything that may happen to it."""

    @beginning(
        roles=st.lists(st.tuples(OTHER, WHERE, ROLE), max_size=3),
        modes=st.tuples(MODE, MODE),
        review=st.sampled_from(["none", "open", "ended"]),
    )
    def begin(self, roles: list[tuple[str, str, Role | None]], modes: tuple[Refresh, Refresh], review: str) -> None:
        """Begin with some rights, memories and copies, so that few of the following verbs are in vain."""
        self._begin("begin")
        self._grant(BOB, "personal", "reader")
        self._grant(BOB, "team", "writer")
        self._grant(CAROL, "vault", "writer")
        for agent in (AGENT, OTHER_AGENT):
            self._grant(agent, "team", "writer")
        for space in SPACES[:2]:
            self._remember(space, [])
        first = self.model.live()[0]
        self._share(first, "vault", modes[0])
        self.who = BOB
        self._share(first, "team/core", modes[1])
        self.who = OWNER
        self._append("s1", [self._word()], "personal")
        if review != "none":
            self._begin_review(is_ended=review == "ended")
        for grant in roles:
            self._grant(*grant)

    def _begin_review(self, *, is_ended: bool) -> None:
        """Have agents reviewed in `team`: one of them has a copy there, which stops, and proposes a memory."""
        noted = self.model.live()[1]
        self.who = AGENT
        self._share(noted, "team/core", "live")
        self._set_review("team", review=True)
        self._remember("team", [(SUPERSEDES, noted)])
        self.who = OWNER
        self._edit(noted)
        if is_ended:
            self._set_review("team", review=False)


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    """A folder for many short-lived homes: in memory where there is such a file system."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else tmp_path))
    with repeatable():
        yield folder
    shutil.rmtree(folder, ignore_errors=True)


def _machine(make_world: Callable[[], World]) -> type[Promises]:
    """Return the machine for these worlds, without the verbs that are left out."""
    left_out = {name: None for name in WITHOUT if hasattr(Promises, name)}
    own: dict[str, Any] = {"make_world": staticmethod(make_world), "counts": Counter(), "last": [], **left_out}
    return type("Promises", (Promises,), own)


def _run(machine: type[Promises], engine: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Try fixed histories; with the knob, new ones until the time is over, and tell what was tried.

    The steps of a history that fails are printed, so that they can be repeated.
    """
    if REPEAT:
        repeat(machine, _steps(REPEAT))
        return
    try:
        if MINUTES:
            _try_for_minutes(machine, engine, capsys)
        else:
            _try(machine, HISTORIES[engine], derandomize=True)
    except BaseException:
        with capsys.disabled():
            print(f"\nthe steps of the last history on {engine}:\n{steps_text(machine.last)}")
        raise


def _try_for_minutes(machine: type[Promises], engine: str, capsys: pytest.CaptureFixture[str]) -> None:
    until, begun = time.monotonic() + MINUTES * 60, time.monotonic()
    seeds: list[int] = []
    try:
        while time.monotonic() < until:
            seeds.append(SEED + len(seeds))
            _try(hypothesis.seed(seeds[-1])(type("Promises", (machine,), {})), BATCH, derandomize=False)
    finally:
        with capsys.disabled():
            print(f"\n{engine}: {time.monotonic() - begun:.0f} s, seeds {seeds}\n{dict(machine.counts)}")


def _steps(file: str) -> list[Step]:
    return list(ast.literal_eval(Path(file).read_text()))


def _try(machine: type[Promises], histories: int, *, derandomize: bool) -> None:
    settings = hypothesis.settings(
        max_examples=histories, stateful_step_count=STEPS, deadline=None, derandomize=derandomize, database=None,
        suppress_health_check=list(hypothesis.HealthCheck), print_blob=False, phases=PHASES, report_multiple_bugs=False,
    )  # fmt: skip
    run_state_machine_as_test(machine, settings=settings)


def test_a_history_that_is_repeated_ends_as_before(home, scratch):
    del home
    machine = _machine(lambda: _world_of_files(scratch))
    _try(machine, 4, derandomize=True)
    steps = list(machine.last)
    assert len(steps) > 10
    assert repeat(machine, steps) == repeat(machine, steps)


def _world_of_files(scratch: Path) -> World:
    folder = Path(tempfile.mkdtemp(dir=scratch))
    return World(Settings.load(folder / "home"), PRINCIPALS, folder)


def test_whatever_happens_to_a_home_the_promises_hold(home, scratch, capsys):
    del home
    _run(_machine(lambda: _world_of_files(scratch)), "files", capsys)


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
