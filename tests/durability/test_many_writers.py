"""Many concurrent writers, in threads of several processes: on both engines every acknowledged write is stored.

COMMONBOOK_WRITES   how many times each of 32 writers writes (4; the full setting is 25)
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from commonbook.values.memory import Filter
from commonbook.values.session import NewMessage
from tests.support.capture_child import wrong_with
from tests.support.crashing import look_at
from tests.support.writers_child import together

WRITES = int(os.environ.get("COMMONBOOK_WRITES", "4"))
SPACES = [f"space/{letter}" for letter in "abcdefgh"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180 + 10 * WRITES)]


def every(book, **chosen):
    """Return all memories, page by page."""
    found, after = [], None
    while True:
        page = book.list(Filter(**chosen), limit=1000, after=after)
        found += page.items
        after = page.next
        if after is None:
            return found


@pytest.mark.promise("log.chain")
def test_32_writers_in_4_processes_write_to_several_spaces_each_without_gap_fork_or_deadlock(place, open_book):
    results = together("remember", place, threads=8, times=WRITES, spaces=SPACES, deadline=120 + 10 * WRITES)
    ids = [id_ for one in results for id_ in one]
    assert len(ids) == len(set(ids)) == 32 * WRITES * 3
    book = open_book()
    assert {memory.id for memory in every(book)} == set(ids)
    assert book.verify_log().findings == ()
    logged = []
    for space in SPACES:
        entries = book.log(space=space, limit=10_000)
        assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
        logged += [subject for entry in entries for subject in json.loads(entry.subjects)]
    assert Counter(logged) == Counter(ids)
    book.close()
    assert look_at(place).wrong == []


@pytest.mark.promise("sessions.one-order")
def test_32_threads_in_4_processes_append_each_message_once_and_in_order(place, open_book):
    book = open_book()
    sessions = [(f"session-{at}", SPACES[at % 3]) for at in range(9)]
    for session, space in sessions:
        book.append(session, ["Good morning."], space=space)
    results = together("append", place, threads=8, times=3 * WRITES, sessions=sessions, deadline=120 + 10 * WRITES)
    assert len(results) == 32 * 3 * WRITES
    for session, space in sessions:
        acknowledged = sorted(
            (seq, id_, text) for name, parts in results if name == session for id_, seq, text in parts
        )
        stored = [(one.seq, one.id, one.text) for one in book.messages(session, space=space, limit=1000).items[1:]]
        assert stored == acknowledged
        assert [seq for seq, _, _ in stored] == list(range(2, len(stored) + 2))
    assert book.verify_log().findings == ()
    book.close()
    assert look_at(place).wrong == []


@pytest.mark.promise("writes.once")
def test_one_key_used_by_many_at_once_is_one_memory(place, open_book):
    results = together("remember_once", place, times=3)
    assert Counter(at for at, _, new in results if new) == {0: 1, 1: 1, 2: 1}
    assert len({(at, id_) for at, id_, _ in results}) == 3
    assert len(every(open_book())) == 3


@pytest.mark.promise("writes.versions")
def test_no_edit_on_an_expected_version_is_lost_or_made_twice(place, open_book):
    book = open_book()
    memory = book.remember("0", title="a number").id
    results = together("count_up", place, threads=2, times=WRITES, memory=memory)
    assert sorted(results) == list(range(2, 2 + 8 * WRITES))
    assert book.get(memory).text == str(8 * WRITES)
    assert [one.text for one in book.history(memory)] == [str(at) for at in range(8 * WRITES + 1)]
    book.close()
    assert look_at(place).wrong == []


def test_a_space_that_many_make_at_once_is_made_by_one(place, open_book):
    made = [one for one in together("create_space", place, times=4) if one]
    assert sorted(at for at, _ in made) == [0, 1, 2, 3]
    assert {space.id for space in open_book().spaces()} == {id_ for _, id_ in made}


def test_whatever_many_do_to_the_same_memories_rows_links_history_and_log_agree(place, open_book):
    book = open_book()
    memories = [book.remember(f"memory {at}", space=SPACES[at % 3]).id for at in range(8)]
    results = together("churn", place, times=2 * WRITES, memories=memories, spaces=SPACES[:3], deadline=150)
    assert "done" in results
    live = {memory.id: memory for memory in every(book)}
    for memory in live.values():
        assert [one.revision for one in book.history(memory.id)] == list(range(1, memory.revision + 1))
        incoming = {(link.source, link.relation) for link in book.links(memory.id) if link.target == memory.id}
        named = {
            (other.id, link.relation) for other in live.values() for link in other.links if link.target == memory.id
        }
        assert incoming == named
        assert all(memory.id in {one.id for one in every(book, tags=(tag,))} for tag in memory.tags)
        assert memory.path.startswith(f"{memory.space}/")
    assert book.verify_log().findings == ()
    book.close()
    assert look_at(place).wrong == []


def test_a_space_that_is_renamed_while_many_write_to_it_takes_everything_along(place, open_book):
    results = [id_ for id_ in together("rename", place, times=2 * WRITES, deadline=150) if id_]
    book = open_book()
    found = every(book)
    assert {memory.id for memory in found} == set(results)
    # Below the folder of the space there is one for the month.
    assert all(memory.path.rsplit("/", 2)[0] == memory.space for memory in found)
    book.close()
    assert look_at(place).wrong == []


@pytest.mark.promise("sessions.episodes")
def test_whatever_many_do_to_one_session_each_message_is_in_one_episode_or_none(place, open_book):
    book = open_book()
    for name in ("talk", "other"):
        book.append(name, ["one", "two"])
    together("talk", place, times=2 * WRITES, deadline=150)
    assert wrong_with(place) == []


@pytest.mark.promise("sessions.episodes")
def test_of_many_workers_one_settles_each_session(place, open_book):
    book = open_book()
    for at in range(12):
        book.append(
            f"s{at}", [NewMessage(f"message {at}.{number}", time="2026-01-01T10:00:00Z") for number in range(3)]
        )
    book._engines.db.write(lambda tx: tx.run("UPDATE job SET due = '2026-01-01T00:00:00.000000Z'"))
    done = together("work", place, times=1)
    assert sum(done) == 12
    assert len(every(book, kinds=("episode",))) == 12
    assert book.status().waiting_jobs == 0
    book.close()
    assert wrong_with(place) == []


def test_a_folder_that_many_import_at_once_is_taken_in_once(place, open_book, tmp_path: Path):
    folder = tmp_path / "vault"
    folder.mkdir()
    for at in range(30):
        (folder / f"note {at}.md").write_text(f"Note {at} is about [[note {(at + 1) % 30}]].\n")
    together("take_in", place, threads=2, times=1, folder=str(folder))
    book = open_book()
    found = every(book)
    assert sorted(memory.title for memory in found) == sorted(f"note {at}" for at in range(30))
    titles = {memory.id: memory.title for memory in found}
    for memory in found:
        (target,) = [titles[link.target] for link in book.links(memory.id) if link.source == memory.id]
        assert target == f"note {(int(memory.title.split()[1]) + 1) % 30}"
    assert book.verify_log().findings == ()
