"""Tests of every engine behind the `Index` port.

A module of tests derives a class from `IndexContract` and has the fixtures `place`, the address of an index that nobody
has made yet, and `index`, that index opened.
"""

from __future__ import annotations

import json
import random
import signal
import time

import pytest

from commonbook.ports.index import Delta, Index, IndexState, SpacePosition
from tests.support.index_worlds import (
    ASKED,
    ELSEWHERE,
    MARKER,
    answer,
    commit,
    entry,
    expected,
    left_of,
    marker,
    opened,
    start,
    step,
    vector,
    written_state,
    wrong_with,
)


def number_of(seen: IndexState | None) -> int:
    """Return the number of the commit that wrote a marker; 0 without one."""
    return seen.applied["space"].number if seen else 0


class IndexContract:
    """Views and commits of one index."""

    def test_an_index_that_is_not_there_holds_nothing(self, index):
        assert index.view().state is None
        assert index.view().search(ASKED, ()).total == 0
        assert index.damage() == []
        index.close()

    def test_a_view_is_the_same_until_something_is_committed(self, place, index):
        commit(index, 1)
        assert index.view() is index.view()
        commit(opened(place), 2)
        assert number_of(index.view().state) == 2
        assert wrong_with(index.view()) is None

    def test_a_tail_grows_and_shrinks_over_one_view(self, index):
        """Layers that were laid out before are kept for the next search; another tail must not see them."""
        commit(index, 1)
        view = index.view()
        tails = [tuple(map(step, range(2, upto))) for upto in (2, 3, 4, 30, 12, 3)]
        others = [tuple(map(step, range(first, first + 12))) for first in (5, 9)]
        for tail in (*tails, *others, tails[3], (), others[0][:2], others[1], tails[0]):
            found, wanted = answer(view.search(ASKED, tail), ASKED), expected(left_of([step(1), *tail]), ASKED)
            assert (found.total, found.document_frequencies, found.rows) == (
                wanted.total,
                wanted.document_frequencies,
                wanted.rows,
            )
        assert wrong_with(view) is None

    def test_a_marker_comes_back_as_it_was_and_counts_what_has_no_vector(self, place, index):
        written = MARKER._replace(
            home="ümlaut", applied={"a": SpacePosition(1, 2, "x"), "日本": SpacePosition(2**40, 0, "")}
        )
        with index.writing(wait=60) as writer:
            writer.add(Delta((ELSEWHERE, entry(1), entry(2), entry(3, vector=vector(1)))))
            writer.add(Delta((), frozenset({entry(2).owner})))
            writer.commit(written)
        for seen in (index.view().state, opened(place).view().state):
            assert seen is not None
            assert written_state(seen) == written_state(written)
            assert (seen.unembedded, seen.dimensions) == (1, len(vector()))

    def test_what_was_added_without_a_commit_is_seen_by_nobody(self, place, index):
        commit(index, 1)
        with index.writing(wait=60) as writer:
            writer.add(step(2))
        assert wrong_with(index.view()) is None
        assert number_of(index.view().state) == 1
        with pytest.raises(AttributeError), index.writing(wait=60) as writer:
            writer.add(None)
        assert number_of(opened(place).view().state) == 1
        commit(opened(place), 2)
        assert wrong_with(index.view()) is None

    def test_one_writer_may_commit_more_than_once(self, place, index):
        with index.writing(wait=60) as writer:
            for number in range(1, 5):
                writer.add(step(number))
                writer.add(Delta())
                writer.commit(marker(number))
                assert wrong_with(opened(place).view()) is None


def kill_a_writer(place: str, dice: random.Random, last: int, *, longest_pause: float) -> int:
    """Let a child commit until a random moment, and kill it; return the last step that it reported."""
    child = start("commits", place)
    assert child.stdout
    lines = []
    try:
        for _ in range(dice.randrange(1, 15)):
            lines.append(child.stdout.readline())
        time.sleep(dice.uniform(0, longest_pause))
        child.send_signal(signal.SIGKILL)
        lines += child.stdout.readlines()
    finally:
        child.kill()
        child.communicate()
    reported = [int(json.loads(line)) for line in lines if line.endswith(b"\n")]
    return max([last, *reported])


def check_readers_while_writing(place: str, index: Index) -> None:
    """Commit again and again: each reader in another process must see one commit whole, whenever it looks."""
    commit(index, 1)
    readers = [start("looks", place) for _ in range(2)]
    try:
        for reader in readers:
            assert reader.stdout
            assert json.loads(reader.stdout.readline()) == "ready"
        for number in range(2, 52):
            commit(index, number)
            assert wrong_with(index.view()) is None
        found = [json.loads(reader.communicate(b"", timeout=60)[0]) for reader in readers]
    finally:
        for reader in readers:
            reader.kill()
            reader.communicate()
    for one in found:
        assert one["wrong"] == []
        assert len(one["seen"]) > 1, "the reader saw no change"
