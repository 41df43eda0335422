"""Links by relations of the user's own: stored, shown, exported and imported as all others, without any meaning."""

from __future__ import annotations

import unicodedata

import pytest

import commonbook
from commonbook.errors import BadInput, NotFound
from commonbook.service.book import Book
from tests.support.stored import stored

WORDS = ["part-of", "blocked-by", "x", "v2_of", "a" * 40, "gehört-zu", "связано_для", "阻塞", "का-भाग", "é" * 40]


def related(book: Book, memory_id: str) -> set[tuple[str, str, str]]:
    return {(link.source, link.relation, link.target) for link in book.links(memory_id)}


@pytest.fixture
def pair(book: Book) -> tuple[str, str]:
    return book.remember("the plan").id, book.remember("the budget").id


@pytest.mark.parametrize("word", WORDS)
def test_a_word_of_ones_own_links_two_memories_in_both_directions(book: Book, pair, word):
    plan, budget = pair
    book.link(plan, word, budget)
    assert related(book, plan) == related(book, budget) == {(plan, word, budget)}
    assert book.link(plan, word, budget).new is False
    book.unlink(plan, word, budget)
    assert related(book, plan) == related(book, budget) == set()
    with pytest.raises(NotFound):
        book.unlink(plan, word, budget)


def test_remember_takes_them_beside_the_known_ones(book: Book, pair):
    plan, budget = pair
    new = book.remember("the offer", links=[("part-of", plan), ("related_to", plan), ("part-of", budget)]).id
    assert related(book, new) == {(new, "part-of", plan), (new, "related_to", plan), (new, "part-of", budget)}


@pytest.mark.parametrize(
    "word",
    [
        "",
        "Mentions",
        "two words",
        "1st",
        "_x",
        "-x",
        "a" * 41,
        "É",
        "ab\u200bc",
        "x:y",
        "x@y",
        "x\n",
        None,
        5,
        "shared_from",
    ],
)
def test_no_other_text_is_a_relation_and_nothing_changes(book: Book, pair, word):
    plan, budget = pair
    with pytest.raises(BadInput) as caught:
        book.link(plan, word, budget)
    assert caught.value.fix
    with pytest.raises(BadInput):
        book.remember("never", links=[(word, plan)])
    assert related(book, plan) == set()
    assert len(book.list().items) == 2


def test_they_mean_nothing_to_reasoning_recall_and_copies(book: Book, pair):
    plan, budget = pair
    book.link(plan, "based-on", budget)
    new = book.remember("the new budget").id
    assert book.supersede(budget, by=new).notified == 0
    assert book.get(plan).marks == ()
    assert book.dependents(budget) == ()
    assert book.inbox().items == ()
    copy = book.get(book.share(plan, "team").id)
    assert [(link.relation, link.target) for link in copy.links] == [("shared_from", plan)]


def test_a_word_is_the_same_in_composed_and_decomposed_letters(book: Book, pair):
    plan, budget = pair
    book.link(plan, "gehört-zu", budget)
    assert book.link(plan, unicodedata.normalize("NFD", "gehört-zu"), budget).version == 2
    assert related(book, plan) == {(plan, "gehört-zu", budget)}
    book.unlink(plan, unicodedata.normalize("NFD", "gehört-zu"), budget)
    assert related(book, plan) == set()


def test_an_export_brings_them_into_another_book(book: Book, pair, tmp_path):
    plan, budget = pair
    book.link(plan, "阻塞", budget)
    book.export(str(tmp_path / "out"))
    with commonbook.open(tmp_path / "other", create=True) as other:
        other.import_folder(str(tmp_path / "out"))
        assert related(other, budget) == {(plan, "阻塞", budget)}
    book.import_folder(str(tmp_path / "out"))
    assert related(book, budget) == {(plan, "阻塞", budget)}


def test_a_person_adds_and_removes_them_in_the_file_and_a_lost_database_keeps_them(book: Book, pair, home):
    plan, budget = pair
    file = home / book.get(plan).path
    file.write_text(file.read_text().replace("\n---\n", f"\nlinks:\n  - 阻塞 {budget}\n---\n", 1))
    book.sync()
    assert related(book, budget) == {(plan, "阻塞", budget)}
    book.close()
    for left in (home / ".commonbook").glob("state.db*"):
        left.unlink()
    with commonbook.open(home) as again:
        assert related(again, budget) == {(plan, "阻塞", budget)}
        text = file.read_text()
        file.write_text("".join(line for line in text.splitlines(keepends=True) if "阻塞" not in line))
        again.sync()
        assert related(again, budget) == set()


def test_a_link_that_came_before_its_target_is_confirmed_when_the_target_comes(book: Book, pair, tmp_path):
    plan, budget = pair
    book.link(plan, "blocked-by", budget)
    book.export(str(tmp_path / "out"))
    target = next(path for path in (tmp_path / "out").rglob("*.md") if "the-budget" in path.name)
    with commonbook.open(tmp_path / "other", create=True) as other:
        (tmp_path / "later").mkdir()
        target.rename(tmp_path / "later" / target.name)
        other.import_folder(str(tmp_path / "out"))
        other.import_folder(str(tmp_path / "later"))
        (link,) = stored(other, plan).links
        assert link.target_hash == stored(other, budget).content_hash
