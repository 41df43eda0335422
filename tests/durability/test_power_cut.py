"""The power fails at any moment; every acknowledged change is on the disk, whole, and so is its file.

A child's system calls are recorded with strace and fed to a disk that loses what was not synced
(tests/support/power_cuts.py).
The home that is left is opened by the real program.

COMMONBOOK_CUTS      how many random cuts are tried beside those after every sync (60)
COMMONBOOK_SEED      what the random cuts follow from
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from commonbook.engines.process import SystemClock
from commonbook.engines.sqlite.database import SqliteDatabase
from commonbook.engines.sqlite.migrations import MIGRATIONS
from tests.support import crashing
from tests.support.crashing import Ledger, Op, settle
from tests.support.power_cuts import CALLS, Call, Disk, acknowledgements, read_trace

CUTS = int(os.environ.get("COMMONBOOK_CUTS", "60"))
SEED = os.environ["COMMONBOOK_SEED"]

pytestmark = [
    pytest.mark.promise("writes.durable"),
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="strace is on Linux only"),
]


def recorded(tmp_path: Path, name: str, mode: str, *args: object, stdin: object) -> list[Call]:
    """Run a child under strace; return its calls."""
    trace = tmp_path / f"{name}.trace"
    subprocess.run(
        [
            "strace",
            "-f",
            "-y",
            "-xx",
            "-s",
            "9999999",
            "-e",
            f"trace={CALLS}",
            "-o",
            trace,
            *crashing.command(mode, *args),
        ],
        input=json.dumps(stdin).encode(),
        stdout=subprocess.PIPE,
        cwd=Path(__file__).resolve().parents[2],
        env=crashing.environment(),
        check=True,
        timeout=100,
    )
    return read_trace(trace)


def _draft(text: str, space: str = "a") -> Op:
    return {"text": text, "title": text.partition("*")[0], "space": space, "tags": ["x"]}


SCRIPT: list[Op] = [
    {"verb": "remember", **_draft("zero*50")},
    {"verb": "remember", **_draft("one*60000", "b/c")},
    {"verb": "edit", "at": 0, "text": "zero again*50"},
    {"verb": "edit", "at": 1, "tags": ["y"]},
    {"verb": "move", "at": 0, "space": "d"},
    {"verb": "remember_many", "drafts": [_draft(f"batch {at}*3000", "abe"[at % 3]) for at in range(6)]},
    {"verb": "save", "at": 1, "text": "one by hand*50"},
    {"verb": "delete", "at": 2},
    {"verb": "rename", "old": "b/c", "new": "f"},
    {"verb": "reopen"},
    {"verb": "edit", "at": 1, "text": "one at last*9000"},
    {"verb": "delete", "at": 1},
    {"verb": "remember", **_draft("the end*20", "f")},
]


class Cutter:
    """Replays a recording on the model disk and checks the home that each power cut leaves."""

    def __init__(self, tmp_path: Path, disk: Disk, home: str = ".") -> None:
        self.tmp_path, self.disk, self.home, self.number = tmp_path, disk, home, 0
        self.ledger = Ledger()

    def play(
        self, calls: list[Call], *, cut_at: set[int], dice: random.Random | None, beyond: Op | None = None
    ) -> None:
        """Cut at some calls and at every acknowledgement; `beyond` is the operation under way after the last."""
        acknowledged = dict(acknowledgements(calls))
        answers = [json.loads(line) for line in acknowledged.values()]
        done = 0
        for at, call in enumerate(calls):
            self.disk.feed(call)
            if at in acknowledged:
                self.ledger.write(answers[done]["op"], answers[done]["answer"])
                done += 1
            if at in cut_at or (at in acknowledged and dice is None):
                under_way = answers[done]["op"] if done < len(answers) else beyond
                self.try_cut(under_way, dice, f"after call {at}: {_brief(call)}")

    def try_cut(self, under_way: Op | None, dice: random.Random | None, when: str) -> None:
        self.number += 1
        left = self.tmp_path / f"left-{self.number}"
        self.disk.cut(left, dice)
        try:
            settle(self.ledger, under_way, left / self.home)
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            raise AssertionError(f"the power failed {when} (seed {SEED}), and then: {why}") from error
        shutil.rmtree(left)


def _brief(call: Call) -> str:
    names = [one.decode("latin1")[-60:] for one in call.strings[:2] if len(one) < 300]
    return f"{call.name} {names or call.args[:0]}"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def disk(home: Path) -> Disk:
    return Disk(home)


@pytest.fixture
def script(tmp_path: Path, home: Path) -> list[Call]:
    calls = recorded(tmp_path, "script", "ops", home, stdin=SCRIPT)
    assert len(list(acknowledgements(calls))) == len(SCRIPT)
    return calls


def _syncs(calls: list[Call]) -> set[int]:
    return {at for at, call in enumerate(calls) if call.name in {"fsync", "fdatasync"}}


def test_everything_acknowledged_outlives_a_power_cut_that_takes_all_that_was_not_synced(tmp_path, disk, script):
    first = next(at for at, _ in acknowledgements(script))
    Cutter(tmp_path, disk).play(script, cut_at={at for at in _syncs(script) if at > first}, dice=None)


@pytest.mark.timeout(120 + CUTS)
def test_everything_acknowledged_outlives_a_power_cut_that_takes_some_of_what_was_not_synced(tmp_path, disk, script):
    dice = random.Random(SEED)
    changing = [at for at, call in enumerate(script) if call.name != "openat"]
    first = next(at for at, _ in acknowledgements(script))
    points = dice.sample([at for at in changing if at > first], CUTS)
    Cutter(tmp_path, disk).play(script, cut_at=set(points), dice=dice)


def test_a_home_whose_making_was_cut_off_opens_as_if_it_were_new(tmp_path, disk, script):
    first = next(at for at, _ in acknowledgements(script))
    points = set(range(0, first, 7)) | _syncs(script[:first])
    Cutter(tmp_path, disk).play(script[:first], cut_at=points, dice=random.Random(SEED), beyond=SCRIPT[0])


def test_a_database_whose_making_was_cut_off_is_made_again(tmp_path, disk, script):
    dice = random.Random(SEED)
    for at, call in enumerate(script):
        disk.feed(call)
        if call.name not in {"pwrite64", "ftruncate", "rename", "unlink", "fsync", "fdatasync"}:
            continue
        for number in range(CUTS // 10):
            left = tmp_path / f"left-{at}-{number}"
            database = _cut(disk, left, dice)
            # Where nothing is left of it, one of the cuts is enough.
            if database.parent.exists() and (_size(database) or number == 0):
                _open_database(database, f"after call {at}: {_brief(call)} (seed {SEED})")
            shutil.rmtree(left)
        if _size(_cut(disk, tmp_path / f"left-{at}", None)):
            return
    raise AssertionError("the database was never made durable")


def _cut(disk: Disk, left: Path, dice: random.Random | None) -> Path:
    disk.cut(left, dice)
    return left / ".commonbook" / "state.db"


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _open_database(path: Path, when: str) -> None:
    try:
        database = SqliteDatabase(str(path), migrations=MIGRATIONS, clock=SystemClock(), busy_seconds=1)
    except Exception as error:
        raise AssertionError(f"the power failed {when}, and then: {error}") from error
    assert database.damage() == []
    database.close()


def test_a_home_that_we_made_is_there_when_its_first_memory_is_acknowledged(tmp_path):
    (tmp_path / "disk").mkdir()
    calls = recorded(tmp_path, "script", "ops", tmp_path / "disk" / "new" / "home", stdin=SCRIPT[:2])
    Cutter(tmp_path, Disk(tmp_path / "disk"), "new/home").play(calls, cut_at=set(), dice=None)


@pytest.mark.parametrize(
    "point", ["before the file", "before the exchange", "before the flush", "after the file is taken away"]
)
@pytest.mark.parametrize("verb", ["remember", "edit", "move", "delete", "rename"])
def test_what_a_repair_found_already_done_is_made_safe_before_it_is_struck_off(tmp_path, disk, home, verb, point):
    """A process is killed between changing a file and syncing its folder; another repairs it; then the power goes."""
    cutter = Cutter(tmp_path, disk)
    cutter.play(recorded(tmp_path, "first", "ops", home, stdin=SCRIPT[:2]), cut_at=set(), dice=None)
    disk.new_process()
    id_ = next(iter(cutter.ledger.memories))
    op: Op = {
        "remember": {"verb": "remember", **_draft("two*50", "new")},
        "edit": {"verb": "edit", "id": id_, "text": "changed*50"},
        "move": {"verb": "move", "id": id_, "space": "elsewhere"},
        "delete": {"verb": "delete", "id": id_},
        "rename": {"verb": "rename", "old": "a", "new": "renamed"},
    }[verb]
    crash = {"home": home.name, "point": point, "ops": [op]}
    for call in recorded(tmp_path, "crash", "crash", home.parent, stdin=[crash]):
        disk.feed(call)
    disk.new_process()
    # The killed process did not acknowledge the operation, so it counts as under way until the repair.
    after = [{"verb": "sync"}, {"verb": "remember", **_draft("after*50", "z")}]
    repair = recorded(tmp_path, "repair", "ops", home, stdin=after)
    acknowledged = [(at, json.loads(line)) for at, line in acknowledgements(repair)]
    for at, call in enumerate(repair):
        disk.feed(call)
        if at == acknowledged[1][0]:
            break
    cutter.ledger.write(acknowledged[1][1]["op"], acknowledged[1][1]["answer"])
    cutter.try_cut(op, None, "after the repair")
