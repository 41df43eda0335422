"""Sharing while others do the opposite, in real processes: after every round rows, links, log and files agree.

COMMONBOOK_ROUNDS   how many rounds of each fight there are (3; the full setting is 200)
COMMONBOOK_COPIES   how many live copies a source has whose worker is killed (240; the full setting is 5000)
COMMONBOOK_SEED     the seed of the random numbers
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from commonbook.core.log import chain
from commonbook.core.tables import jobs, links, memories, spaces
from commonbook.core.write import transaction
from commonbook.core.write.context import WriteContext
from commonbook.service.book import Book
from commonbook.subjects.sharing import make_copy, propagate
from commonbook.values.memory import DETACHED, LIVE, Filter, Refresh
from commonbook.values.request import OWNER_CONTEXT
from commonbook.values.spaces import LOCAL_OWNER
from tests.support import crashing
from tests.support.crashing import look_at
from tests.support.sharing_child import Children, Deed, children

ROUNDS = int(os.environ.get("COMMONBOOK_ROUNDS", "3"))
COPIES = int(os.environ.get("COMMONBOOK_COPIES", "240"))
SEED = os.environ["COMMONBOOK_SEED"]
ALICE = "user:alice"
# Errors that are right when a concurrent operation came first.
FAIR = {"not_found", "conflict", "bad_input", "not_allowed", "space_exists"}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180 + 10 * ROUNDS + COPIES // 4)]


# --- what must always be true


def wrong_with_copies(book: Book, *, log: bool = True) -> list[str]:
    """Return contradictions between memories, links, copy rows and the log."""
    wrong: list[str] = []
    with book._engines.db.reading() as tx:
        all_spaces = spaces.get_all(tx)
        found = {
            memory.id: memory
            for space in all_spaces
            for memory in memories.in_space(tx, all_spaces, space, limit=10**6)
        }
        bound = {row[2]: tuple(row) for row in tx.rows("SELECT space, root, memory, source, mode FROM copy")}
        linked = {tuple(row) for row in tx.rows("SELECT space, source, relation, target, target_hash FROM link")}
        count = tx.rows("SELECT count(*) FROM copy")[0][0]
    should: dict[str, tuple[Any, ...]] = {}
    for memory in found.values():
        for link in memory.links:
            if (memory.space.id, memory.id, link.relation, link.target, link.target_hash) not in linked:
                wrong.append(f"{memory.id}: its link {link} is in no row")
        if memory.shared is None:
            continue
        if memory.source is None or memory.source.target not in found:
            wrong.append(f"{memory.id} is a copy of {memory.source}, which never was")
            continue
        if memory.deleted is None and memory.shared.mode != DETACHED:
            should[memory.id] = (
                memory.space.id,
                memory.shared.root,
                memory.id,
                memory.source.target,
                memory.shared.mode,
            )
        source = found[memory.source.target]
        took = memory.copy_hash == source.content_hash
        if took and memory.deleted is None and memory.shared.mode != DETACHED and memory.text != source.text:
            wrong.append(f"{memory.id} has the hash of its source and says {memory.text!r}")
    if bound != should or count != len(should):
        wrong.append(f"copy rows: {sorted(bound.values())}\nshould be {sorted(should.values())}")
    twice = [pair for pair, times in Counter((row[0], row[1]) for row in should.values()).items() if times > 1]
    wrong += [f"{pair} has two copies" for pair in twice]
    named = {
        (memory.space.id, memory.id, link.relation, link.target) for memory in found.values() for link in memory.links
    }
    wrong += [f"orphan link {row}" for row in linked if row[:4] not in named]
    return wrong + (_wrong_log(book, found) if log else [])


def _wrong_log(book: Book, found: dict[str, Any]) -> list[str]:
    wrong = [f"log: {one}" for one in book.verify_log().findings]
    last: dict[str, dict[str, Any]] = {}
    with book._engines.db.reading() as tx:
        entries = tx.rows("SELECT subjects, payload FROM log_entry")
    for subjects, payload in ((json.loads(row[0]), json.loads(row[1])) for row in entries):
        if subjects and payload.get("version", 0) > last.get(subjects[0], {}).get("version", 0):
            last[subjects[0]] = payload
    for one in found.values():
        text_hash = book._engines.keys.keyed_hash(one.title, one.text)
        logged = {name: last.get(one.id, {}).get(name) for name in ("revision", "version", "said")}
        if logged != {"revision": one.revision, "version": one.version, "said": text_hash}:
            wrong.append(f"{one.id} is at {one.version}, and its log at {logged}")
    return wrong


# --- fights


class Ring:
    """A book, the processes that write to it concurrently, and a random generator."""

    def __init__(self, book: Book, processes: Children, name: str) -> None:
        self.book = book
        self.dice = random.Random(f"{SEED} {name}")
        self._children = processes
        self.number = 0

    def source(self, space: str = "personal") -> str:
        self.number += 1
        return self.book.remember(f"the first words {self.number}", space=space).id

    def deed(self, verb: str, *args: Any, who: str = LOCAL_OWNER, **named: Any) -> Deed:
        return self.dice.choice([0, 0, 0.002, 0.01]), who, verb, list(args), named

    def fight(self, *deeds: Deed) -> list[Any]:
        """Run all deeds concurrently and return the answers; only errors of a lost race are allowed."""
        answers = self._children.do(deeds)
        unfair = [answer for answer in answers if answer.get("error", "not_found") not in FAIR]
        assert not unfair, (SEED, unfair)
        return answers

    def check(self) -> None:
        assert wrong_with_copies(self.book, log=False) == [], SEED


def copies_in(book: Book, space: str) -> list[Any]:
    return [one for one in book.list(Filter(space=space), limit=1000).items if one.shared]


def share_and_unshare(ring: Ring) -> None:
    source = ring.source()
    copy = ring.book.share(source, "team").id
    answers = ring.fight(
        *(ring.deed("share", source, "team", refresh=ring.dice.choice(["live", "lazy"])) for _ in range(4)),
        *(ring.deed("unshare", copy) for _ in range(3)),
        ring.deed("edit", source, text="meanwhile"),
    )
    copies = [one for one in copies_in(ring.book, "team") if one.shared.source == source]
    assert len(copies) <= 1
    new = {one["result"]["id"] for one in answers[:4] if one.get("result") and one["result"]["new"]}
    assert {one.id for one in copies} <= {*new, copy}
    assert len(new) <= 1


def edit_and_refresh(ring: Ring) -> None:
    source = ring.source()
    modes: tuple[Refresh, ...] = ("live", "lazy", "snapshot")
    copies = [ring.book.share(source, f"m/{mode}", refresh=mode).id for mode in modes]
    below = ring.book.share(copies[0], "m/below").id
    ring.fight(
        *(ring.deed("edit", source, text=f"edit {at}") for at in range(4)),
        *(ring.deed("refresh", copy) for copy in (*copies, below) for _ in range(2)),
        ring.deed("get", copies[1]),
    )
    text = ring.book.get(source).text
    assert [ring.book.get(one).text for one in (copies[0], below, copies[1])] == [text] * 3
    snapshot = ring.book.get(copies[2])
    assert (snapshot.text == text) == (snapshot.freshness == "fresh")
    for copy in (*copies, below):
        assert [one.revision for one in ring.book.history(copy)] == list(range(1, ring.book.get(copy).revision + 1))


def delete_and_refresh(ring: Ring) -> None:
    source = ring.source()
    copies = [ring.book.share(source, f"m/{mode}", refresh=mode).id for mode in ("live", "lazy")]
    ring.fight(
        ring.deed("delete", source),
        ring.deed("edit", source, text="the last words"),
        *(ring.deed("refresh", copy) for copy in copies),
        *(ring.deed("get", copy) for copy in copies),
    )
    assert [ring.book.get(copy).freshness for copy in copies] == ["source_deleted"] * 2


def edits_at_both_ends(ring: Ring) -> None:
    source = ring.source()
    copy = ring.book.share(source, "team").id
    below = ring.book.share(copy, "m/below").id
    ring.fight(
        *(ring.deed("edit", source, text=f"at the source {at}") for at in range(2)),
        *(ring.deed("edit", copy, text=f"at the copy {at}") for at in range(2)),
        ring.deed("refresh", copy),
        ring.deed("adopt", copy),
    )
    memory = ring.book.get(copy)
    if memory.freshness == "diverged":
        assert memory.text.startswith("at the copy")
    else:
        assert (memory.freshness, memory.text) == ("fresh", ring.book.get(source).text)
    assert ring.book.get(below).text == memory.text


def revoke_and_refresh(ring: Ring) -> None:
    source = ring.source("secret")
    ring.book.grant(ALICE, "secret", "reader")
    ring.book.grant(ALICE, "alices", "writer")
    copy = ring.book.acting_as(ALICE).share(source, "alices").id
    ring.fight(
        ring.deed("revoke", ALICE, "secret"),
        *(ring.deed("edit", source, text=f"edit {at}") for at in range(3)),
        *(ring.deed("refresh", copy, who=ALICE) for _ in range(2)),
    )
    before = ring.book.get(copy)
    assert before.freshness == "revoked"
    ring.book.edit(source, text="after the revocation")
    assert ring.book.get(copy) == before


def share_and_move(ring: Ring) -> None:
    source = ring.source()
    copy = ring.book.share(source, "team").id
    ring.fight(
        ring.deed("move", source, "elsewhere"),
        ring.deed("move", copy, "m/other"),
        ring.deed("share", source, "m/new"),
        ring.deed("share", copy, "m/other"),
        ring.deed("share", source, "team"),
        ring.deed("edit", source, text="moving words"),
    )
    for one in ring.book.copies(source):
        assert one.freshness == "fresh"
        assert ring.book.get(one.id).text == "moving words"


def share_and_rename(ring: Ring) -> None:
    source = ring.source()
    old, new = f"r{ring.number}/old", f"r{ring.number}/new"
    ring.book.create_space(old)
    answers = ring.fight(
        ring.deed("rename_space", old, new),
        *(ring.deed("share", source, old) for _ in range(3)),
        ring.deed("share", source, new),
        ring.deed("edit", source, text="words of a new name"),
    )
    made = {one["result"]["id"] for one in answers[1:5] if one.get("result") and one["result"]["new"]}
    copies = ring.book.copies(source)
    assert {one.id for one in copies} == made
    for one in copies:
        memory = ring.book.get(one.id)
        assert memory.path.startswith(f"{memory.space}/")
        assert memory.text == "words of a new name"


FIGHTS: tuple[Callable[[Ring], None], ...] = (
    share_and_unshare,
    edit_and_refresh,
    delete_and_refresh,
    edits_at_both_ends,
    revoke_and_refresh,
    share_and_move,
    share_and_rename,
)


@pytest.mark.promise("copies.live")
def test_after_every_round_of_concurrent_operations_on_copies_everything_agrees(place, book):
    with children(place) as processes:
        for fight in FIGHTS:
            ring = Ring(book, processes, fight.__name__)
            for _ in range(ROUNDS):
                fight(ring)
                ring.check()
            assert wrong_with_copies(book) == [], (fight.__name__, SEED)
    book.close()
    assert look_at(place).wrong == []


@pytest.mark.promise("copies.one")
def test_twenty_who_share_one_memory_into_one_space_make_one_copy_and_unsharing_removes_it(place, book):
    with children(place) as processes:
        ring = Ring(book, processes, "twenty")
        source = ring.source()
        through = book.share(source, "through").id
        for _ in range(ROUNDS):
            deeds = [
                ring.deed(
                    "share", ring.dice.choice([source, through]), "team", refresh=ring.dice.choice(["live", "lazy"])
                )
                for _ in range(20)
            ]
            receipts = [one["result"] for one in ring.fight(*deeds)]
            assert sum(one["new"] for one in receipts) == 1
            (copy,) = {one["id"] for one in receipts}
            assert [one.id for one in copies_in(book, "team")] == [copy]
            ring.check()
            book.unshare(copy)
            assert copies_in(book, "team") == []
    assert wrong_with_copies(book) == []


# --- many copies


def many_copies(book: Book, count: int) -> tuple[str, list[str]]:
    """Return a memory and its live copies, shared many at a time: a share for each takes minutes for thousands."""
    source = book.remember("the first words", space="personal").id
    made: list[str] = []
    for begin in range(0, count, 500):
        some = [f"team/s{at}" for at in range(begin, min(begin + 500, count))]
        made += transaction.write(book._engines, OWNER_CONTEXT, partial(_shared_into, source=source, names=some))
    return source, made


def _shared_into(ctx: WriteContext, *, source: str, names: list[str]) -> list[str]:
    memory = ctx.require_readable(source)
    return [make_copy.make_copy(ctx, memory, ctx.require_writable_space(name), LIVE).id for name in names]


def wrong_with_fan_out(book: Book, source: str, copies: list[str], text: str) -> list[str]:
    """Return the copies that are not fresh, or have not taken over the text in one new revision that the log has."""
    freshness = {one.id: one.freshness for one in book.copies(source)}
    wrong = [f"{id_} is {freshness.get(id_)}" for id_ in copies if freshness.get(id_) != "fresh"]
    with book._engines.db.reading() as tx:
        found = memories.get_many(tx, spaces.get_all(tx), copies)
        past = Counter(row[0] for row in tx.rows("SELECT memory FROM revision"))
    wrong += [f"{id_} is lost" for id_ in copies if id_ not in found]
    for one in found.values():
        if (one.text, one.revision, one.version, past[one.id], one.revised_how) != (text, 2, 2, 1, "refresh"):
            wrong.append(f"{one.id} says {one.text!r} in revision {one.revision}, {past[one.id]} before it")
    return wrong + wrong_with_copies(book)


CRASH = """
import os, signal, sys
import commonbook
from commonbook.subjects.sharing import propagate
place, source, point = sys.argv[1], sys.argv[2], int(sys.argv[3])
real, done = propagate.overwrite_copy, 0
def overwrite_copy(*args):
    global done
    done += 1
    if done == point:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*args)
propagate.overwrite_copy = overwrite_copy
book = commonbook.open(place, create=True)
book.edit(source, text="the second words")
book.work()
"""


@pytest.fixture
def few_at_once(monkeypatch):
    """Let only some copies be refreshed per write, so that the job has several transactions with few copies."""
    monkeypatch.setattr(propagate, "MAX_PER_WRITE", 10)
    monkeypatch.setattr(propagate, "_BATCH", 50)


@pytest.mark.promise("copies.whole")
def test_a_crash_in_the_middle_of_a_fan_out_leaves_no_copy_behind_for_long(place, open_book, few_at_once, monkeypatch):
    with open_book() as book:
        source, copies = many_copies(book, COPIES)
    script = CRASH.replace("book =", "propagate.MAX_PER_WRITE, propagate._BATCH = 10, 50\nbook =", 1)
    child = subprocess.run(
        [sys.executable, "-c", script, str(place), source, str(COPIES // 2)],
        env=crashing.environment(COMMONBOOK_SPACE="personal"),
        check=False,
        capture_output=True,
    )
    assert child.returncode == -9, child.stderr
    book = open_book()
    with book._engines.db.reading() as tx:
        found = memories.get_many(tx, spaces.get_all(tx), copies)
    current = {one.id for one in found.values() if one.text == "the second words"}
    assert 10 <= len(current) < COPIES
    # Every copy that was not refreshed yet is marked.
    behind = {one.id for one in book.copies(source) if one.freshness == "stale"}
    assert behind == set(copies) - current
    with monkeypatch.context() as patch:
        # The lease of the dead is over at once.
        patch.setattr(jobs, "_MAX_LEASE", jobs.LEASE_DURATION * 0)
        assert book.work() >= 1
    assert wrong_with_fan_out(book, source, copies, "the second words") == []
    assert [one.how for one in book.history(copies[-1])] == ["share", "refresh"]
    status = book.status()
    assert (status.waiting_jobs, status.failed_jobs, status.pending_files) == (0, 0, 0)
    assert book.doctor() == ()


def test_a_job_that_time_runs_out_for_goes_on_where_it_was_and_each_copy_changes_once(book, few_at_once, monkeypatch):
    monkeypatch.setattr(propagate, "_BATCH", 5)
    source, copies = many_copies(book, 60)
    book.edit(copies[0], text="our own")
    book.edit(source, text="the second words")
    left, turns = [50], 0
    while book.status().waiting_jobs:
        turns += 1
        assert turns < 1000
        book.work(seconds=0.01)
        stale = sum(one.freshness == "stale" for one in book.copies(source))
        if stale < left[-1]:
            left.append(stale)
    assert len(left) > 2, "all in one turn"
    assert book.get(copies[0]).text == "our own"
    book.detach(copies[0])
    assert wrong_with_fan_out(book, source, copies[1:], "the second words") == []


@pytest.mark.promise("copies.live")
def test_until_the_job_ran_copies_beyond_the_limit_count_as_stale_and_then_take_the_text_of_now(book, few_at_once):
    source, copies = many_copies(book, 14)
    assert book.edit(source, text="the second words").copies == 10
    waiting = [one.id for one in book.list(Filter(space="team/"), limit=100).items if one.freshness == "stale"]
    assert sorted(waiting) == sorted(copies)[10:]
    for copy in waiting:
        # In its own space: elsewhere it is one hit with the other copies.
        (hit,) = book.recall("first words", spaces=book.get(copy).space, min_confidence=0.0).hits
        assert (hit.id, hit.freshness) == (copy, "stale")
    assert book.get(waiting[0]).freshness == "stale", "a live copy waits for the job"
    book.edit(source, text="the third words")
    assert book.work() >= 1
    for copy in copies:
        memory = book.get(copy)
        assert (memory.text, memory.freshness) == ("the third words", "fresh")
        assert memory.revision == (2 if copy in waiting else 3), "one that waited takes the text of now alone"
    assert book.work() == 0


def test_copies_that_are_gone_diverged_or_detached_when_the_job_runs_are_left_alone(book, few_at_once):
    source, copies = many_copies(book, 14)
    book.edit(source, text="the second words")
    gone, edited, detached, moved = sorted(copies)[10:]
    book.unshare(gone)
    book.edit(edited, text="our own")
    book.detach(detached)
    book.move(moved, "elsewhere")
    book.work()
    assert (book.get(edited).text, book.get(detached).text) == ("our own", "the first words")
    assert (book.get(moved).text, book.get(moved).freshness) == ("the second words", "fresh")
    assert wrong_with_copies(book) == []


@pytest.mark.promise("copies.live")
def test_a_fan_out_goes_on_through_the_copies_of_copies(book, few_at_once):
    source, copies = many_copies(book, 12)
    below = [book.share(copy, f"below/{at}").id for at, copy in enumerate(copies)]
    book.edit(source, text="the second words")
    stale = [one for one in book.list(Filter(), limit=100).items if one.freshness == "stale"]
    assert len(stale) == 14
    book.work()
    assert {book.get(one).text for one in (*copies, *below)} == {"the second words"}
    assert {book.get(one).freshness for one in (*copies, *below)} == {"fresh"}


# --- failures


@pytest.mark.promise("copies.whole")
@pytest.mark.parametrize(("owner", "name"), [(links, "add"), (memories, "add")])
def test_a_share_that_cannot_be_written_whole_leaves_nothing_behind(book, monkeypatch, owner, name):
    source = book.remember("the first words", space="personal").id
    book.create_space("team")

    def fail(*_args: object, **_named: object) -> None:
        raise OSError("no more of this")

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, fail)
        with pytest.raises(OSError, match="no more"):
            book.share(source, "team")
    _nothing_shared(book, source)


@pytest.mark.parametrize("verb", ["share", "edit"])
def test_what_cannot_be_logged_does_not_happen_and_nor_does_what_follows_it(book, monkeypatch, verb):
    source = book.remember("the first words", space="personal").id
    copy = book.share(source, "other").id
    book.create_space("team")
    real = chain.append
    left = [1 if verb == "edit" else 0]

    def append(*args: Any, **named: Any) -> tuple[int, str]:
        # The log of one space is written, that of the next is not.
        if not left[0]:
            raise OSError("the key is gone")
        left[0] -= 1
        return real(*args, **named)

    with monkeypatch.context() as patch:
        patch.setattr(chain, "append", append)
        with pytest.raises(OSError, match="key is gone"):
            book.share(source, "team") if verb == "share" else book.edit(source, text="the second words")
    _nothing_shared(book, source)
    assert book.get(source).text == book.get(copy).text == "the first words"
    assert wrong_with_copies(book) == []


def _nothing_shared(book: Book, source: str) -> None:
    assert book.list(Filter(space="team")).items == ()
    assert [entry.action for entry in book.log(space="team")] == ["space.create"]
    assert [one.space for one in book.copies(source) if one.space == "team"] == []
    assert wrong_with_copies(book) == []
    assert book.share(source, "team").new


# --- lazy copies and workers elsewhere


@pytest.mark.promise("copies.lazy")
def test_a_lazy_copy_that_a_recall_told_stale_is_refreshed_by_a_worker_elsewhere(place, book):
    source = book.remember("Alice owns the billing service", space="personal").id
    copy = book.share(source, "team", refresh="lazy").id
    book.edit(source, text="Bertha owns the billing service")
    for _ in range(3):
        (hit,) = book.recall("billing service", spaces=["team"]).hits
        assert (hit.passage, hit.freshness) == ("Alice owns the billing service", "stale")
    assert book.status().waiting_jobs == 1, "asked for once"
    with children(place, 1) as found:
        found.do([(0, LOCAL_OWNER, "work", [], {})])
    (hit,) = book.recall("billing service", spaces=["team"]).hits
    assert (hit.id, hit.passage, hit.freshness) == (copy, "Bertha owns the billing service", "fresh")


def test_a_lazy_copy_of_what_does_not_follow_is_stale_and_nobody_tries_in_vain(book, monkeypatch):
    source = book.remember("the first words", space="personal").id
    snapshot = book.share(source, "b", refresh="snapshot").id
    copy = book.share(snapshot, "c", refresh="lazy").id
    book.edit(source, text="the second words")
    with monkeypatch.context() as patch:
        patch.setattr(book._engines.db, "write", lambda *_args, **_named: pytest.fail("somebody writes"))
        assert book.get(copy).freshness == "stale"
        assert [hit.freshness for hit in book.recall("words", spaces=["c"]).hits] == ["stale"]
    assert book.status().waiting_jobs == 0
    book.refresh(snapshot)
    memory = book.get(copy)
    assert (memory.text, memory.freshness) == ("the second words", "fresh")


@pytest.mark.promise("copies.sharer")
def test_a_get_by_somebody_who_may_only_read_refreshes_in_the_name_of_the_sharer(book):
    book.grant(ALICE, "alices", "writer")
    book.grant(ALICE, "team", "writer")
    alice = book.acting_as(ALICE)
    source = alice.remember("the first words", space="alices").id
    copy = alice.share(source, "team", refresh="lazy").id
    book.grant("user:bob", "team", "reader")
    alice.edit(source, text="the second words")
    memory = book.acting_as("user:bob").get(copy)
    assert (memory.text, memory.freshness, book.history(memory.id)[-1].author) == ("the second words", "fresh", ALICE)
    assert [(one.actor, one.action) for one in book.log(space="team")][-1] == (ALICE, "refresh")


# --- chains


@pytest.mark.parametrize("mode", ["live", "lazy", "snapshot"])
def test_the_last_of_a_chain_of_a_hundred_is_current_or_says_that_it_is_not(book, mode):
    chain = [book.remember("the first words", space="personal").id]
    for at in range(100):
        chain.append(book.share(chain[-1], f"s{at}", refresh=mode).id)
    book.edit(chain[0], text="the second words")
    while book.work():
        pass
    listed = {one.id: one.freshness for one in book.list(Filter(), limit=1000).items}
    assert {listed[one] for one in chain[1:]} == {"fresh" if mode == "live" else "stale"}
    (hit,) = book.recall("words", spaces=["s99"]).hits
    assert hit.freshness == listed[chain[-1]]
    memory = book.get(chain[-1])
    assert (memory.text, memory.freshness) == (
        ("the first words", "stale") if mode == "snapshot" else ("the second words", "fresh")
    )
    found = book.lineage(chain[-1])
    assert ([one.id for one in found.ancestors], found.truncated) == (chain[-2:-34:-1], True)
    assert len(book.copies(chain[0])) == 100
