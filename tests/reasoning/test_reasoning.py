"""Edge cases of invalidation and notices: files, moves, rebuilds, migration and links made by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

import commonbook
from commonbook.compose.book import open_book
from commonbook.compose.databases import migrate_book
from commonbook.core.settings.settings import DatabaseChoice, Settings
from commonbook.errors import BadInput, NotFound, TooLarge
from commonbook.service.book import Book
from commonbook.values.memory import Filter
from tests.support.hand_edits import change
from tests.support.postgres_server import TEMPLATE

SUPERSEDED = ("green", "red")


def suspect_reflection(book: Book, space: str = "a") -> tuple[str, str, str]:
    """Create a reflection on a superseded memory; return the old memory, its successor, and the reflection."""
    old, new = (book.remember(text, space="grounds").id for text in SUPERSEDED)
    reflection = book.reflect("doors are green", [old], space=space).id
    book.supersede(old, new, reason="it was painted")
    return old, new, reflection


def inbox_rows(book: Book) -> list[tuple[str, str, str, str]]:
    """Return the inbox: the notice, the dependent, the invalidated memory, and the dependent's space."""
    return sorted((one.id, one.dependent.id, one.invalidated.id, one.space) for one in book.inbox(limit=1000).items)


def file_of(book: Book, memory_id: str) -> Path:
    return Path(book.home) / book.get(memory_id).path


# --- which memories get notices


def test_whatever_supersedes_its_own_ground_is_not_in_doubt_for_it(book):
    old = book.remember("the door is green", space="a").id
    new = book.remember("the door is red", space="a", links=[("derived_from", old)], replaces=old).id
    assert (book.get(new).marks, inbox_rows(book)) == ((), [])


def test_a_copy_with_a_ground_of_its_own_can_be_decided_about_for_itself(book):
    old, _, reflection = suspect_reflection(book)
    copy = book.share(reflection, "b").id
    book.link(copy, "derived_from", old)
    book.triage(reflection, "keep")
    (notice,) = book.inbox().items
    assert notice.dependent.id == copy
    assert "suspect" in book.get(copy).marks
    book.triage(notice.id, "dismiss")
    assert (book.get(copy).marks, inbox_rows(book)) == ((), [])


def test_a_supersession_that_was_taken_back_takes_its_reason_along(book):
    old, new, _ = suspect_reflection(book)
    book.unlink(new, "supersedes", old)
    book.link(new, "supersedes", old)
    assert [one.reason for one in book.inbox().items] == [""]


def test_a_notice_is_linked_to_nothing_but_the_memory_that_it_is_about(book):
    old, _, reflection = suspect_reflection(book)
    (notice,) = (one.id for one in book.inbox().items)
    for refused in (
        lambda: book.link(old, "reflects_on", notice),
        lambda: book.link(old, "supersedes", notice),
        lambda: book.remember("more", replaces=notice),
        lambda: book.reflect("more", [notice]),
        lambda: book.link(notice, "derived_from", old),
        lambda: book.unlink(notice, "related_to", reflection),
        lambda: book.edit(notice, kind="note"),
    ):
        with pytest.raises(BadInput):
            refused()
    assert [one.id for one in book.inbox().items] == [notice]


def test_triage_by_superseding_is_logged_as_what_it_was(book):
    old, new, reflection = suspect_reflection(book)
    book.link(new, "related_to", reflection)
    book.link(reflection, "derived_from", new)
    (notice,) = (one.id for one in book.inbox().items)
    book.triage(notice, "supersede", by=new)
    entries = [one.action for one in book.log(space="a/_invalidations", limit=100) if notice in one.subjects]
    assert entries == ["notify", "triage"]
    assert book.get(reflection).superseded_by == new
    assert (inbox_rows(book), old) == ([], old)


def test_dependents_come_the_nearest_first_also_if_one_is_a_copy_with_grounds_of_its_own(book):
    ground = book.remember("ground", space="a").id
    first = book.remember("first", space="a", links=[("derived_from", ground)]).id
    copy = book.share(first, "b").id
    second = book.remember("second", space="a", links=[("derived_from", first)]).id
    third = book.remember("third", space="a", links=[("derived_from", second)]).id
    book.link(copy, "derived_from", third)
    assert [(one.id, one.depth) for one in book.dependents(ground)] == [(first, 1), (second, 2), (third, 3), (copy, 4)]


# --- spaces that move


def test_a_space_is_renamed_with_its_notices(book):
    old, _, reflection = suspect_reflection(book, "team/doors")
    ((notice, *_),) = inbox_rows(book)
    book.rename_space("team/doors", "house")
    assert inbox_rows(book) == [(notice, reflection, old, "house")]
    assert book.get(notice).space == "house/_invalidations"
    book.reinstate(old)
    assert inbox_rows(book) == []


def test_the_deepest_space_has_notices_and_is_renamed_with_them(book):
    deepest = "a/b/c/d/e/f/g"
    _, _, reflection = suspect_reflection(book, deepest)
    book.rename_space(deepest, "a/b/c/d/e/f/h")
    assert [one[1:2] for one in inbox_rows(book)] == [(reflection,)]


def test_a_folder_that_is_renamed_by_hand_takes_its_notices_along(book, home):
    old, _, reflection = suspect_reflection(book, "team")
    ((notice, *_),) = inbox_rows(book)
    (home / "team").rename(home / "house")
    book.sync()
    # The space keeps its name, whatever its folder is called.
    assert inbox_rows(book) == [(notice, reflection, old, "team")]
    assert file_of(book, notice).exists()
    assert [path.relative_to(home).parts[:2] for path in home.rglob("invalidation--*")] == [("house", "_invalidations")]


# --- hand edits of the files of notices


def test_a_notice_whose_file_is_moved_goes_back_to_the_memory_that_it_is_about(book, home):
    suspect_reflection(book)
    before = inbox_rows(book)
    moved = home / "elsewhere.md"
    file_of(book, before[0][0]).rename(moved)
    book.sync()
    book.sync()
    assert inbox_rows(book) == before
    assert (moved.exists(), file_of(book, before[0][0]).exists()) == (False, True)


@pytest.mark.parametrize("edit", [("type: notice", "type: note"), ("  - related_to", "  - contradicts")])
def test_a_notice_stays_what_it_is_whatever_is_typed_into_its_file(book, home, edit):
    old, *_ = suspect_reflection(book)
    ((notice, *_),) = before = inbox_rows(book)
    change(file_of(book, notice), *edit)
    book.sync()
    assert inbox_rows(book) == before
    assert edit[0] in file_of(book, notice).read_text()
    book.reinstate(old)
    assert inbox_rows(book) == []


def test_a_file_that_brings_back_a_settled_notice_settles_nothing_anew(book, home):
    old, _, reflection = suspect_reflection(book)
    (kept,) = (one.id for one in book.inbox().items)
    path = file_of(book, kept)
    data = path.read_bytes()
    book.triage(kept, "keep")
    for _ in range(2):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        book.sync()
        assert (inbox_rows(book), book.get(reflection).marks, path.exists()) == ([], (), False)
        book.reinstate(old) if book.get(old).superseded_by else None


def test_a_note_with_the_fields_of_a_notice_is_a_note(book, home):
    old, new, reflection = suspect_reflection(book)
    note = book.remember("mine", space="a").id
    book.close()
    fields = (
        f"dependent_id: {reflection}\ninvalidated_id: {old}\ninvalidating_id: {new}\ntimestamp: 2026-01-01T00:00:00Z"
    )
    path = next((home / "a").rglob("mine--*"))
    change(path, "type: note\n", f"type: note\n{fields}\n")
    (home / ".commonbook" / "state.db").unlink()
    with commonbook.open(home, create=True) as again:
        again.sync()
        assert (again.get(note).kind, again.get(note).notice) == ("note", None)
        assert [one[1] for one in inbox_rows(again)] == [reflection]


def decide_until_there_is_no_room(book: Book, old: str, reflection: str, note: str) -> None:
    for _ in range(100):
        try:
            book.triage(reflection, "keep", note=note)
        except TooLarge:
            return
        book.remember("another", space="a", replaces=old)
    pytest.fail("there was always room")


@pytest.mark.slow
def test_a_memory_with_no_room_for_a_decision_stays_in_doubt_and_stops_no_look_at_the_files(book, home):
    old, _, reflection = suspect_reflection(book)
    for note in ("so it is " * 100, ""):
        decide_until_there_is_no_room(book, old, reflection, note)
    waiting = inbox_rows(book)
    file_of(book, waiting[0][0]).unlink()
    book.sync()
    assert inbox_rows(book) == waiting
    assert file_of(book, waiting[0][0]).exists()


# --- rebuild, export and migration


def some_of_everything(book: Book) -> None:
    """Create an open notice, a withdrawn one, a decided one, a dismissed one, and two whose causes are deleted."""
    old, _, reflection = suspect_reflection(book)
    book.share(reflection, "c")
    book.remember("and so are gates", space="b", links=[("derived_from", reflection)])
    kept, dismissed = (book.reflect(text, [old], space="b").id for text in ("kept", "dismissed"))
    book.triage(kept, "keep", note="it holds")
    book.triage(dismissed, "dismiss")
    ground, *_ = suspect_reflection(book, "b")
    book.reinstate(ground)
    gone = book.remember("the roof is blue", space="grounds").id
    thought = book.reflect("roofs are blue", [gone], space="b").id
    book.remember("and so are sheds", space="c", links=[("derived_from", thought)])
    successor = book.remember("the gate is grey", space="grounds", replaces=book.remember("the gate is white").id).id
    book.delete(gone, successor)


def seen(book: Book) -> list[tuple[object, ...]]:
    marked = [
        (one.id, one.marks, one.superseded_by, one.invalidations) for one in book.list(Filter(), limit=1000).items
    ]
    return [*sorted(marked), *inbox_rows(book)]


def test_a_home_whose_database_is_lost_has_the_same_doubts(book, home):
    some_of_everything(book)
    before = seen(book)
    book.close()
    (home / ".commonbook" / "state.db").unlink()
    with commonbook.open(home, create=True) as again:
        again.sync()
        assert seen(again) == before
        again.rebuild()
        assert seen(again) == before
        assert again.verify_log().ok


@pytest.mark.promise("lost.notices")
def test_an_exported_folder_brings_its_doubts_into_another_home(book, tmp_path):
    some_of_everything(book)
    book.export(str(tmp_path / "exported"))
    with commonbook.open(tmp_path / "other", create=True) as other:
        for new in (True, False):
            report = other.import_folder(str(tmp_path / "exported"))
            assert (bool(report.done), report.skipped) == (new, ())
            assert seen(other) == seen(book)


@pytest.mark.slow
def test_doubts_move_to_a_server_and_back(book, home, postgres, tmp_path):
    some_of_everything(book)
    before = seen(book)
    book.close()
    address = postgres.make_database("doubts", template=TEMPLATE)
    keys = str(tmp_path / "keys")
    server = Settings(home="", cwd="", database=DatabaseChoice(address, keys))
    migrate_book(Settings.load(home)._replace(keys=keys), address)
    with open_book(server) as moved:
        assert seen(moved) == before
        old = next(one.invalidated.id for one in moved.inbox().items if one.invalidating)
        moved.reinstate(old)
        assert [one for one in inbox_rows(moved) if one[2] == old] == []
        before = seen(moved)
    migrate_book(server, str(tmp_path / "back"))
    with commonbook.open(tmp_path / "back", create=True) as back:
        assert seen(back) == before
        assert back.doctor() == ()
    postgres.drop_database("doubts")


# --- links made by hand


def test_circles_and_links_to_nothing_made_by_hand_are_told_once_and_end(book, home):
    first = book.remember("first", space="a").id
    second = book.reflect("second", [first], space="a").id
    third = book.reflect("third", [second, first], space="a").id
    new = book.remember("new", space="a").id
    gone = "01a1e303-a5dc-738e-af53-e3b6a8463f3a"
    lines = "".join(f"  - derived_from {one}\n" for one in (third, gone, first))
    change(file_of(book, first), "\n---\n\n", f"\nlinks:\n{lines}---\n\n")
    book.sync()
    book.supersede(second, new)
    assert {one.dependent.id: one.depth for one in book.inbox().items} == {third: 1, first: 2}
    assert {one.id: one.depth for one in book.dependents(second)} == {third: 1, first: 2}
    assert book.get(second).marks == ("superseded",)
    book.supersede(first, new)
    # In the cycle, each memory depends on each other.
    assert {(one.dependent.id, one.invalidated.id) for one in book.inbox().items} == {
        (third, second),
        (first, second),
        (second, first),
        (third, first),
    }
    book.reinstate(first)
    book.reinstate(second)
    assert inbox_rows(book) == []


def test_a_long_chain_is_told_to_its_end_and_taken_back(book):
    ids = [book.remember("first", space="a").id]
    for number in range(60):
        ids.append(book.remember(f"{number}", space="a", links=[("derived_from", ids[-1])]).id)
    new = book.remember("new", space="a").id
    assert book.supersede(ids[0], new).notified == 60
    waiting = {one.dependent.id: one for one in book.inbox(limit=1000).items}
    assert {id_: one.depth for id_, one in waiting.items()} == {id_: at for at, id_ in enumerate(ids) if at}
    assert waiting[ids[-1]].path == tuple(ids)
    assert len(book.get(waiting[ids[-1]].id).text) < 2_000
    book.reinstate(ids[0])
    assert inbox_rows(book) == []


# --- keys and permissions


def test_a_key_for_one_space_sees_and_decides_only_there(book):
    old = book.remember("green", space="grounds").id
    new = book.remember("red", space="grounds").id
    mine, yours = (book.reflect("so", [old], space=space).id for space in ("a", "b"))
    book.supersede(old, new)
    for space in ("a", "b", "grounds"):
        book.grant("user:alice", space, "writer")
    alice = book.with_key(book.create_key("user:alice", limits=[("a", "writer")]).secret)
    (notice,) = alice.inbox().items
    assert (notice.dependent.id, notice.invalidated.title, notice.invalidating.title) == (mine, None, None)
    for hidden in (old, yours):
        with pytest.raises(NotFound):
            alice.triage(hidden, "keep")
        with pytest.raises(NotFound):
            alice.dependents(hidden)
    other = next(one.id for one in book.inbox().items if one.dependent.id == yours)
    with pytest.raises(NotFound):
        alice.delete(other)
    alice.triage(notice.id, "keep")
    assert [one.dependent.id for one in book.inbox().items] == [yours]


# --- grounds that this book does not have


@pytest.mark.promise("lost.notices")
@pytest.mark.parametrize("verdict", ["keep", "retract", "supersede", "dismiss"])
def test_every_decision_works_where_the_database_that_knew_the_ground_was_lost(book, home, verdict):
    gone = book.remember("the roof is blue", space="grounds").id
    thought = book.reflect("roofs are blue", [gone], space="b").id
    book.delete(gone)
    book.close()
    (home / ".commonbook" / "state.db").unlink()
    with commonbook.open(home, create=True) as again:
        again.sync()
        below = again.reflect("so are all houses", [thought], space="b").id
        assert {one.id for one in again.list().items if "suspect" in one.marks} == {thought, below}
        (notice,) = [one for one in again.inbox().items if one.dependent.id == thought]
        by = again.remember("roofs are red", space="b").id if verdict == "supersede" else None
        assert again.triage(notice.id, verdict, by=by).resolved == 1
        assert "suspect" not in again.get(thought).marks
        assert [one.dependent.id for one in again.inbox().items if one.invalidated.id == gone] == [below]
        again.edit(thought, tags=["roofs"])
        again.triage(below, "keep")
        assert [one for one in again.inbox().items if one.invalidated.id == gone] == []


def test_a_memory_that_was_kept_without_its_ground_can_be_read_from_its_file(book, open_book, tmp_path):
    with commonbook.open(tmp_path / "first", create=True) as first:
        gone = first.remember("the roof is blue", space="grounds").id
        path = tmp_path / "first" / first.get(gone).path
        content = path.read_bytes()
        thought = first.reflect("roofs are blue", [gone], space="b").id
        first.delete(gone)
        first.export(str(tmp_path / "exported"))
    book.import_folder(str(tmp_path / "exported"))
    book.triage(thought, "keep", note="it is painted")
    book.export(str(tmp_path / "again"))
    with commonbook.open(tmp_path / "third", create=True) as third:
        assert third.import_folder(str(tmp_path / "again")).skipped == ()
        assert [(one.verdict, one.note) for one in third.get(thought).decisions] == [("keep", "it is painted")]
    (tmp_path / "ground").mkdir()
    (tmp_path / "ground" / "roof.md").write_bytes(content)
    book.import_folder(str(tmp_path / "ground"), space="grounds")
    assert {one.id for one in open_book().list().items} >= {gone, thought}


def test_a_doubt_that_came_through_a_copy_outlives_the_database_and_later_changes(book, home):
    gone = book.remember("the roof is blue", space="grounds").id
    copy = book.share(gone, "team").id
    thought = book.reflect("roofs are blue", [copy], space="b").id
    book.delete(gone)
    book.close()
    (home / ".commonbook" / "state.db").unlink()
    with commonbook.open(home, create=True) as again:
        again.link(thought, "derived_from", again.remember("so are walls", space="b").id)
        assert "suspect" in again.get(thought).marks
        below = again.reflect("so are all houses", [thought], space="b").id
        assert {one.dependent.id for one in again.inbox().items} == {thought, below}
        for id_ in (thought, below):
            assert again.triage(id_, "keep").resolved == 1
        assert [one.id for one in again.list().items if "suspect" in one.marks] == []
