"""Sharing: copies that stay true to their sources, say so when they do not, and are one for each root and space."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from commonbook.errors import BadInput, Conflict, NotAllowed, NotFound, TooLarge
from commonbook.values.memory import Filter

ALICE, BOB = "user:alice", "user:bob"


@pytest.fixture
def source(book):
    return book.remember("Alice owns the billing service", space="personal").id


def freshness(book, copy):
    return book.get(copy).freshness


def recalled(book, query, space="team"):
    return [(hit.id, hit.passage, hit.freshness) for hit in book.recall(query, spaces=[space]).hits]


# --- following


@pytest.mark.promise("copies.live")
def test_a_live_copy_gives_the_new_text_at_once_to_get_and_to_recall_under_the_same_id(book, source):
    copy = book.share(source, "team")
    assert copy.new
    changed = book.edit(source, text="Bertha runs the invoicing desk")
    assert changed.copies == 1
    memory = book.get(copy.id)
    assert (memory.text, memory.freshness, memory.revision) == ("Bertha runs the invoicing desk", "fresh", 2)
    assert recalled(book, "invoicing desk") == [(copy.id, "Bertha runs the invoicing desk", "fresh")]
    assert recalled(book, "Alice and her service") == []
    assert [one.text for one in book.history(copy.id)] == [
        "Alice owns the billing service",
        "Bertha runs the invoicing desk",
    ]


@pytest.mark.promise("copies.lazy")
def test_a_lazy_copy_is_old_and_marked_in_recall_and_new_in_get_and_soon_in_recall_too(book, source):
    copy = book.share(source, "team", refresh="lazy")
    book.edit(source, text="Bertha owns the billing service")
    assert recalled(book, "billing service") == [(copy.id, "Alice owns the billing service", "stale")]
    assert len(book.history(copy.id)) == 1, "recall wrote a revision"
    book.work()
    assert recalled(book, "billing service") == [(copy.id, "Bertha owns the billing service", "fresh")]
    book.edit(source, text="Carla owns the billing service")
    memory = book.get(copy.id)
    assert (memory.text, memory.freshness) == ("Carla owns the billing service", "fresh")


@pytest.mark.promise("copies.marked")
def test_a_snapshot_keeps_the_old_text_and_says_that_it_is_stale(book, source):
    copy = book.share(source, "team", refresh="snapshot")
    assert freshness(book, copy.id) == "fresh"
    assert book.edit(source, text="Bertha owns the billing service").copies == 0
    memory = book.get(copy.id)
    assert (memory.text, memory.freshness) == ("Alice owns the billing service", "stale")
    assert recalled(book, "billing service") == [(copy.id, "Alice owns the billing service", "stale")]
    (listed,) = book.list(Filter(space="team")).items
    assert listed.freshness == "stale"


@pytest.mark.promise("copies.marked")
def test_a_change_of_tags_makes_nothing_stale(book, source):
    copies = [book.share(source, space, refresh=mode).id for space, mode in (("a", "live"), ("b", "snapshot"))]
    before = [book.get(copy) for copy in copies]
    assert book.edit(source, tags=["money"]).copies == 0
    assert [book.get(copy) for copy in copies] == before
    assert {memory.freshness for memory in before} == {"fresh"}


def test_a_stale_copy_ranks_below_what_is_as_good_and_current(book, source):
    stale = book.share(source, "team", refresh="snapshot").id
    current = book.remember("Alice owns the billing service too", space="team").id
    assert [id_ for id_, _, _ in recalled(book, "who owns the billing service?")] == [stale, current]
    book.edit(source, text="nobody does")
    found = book.recall("who owns the billing service?", spaces=["team"]).hits
    assert [hit.id for hit in found] == [current, stale]
    assert found[1].parts["freshness"] < 0


# --- what becomes of the source


@pytest.mark.promise("copies.marked")
def test_a_copy_says_when_its_source_is_deleted_and_is_otherwise_untouched(book, source):
    copy = book.share(source, "team").id
    before = book.get(copy)
    book.delete(source)
    after = book.get(copy)
    assert after.freshness == "source_deleted"
    assert after._replace(freshness="fresh") == before


@pytest.mark.promise("copies.marked")
def test_a_copy_names_what_its_source_was_superseded_by(book, source):
    copy = book.share(source, "team").id
    successor = book.remember("Bertha owns it now", space="personal", replaces=source).id
    memory = book.get(copy)
    assert (memory.freshness, memory.successor) == ("source_superseded", successor)
    book.grant(BOB, "team", "reader")
    seen = book.acting_as(BOB).get(copy)
    assert (seen.freshness, seen.successor) == ("source_superseded", None)


def test_a_recall_in_the_copys_space_alone_names_a_successor_that_stands_elsewhere(book, source):
    copy = book.share(source, "team").id
    other = book.remember("Carla owns the billing rota", space="team").id
    successor = book.remember("Bertha owns it now", space="personal", replaces=source).id
    later = book.remember("Dora owns the rota now", space="personal", replaces=other).id
    found = {hit.id: hit for hit in book.recall("billing", spaces=["team"], include=["superseded"]).hits}
    assert (found[copy].freshness, found[copy].successor) == ("source_superseded", successor)
    assert (found[other].superseded_by, found[other].marks) == (later, ("superseded",))
    book.grant(BOB, "team", "reader")
    seen = {hit.id: hit for hit in book.acting_as(BOB).recall("billing", spaces=["team"], include=["superseded"]).hits}
    assert (seen[copy].successor, seen[other].superseded_by) == (None, None)


# --- one copy for each root and space


@pytest.mark.promise("copies.one")
def test_sharing_again_in_any_way_returns_what_is_there_unchanged(book, source):
    first = book.share(source, "team")
    for again in (
        book.share(source, "team"),
        book.share(source, "team", refresh="snapshot"),
        book.pull(source, "team"),
    ):
        assert (again.id, again.new, again.refresh) == (first.id, False, "live")
    other = book.share(source, "other")
    assert other.new
    through = book.share(other.id, "team")
    assert (through.id, through.new) == (first.id, False)
    back = book.share(other.id, "personal")
    assert (back.id, back.new) == (source, False)
    assert book.share(first.id, "team").id == first.id
    assert len(book.list(Filter(space="team")).items) == 1


def test_unsharing_removes_the_copy_and_sharing_again_makes_one_again(book, source):
    first = book.share(source, "team")
    below = book.share(first.id, "below")
    book.unshare(first.id)
    with pytest.raises(NotFound):
        book.get(first.id)
    assert freshness(book, below.id) == "source_deleted"
    second = book.share(source, "team")
    assert second.new
    assert second.id != first.id
    with pytest.raises(BadInput, match="no copy"):
        book.unshare(source)


def test_two_spaces_have_two_copies_and_two_files(book, source):
    one, other = book.share(source, "a"), book.share(source, "b")
    assert one.id != other.id
    assert book.get(one.id).path != book.get(other.id).path


# --- chains


@pytest.mark.promise("copies.marked")
@pytest.mark.parametrize(("mode", "freshness"), [("live", "fresh"), ("lazy", "fresh"), ("snapshot", "stale")])
def test_a_copy_of_a_copy_is_current_or_marked(book, source, mode, freshness):
    middle = book.share(source, "b", refresh=mode).id
    last = book.share(middle, "c", refresh=mode).id
    book.edit(source, text="the new text")
    hits = recalled(book, "new text billing", "c")
    assert [hit[2] for hit in hits] == ["fresh" if mode == "live" else "stale"]
    memory = book.get(last)
    assert memory.freshness == freshness
    assert (memory.text == "the new text") == (freshness == "fresh")


@pytest.mark.promise("copies.marked")
def test_a_live_copy_of_a_snapshot_says_that_what_it_has_is_behind(book, source):
    middle = book.share(source, "b", refresh="snapshot").id
    last = book.share(middle, "c").id
    book.edit(source, text="the new text")
    assert freshness(book, last) == "stale"


def test_the_edits_of_a_diverged_copy_flow_on_to_its_own_copies(book, source):
    middle = book.share(source, "b").id
    last = book.share(middle, "c").id
    book.edit(middle, text="edited in b")
    assert freshness(book, middle) == "diverged"
    memory = book.get(last)
    assert (memory.text, memory.freshness) == ("edited in b", "fresh")


# --- diverged, detach, adopt


@pytest.mark.promise("copies.edits")
def test_a_copy_that_was_edited_is_not_written_over(book, source):
    copy = book.share(source, "team").id
    book.edit(copy, text="our own words")
    book.edit(source, text="their new words")
    memory = book.get(copy)
    assert (memory.text, memory.freshness) == ("our own words", "diverged")
    with pytest.raises(Conflict, match="edited here"):
        book.refresh(copy)
    book.adopt(copy)
    memory = book.get(copy)
    assert (memory.text, memory.freshness) == ("their new words", "fresh")
    assert "our own words" in [one.text for one in book.history(copy)]
    book.edit(source, text="newer still")
    assert book.get(copy).text == "newer still"


@pytest.mark.promise("copies.edits")
@pytest.mark.parametrize("mode", ["live", "lazy", "snapshot"])
def test_the_receipt_of_an_edit_says_that_a_copy_follows_its_source_no_longer(book, source, mode):
    copy = book.share(source, "team", refresh=mode).id
    assert book.edit(copy, tags=["ours"]).unfollowed is None
    book.grant(BOB, "team", "writer")
    assert book.acting_as(BOB).edit(copy, text="our own words").unfollowed == (None if mode == "snapshot" else source)
    assert (book.get(copy).author, book.get(copy).revised_by) == ("user:local", BOB)
    book.adopt(copy)
    assert book.edit(source, text="their new words").unfollowed is None


def test_a_detached_copy_follows_no_longer_and_still_says_where_it_came_from(book, source):
    copy = book.share(source, "team").id
    book.detach(copy)
    book.edit(source, text="their new words")
    memory = book.get(copy)
    assert (memory.text, memory.freshness) == ("Alice owns the billing service", "detached")
    assert [one.id for one in book.lineage(copy).ancestors] == [source]
    for refused in (book.refresh, book.adopt):
        with pytest.raises(Conflict):
            refused(copy)
    again = book.share(source, "team")
    assert again.new


def test_the_link_of_a_copy_to_its_source_is_made_and_ended_by_sharing_alone(book, source):
    copy = book.share(source, "team").id
    other = book.remember("something else", space="team").id
    with pytest.raises(BadInput, match="one source"):
        book.unlink(copy, "shared_from", source)
    for memory, target in ((other, source), (copy, other)):
        with pytest.raises(BadInput, match="only sharing"):
            book.link(memory, "shared_from", target)
    with pytest.raises(BadInput, match="only sharing"):
        book.remember("said to be shared", links=[("shared_from", source)])
    book.link(copy, "related_to", other)
    book.unlink(copy, "related_to", other)
    book.edit(source, text="Bertha owns it")
    assert (book.get(copy).text, freshness(book, copy)) == ("Bertha owns it", "fresh")


def test_a_snapshot_can_be_refreshed_by_hand(book, source):
    copy = book.share(source, "team", refresh="snapshot").id
    book.edit(source, text="their new words")
    book.refresh(copy)
    memory = book.get(copy)
    assert (memory.text, memory.freshness, book.history(memory.id)[-1].how) == ("their new words", "fresh", "refresh")
    assert book.refresh(copy).revision == memory.revision


# --- rights


@pytest.mark.promise("copies.sharer")
def test_an_ex_member_with_a_pulled_copy_keeps_it_and_gets_nothing_new(book):
    book.grant(ALICE, "team", "writer")
    book.grant(BOB, "team", "reader")
    book.grant(BOB, "bobs", "admin")
    theirs = book.acting_as(ALICE).remember("the first word", space="team").id
    bob = book.acting_as(BOB)
    copy = bob.pull(theirs, "bobs").id
    assert book.edit(theirs, text="the second word").copies == 1
    assert bob.get(copy).text == "the second word"
    book.revoke(BOB, "team")
    book.edit(theirs, text="the third word")
    memory = bob.get(copy)
    assert (memory.text, memory.freshness) == ("the second word", "revoked")
    with pytest.raises(NotAllowed):
        bob.refresh(copy)


def test_sharing_needs_the_right_to_read_here_and_to_write_there(book, source):
    book.create_space("team")
    alice = book.acting_as(ALICE)
    with pytest.raises((NotAllowed, NotFound)):
        alice.share(source, "team")
    book.grant(ALICE, "team", "writer")
    with pytest.raises(NotFound):
        alice.share(source, "team")
    book.grant(ALICE, "personal", "reader")
    book.grant(ALICE, "team", "reader")
    with pytest.raises(NotAllowed):
        alice.share(source, "team")
    assert book.list(Filter(space="team")).items == ()


@pytest.mark.promise("access.granted")
def test_what_is_shared_with_one_principal_is_read_by_that_one_alone(book):
    members = [f"user:member{number}" for number in range(8)]
    for who in (ALICE, BOB, *members):
        book.grant(who, "team", "writer")
    book.grant(ALICE, "alices", "admin")
    alice = book.acting_as(ALICE)
    note = alice.remember("a word for Bob", space="alices").id
    copy = alice.share_with(note, BOB)
    assert copy.new
    assert book.acting_as(BOB).get(copy.id).text == "a word for Bob"
    assert alice.get(copy.id).text == "a word for Bob"
    assert alice.share_with(note, BOB).id == copy.id
    for who in members:
        with pytest.raises(NotFound):
            book.acting_as(who).get(copy.id)
    with pytest.raises(BadInput):
        alice.share_with(note, ALICE)


def test_the_editor_counts_only_the_copies_that_it_may_read(book, source):
    book.grant(ALICE, "personal", "writer")
    book.share(source, "secret")
    book.share(source, "open")
    book.grant(ALICE, "open", "reader")
    assert book.acting_as(ALICE).edit(source, text="new words").copies == 1


# --- many at once, bad input


def test_sharing_many_reports_each(book, source):
    other = book.remember("another", space="personal").id
    missing = "0192f3a1-5c2e-7b1d-9a3f-4e6d7f3a9c2e"
    receipts = book.share_many([source, missing, other, "nonsense"], "team")
    assert [(bool(receipt.id), receipt.new, receipt.error.partition(":")[0]) for receipt in receipts] == [
        (True, True, ""),
        (False, False, "not_found"),
        (True, True, ""),
        (False, False, "bad_input"),
    ]
    with pytest.raises(TooLarge):
        book.share_many([source] * 101, "team")


@pytest.mark.parametrize("mode", ["", "always", "detached"])
def test_another_way_to_refresh_is_refused(book, source, mode):
    with pytest.raises(BadInput):
        book.share(source, "team", refresh=mode)
    assert [space.name for space in book.spaces()] == ["personal"]


def test_sharing_and_refreshing_stand_in_the_history_and_in_the_log(book, source):
    copy = book.share(source, "team").id
    book.edit(source, text="new words")
    assert [one.how for one in book.history(copy)] == ["share", "refresh"]
    actions = [entry.action for entry in book.log(space="team")]
    assert actions == ["space.create", "share", "refresh"]
    assert book.verify_log().findings == ()


# --- lineage


@pytest.mark.promise("lineage.walks")
def test_lineage_goes_back_to_the_root_and_forward_to_every_copy(book, source):
    middle = book.share(source, "b").id
    last = book.share(middle, "c", refresh="snapshot").id
    beside = book.share(source, "d").id
    assert [one.id for one in book.lineage(last).ancestors] == [middle, source]
    tree = book.lineage(source)
    assert {one.id: [below.id for below in one.copies] for one in tree.copies} == {middle: [last], beside: []}
    assert {(one.id, one.source, one.depth) for one in book.copies(source)} == {
        (middle, source, 1),
        (last, middle, 2),
        (beside, source, 1),
    }
    assert [one.freshness for one in book.copies(source)] == ["fresh"] * 3


def test_copies_in_very_many_spaces_are_found_with_few_questions(book, source, monkeypatch):
    copies = {book.share(source, f"s{number}", refresh="snapshot").id for number in range(80)}
    below = book.share(min(copies), "below").id
    statements: list[str] = []
    engines = book._engines
    reading = engines.db.reading

    @contextmanager
    def counting():
        with reading() as tx:
            rows = tx.rows

            def counting_rows(sql, **params):
                statements.append(sql)
                return rows(sql, **params)

            tx.rows = counting_rows
            yield tx

    monkeypatch.setattr(engines.db, "reading", counting)
    nodes = book.copies(source)
    assert {node.id for node in nodes} == copies | {below}
    assert {node.freshness for node in nodes} == {"fresh"}
    assert len(statements) < 40, len(statements)


@pytest.mark.promise("lineage.ends")
def test_a_deleted_ancestor_is_a_tombstone_with_its_id_and_time(book, source):
    middle = book.share(source, "b").id
    last = book.share(middle, "c").id
    book.delete(source)
    nearest, root = book.lineage(last).ancestors
    assert (nearest.id, nearest.deleted) == (middle, None)
    assert root.id == source
    assert root.deleted is not None
    book.rebuild()
    assert book.lineage(last).ancestors[1] == root


def test_a_deep_chain_is_cut_where_it_was_asked_to(book, source):
    chain = [source]
    for number in range(9):
        chain.append(book.share(chain[-1], f"s{number}").id)
    found = book.lineage(chain[-1], depth=3)
    assert ([one.id for one in found.ancestors], found.truncated) == (chain[-2:-5:-1], True)
    forward = book.lineage(source, depth=3)
    assert forward.truncated
    assert [one.depth for one in book.lineage(source, depth=2).copies] == [1]
    nothing = book.lineage(chain[4], depth=0)
    assert (nothing.ancestors, nothing.copies, nothing.truncated) == ((), (), True)
    assert not book.lineage(chain[-1]).truncated
    for wrong in (-1, 33):
        with pytest.raises(BadInput):
            book.lineage(source, depth=wrong)
    with pytest.raises(NotFound):
        book.lineage("0192f3a1-5c2e-7b1d-9a3f-4e6d7f3a9c2e")


@pytest.mark.promise("lineage.walks")
def test_what_may_not_be_read_is_shown_without_title_text_or_space(book, source):
    middle = book.share(source, "b").id
    last = book.share(middle, "c").id
    book.grant(ALICE, "b", "reader")
    found = book.acting_as(ALICE).lineage(middle)
    (root,) = found.ancestors
    (below,) = found.copies
    assert (root.id, root.title, root.space, root.readable) == (source, None, None, False)
    assert (below.id, below.title, below.space, below.freshness, below.readable) == (last, None, None, None, False)
    with pytest.raises(NotFound):
        book.acting_as(ALICE).lineage(source)


def test_a_second_source_that_was_written_into_the_file_of_a_copy_is_taken_out(book, source, home):
    copy = book.share(source, "team").id
    other = book.remember("something else", space="personal").id
    path = home / book.get(copy).path
    added = f"links:\n  - shared_from {other}\n  - related_to {other}\n"
    path.write_text(path.read_text().replace("links:\n", added))
    book.sync()
    assert [(link.relation, link.target) for link in book.get(copy).links] == [
        ("related_to", other),
        ("shared_from", source),
    ]
    assert [one.id for one in book.lineage(copy).ancestors] == [source]
    assert f"shared_from {other}" not in path.read_text()


@pytest.mark.promise("lineage.imports")
def test_a_tie_that_came_by_import_is_followed_only_once_somebody_who_may_has_adopted_it(book, folder, tmp_path):
    """The author of an imported folder could else have any memory copied to a space that it can read."""
    secret = book.remember("the code is 41", space="private").id
    book.grant(BOB, "team", "writer")
    shared = book.share(secret, "other").id
    forged = (folder() / book.get(shared).path).read_text()
    (tmp_path / "got").mkdir()
    for number, mode in enumerate(("live", "lazy")):
        own, root = (f"0192f3a1-5c2e-7b1d-9a3f-4e6d7f3a9c{digit}{number}" for digit in "2a")
        text = forged.replace(shared, own).replace(f"shared: live {secret}", f"shared: {mode} {root}")
        (tmp_path / "got" / f"{number}.md").write_text(text.replace("the code is 41", "hello"))
    book.import_folder(str(tmp_path / "got"), space="team")
    bob = book.acting_as(BOB)
    copies = [memory.id for memory in bob.list(Filter(space="team")).items]
    assert copies
    book.edit(secret, text="the code is 42")
    book.work()
    for copy in copies:
        assert bob.get(copy).shared.claimed
        with pytest.raises((Conflict, NotAllowed, NotFound)):
            bob.refresh(copy)
        with pytest.raises(NotFound):
            bob.adopt(copy)
        assert (bob.get(copy).text, bob.get(copy).freshness) == ("hello", "stale")
        assert "42" not in str(bob.recall("code", spaces=["team"]).hits)
    book.adopt(copies[0])
    memory = book.get(copies[0])
    assert (memory.text, memory.freshness, memory.shared.claimed, memory.shared.by) == (
        "the code is 42", "fresh", False, "user:local",
    )  # fmt: skip
    assert book.edit(secret, text="the code is 43").copies >= 1
    assert (book.get(copies[0]).text, book.get(copies[0]).freshness) == ("the code is 43", "fresh")
