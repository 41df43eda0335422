"""Chains of reasoning with many steps: a write at the end of one neither reads it nor misses what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from commonbook.core.tables import memories
from commonbook.errors import Conflict
from commonbook.values.ids import new_id
from tests.support.hand_edits import change

pytestmark = pytest.mark.promise("notices.chains")

STEPS = 140
READ_AT_MOST = 40


def derive(book, ground, steps):
    """Derive one memory from another, so many times; return all of them, the ground first."""
    ids = [ground]
    for step in range(steps):
        links = [("derived_from", ids[-1])]
        ids.append(book.remember(f"step {step} of {ground}", space="a", links=links).id)
    return ids


@pytest.fixture
def chain(book):
    return derive(book, book.remember("the mill stands by the river", space="a").id, STEPS)


@pytest.fixture
def rows_read(monkeypatch):
    """Return a list that grows by one for each row of a memory that is read."""
    read = []
    row_to_memory = memories._memory

    def counted(row, spaces):
        read.append(row)
        return row_to_memory(row, spaces)

    monkeypatch.setattr(memories, "_memory", counted)
    return read


def test_a_write_at_the_end_of_a_long_chain_does_not_read_the_chain(book, chain, rows_read):
    loose = book.remember("a mill needs a wheel", space="a").id
    ground, other = (book.remember(text, space="a").id for text in ("wheels are round", "wheels are square"))
    doubted = book.remember("it turns", space="a", links=[("derived_from", ground), ("derived_from", chain[-9])]).id
    book.supersede(ground, other)
    for write in (
        lambda: book.remember("so it has a wheel", space="a", links=[("derived_from", chain[-1])]),
        lambda: book.reflect("mills need water", [chain[-1]], space="a"),
        lambda: book.link(loose, "derived_from", chain[-1]),
        lambda: book.link(loose, "reflects_on", chain[-2]),
        lambda: book.link(chain[-1], "derived_from", other),
        lambda: book.unlink(loose, "derived_from", chain[-1]),
        lambda: book.triage(doubted, "keep"),
        lambda: book.edit(chain[-1], text="the last step"),
    ):
        rows_read.clear()
        write()
        assert len(rows_read) <= READ_AT_MOST


def test_a_cycle_over_a_long_chain_is_refused_wherever_it_is_closed(book, chain):
    with pytest.raises(Conflict, match="depend on itself"):
        book.link(chain[0], "derived_from", chain[-1])
    # Both ends of the new link have much above them and below them.
    with pytest.raises(Conflict, match="depend on itself"):
        book.link(chain[STEPS // 2 - 2], "reflects_on", chain[STEPS // 2 + 2])
    with pytest.raises(Conflict, match="depend on itself"):
        book.link(chain[-2], "derived_from", chain[-1])
    book.link(chain[-1], "derived_from", chain[0])
    book.link(chain[STEPS // 2 + 2], "derived_from", chain[STEPS // 2 - 2])


def test_long_chains_may_be_linked_to_each_other_in_one_direction(book, chain):
    other = derive(book, book.remember("a road leads along the river", space="b").id, STEPS)
    book.link(chain[STEPS // 2], "derived_from", other[STEPS // 2])
    with pytest.raises(Conflict, match="depend on itself"):
        book.link(other[10], "derived_from", chain[-10])


def test_reflections_are_counted_over_the_steps_between_them(book, chain):
    ids = chain[-1:]
    for number in range(3):
        reflection = book.reflect(f"thought {number}", ids[-1:], space="a").id
        ids += derive(book, reflection, 20)
    with pytest.raises(Conflict, match=r"depth 4.*allows 3"):
        book.reflect("one too many", [ids[-1]], space="a")
    with pytest.raises(Conflict, match=r"depth 4.*allows 3"):
        book.link(book.remember("a loose one", space="a").id, "reflects_on", ids[-1])


def test_who_joins_the_end_of_a_suspect_chain_is_in_doubt_whatever_was_decided_before_it(book, chain):
    other = book.remember("the mill stands on the hill", space="a").id
    book.supersede(chain[0], other)
    joined = [book.remember("so the wheel is wet", space="a", links=[("derived_from", chain[-1])]).id]
    book.triage(chain[-1], "keep")
    joined.append(book.reflect("wheels get wet", [chain[-1]], space="a").id)
    joined.append(book.remember("a loose one", space="a").id)
    book.link(joined[-1], "derived_from", book.share(chain[-1], "b").id)
    depths = {one.dependent.id: one.depth for one in book.inbox(limit=1000).items}
    assert [depths[id_] for id_ in joined] == [STEPS + 1] * 3
    book.reinstate(chain[0])
    assert book.inbox().items == ()
    assert book.get(book.reflect("wheels were wet", [chain[-1]], space="a").id).marks == ()


def test_a_new_file_and_an_edited_one_that_leans_on_it_are_both_in_doubt(book, home):
    """The one that arrives has no notice yet when the notices of the other are brought up to date."""
    old, new = (book.remember(text, space="a").id for text in ("the door is green", "the door is red"))
    book.supersede(old, new)
    thought = book.remember("doors are painted", space="a").id
    between = new_id()
    (Path(book.home) / "a" / "between.md").write_text(
        f"---\nid: {between}\nlinks:\n- derived_from {old}\n---\nsomebody painted it\n"
    )
    change(Path(book.home) / book.get(thought).path, "\n---\n", f"\nlinks:\n- derived_from {between}\n---\n")
    book.sync()
    assert {one.dependent.id for one in book.inbox().items} == {between, thought}
