"""Superseding during concurrent links, copies, reinstatements and kills: each dependent gets exactly one notice.

COMMONBOOK_ROUNDS       how many rounds of each race there are (3; the full setting is 200)
COMMONBOOK_DEPENDENTS   how many dependents a memory has that a killed process supersedes (150; in full 1000)
COMMONBOOK_SEED         the seed of the random numbers
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable

import pytest

from commonbook.service.book import Book
from commonbook.values.memory import Draft, Filter
from tests.sharing.test_sharing_races import Ring, wrong_with_copies
from tests.support import crashing
from tests.support.sharing_child import children

ROUNDS = int(os.environ.get("COMMONBOOK_ROUNDS", "3"))
DEPENDENTS = int(os.environ.get("COMMONBOOK_DEPENDENTS", "150"))
SEED = os.environ["COMMONBOOK_SEED"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180 + 10 * ROUNDS + DEPENDENTS)]


def inbox_counts(book: Book) -> Counter[tuple[str, str, str | None]]:
    """Count the notices in the inbox by dependent, invalidated and invalidating memory."""
    found: Counter[tuple[str, str, str | None]] = Counter()
    after = None
    while True:
        page = book.inbox(limit=1000, after=after)
        found.update(
            (one.dependent.id, one.invalidated.id, one.invalidating.id if one.invalidating else None)
            for one in page.items
        )
        after = page.next
        if after is None:
            return found


def logged_counts(book: Book, space: str) -> Counter[tuple[str, str, str]]:
    """Count the notices in the log by dependent, invalidated and invalidating memory."""
    found: Counter[tuple[str, str, str]] = Counter()
    after = 0
    while entries := book.log(space=f"{space}/_invalidations", after=after, limit=1000):
        after = entries[-1].seq
        for entry in entries:
            if entry.action == "notify":
                payload = json.loads(entry.payload)
                found[payload["dependent"], payload["invalidated"], payload["invalidating"]] += 1
    return found


# --- races


def one_links_while_it_is_superseded(ring: Ring) -> None:
    """The new dependent links to the old memory itself."""
    old, new, late = ring.source("facts"), ring.source("facts"), ring.source("late")
    ring.fight(
        ring.deed("supersede", old, new),
        ring.deed("link", late, "derived_from", old),
        ring.deed("reflect", "so it is", [old], space="late"),
    )
    found = inbox_counts(ring.book)
    mine = {key: times for key, times in found.items() if key[1] == old}
    assert len(mine) == 2, (SEED, mine)
    assert mine[late, old, new] == 1
    assert {times for key, times in logged_counts(ring.book, "late").items() if key[1] == old} == {1}


def one_links_to_a_chain(ring: Ring) -> None:
    """The new dependent links to dependents of the old memory, up to two steps away."""
    old, new, late = ring.source("facts"), ring.source("facts"), ring.source("late")
    first = ring.book.reflect("first", [old], space="chain").id
    second = ring.book.reflect("second", [first], space="chain").id
    ring.fight(
        ring.deed("supersede", old, new),
        ring.deed("link", late, "derived_from", second),
        ring.deed("link", late, "derived_from", first),
    )
    mine = {key: times for key, times in inbox_counts(ring.book).items() if key[1] == old}
    assert mine == dict.fromkeys([(one, old, new) for one in (first, second, late)], 1), SEED
    assert logged_counts(ring.book, "late")[late, old, new] == 1


def one_links_to_a_copy(ring: Ring) -> None:
    """The new dependents link to a copy, and to a copy of a copy, while another copy is made."""
    old, new, late, later = (ring.source(space) for space in ("facts", "facts", "late", "late"))
    copy = ring.book.share(old, f"team/{ring.number}").id
    below = ring.book.share(copy, f"below/{ring.number}").id
    ring.fight(
        ring.deed("supersede", old, new),
        ring.deed("link", late, "derived_from", below),
        ring.deed("link", later, "derived_from", copy),
        ring.deed("share", copy, f"beside/{ring.number}"),
    )
    mine = {key: times for key, times in inbox_counts(ring.book).items() if key[1] == old}
    assert mine == {(late, old, new): 1, (later, old, new): 1}, SEED


def the_chain_is_made_while_it_is_superseded(ring: Ring) -> None:
    """Each of several links that together lead to the old memory is made by another process."""
    old, new = ring.source("facts"), ring.source("facts")
    links = [ring.source("late") for _ in range(3)]
    ring.fight(
        ring.deed("supersede", old, new),
        ring.deed("link", links[0], "derived_from", old),
        ring.deed("link", links[1], "derived_from", links[0]),
        ring.deed("link", links[2], "derived_from", links[1]),
    )
    mine = {key: times for key, times in inbox_counts(ring.book).items() if key[1] == old}
    assert mine == dict.fromkeys([(one, old, new) for one in links], 1), SEED


def two_supersede_at_once(ring: Ring) -> None:
    """Each dependent has a notice for both successors."""
    old, new, other = (ring.source("facts") for _ in range(3))
    dependents = [ring.book.reflect(f"thought {at}", [old], space=f"late/{at}").id for at in range(3)]
    ring.fight(
        *(ring.deed("supersede", old, by) for by in (new, other) for _ in range(2)),
        ring.deed("get", old),
    )
    mine = {key: times for key, times in inbox_counts(ring.book).items() if key[1] == old}
    assert mine == dict.fromkeys([(one, old, by) for one in dependents for by in (new, other)], 1), SEED
    assert ring.book.get(old).superseded_by in (new, other)


def supersede_and_take_back(ring: Ring) -> None:
    """The last operation wins, and there is no notice without an invalidation."""
    old, new, late = ring.source("facts"), ring.source("facts"), ring.source("late")
    dependent = ring.book.reflect("thought", [old], space="late").id
    ring.fight(
        ring.deed("supersede", old, new),
        ring.deed("reinstate", old),
        ring.deed("link", late, "derived_from", dependent),
        ring.deed("delete", new),
        ring.deed("unlink", late, "derived_from", dependent),
    )
    memories = {one: ring.book.get(one) for one in (dependent, late)}
    mine = {key[0]: times for key, times in inbox_counts(ring.book).items() if key[1] == old}
    assert mine == {one: 1 for one, memory in memories.items() if "suspect" in memory.marks}, SEED


def decide_and_supersede(ring: Ring) -> None:
    """Two decisions are made while the supersession is undone and repeated."""
    old, new = ring.source("facts"), ring.source("facts")
    dependent = ring.book.reflect("thought", [old], space="late").id
    ring.book.supersede(old, new)
    ring.fight(
        ring.deed("triage", dependent, "keep"),
        ring.deed("triage", dependent, "dismiss"),
        ring.deed("reinstate", old),
        ring.deed("supersede", old, new),
    )
    memory = ring.book.get(dependent)
    open_ = sum(times for key, times in inbox_counts(ring.book).items() if key[0] == dependent)
    assert open_ == len(memory.invalidations), SEED
    assert len(memory.decisions) <= 1


def move_and_supersede(ring: Ring) -> None:
    """The notice is in the space to which the dependent was moved."""
    old, new = ring.source("facts"), ring.source("facts")
    dependent = ring.book.reflect("thought", [old], space="late").id
    ring.fight(
        ring.deed("supersede", old, new),
        ring.deed("move", dependent, f"moved/{ring.number}"),
    )
    assert inbox_counts(ring.book)[dependent, old, new] == 1
    notices = ring.book.list(Filter(space=f"{ring.book.get(dependent).space}/_invalidations"), limit=1000).items
    assert [one.notice.dependent for one in notices if one.notice].count(dependent) == 1


RACES: tuple[Callable[[Ring], None], ...] = (
    one_links_while_it_is_superseded,
    one_links_to_a_chain,
    one_links_to_a_copy,
    the_chain_is_made_while_it_is_superseded,
    two_supersede_at_once,
    supersede_and_take_back,
    decide_and_supersede,
    move_and_supersede,
)


@pytest.mark.promise("notices.once", "notices.repeats")
@pytest.mark.parametrize("race", RACES, ids=[one.__name__ for one in RACES])
def test_whatever_happens_at_once_everybody_concerned_is_told_exactly_once(place, book, race):
    with children(place, 3) as processes:
        ring = Ring(book, processes, race.__name__)
        for _ in range(ROUNDS):
            race(ring)
    assert wrong_with_copies(book) == [], SEED
    book.close()
    assert crashing.look_at(place).wrong == []


# --- kills

CRASH = """
import os, signal, sys
import commonbook
from commonbook.core.write.context import WriteContext
from commonbook.engines.disk.home_folder import HomeFolder
place, old, new, where, point = *sys.argv[1:5], int(sys.argv[5])
done = 0
def counted(real):
    def instead(*args, **named):
        global done
        done += 1
        if done == point:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **named)
    return instead
if where == "rows":
    WriteContext.log_memory = counted(WriteContext.log_memory)
if where == "files":
    HomeFolder.put = counted(HomeFolder.put)
commonbook.open(place, create=True).supersede(old, new, reason="the new price list")
"""


def killed(place: object, old: str, new: str, where: str, point: int) -> None:
    child = subprocess.run(
        [sys.executable, "-c", CRASH, str(place), old, new, where, str(point)],
        env=crashing.environment(COMMONBOOK_SPACE="personal"),
        check=False,
        capture_output=True,
    )
    assert child.returncode == -9, child.stderr


@pytest.mark.promise("notices.once")
def test_a_kill_at_any_point_leaves_nothing_or_all_and_no_duplicates(place, engine, open_book):
    dice = random.Random(f"{SEED} kills")
    with open_book() as book:
        old, new = (book.remember(text, space="facts").id for text in ("five", "seven"))
        drafts = [
            Draft(f"thought {at}", space=f"s{at % 3}", kind="reflection", links=(("reflects_on", old),))
            for at in range(DEPENDENTS)
        ]
        dependents = {one.id for one in book.remember_many(drafts)}
    places = ["rows"] if engine == "postgres" else ["rows", "files"]
    points = [(where, dice.randint(2, DEPENDENTS)) for where in places for _ in range(ROUNDS)]
    for where, point in points:
        killed(place, old, new, where, point)
        with open_book() as book:
            book.sync()
            found = inbox_counts(book)
            # The kill came before the commit, or after it.
            expected = {(one, old, new): 1 for one in dependents} if where == "files" else {}
            assert found == expected, (SEED, where, point)
            assert len(book.list(Filter(kinds=("notice",)), limit=1000).items) == len(expected)
            assert {"suspect" in one.marks for one in book.list(Filter(kinds=("reflection",)), limit=1000).items} == {
                bool(expected)
            }
            if expected:
                book.reinstate(old)
        seen = crashing.look_at(place)
        assert seen.wrong == [], (SEED, where, point)
    with open_book() as book:
        book.supersede(old, new)
        assert inbox_counts(book) == {(one, old, new): 1 for one in dependents}
        assert book.verify_log().ok
