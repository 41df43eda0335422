"""A process may die or stop at any moment; every acknowledged change is stored, once and whole.

COMMONBOOK_KILLS     how many times the working process is killed (10; the full setting is 50)
COMMONBOOK_SEED      what the random moments follow from
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sqlite3
import time
from contextlib import closing, nullcontext, suppress
from pathlib import Path

import pytest

import commonbook
from commonbook.core.files import write_out
from commonbook.engines.disk import signing_keys
from commonbook.engines.disk.home_folder import HomeFolder
from commonbook.engines.sqlite.migrations import MIGRATIONS
from commonbook.errors import HomeDamaged, HomeOfAnotherBuild, KeyMissing
from commonbook.values.spaces import FILESYSTEM
from tests.support import crashing
from tests.support.crash_child import POINTS
from tests.support.crashing import Ledger, Op, do, look_at, settle, start, text_of
from tests.support.postgres_server import wait_until_alone

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("COMMONBOOK_KILLS", "10"))
SEED = os.environ["COMMONBOOK_SEED"]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


# --- kill -9


@pytest.mark.promise("writes.durable")
@pytest.mark.timeout(120 + 10 * KILLS)
def test_what_was_acknowledged_survives_kill_minus_nine_at_any_moment(place):
    dice, ledger = random.Random(SEED), Ledger()
    operations = 0
    for round_ in range(KILLS):
        reports = _killed(place, f"{SEED}-{round_}", dice)
        under_way = None
        for line in reports:
            if "begin" in line:
                under_way = line["begin"]
            elif under_way:
                ledger.write(under_way, line["done"])
                under_way, operations = None, operations + 1
        ledger = settle(ledger, under_way, place)
    assert operations > KILLS, "the child never got far enough to prove anything"


def _killed(place: Path | str, seed: str, dice: random.Random) -> list[Op]:
    """Let a child work and kill it at a random moment; return its reports."""
    child = start("work", place, seed)
    lines: list[bytes] = []
    assert child.stdout
    try:
        if dice.random() < 0.2:
            time.sleep(dice.uniform(0, 0.5))  # while it starts, opens the home, repairs it
        else:
            wanted = dice.randrange(1, 40)
            while len(lines) < wanted and (line := child.stdout.readline()):
                lines.append(line)
            time.sleep(dice.expovariate(200))
        child.send_signal(signal.SIGKILL)
        lines += child.stdout.readlines()
    finally:
        child.kill()
        child.communicate()
    assert child.returncode == -signal.SIGKILL, "the child did not live long enough to be killed"
    if isinstance(place, str):
        wait_until_alone(place)
    return [json.loads(line) for line in lines]


# --- crashes at chosen points

_TITLE: Op = {"title": "one", "tags": ["x"], "space": "a"}

VERBS: dict[str, Op] = {
    "remember": {"verb": "remember", "text": "new*6000", "title": "new", "space": "a", "tags": ["y"]},
    "remember in a new space": {"verb": "remember", "text": "new*20", "title": "new", "space": "new/space"},
    "remember many": {
        "verb": "remember_many",
        "drafts": [{"text": f"new{at}*500", "title": f"new {at}", "space": "ab"[at % 2]} for at in range(9)],
    },
    "edit the text": {"verb": "edit", "text": "changed*9000"},
    "edit the tags": {"verb": "edit", "tags": ["other"]},
    "move": {"verb": "move", "space": "b"},
    "delete": {"verb": "delete"},
    "rename the space": {"verb": "rename", "old": "a", "new": "c/d"},
    "take in a save": {"verb": "save", "text": "typed*40"},
}


@pytest.mark.promise("writes.whole")
@pytest.mark.parametrize("verb", VERBS)
def test_a_crash_at_any_point_leaves_all_of_a_change_or_nothing(tmp_path, verb):
    original, ledger = tmp_path / "original", Ledger()
    with closing(commonbook.open(original, create=True)) as book:
        for text in ("first*60", "other*60"):
            op = {"verb": "remember", "text": text, **_TITLE}
            ledger.write(op, do(book, op))
        first = next(iter(ledger.memories))
        op = {"verb": "edit", "id": first, "text": "second*60"}
        ledger.write(op, do(book, op))
    op = {"id": first, **VERBS[verb]} if "drafts" not in VERBS[verb] else VERBS[verb]
    if verb.startswith("remember"):
        op.pop("id", None)
    cases = []
    for number, point in enumerate(POINTS):
        shutil.copytree(original, tmp_path / str(number))
        cases.append({"home": str(number), "point": point, "ops": [op]})
    ends = crashing.run("crash", tmp_path, stdin=cases)
    assert 77 in ends, "no point was reached"
    assert ends[-1] == 0, "the operation does not work without a crash either"
    wrong = {}
    for case, end in zip(cases, ends, strict=True):
        try:
            found = settle(ledger, op, tmp_path / case["home"])
            if case["point"] == "before the commit" and verb != "take in a save":
                assert found is ledger, "something happened before it was committed"
            elif end == 0 or case["point"] not in {"before the commit", "during the strike-off"}:
                assert found is not ledger, "something committed did not happen"
            assert settle(found, None, tmp_path / case["home"]) is found
        except AssertionError as error:
            wrong[case["point"]] = str(error)
    assert not wrong, "\n".join(f"crashed {point}: {why}" for point, why in wrong.items())


@pytest.mark.promise("writes.files-follow")
@pytest.mark.parametrize("first", ["after the commit", "before the flush"])
@pytest.mark.parametrize("verb", ["remember", "edit the text", "move", "delete", "take in a save"])
def test_crashing_again_while_repairing_a_crash_changes_nothing(tmp_path, verb, first):
    home, ledger = tmp_path / "home", Ledger()
    with closing(commonbook.open(home, create=True)) as book:
        op = {"verb": "remember", "text": "first*60", **_TITLE}
        ledger.write(op, do(book, op))
    op = {"id": next(iter(ledger.memories)), **VERBS[verb]} if verb != "remember" else VERBS[verb]
    assert _crash(tmp_path, home="home", point=first, ops=[op]) == 77
    cases = [{"home": str(at), "point": point, "ops": [], "early": True} for at, point in enumerate(POINTS)]
    for case in cases:
        shutil.copytree(home, tmp_path / case["home"])
    assert 77 in crashing.run("crash", tmp_path, stdin=cases)
    for case in cases:
        found = settle(ledger, op, tmp_path / case["home"])
        assert found is not ledger, case["point"]


def _crash(folder: Path, **case: object) -> int:
    return int(crashing.run("crash", folder, stdin=[case])[0])


def test_a_hand_edit_stays_on_top_through_two_crashes(home):
    """A person edits a file that a crashed process left unfinished business with; repairing it crashes as well."""
    remember = {"verb": "remember", "text": "first*60", **_TITLE}
    assert _crash(home.parent, home="home", point="before the flush", ops=[remember]) == 77
    crashing.save(next(home.rglob("*.md")), "typed after the crash")
    _crash(home.parent, home="home", point="before the flush", ops=[], early=True)
    with closing(commonbook.open(home, create=True)) as book:
        memory = book.list().items[0]
        assert memory.text == "typed after the crash"
        assert [one.text for one in book.history(memory.id)] == [text_of("first*60"), "typed after the crash"]
    assert look_at(home).wrong == []


# --- stopped processes


def _remembered(home: Path) -> tuple[str, Path]:
    with closing(commonbook.open(home, create=True)) as book:
        receipt = book.remember("first", title="one", space="a")
    return receipt.id, home / receipt.path


@pytest.fixture
def stopped():
    """Start children that stop themselves, and see to it that none is left behind."""
    children = []

    def begin(home, point, op, wait=10.0):
        child = start("stop", home, point, wait)
        children.append(child)
        crashing.say(child, op)
        crashing.wait_until_stopped(child)
        return child

    yield begin
    for child in children:
        child.kill()
        child.communicate()


def _go_on(child) -> None:
    child.send_signal(signal.SIGCONT)
    crashing.finish(child)


@pytest.mark.parametrize("newer", ["edit", "edit and close", "move", "delete", "rename"])
def test_a_journal_entry_that_was_overtaken_never_overwrites_what_is_newer(home, stopped, newer):
    id_, _ = _remembered(home)
    child = stopped(home, "after the commit", {"verb": "edit", "id": id_, "text": "from the stopped one*3000"})
    book = commonbook.open(home, create=True)
    book.edit(id_, text="newer")
    if newer == "edit and close":
        book.close()
        book = commonbook.open(home)
    elif newer == "move":
        book.move(id_, "b")
    elif newer == "delete":
        book.delete(id_)
    elif newer == "rename":
        book.rename_space("a", "b")
    _go_on(child)
    book.close()
    found = look_at(home)
    assert found.wrong == []
    assert [text for _, text in found.memories[id_].revisions] == [
        "first",
        text_of("from the stopped one*3000"),
        "newer",
    ]
    assert found.memories[id_].deleted is (newer == "delete")
    assert found.memories[id_].space == ("b" if newer in {"move", "rename"} else "a")


def test_who_carries_out_an_overtaken_entry_writes_what_is_newer(home, stopped, monkeypatch):
    id_, file = _remembered(home)
    child = stopped(home, "after the commit", {"verb": "edit", "id": id_, "text": "from the stopped one*3000"})
    with monkeypatch.context() as patch:
        # This one cannot have the files, so its entry is still in the journal when the stopped one goes on.
        patch.setattr(HomeFolder, "lock", lambda _self, *, wait: nullcontext(enter_result=False))
        with closing(commonbook.open(home, create=True)) as book:
            book.edit(id_, text="newer")
        assert crashing.read(file)[1] == "first"
        _go_on(child)
        assert crashing.read(file)[1] == "newer"
    found = look_at(home)
    assert found.wrong == []
    assert [text for _, text in found.memories[id_].revisions] == [
        "first",
        text_of("from the stopped one*3000"),
        "newer",
    ]


def test_the_journal_entry_of_a_killed_process_never_overwrites_what_is_newer(home, stopped):
    id_, file = _remembered(home)
    child = stopped(home, "after the commit", {"verb": "edit", "id": id_, "text": "from the killed one"})
    with closing(commonbook.open(home, create=True)) as book:
        book.edit(id_, text="newer")
        child.kill()
        book.sync()
    found = look_at(home)
    assert found.wrong == []
    assert crashing.read(file)[1] == "newer"
    assert [text for _, text in found.memories[id_].revisions] == ["first", "from the killed one", "newer"]


@pytest.mark.parametrize("point", ["with the files locked", "after the exchange"])
def test_a_stopped_process_that_holds_the_files_does_not_keep_others_from_writing(home, stopped, point, monkeypatch):
    id_, file = _remembered(home)
    book = commonbook.open(home, create=True)
    child = stopped(home, point, {"verb": "edit", "id": id_, "text": "from the stopped one"})
    monkeypatch.setattr(write_out, "_LOCK_WAIT_SECONDS", 0.3)
    begun = time.monotonic()
    book.edit(id_, text="newer")
    other = book.remember("quite another", space="b")
    assert time.monotonic() - begun < 30
    assert book.get(id_).text == "newer"
    # The two memories, and the file that makes the folder of the second one a space.
    assert book.status().pending_files == 3
    assert not (home / other.path).exists()
    _go_on(child)
    book.sync()
    assert crashing.read(file)[1] == "newer"
    assert crashing.read(home / other.path)[1] == "quite another"
    book.close()
    found = look_at(home)
    assert found.wrong == []
    assert [text for _, text in found.memories[id_].revisions] == ["first", "from the stopped one", "newer"]


def test_a_strike_off_of_long_ago_does_not_strike_off_the_same_path_issued_anew(home, monkeypatch):
    idle, busy = commonbook.open(home, create=True), commonbook.open(home)
    receipt = idle.remember("there and back", space="a")
    busy.rename_space("a", "b")
    real = write_out.write_out

    def meanwhile(*args, **named):
        monkeypatch.setattr(write_out, "write_out", real)
        idle.remember("something else", space="x")
        return real(*args, **named)

    monkeypatch.setattr(write_out, "write_out", meanwhile)
    busy.rename_space("b", "a")
    assert (home / busy.get(receipt.id).path).exists()
    idle.close()
    busy.close()
    found = look_at(home)
    assert found.wrong == []
    assert found.memories[receipt.id].space == "a"


# --- a file that cannot be written


def test_a_file_that_cannot_be_written_fails_its_change_and_never_closes_the_home(home, tmp_path):
    with closing(commonbook.open(home, create=True)) as book:
        book.remember("first", space="a")
    (tmp_path / "elsewhere").mkdir()
    (home / "b").symlink_to(tmp_path / "elsewhere")
    before = look_at(home)
    with closing(commonbook.open(home)) as book:
        with pytest.raises(commonbook.errors.CommonbookError):
            book.remember("second", space="b")
        assert book.remember("third", space="a").version == 1
    (home / "b").unlink()
    found = look_at(home)
    assert found.wrong == []
    assert {memory.text for memory in found.memories.values()} == {"first", "third"}
    assert len(found.memories) == len(before.memories) + 1


# --- a log entry that cannot be written


def _no_signature(monkeypatch, _home):
    def fail(_self, _message):
        raise KeyMissing("the key is gone", fix="bring it back")

    monkeypatch.setattr(signing_keys.KeyFiles, "sign", fail)
    return KeyMissing


def _no_entry(_monkeypatch, home):
    _run_sql(home, "CREATE TRIGGER no_entry BEFORE INSERT ON log_entry BEGIN SELECT RAISE(ABORT, 'no'); END")
    return HomeDamaged


def _no_head(_monkeypatch, home):
    _run_sql(home, "CREATE TRIGGER no_head BEFORE UPDATE ON log_head BEGIN SELECT RAISE(ABORT, 'no'); END")
    return HomeDamaged


def _run_sql(home: Path, statement: str) -> None:
    with closing(sqlite3.connect(home / ".commonbook" / "state.db", isolation_level=None)) as db:
        db.execute(statement)


@pytest.mark.promise("log.chain")
@pytest.mark.parametrize("broken", [_no_signature, _no_entry, _no_head])
def test_a_log_entry_that_cannot_be_written_fails_its_change(home, monkeypatch, broken):
    id_, file = _remembered(home)
    before = look_at(home)
    with closing(commonbook.open(home, create=True)) as book, monkeypatch.context() as patch:
        error = broken(patch, home)
        for change in (
            lambda: book.remember("never", space="a", key="k"),
            lambda: book.edit(id_, text="never"),
            lambda: book.edit(id_, tags=["never"]),
            lambda: book.move(id_, "b"),
            lambda: book.delete(id_),
            lambda: book.rename_space("a", "c"),
        ):
            with pytest.raises(error):
                change()
            assert book.status().pending_files == 0
        crashing.save(file, "typed by hand")
        with pytest.raises(error):
            book.sync()
        assert crashing.read(file)[1] == "typed by hand"
        assert [one.text for one in book.history(id_)] == ["first"]
    _run_sql(home, "DROP TRIGGER IF EXISTS no_entry")
    _run_sql(home, "DROP TRIGGER IF EXISTS no_head")
    found = look_at(home)
    assert found.wrong == []
    before.memories[id_].say("one", "typed by hand")
    before.memories[id_].next("edit", FILESYSTEM)
    assert found.memories == before.memories
    with closing(commonbook.open(home)) as book:
        assert book.remember("never", space="a", key="k").new


def test_a_home_whose_key_is_gone_changes_nothing(home):
    id_, file = _remembered(home)
    key = home / ".commonbook" / "keys" / "signing.key"
    kept = key.read_bytes()
    key.unlink()
    with closing(commonbook.open(home, create=True)) as book:
        with pytest.raises(KeyMissing):
            book.edit(id_, text="never")
        assert book.get(id_).text == "first"
    assert not key.exists()
    key.write_bytes(kept)
    key.chmod(0o600)
    assert crashing.read(file)[1] == "first"
    assert look_at(home).wrong == []


# --- a newer program


def _snapshot(home: Path) -> dict[str, bytes]:
    return {
        path.relative_to(home).as_posix(): path.read_bytes()
        for path in home.rglob("*")
        if path.is_file() and not path.name.endswith(("-shm", ".lock", ".turn"))
    }


def _migrated_by_a_newer_program(home: Path, *, crashed: bool) -> None:
    script = (
        "import os, sqlite3, sys\n"
        "db = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "db.execute('CREATE TABLE from_the_future (x)')\n"
        f"db.execute('PRAGMA user_version={len(MIGRATIONS) + 1}')\n"
        "os._exit(0) if sys.argv[2] == 'crashed' else db.close()\n"
    )
    crashing.script(script, home / ".commonbook" / "state.db", "crashed" if crashed else "closed")


@pytest.mark.promise("builds.refused")
@pytest.mark.parametrize("crashed", [False, True], ids=["closed", "crashed"])
def test_a_newer_home_is_refused_and_not_touched(home, crashed):
    _id, file = _remembered(home)
    _migrated_by_a_newer_program(home, crashed=crashed)
    crashing.save(file, "typed by hand")
    before = _snapshot(home)
    for _ in range(2):
        with pytest.raises(HomeOfAnotherBuild):
            commonbook.open(home, create=True)
    assert _snapshot(home) == before


@pytest.mark.promise("builds.refused")
def test_an_open_book_stops_cleanly_when_a_newer_program_migrates_its_home(home):
    id_, file = _remembered(home)
    book = commonbook.open(home, create=True)
    book.edit(id_, text="second")
    _migrated_by_a_newer_program(home, crashed=False)
    for verb in (
        lambda: book.get(id_),
        lambda: book.list(),
        lambda: book.edit(id_, text="never"),
        lambda: book.remember("never", space="a"),
        lambda: book.delete(id_),
        lambda: book.sync(),
        lambda: book.status(),
    ):
        with pytest.raises(HomeOfAnotherBuild):
            verb()
    assert crashing.read(file)[1] == "second"
    with suppress(HomeOfAnotherBuild):
        book.close()
    _run_sql(home, f"PRAGMA user_version={len(MIGRATIONS)}")
    _run_sql(home, "DROP TABLE from_the_future")
    found = look_at(home)
    assert found.wrong == []
    assert [text for _, text in found.memories[id_].revisions] == ["first", "second"]
