"""Notices of a lost database: one whose cause the files disprove is withdrawn, one whose cause may be is kept."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from commonbook.service.book import Book
from tests.support.lost_databases import lose_database


class Chain(NamedTuple):
    """A thought, the note between, the ground, and another note that takes the ground's place; with their files."""

    ground: str
    between: str
    thought: str
    newer: str
    files: dict[str, tuple[Path, bytes]]

    def put_back(self, id_: str) -> None:
        """Put the file of a memory back as it was at first, as a checkout of an older commit does."""
        path, data = self.files[id_]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


@pytest.fixture
def chain(book: Book, home: Path) -> Chain:
    ground = book.remember("a litre of oil costs five", space="facts").id
    between = book.remember("oil costs little", space="facts", links=[("derived_from", ground)]).id
    thought = book.reflect("oil is cheap", [between], space="a").id
    newer = book.remember("a litre of oil costs seven", space="facts").id
    paths = {id_: home / book.get(id_).path for id_ in (ground, between, thought, newer)}
    return Chain(ground, between, thought, newer, {id_: (path, path.read_bytes()) for id_, path in paths.items()})


@pytest.fixture
def reopen(book: Book, home: Path, open_book: Callable[[], Book]) -> Callable[..., Book]:
    def without_its_database(meanwhile: Callable[[], None] = lambda: None) -> Book:
        book.close()
        lose_database(home)
        meanwhile()
        return open_book()

    return without_its_database


def doubts(book: Book) -> set[tuple[str, str]]:
    """Return who is in doubt, and because of what; marks and notices must tell the same."""
    suspects = {one.id: one for one in book.list(limit=100).items if "suspect" in one.marks}
    noticed = {(one.dependent.id, one.invalidated.id) for one in book.inbox(limit=100).items}
    assert {(id_, cause.invalidated) for id_, one in suspects.items() for cause in one.invalidations} == noticed
    return noticed


def withdrawals(book: Book) -> int:
    spaces = [space.name for space in book.spaces()]
    return sum(entry.action == "withdraw" for space in spaces for entry in book.log(space=space, limit=500))


@pytest.mark.promise("lost.notices")
def test_a_deleted_ground_whose_file_comes_back_leaves_no_doubt(book, chain, reopen):
    book.delete(chain.ground)
    book = reopen()
    assert doubts(book) == {(chain.between, chain.ground), (chain.thought, chain.ground)}
    chain.put_back(chain.ground)
    book.sync()
    assert doubts(book) == set()


def test_a_dependent_that_never_rested_on_the_deleted_ground_is_not_in_doubt(book, chain, reopen):
    book.link(chain.newer, "derived_from", chain.ground)
    book.delete(chain.ground)
    assert (chain.newer, chain.ground) in doubts(book)
    book = reopen(lambda: chain.put_back(chain.newer))
    assert doubts(book) == {(chain.between, chain.ground), (chain.thought, chain.ground)}


@pytest.mark.promise("lost.notices")
def test_a_ground_whose_successor_took_nothing_over_leaves_no_doubt(book, chain, reopen):
    book.supersede(chain.ground, chain.newer)
    assert doubts(book) == {(chain.between, chain.ground), (chain.thought, chain.ground)}
    book = reopen(lambda: chain.put_back(chain.newer))
    assert doubts(book) == set()


def test_a_notice_that_comes_back_after_its_decision_is_withdrawn(book, chain, home, reopen):
    book.supersede(chain.ground, chain.newer)
    notices = {path: path.read_bytes() for path in home.rglob("_invalidations/**/*.md")}
    for id_ in (chain.between, chain.thought):
        book.triage(id_, "keep")

    def put_notices_back() -> None:
        for path, data in notices.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    book = reopen(put_notices_back)
    assert doubts(book) == set()
    assert not [path for path in notices if path.exists()]


@pytest.mark.promise("lost.notices")
def test_a_doubt_that_came_through_a_deleted_memory_stays_until_somebody_decides(book, chain, reopen):
    book.supersede(chain.ground, chain.newer)
    book.delete(chain.between)
    both = {(chain.thought, chain.ground), (chain.thought, chain.between)}
    assert doubts(book) == both
    book = reopen()
    assert doubts(book) == both
    assert book.triage(chain.thought, "keep").resolved == len(both)
    assert doubts(book) == set()


@pytest.mark.promise("lost.notices")
def test_no_notice_is_withdrawn_because_its_cause_arrives_later(book, chain, home, open_book, reopen):
    book.supersede(chain.ground, chain.newer)
    book.reflect("people will buy oil", [chain.thought], space="a")
    before = doubts(book)
    files = sorted(home.rglob("*.md"), key=lambda path: ("_invalidations" not in path.parts, path.stat().st_mtime_ns))
    contents = {path: path.read_bytes() for path in reversed(files)}

    def remove_all() -> None:
        for path in files:
            path.unlink()

    book = reopen(remove_all)
    for path, data in [*contents.items()][-len(before) :] + [*contents.items()][: -len(before)]:
        path.write_bytes(data)
        book.sync()
    assert doubts(book) == before
    assert withdrawals(book) == 0


def test_a_notice_whose_file_is_removed_is_written_again_also_if_nothing_else_tells_its_cause(
    book, chain, home, reopen
):
    book.delete(chain.ground)
    doubted = {(chain.between, chain.ground), (chain.thought, chain.ground)}
    assert doubts(book) == doubted
    book = reopen()
    notices = sorted(home.glob("**/_invalidations/**/*.md"))
    assert len(notices) == 2
    for notice in notices:
        notice.unlink()
        book.sync()
        assert notice.exists()
        assert doubts(book) == doubted


@pytest.mark.promise("lost.notices")
def test_a_retraction_that_is_taken_back_leaves_the_doubt_that_it_had_decided(book, reopen):
    ground = book.remember("a litre of oil costs five", space="facts").id
    thought = book.reflect("oil is cheap", [ground], space="a").id
    book.delete(ground)
    book.triage(thought, "retract")
    book = reopen()
    assert doubts(book) == set()
    book.reinstate(thought)
    assert doubts(book) == {(thought, ground)}


OTHER = "01a1eda3-7ff6-7d09-9852-ca86beeaa7ff"
EDITS: dict[str, tuple[str, str]] = {
    "another dependent": ("(?<=dependent_id: ).*", OTHER),
    "no dependent": ("dependent_id: .*\n", ""),
    "another cause": ("(?<=invalidated_id: ).*", OTHER),
    "another successor": ("(?<=invalidating_id: ).*", OTHER),
    "another kind": ("type: notice", "type: note"),
    "another id": ("^---\nid: .*", f"---\nid: {OTHER}"),
    "another link": ("(?<=related_to )[^@]+", OTHER),
    "another relation": ("related_to", "derived_from"),
    "no link": ("links:\n.*\n", ""),
    "no front matter": ("(?s)^.*$", "forget it"),
}


@pytest.mark.promise("lost.notices")
@pytest.mark.parametrize(("pattern", "text"), EDITS.values(), ids=EDITS)
def test_an_edited_notice_hides_no_doubt_when_the_database_is_lost(book, home, chain, reopen, pattern, text):
    book.supersede(chain.ground, by=chain.newer)
    expected = {(chain.between, chain.ground), (chain.thought, chain.ground)}
    assert doubts(book) == expected

    def edit() -> None:
        files = list(home.rglob("_invalidations/**/*.md"))
        assert len(files) == 2
        for path in files:
            written, count = re.subn(pattern, text, path.read_text(), count=1)
            assert count
            path.write_text(written)

    assert doubts(reopen(edit)) == expected
