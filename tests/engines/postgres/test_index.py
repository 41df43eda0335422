"""The index in PostgreSQL, on a real server: it finds the same as the embedded one, and a commit is atomic.

COMMONBOOK_KILLS     how many times the writing process is killed (6; the full setting is 50)
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import psycopg
import pytest

import commonbook
from commonbook.compose import book as compose_book
from commonbook.engines.postgres import index as tables
from commonbook.engines.postgres.passage_rows import signed_hash
from commonbook.errors import Busy, DatabaseUnreachable, HomeOfAnotherBuild
from commonbook.ports.index import Delta, IndexQuery
from commonbook.service.book import Book
from commonbook.values.memory import Draft
from tests.engines.index import test_segments
from tests.support.index_contract import IndexContract, check_readers_while_writing, kill_a_writer, number_of
from tests.support.index_worlds import (
    ASKED,
    ELSEWHERE,
    MARKER,
    SPACES,
    Laid,
    Maker,
    answer,
    commit,
    entry,
    expected,
    hang_up,
    left_of,
    marker,
    memory_id,
    opened,
    step,
    vector,
    wrong_with,
)
from tests.support.postgres_server import wait_for_transactions
from tests.support.statements import recorded

pytestmark = pytest.mark.promise("recall.index")

KILLS = int(os.environ.get("COMMONBOOK_KILLS", "6"))
SEED = 20261116
ALL = frozenset(SPACES)
Lay = Callable[..., Laid]
_NUMBERS = count()

# --- what a search of segments must find, a search of the database must find as well

same = vars(test_segments)
for _name in (
    "test_a_search_finds_what_a_look_at_every_passage_finds",
    "test_neither_segments_nor_merges_nor_a_tail_change_what_is_found",
    "test_what_the_asked_spaces_do_not_hold_changes_nothing",
    "test_of_many_equal_matches_the_newest_are_the_candidates_in_any_layout",
    "test_a_nearest_passage_that_a_filter_leaves_out_takes_nobodys_place",
    "test_a_long_memory_takes_nobodys_place",
    "test_the_best_parts_of_a_memory_are_its_candidates",
    "test_every_message_of_a_talk_may_be_a_candidate",
    "test_parts_of_one_thread_are_a_few_also_when_they_lie_in_several_segments",
    "test_parts_that_a_copy_in_another_segment_replaces_leave_their_places_to_others",
    "test_neighbours_within_reach_may_be_found_and_theirs_only_count",
    "test_neighbours_are_found_across_segments_and_in_one_thread_alone",
    "test_a_deleted_owner_stays_deleted_through_any_merges",
    "test_where_there_is_nothing_nothing_is_found",
    "test_odd_passages_are_kept_and_found_as_they_are",
    "test_a_tag_is_no_word_and_a_word_is_no_tag",
    "test_of_passages_with_one_time_in_their_ids_the_same_are_candidates_in_any_layout",
    "test_far_down_a_long_thread_neighbours_are_still_those_within_reach",
    "test_a_memory_whose_id_is_all_zeros_is_named",
    "test_nothing_is_near_to_a_vector_that_says_nothing",
    "test_a_vector_of_another_length_is_not_compared",
):
    globals()[_name] = same[_name]


@pytest.fixture(autouse=True)
def _hung_up() -> Iterator[None]:
    yield
    hang_up()


@pytest.fixture(scope="module")
def schemas(postgres_database: str) -> Callable[[], str]:
    """Return the address of an index that nobody has made yet: each has a schema of its own."""

    def address() -> str:
        name = f"index_{next(_NUMBERS)}"
        with psycopg.connect(postgres_database, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}")
        return f"{postgres_database}&options=-csearch_path%3D{name},public"

    return address


@pytest.fixture
def place(schemas: Callable[[], str]) -> str:
    return schemas()


@pytest.fixture
def index(place: str) -> Any:
    return opened(place)


@pytest.fixture
def statements(place: str) -> Iterator[psycopg.Connection]:
    """A connection to the tables of the index."""
    with psycopg.connect(place, autocommit=True) as connection:
        yield connection


@pytest.fixture
def lay(schemas: Callable[[], str]) -> Lay:
    """Lay out changes as an index; a few are used again and again, since it is slow to make tables."""
    places: list[Any] = []
    turns = count()

    def lay_out(layers: Sequence[Delta], unwritten: int = 0) -> Laid:
        turn = next(turns) % 8
        if turn == len(places):
            places.append(opened(schemas()))
        index, written = places[turn], len(layers) - unwritten
        with index.writing(wait=60) as writer:
            writer.clear()
            for layer in (Delta((ELSEWHERE,)), *layers[:written]):
                writer.add(layer)
            writer.commit(MARKER)
        return _Often(index.view(), tuple(layers[written:]))

    return lay_out


class _Often(Laid):
    """An index that is searched again and again: first in the database, then more and more in the cache."""

    def search(self, sought: IndexQuery) -> Any:
        kept = vars(self.view)["_resources"].cache
        kept.clear()
        found = super().search(sought)
        for number in range(1, len(sought.spaces) + 1):
            again = super().search(sought)
            assert len(kept.has(map(signed_hash, sought.spaces))) == number, "it was not kept"
            assert answer(again, sought) == answer(found, sought), f"{number} of the spaces kept change the answer"
        assert answer(super().search(sought), sought) == answer(found, sought), "what is kept changes the answer"
        return found


# --- kill -9


@pytest.mark.timeout(60 + 10 * KILLS)
def test_after_kill_minus_nine_the_index_is_as_some_commit_left_it(place):
    dice = random.Random(SEED)
    last = 0
    for _ in range(KILLS):
        last = kill_a_writer(place, dice, last, longest_pause=0.02)
        # The server may still be at work on the commit that it was sent last.
        wait_for_transactions(place)
        seen = opened(place).view()
        assert number_of(seen.state) in (last, last + 1), "what was told to be committed is not there"
        assert wrong_with(seen) is None
        assert opened(place).damage() == []
        last = number_of(seen.state)
    commit(opened(place), last + 1)
    assert wrong_with(opened(place).view()) is None
    assert last > KILLS, "the child never got far enough to prove anything"


def test_a_catch_up_killed_in_the_middle_leaves_what_was_there_and_no_lock(place, statements):
    commit(opened(place), 1)
    index: Any = opened(place)
    with pytest.raises(DatabaseUnreachable):
        _cut_off(index, statements)
    assert number_of(opened(place).view().state) == 1
    commit(opened(place), 2)
    assert wrong_with(opened(place).view()) is None


def _cut_off(index: Any, statements: psycopg.Connection) -> None:
    """Lose the connection in the middle of a commit."""
    with index.writing(wait=60) as writer:
        writer.add(step(2))
        statements.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND state = 'idle in transaction'"
        )
        writer.add(step(3))
        writer.commit(marker(3))


def test_readers_always_see_one_commit_whole_while_a_writer_commits(place, index):
    check_readers_while_writing(place, index)


# --- views


class TestPostgresIndex(IndexContract):
    """The contract of every index holds for this one."""


class _Moment(NamedTuple):
    """A read transaction of the book, as far as an index uses it."""

    connection: psycopg.Connection

    def rows(self, sql: str, /, **params: object) -> list[Any]:
        raise NotImplementedError

    def row(self, sql: str, /, **params: object) -> Any:
        raise NotImplementedError


@contextmanager
def _moment(place: str) -> Iterator[_Moment]:
    with psycopg.connect(place, autocommit=True) as connection:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SELECT 1")
        with connection.pipeline():
            yield _Moment(connection)
        connection.execute("ROLLBACK")


def test_a_search_in_a_reading_sees_the_book_at_that_moment_however_the_index_goes_on(place, index):
    """The view is of step 1, the reading of step 4, and of the index it sees step 3; a later commit changes nothing."""
    commit(index, 1)
    view = index.view()
    commit(index, 2)
    commit(index, 3)
    tail = tuple(map(step, (2, 3, 4)))
    with _moment(place) as tx:
        for number in (4, 5, 6):
            commit(index, number)
        found, wanted = answer(view.search(ASKED, tail, tx), ASKED), expected(left_of(map(step, (1, 2, 3, 4))), ASKED)
        assert (found.total, found.document_frequencies, found.rows) == (
            wanted.total,
            wanted.document_frequencies,
            wanted.rows,
        )
        with pytest.raises(Busy):
            index.view().search(ASKED, (), tx)


def test_who_searches_a_view_that_was_overtaken_is_told_to_ask_again(place, index):
    commit(index, 1)
    view = index.view()
    commit(opened(place), 2)
    with pytest.raises(Busy):
        view.search(ASKED, ())


def test_vectors_of_another_embedder_are_not_compared_though_the_index_changed_in_between(place, index):
    commit(index, 1)
    view = index.view()
    with index.writing(wait=60) as writer:
        writer.clear()
        writer.add(Delta((entry(1, terms={"apple": 1}, vector=np.ones(8, np.float32)), entry(2))))
        writer.commit(marker(2)._replace(embedder="another"))
    with _moment(place) as tx:
        found = view.search(IndexQuery(("apple",), vector=vector(1), spaces=ALL), (), tx)
        assert [found.pool.ids_of(row)[1] for row in range(len(found.pool.positions))] == [memory_id(1)]
        assert found.pool.vectors is None


def test_a_commit_that_begins_anew_keeps_nothing_of_before(place, index, statements):
    for number in range(1, 5):
        commit(index, number)
    with index.writing(wait=60) as writer:
        assert number_of(writer.state) == 4
        writer.clear()
        assert writer.state is None
        writer.add(Delta((entry(900, vector=vector(1)),)))
        writer.commit(marker(9))
    assert index.view().search(ASKED, ()).total == opened(place).view().search(ASKED, ()).total == 1
    assert statements.execute("SELECT count(*) FROM recall_passage").fetchone() == (1,)
    assert statements.execute("SELECT count(*) FROM recall_posting").fetchone() == (0,)


def test_an_owner_that_comes_twice_in_one_commit_is_there_as_it_came_last(place, index):
    with index.writing(wait=60) as writer:
        writer.clear()
        for number in range(1, 20):
            writer.add(step(number))
        writer.commit(marker(19))
    assert wrong_with(opened(place).view()) is None
    assert index.damage() == []


# --- several writers


def test_of_two_writers_the_second_is_told_who_writes(place, index):
    commit(index, 1)
    other = opened(place)
    with index.writing(wait=60) as writer:
        begun = time.monotonic()
        with pytest.raises(Busy, match=r"connection [0-9]+ of commonbook"), other.writing(wait=0.1):
            pass
        with pytest.raises(Busy, match="another thread"), index.writing(wait=0.1):
            pass
        assert time.monotonic() - begun < 30
        assert wrong_with(other.view()) is None, "a reader must never wait for a writer"
        writer.add(step(2))
        writer.commit(marker(2))
    commit(other, 3)
    assert wrong_with(index.view()) is None


def test_of_many_who_begin_at_once_one_makes_the_tables(place):
    wrong: list[Exception] = []
    gate = threading.Barrier(4)

    def begin() -> None:
        index: Any = opened(place)
        gate.wait()
        try:
            with index.writing(wait=60) as writer:
                number = number_of(writer.state) + 1
                writer.add(step(number))
                writer.commit(marker(number))
        except Exception as error:  # noqa: BLE001 - told below
            wrong.append(error)

    threads = [threading.Thread(target=begin) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert number_of(opened(place).view().state) == 4
    assert wrong_with(opened(place).view()) is None


# --- broken tables


@pytest.mark.parametrize(
    ("breaking", "named"),
    [
        ("DELETE FROM recall_posting WHERE (term % 2) = 0", "recall_posting"),
        ("DELETE FROM recall_passage WHERE position = 1", "recall_space counts"),
        ("UPDATE recall_space SET passages = passages + 1", "recall_space counts"),
    ],
)
def test_what_is_broken_is_named_and_written_anew(place, index, statements, breaking, named):
    for number in range(1, 5):
        commit(index, number)
    assert index.damage() == []
    statements.execute(breaking)
    assert any(named in one for one in index.damage())
    with index.writing(wait=60) as writer:
        writer.clear()
        writer.add(Delta(tuple(one for layer in map(step, range(1, 5)) for one in layer.entries)))
        writer.commit(marker(5))
    assert index.damage() == []


@pytest.mark.parametrize("gone", [*tables.TABLES, ", ".join(tables.TABLES)])
def test_tables_that_are_gone_are_no_index_and_are_made_again(place, index, statements, gone):
    commit(index, 1)
    statements.execute(f"DROP TABLE {gone}")
    assert index.view().state is None
    assert index.damage() == []
    commit(index, 2)
    assert index.view().search(ASKED, ()).total == len(step(2).entries)


def test_tables_of_an_older_program_are_made_anew_and_those_of_a_newer_one_are_left(place, index, statements):
    commit(index, 1)
    statements.execute("UPDATE recall_index SET format = 0")
    assert index.view().state is None
    commit(index, 2)
    assert number_of(index.view().state) == 2
    assert index.view().search(ASKED, ()).total == len(step(2).entries)
    statements.execute("UPDATE recall_index SET format = %s", (tables.FORMAT + 1,))
    assert index.view().state is None
    with pytest.raises(HomeOfAnotherBuild):
        commit(index, 3)


# --- large and many


def test_what_a_large_commit_adds_is_soon_found_without_a_look_into_the_table(place, index, statements):
    # The table also has pages without rows: it grows by several at a time.
    query = (
        "SELECT (SELECT count(DISTINCT split_part(ctid::text, ',', 1)) FROM recall_passage), relallvisible"
        " FROM pg_class WHERE oid = to_regclass('recall_passage')"
    )
    seen = []
    # A transaction that reads the table just then, as the server itself does now and again, keeps VACUUM from marking
    # rows as visible until the next time; on a busy machine that may take a while. It is run after a commit of at least
    # a twentieth of all rows.
    for number in range(20):
        time.sleep(min(2.0, 0.1 * number))
        added = range(1_500 * number, 1_500 * number + 1_500)
        many = Delta(tuple(entry(number, terms={"apple": 1}, vector=vector(1, number)) for number in added))
        with index.writing(wait=60) as writer, _moment(place):
            writer.add(many)
            writer.commit(marker(1))
        seen.append(statements.execute(query).fetchone() or (0, 0))
        # The first commit fills new tables, whose rows are visible at once.
        if number and seen[-1][0] == seen[-1][1] > 0:
            return
    raise AssertionError(seen)


def test_a_vector_too_long_for_an_index_of_the_database_is_found(place, index):
    dice = np.random.default_rng(1)
    vectors = dice.standard_normal((60, 3_072)).astype(np.float32)
    with index.writing(wait=60) as writer:
        writer.add(Delta(tuple(entry(number, vector=one) for number, one in enumerate(vectors))))
        writer.commit(marker(1))
    found = index.view().search(IndexQuery((), vector=vectors[7], spaces=ALL, max_candidates=1, reach=0), ())
    assert [found.pool.ids_of(row)[1] for row in range(len(found.pool.positions))] == [memory_id(7)]
    assert found.pool.vectors is not None
    assert found.pool.vectors.shape == (1, 3_072)


def test_over_a_thousand_matches_answers_are_the_same_with_and_without_others_and_after_deletions(lay):
    maker = Maker("many")
    ours = [
        entry(number, terms={"apple": 1, **({"brook": 1} if number % 3 else {})}, vector=maker.directions[number % 6])
        for number in range(1, 1_401)
    ]
    others = [
        one._replace(passage=f"{memory_id(5_000 + at)}#0", owner=memory_id(5_000 + at), space="theirs")
        for at, one in enumerate(ours)
    ]
    gone = [entry(9_000 + at, terms={"apple": 1, "brook": 1}, vector=maker.directions[0]) for at in range(1_200)]
    alone = lay([Delta(tuple(ours))])
    beside = lay(
        [Delta(tuple(ours)), Delta((*others, *gone)), Delta((), frozenset(one.owner for one in gone))], unwritten=1
    )
    deleted = lay([Delta((*ours, *gone)), Delta((), frozenset(one.owner for one in gone))])
    for terms in (("apple",), ("apple", "brook"), ()):
        sought = IndexQuery(terms, vector=maker.directions[2], spaces=frozenset({"ours"}), max_candidates=50)
        wanted = answer(alone.search(sought), sought)
        assert answer(beside.search(sought), sought) == wanted
        assert answer(deleted.search(sought), sought) == wanted
        assert wanted.total == 1_400


def test_five_hundred_spaces_are_asked_at_once(place, index):
    spaces = [f"space-{number}" for number in range(500)]
    entries = [
        entry(
            10 * number + at,
            space=space,
            terms={"apple": 1, **({"rare": 1} if (number, at) == (317, 2) else {})},
            vector=vector(1, number, at),
        )
        for number, space in enumerate(spaces)
        for at in range(4)
    ]
    with index.writing(wait=60) as writer:
        writer.add(Delta((*entries, ELSEWHERE)))
        writer.commit(marker(1))
    sought = IndexQuery(("apple", "rare"), vector=vector(1, 250, 1), spaces=frozenset(spaces), max_candidates=50)
    found, wanted = answer(index.view().search(sought, ()), sought), expected(entries, sought)
    assert (found.total, found.document_frequencies) == (2_000, (2_000, 1))
    assert found.rows == wanted.rows
    few = sought._replace(spaces=frozenset(spaces[:250]))
    assert index.view().search(few, ()).document_frequencies == (1_000, 0)


def test_a_long_question_to_very_many_spaces_is_asked_by_its_rarest_terms(place, index):
    spaces = [f"space-{number}" for number in range(600)]
    common = {f"word{at}": 1 for at in range(30)}
    entries = [
        entry(number + 1, space=space, terms={**common, **({"rare": 1} if number == 317 else {})})
        for number, space in enumerate(spaces)
    ]
    with index.writing(wait=60) as writer:
        writer.add(Delta(tuple(entries)))
        writer.commit(marker(1))
    sought = IndexQuery((*common, "rare"), spaces=frozenset(spaces), max_candidates=1, reach=0)
    found = index.view().search(sought, ())
    assert [found.pool.ids_of(row)[1] for row in range(len(found.pool.positions))] == [memory_id(318)]
    assert found.total == 600
    assert found.document_frequencies == (600,) * 30 + (1,)
    few = sought._replace(spaces=frozenset(spaces[:300]))
    assert answer(index.view().search(few, ()), few).rows == expected(entries[:300], few).rows


# --- the same book


def test_a_book_is_recalled_with_the_same_hits_and_scores_as_from_the_embedded_index(tmp_path, place, monkeypatch):
    """On a small scale: conversations, long notes and edits, some of them not yet indexed."""
    dice = random.Random(SEED)
    words = ("harbour", "lantern", "orchard", "violin", "glacier", "saddle", "pepper", "window", "thunder", "ribbon")

    def text() -> str:
        return " ".join(dice.choices(words, k=dice.randrange(4, 30))).capitalize() + dice.choice(".?")

    with commonbook.open(tmp_path / "home", create=True) as book:
        for at in range(30):
            turns = "\n\n".join(
                f"### {name} (user) · 2026-03-{1 + at % 28:02}T10:00:{seq:02}.000000Z · {seq} · D{at}:{seq}\n\n{text()}"
                for seq, name in zip(range(12), ("user:ann", "user:ben") * 6, strict=True)
            )
            book.remember_many([Draft(turns, space=f"talks/{at % 3}", kind="episode", title=f"Talk {at}")])
        notes = book.remember_many([Draft("\n\n".join(text() for _ in range(9)), space="notes") for _ in range(60)])
        book.reindex()
        monkeypatch.setattr(compose_book, "_mapped_index", lambda _hidden: opened(place))
        with commonbook.open(tmp_path / "home") as other:
            other.reindex()
            for at, receipt in enumerate(notes.receipts if hasattr(notes, "receipts") else notes):
                if at % 10 == 0:
                    book.edit(receipt.id, text=text())
            for spaces in ("notes", "talks/", ["notes", "talks/1"]):
                for _ in range(15):
                    question = " ".join(dice.sample(words, k=3)) + dice.choice(("", " ann", " in March"))
                    one, two = (
                        [
                            (hit.id, hit.passage_id, hit.score, hit.parts)
                            for hit in each.recall(question, spaces=spaces).hits
                        ]
                        for each in (book, other)
                    )
                    assert one == two
                    assert one


# --- statements of a recall


@pytest.fixture
def towers(postgres_book: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Book]:
    """A book on PostgreSQL with a dozen spaces, whose index is written."""
    address, keys = postgres_book
    monkeypatch.setenv("COMMONBOOK_KEYS", keys)
    with commonbook.open(address) as book:
        for number in range(20):
            book.remember(f"The ledger of tower {number} is kept in the cellar.", space=f"tower/{number}")
        book.reindex(anew=True)
        book.recall("ledger", spaces="tower/19")
        yield book


# Begin, version, changes in all, spaces, three of the first question, neighbours, what supersedes, memories, copies,
# end.
STATEMENTS = 12
_OF_LINKS = 1
"""The links to several hits, which change their order."""
_OF_A_SEARCH = 3
"""Postings, the nearest, and the best with their neighbours: not queried where every space is cached."""


@pytest.mark.parametrize("spaces", [["tower/0"], ["tower/1", "tower/2", "tower/3"], ["tower/"], ["/"]])
def test_a_recall_takes_few_statements_however_many_spaces_it_asks(towers, monkeypatch, spaces):
    with recorded(monkeypatch) as statements:
        hits = towers.recall("ledger", spaces=spaces).hits
    assert hits
    assert len(statements) == STATEMENTS + _OF_LINKS * (len(hits) > 1), statements


def test_spaces_that_are_asked_again_and_again_are_searched_without_a_question(towers, monkeypatch):
    spaces = ["tower/0", "tower/1", "tower/2", "empty"]
    towers.create_space("empty")
    before = towers.recall("ledger", spaces=spaces).hits
    for _ in spaces:
        with recorded(monkeypatch) as statements:
            assert towers.recall("ledger", spaces=spaces).hits == before
    with recorded(monkeypatch) as statements:
        assert towers.recall("ledger", spaces=spaces).hits == before
    assert len(statements) == STATEMENTS + _OF_LINKS - _OF_A_SEARCH, statements


def test_a_recall_with_grants_takes_two_more_statements_however_many_spaces_are_granted(towers, monkeypatch):
    towers.grant("user:bob", "tower/1", "reader")
    towers.grant("user:bob", "tower/2", "reader")
    bob = towers.acting_as("user:bob")
    with recorded(monkeypatch) as statements:
        assert len(bob.recall("ledger", spaces=["tower/1", "tower/2"]).hits) == 2
    # Its grants, and the limit of its recalls.
    assert len(statements) == STATEMENTS + _OF_LINKS + 2, statements


def test_an_index_that_another_wrote_meanwhile_is_looked_at_again(towers, postgres_book):
    with commonbook.open(postgres_book[0]) as other:
        other.remember_many([Draft(f"Bell {number} hangs in the belfry.", space="bells") for number in range(200)])
        other.recall("bell", spaces="bells")
        assert len(towers.recall("bell", spaces="bells", k=200).hits) == 200
        other.remember("The last bell is cracked.", space="bells")
        assert towers.recall("cracked", spaces="bells").hits


@pytest.mark.parametrize("spaces", ["/", "tower/19"])
@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE recall_posting",
        "DROP TABLE recall_index",
        tables.DROP_ALL,
        "DELETE FROM recall_index",
        "DROP EXTENSION vector CASCADE; CREATE EXTENSION vector",
    ],
)
def test_an_index_that_is_gone_since_the_last_recall_is_missed_by_nobody(towers, postgres_book, statement, spaces):
    before = [(hit.id, hit.score) for hit in towers.recall("ledger", spaces=spaces).hits]
    with psycopg.connect(postgres_book[0], autocommit=True) as connection:
        connection.execute(statement)
    for _ in range(3):
        assert [(hit.id, hit.score) for hit in towers.recall("ledger", spaces=spaces).hits] == before
    towers.reindex(anew=True)
    assert [(hit.id, hit.score) for hit in towers.recall("ledger", spaces=spaces).hits] == before
    assert not towers.doctor()
