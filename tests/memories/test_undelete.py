"""Undeleting a memory: everything that it had comes back, and the history shows that it was away."""

from __future__ import annotations

import inspect
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from commonbook import BadInput, Book, Conflict, Filter, NotAllowed, NotFound
from commonbook.core.log import chain
from tests.conftest import OpenBook

ANA, BOB = "user:ana", "user:bob"


def texts(book: Book, memory: str) -> list[str]:
    return [one.text for one in book.history(memory)]


def actions(book: Book, space: str) -> list[str]:
    return [entry.action for entry in book.log(space=space)]


# --- what comes back


@pytest.mark.promise("undo.delete")
def test_text_tags_history_and_links_of_both_ends_come_back(book: Book):
    target = book.remember("the target").id
    memory = book.remember("one", tags=["x"], links=[("related_to", target)], importance=0.5).id
    source = book.remember("the source", links=[("derived_from", memory)]).id
    book.edit(memory, text="the heron is grey")
    before = book.get(memory)
    book.delete(memory)
    receipt = book.undelete(memory)
    after = book.get(memory)
    assert (after.text, after.title, after.tags, after.links, after.importance, after.created, after.revision) == (
        before.text, before.title, before.tags, before.links, before.importance, before.created, before.revision,
    )  # fmt: skip
    assert (receipt.id, receipt.version, receipt.path) == (memory, after.version, before.path)
    assert after.version > before.version
    assert texts(book, memory) == ["one", "the heron is grey"]
    assert {link.source for link in book.links(memory)} == {memory, source}
    assert {link.source for link in book.links(target)} == {memory}
    assert [one.id for one in book.list(Filter(tags=("x",))).items] == [memory]
    assert book.recall("grey heron").hits[0].memory == memory
    assert "suspect" not in book.get(source).marks
    assert book.inbox().items == ()
    assert book.verify_log().ok
    assert book.doctor() == ()


def test_doing_it_again_changes_nothing_and_it_is_an_action_of_its_own(book: Book):
    memory = book.remember("one", space="team").id
    assert book.undelete(memory).version == 1, "it was not deleted"
    book.delete(memory)
    first = book.undelete(memory)
    assert book.undelete(memory) == first
    assert actions(book, "team") == ["space.create", "remember", "delete", "undelete"]


@pytest.mark.promise("undo.edit")
def test_the_history_shows_each_deletion_and_each_way_back(book: Book):
    book.grant(BOB, "team", "writer")
    memory = book.remember("one", space="team").id
    book.acting_as(BOB).delete(memory)
    (revision,) = book.history(memory)
    assert [(one.by, one.how, one.restored_at) for one in revision.deletions] == [(BOB, "delete", None)]
    book.undelete(memory)
    book.edit(memory, text="two")
    book.delete(memory)
    first, second = book.history(memory)
    (deletion,) = first.deletions
    assert (deletion.by, deletion.restored_by, deletion.restored_how) == (BOB, "user:local", "undelete")
    assert deletion.restored_at is not None
    assert deletion.at < deletion.restored_at
    assert [one.restored_at for one in second.deletions] == [None]
    assert (first.current, second.current) == (False, False)


def test_of_a_deletion_in_a_space_that_may_not_be_read_only_the_time_is_told(book: Book):
    book.grant(BOB, "team", "writer")
    memory = book.remember("one", space="vault").id
    book.delete(memory)
    book.undelete(memory)
    book.move(memory, "team")
    (own,) = book.history(memory)[0].deletions
    (seen,) = book.acting_as(BOB).history(memory)[0].deletions
    assert (seen.by, seen.how, seen.restored_by, seen.restored_how) == ("", "", "", "")
    assert (seen.at, seen.restored_at) == (own.at, own.restored_at)


def test_a_long_log_is_not_read_for_a_history(home: Path, book: Book):
    memory = book.remember("one").id
    statement = inspect.getsource(chain.deletions_of)
    with closing(sqlite3.connect(home / ".commonbook" / "state.db")) as database:
        condition = "subjects = ? AND action IN ('delete', 'restore', 'undelete')"
        assert "action IN ('delete', 'restore', 'undelete')" in statement
        plan = database.execute(f"EXPLAIN QUERY PLAN SELECT * FROM log_entry WHERE {condition}", (memory,)).fetchall()
    assert "USING INDEX log_entry_by_deletion" in str(plan)


# --- rights


@pytest.mark.promise("undo.delete")
def test_only_a_writer_of_the_space_undeletes(book: Book):
    book.grant(ANA, "team", "reader")
    memory = book.remember("one", space="team").id
    book.delete(memory)
    with pytest.raises(NotAllowed):
        book.acting_as(ANA).undelete(memory)
    with pytest.raises(NotFound) as unseen:
        book.acting_as(BOB).undelete(memory)
    with pytest.raises(NotFound) as unknown:
        book.acting_as(BOB).undelete("01900000-0000-7000-8000-000000000000")
    assert type(unseen.value) is type(unknown.value)
    with pytest.raises(NotFound):
        book.get(memory)
    book.grant(ANA, "team", "writer")
    assert book.acting_as(ANA).undelete(memory).id == memory


# --- supersession and notices


@pytest.mark.promise("undo.delete")
def test_what_it_superseded_is_superseded_again(book: Book):
    old = book.remember("oil costs five").id
    new = book.remember("oil costs seven", replaces=old).id
    dependent = book.reflect("oil is cheap", [old]).id
    book.delete(new)
    assert "superseded" not in book.get(old).marks
    book.undelete(new)
    assert book.get(old).superseded_by == new
    assert "suspect" in book.get(dependent).marks
    assert [hit.memory for hit in book.recall("oil costs").hits if hit.memory in {old, new}] == [new]


def superseded_by_bob(book: Book) -> tuple[str, str]:
    """Return a memory of `team` and its successor that Bob has deleted; he may no longer write to `team`."""
    for space in ("team", "bobs"):
        book.create_space(space)
        book.grant(BOB, space, "writer")
    old = book.remember("oil costs five", space="team").id
    new = book.acting_as(BOB).remember("oil is free", space="bobs", replaces=old).id
    book.acting_as(BOB).delete(new)
    book.grant(BOB, "team", "reader")
    return old, new


@pytest.mark.promise("undo.delete")
def test_an_undelete_supersedes_nothing_in_a_space_that_its_actor_may_not_write_to(book: Book):
    old, new = superseded_by_bob(book)
    waiting = len(book.inbox().items)
    with pytest.raises(NotAllowed, match="would supersede a memory"):
        book.acting_as(BOB).undelete(new)
    assert (book.get(old).marks, len(book.inbox().items)) == (("successor_ended",), waiting)
    assert waiting == 1, "the doubt about its end stays as well"
    assert actions(book, "team")[-1] == "refused"
    with pytest.raises(NotFound):
        book.get(new)
    book.reinstate(old)
    book.acting_as(BOB).undelete(new)
    assert (book.get(old).marks, book.get(new).links, book.get(new).text) == ((), (), "oil is free")


def test_an_undelete_by_somebody_who_may_write_to_both_spaces_supersedes_again(book: Book):
    old, new = superseded_by_bob(book)
    book.undelete(new)
    assert book.get(old).superseded_by == new


@pytest.mark.promise("supersede.reinstate")
@pytest.mark.parametrize("is_named", [False, True])
def test_a_deleted_successor_supersedes_no_more_after_a_reinstate(book: Book, is_named: bool):
    old, new = superseded_by_bob(book)
    book.grant(ANA, "team", "writer")
    assert "successor_ended" in book.get(old).marks
    book.acting_as(ANA).reinstate(old, **({"by": new} if is_named else {}))
    assert book.get(old).marks == ()
    assert book.inbox().items == ()
    book.undelete(new)
    assert (book.get(old).marks, book.get(new).links) == ((), ())
    with pytest.raises(Conflict, match="is not superseded"):
        book.acting_as(ANA).reinstate(old)


@pytest.mark.promise("undo.delete")
def test_notices_about_a_deleted_ground_are_withdrawn(book: Book):
    ground = book.remember("oil costs five", space="facts").id
    dependent = book.reflect("oil is cheap", [ground], space="a").id
    book.delete(ground)
    assert "suspect" in book.get(dependent).marks
    (notice,) = [item.id for item in book.inbox().items]
    book.undelete(ground)
    assert "suspect" not in book.get(dependent).marks
    assert book.inbox().items == ()
    with pytest.raises(BadInput, match="notice"):
        book.undelete(notice)


# --- copies


def test_copies_of_it_follow_it_again(book: Book):
    source = book.remember("oil costs five", space="facts").id
    copy = book.share(source, "team").id
    book.delete(source)
    assert book.get(copy).freshness == "source_deleted"
    book.undelete(source)
    assert book.get(copy).freshness == "fresh"
    book.edit(source, text="oil costs seven")
    assert book.get(copy).text == "oil costs seven"


@pytest.mark.promise("undo.copy")
def test_a_copy_comes_back_with_what_its_source_says_now(book: Book):
    source = book.remember("oil costs five", space="facts").id
    copy = book.share(source, "team").id
    book.delete(copy)
    book.edit(source, text="oil costs seven")
    book.undelete(copy)
    assert (book.get(copy).text, book.get(copy).freshness) == ("oil costs seven", "fresh")
    assert book.share(source, "team").id == copy


@pytest.mark.promise("undo.copy")
def test_a_copy_whose_place_another_took_comes_back_detached(book: Book):
    source = book.remember("oil costs five", space="facts").id
    first = book.share(source, "team").id
    book.unshare(first)
    second = book.share(source, "team").id
    assert second != first
    book.undelete(first)
    assert (book.get(first).freshness, book.get(second).freshness) == ("detached", "fresh")
    assert {one.id for one in book.copies(source)} >= {second}


def test_a_copy_whose_source_or_right_is_gone_says_so(book: Book):
    book.grant(ANA, "facts", "reader")
    book.grant(ANA, "team", "writer")
    source, other = (book.remember(text, space="facts").id for text in ("oil costs five", "salt costs two"))
    revoked, orphan = book.acting_as(ANA).share(source, "team").id, book.share(other, "team").id
    book.delete(revoked, orphan, other)
    book.revoke(ANA, "facts")
    for copy in (revoked, orphan):
        book.undelete(copy)
    assert [book.get(copy).freshness for copy in (revoked, orphan)] == ["revoked", "source_deleted"]


@pytest.mark.promise("undo.copy")
def test_an_unshared_copy_follows_again_only_by_somebody_who_may_read_its_source(book: Book):
    book.grant(BOB, "team", "writer")
    source = book.remember("oil costs five", space="facts").id
    copy = book.share(source, "team").id
    book.unshare(copy)
    book.acting_as(BOB).undelete(copy)
    book.edit(source, text="oil costs seven")
    assert (book.get(copy).text, book.get(copy).freshness) == ("oil costs five", "stale")
    again = book.share(source, "team/core").id
    book.unshare(again)
    book.undelete(again)
    assert (book.get(again).text, book.get(again).freshness) == ("oil costs seven", "fresh")


# --- episodes


@pytest.mark.promise("undo.delete")
def test_an_episode_comes_back_with_its_session_and_without_what_was_rewound(book: Book):
    book.append("talk", ["the stork is white", "the stork is black", "the heron is grey"])
    (episode,) = book.settle("talk").episodes
    book.delete(episode)
    assert not any("white" in hit.text for hit in book.recall("stork white").hits)
    book.rewind("talk", 2)
    book.undelete(episode)
    memory = book.get(episode)
    assert memory.session == "talk"
    assert "white" in memory.text
    assert "heron" not in memory.text
    assert not any("heron" in hit.text for hit in book.recall("heron grey").hits)
    assert book.recall("stork white").hits
    assert {message.episode for message in book.messages("talk").items if not message.rewound_at} == {episode}
    book.rewind("talk", 0)
    with pytest.raises(Conflict, match="rewound"):
        book.undelete(episode)


@pytest.mark.promise("undo.delete")
def test_a_moved_episode_that_was_rewound_as_a_whole_does_not_come_back(book: Book):
    book.append("talk", ["the stork is white"])
    (episode,) = book.settle("talk").episodes
    book.move(episode, "birds")
    book.rewind("talk", 0)
    with pytest.raises(Conflict, match="rewound"):
        book.undelete(episode)
    with pytest.raises(NotFound):
        book.get(episode)


def test_a_moved_episode_that_a_rewind_did_not_reach_comes_back_whole(book: Book):
    book.append("talk", ["the stork is white"])
    (episode,) = book.settle("talk").episodes
    book.move(episode, "birds")
    book.grant(BOB, "personal", "writer")
    book.acting_as(BOB).rewind("talk", 0, space="personal")
    book.delete(episode)
    book.undelete(episode)
    assert "white" in book.get(episode).text


@pytest.mark.promise("undo.delete")
def test_a_moved_episode_comes_back_without_what_was_rewound_while_it_was_deleted(book: Book):
    book.append("talk", ["the stork is white", "the heron is grey"])
    (episode,) = book.settle("talk").episodes
    book.move(episode, "birds")
    copy = book.share(episode, "team").id
    book.unshare(copy)
    book.delete(episode)
    book.rewind("talk", 1)
    with pytest.raises(NotFound):
        book.get(episode)
    book.undelete(episode)
    book.undelete(copy)
    book.edit(episode, to_revision=1)
    for id_ in (episode, copy):
        assert "white" in book.get(id_).text
        assert "heron" not in book.get(id_).text
    assert book.verify_log().ok


def test_a_moved_episode_that_was_rewound_as_a_whole_while_it_was_deleted_does_not_come_back(book: Book):
    book.append("talk", ["the stork is white", "the heron is grey"])
    (episode,) = book.settle("talk").episodes
    book.move(episode, "birds")
    book.delete(episode)
    book.rewind("talk", 1)
    book.rewind("talk", 0)
    with pytest.raises(Conflict, match="rewound"):
        book.undelete(episode)
    assert [deletion.how for revision in book.history(episode) for deletion in revision.deletions] == [
        "delete",
        "rewind",
    ]


@pytest.mark.promise("undo.delete")
def test_a_rewind_takes_nothing_out_of_a_deleted_episode_in_a_foreign_space(book: Book):
    book.append("talk", ["the stork is white", "the heron is grey"])
    (episode,) = book.settle("talk").episodes
    book.move(episode, "birds")
    book.delete(episode)
    before = book.log(space="birds")
    book.grant(BOB, "personal", "writer")
    book.acting_as(BOB).rewind("talk", 0, space="personal")
    assert book.log(space="birds") == before
    book.undelete(episode)
    assert "heron" in book.get(episode).text


# --- files


@pytest.mark.promise("undo.delete")
def test_the_file_comes_back_and_a_path_that_was_taken_is_left_alone(home: Path, book: Book, open_book: OpenBook):
    memory = book.remember("Alice owns billing")
    book.delete(memory.id)
    taken = home / memory.path
    taken.parent.mkdir(parents=True, exist_ok=True)
    taken.write_text("a note of a person")
    book.sync()
    receipt = book.undelete(memory.id)
    assert receipt.path != memory.path
    assert taken.read_text().endswith("a note of a person")
    assert (home / receipt.path).read_text().rstrip().endswith("Alice owns billing")
    again = open_book()
    assert again.sync().read == 0
    assert again.get(memory.id).text == "Alice owns billing"
    assert again.doctor() == ()


def test_a_file_that_a_person_put_back_first_keeps_its_words(home: Path, book: Book):
    memory = book.remember("Alice owns billing")
    data = (home / memory.path).read_text()
    book.delete(memory.id)
    (home / memory.path).parent.mkdir(parents=True, exist_ok=True)
    (home / memory.path).write_text(data.replace("Alice", "Bob"))
    assert book.undelete(memory.id).path == memory.path
    assert book.get(memory.id).text == "Bob owns billing"
    assert texts(book, memory.id) == ["Alice owns billing", "Bob owns billing"]


def test_a_space_that_was_renamed_meanwhile_has_the_memory_again(book: Book):
    memory = book.remember("Alice owns billing", space="team").id
    book.delete(memory)
    book.rename_space("team", "crew")
    receipt = book.undelete(memory)
    assert (receipt.space, receipt.path.partition("/")[0]) == ("crew", "crew")
    assert book.doctor() == ()


# --- older texts


@pytest.mark.promise("undo.edit")
def test_an_edit_goes_back_to_an_older_text_by_a_new_revision(book: Book):
    memory = book.remember("one", title="First", tags=["x"]).id
    book.edit(memory, text="two", title="Second")
    receipt = book.edit(memory, to_revision=1)
    now = book.get(memory)
    assert (now.text, now.title, now.tags, receipt.revision) == ("one", "First", ("x",), 3)
    assert texts(book, memory) == ["one", "two", "one"]
    assert book.edit(memory, to_revision=3).version == receipt.version, "it says that already"
    for wrong in (0, 4):
        with pytest.raises(NotFound, match="no revision"):
            book.edit(memory, to_revision=wrong)
    with pytest.raises(BadInput):
        book.edit(memory, to_revision=1, text="three")
    assert texts(book, memory) == ["one", "two", "one"]


@pytest.mark.promise("undo.edit")
def test_an_older_text_that_may_not_be_read_cannot_be_brought_back(book: Book):
    book.grant(BOB, "team", "writer")
    memory = book.remember("the salary is five", space="vault").id
    book.edit(memory, text="no salary is named here")
    book.move(memory, "team")
    with pytest.raises(NotAllowed):
        book.acting_as(BOB).edit(memory, to_revision=1)
    assert book.get(memory).text == "no salary is named here"
    assert json.dumps(texts(book.acting_as(BOB), memory)) == '["", "no salary is named here"]'
