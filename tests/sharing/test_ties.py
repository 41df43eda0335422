"""The tie of a copy: chains whose middle is cut, a change of the mode, and copies that are tied again."""

from __future__ import annotations

import pytest

from commonbook.errors import BadInput, Conflict, NotAllowed, NotFound

ALICE, BOB = "user:alice", "user:bob"


@pytest.fixture
def source(book):
    return book.remember("oil costs five", space="facts").id


def pulled_by_alice(book, source: str, **how: str) -> str:
    """Let Alice share a memory into `team`, and take the right to read it from her."""
    book.grant(ALICE, "facts", "reader")
    book.grant(ALICE, "team", "writer")
    copy: str = book.acting_as(ALICE).share(source, "team", **how).id
    book.revoke(ALICE, "facts")
    return copy


def state(book, *ids: str) -> list[tuple[str, str | None]]:
    return [(memory.text, memory.freshness) for memory in map(book.get, ids)]


# --- chains


@pytest.mark.promise("copies.marked")
def test_below_a_revoked_copy_nothing_is_fresh_with_an_old_text(book, source):
    middle = pulled_by_alice(book, source)
    last = book.share(middle, "below").id
    further = book.share(last, "further", refresh="lazy").id
    assert state(book, middle, last) == [("oil costs five", "revoked"), ("oil costs five", "fresh")]
    book.edit(source, text="oil costs seven")
    old = "oil costs five"
    assert state(book, middle, last, further) == [(old, "revoked"), (old, "stale"), (old, "stale")]
    (node,) = [one for one in book.copies(source) if one.id == last]
    assert node.freshness == "stale"
    assert book.recall("oil costs", spaces=["below"]).hits[0].freshness == "stale"
    book.grant(ALICE, "facts", "reader")
    book.refresh(last)
    assert state(book, last) == [("oil costs seven", "fresh")]


def test_below_an_edited_copy_the_edit_counts(book, source):
    middle = pulled_by_alice(book, source)
    last = book.share(middle, "below").id
    book.edit(middle, text="oil is ours")
    book.edit(source, text="oil costs seven")
    assert state(book, middle, last) == [("oil is ours", "revoked"), ("oil is ours", "fresh")]


@pytest.mark.promise("copies.lazy")
def test_a_lazy_copy_of_a_superseded_source_is_refreshed_by_a_get(book, source):
    copy = book.share(source, "team", refresh="lazy").id
    book.edit(source, text="oil costs seven")
    newer = book.remember("oil costs nine", space="facts", replaces=source).id
    memory = book.get(copy)
    assert (memory.text, memory.freshness, memory.successor) == ("oil costs seven", "source_superseded", newer)
    book.edit(source, text="oil costs eight")
    book.recall("oil costs", spaces=["team"], include=["superseded"])
    while book.work():
        pass
    assert [one.text for one in book.list().items if one.id == copy] == ["oil costs eight"]


# --- words


def test_a_source_that_goes_back_to_its_old_words_makes_its_snapshot_fresh_again(book, source):
    copy = book.share(source, "team", refresh="snapshot").id
    thought = book.reflect("oil is cheap", [source], space="a").id
    book.edit(source, text="oil costs seven")
    assert (book.get(copy).freshness, "source_changed" in book.get(thought).marks) == ("stale", True)
    book.edit(source, text="oil costs five")
    assert (book.get(copy).freshness, "source_changed" in book.get(thought).marks) == ("fresh", False)


def test_a_copy_that_was_edited_to_the_words_of_its_source_is_fresh_and_follows(book, source):
    copy = book.share(source, "team").id
    book.edit(copy, text="oil costs seven")
    assert book.get(copy).freshness == "diverged"
    book.edit(source, text="oil costs seven")
    assert book.get(copy).freshness == "fresh"
    book.edit(source, text="oil costs nine")
    assert state(book, copy) == [("oil costs nine", "fresh")]


def test_an_export_that_was_edited_and_imported_again_is_compared_by_its_words(book, source, tmp_path):
    copy = book.share(source, "team").id
    kept = book.share(source, "kept", refresh="snapshot").id
    book.export(str(tmp_path / "out"))
    for id_, text in ((source, "oil costs seven"), (copy, "oil is ours")):
        path = tmp_path / "out" / book.get(id_).path
        path.write_text(path.read_text().replace("\n\noil costs five", f"\n\n{text}"))
    book.import_folder(str(tmp_path / "out"))
    assert state(book, source, copy, kept) == [
        ("oil costs seven", None),
        ("oil is ours", "diverged"),
        ("oil costs five", "stale"),
    ]


@pytest.mark.promise("lineage.imports")
@pytest.mark.parametrize(("mode", "text", "freshness"), [("live", "seven", "fresh"), ("snapshot", "five", "stale")])
def test_an_unshared_copy_that_an_import_brings_back_has_not_diverged(book, source, tmp_path, mode, text, freshness):
    copy = book.share(source, "team", refresh=mode).id
    book.export(str(tmp_path / "exported"))
    book.edit(source, text="oil costs seven")
    book.unshare(copy)
    book.import_folder(str(tmp_path / "exported"))
    assert state(book, copy) == [(f"oil costs {text}", freshness)]


def test_an_unshared_copy_that_comes_back_with_other_words_has_diverged(book, source, tmp_path):
    copy = book.share(source, "team").id
    book.export(str(tmp_path / "exported"))
    book.edit(source, text="oil costs seven")
    book.unshare(copy)
    (file,) = (tmp_path / "exported" / "team").rglob("*.md")
    file.write_text(file.read_text().replace("costs five", "is ours"))
    book.import_folder(str(tmp_path / "exported"))
    assert state(book, copy) == [("oil is ours", "diverged")]


def test_an_imported_copy_does_not_tell_whether_a_guess_about_an_unreadable_memory_is_right(book, source, tmp_path):
    book.grant(BOB, "team", "writer")
    bob = book.acting_as(BOB)
    found = {}
    for number, guess in enumerate(("oil costs five", "oil costs six")):
        folder = tmp_path / f"in{number}"
        folder.mkdir()
        own = f"0192f3a1-5c2e-7b1d-9a3f-4e6d7f3a9c2{number}"
        (folder / "guess.md").write_text(
            f"---\nid: {own}\nlinks:\n  - shared_from {source}@{'0' * 16}\n"
            f"shared: live {own[:-1]}f user:bob 2026-11-01T10:00:00.000000Z\n---\n\n{guess}\n"
        )
        book.import_folder(str(folder), space="team")
        found[guess] = bob.get(own).freshness
        book.unshare(own)
    assert len(set(found.values())) == 1, found


# --- the mode of a copy


@pytest.mark.parametrize("mode", ["live", "lazy", "snapshot"])
def test_the_mode_of_a_copy_can_be_changed(book, source, mode):
    copy = book.share(source, "team", refresh="snapshot").id
    book.edit(source, text="oil costs seven")
    book.set_refresh(copy, mode)
    listed = {one.id: one for one in book.list().items}[copy]
    assert listed.shared.mode == mode
    assert listed.text == ("oil costs seven" if mode == "live" else "oil costs five")
    book.edit(source, text="oil costs nine")
    assert book.get(copy).text == ("oil costs five" if mode == "snapshot" else "oil costs nine")
    assert book.set_refresh(copy, mode).version == book.get(copy).version, "again changes nothing"
    assert book.verify_log().findings == ()


def test_the_mode_of_what_follows_nothing_cannot_be_changed(book, source):
    copy = book.share(source, "team").id
    with pytest.raises(BadInput):
        book.set_refresh(copy, "often")
    with pytest.raises(BadInput):
        book.set_refresh(source, "lazy")
    book.grant(BOB, "team", "reader")
    with pytest.raises(NotAllowed):
        book.acting_as(BOB).set_refresh(copy, "lazy")
    book.detach(copy)
    with pytest.raises(Conflict):
        book.set_refresh(copy, "lazy")


def test_a_copy_made_live_does_not_lose_its_edits(book, source):
    copy = book.share(source, "team", refresh="snapshot").id
    book.edit(copy, text="oil is ours")
    book.edit(source, text="oil costs seven")
    book.set_refresh(copy, "live")
    assert state(book, copy) == [("oil is ours", "diverged")]


# --- the right to the source's present text


def by_a_writer_of_the_copy(book):
    """Return the book of Bob, who writes to the space of the copies and may not read their source."""
    book.grant(BOB, "team", "writer")
    return book.acting_as(BOB)


TAPS = {
    "refresh": lambda book, copy: book.refresh(copy),
    "adopt": lambda book, copy: book.adopt(copy),
    "set_refresh to live": lambda book, copy: book.set_refresh(copy, "live"),
    "set_refresh to lazy": lambda book, copy: book.set_refresh(copy, "lazy"),
}


@pytest.mark.promise("copies.new-words")
@pytest.mark.parametrize("tap", TAPS)
def test_nobody_gets_new_words_through_a_snapshot_without_the_right_to_read_its_source(book, source, tap):
    copy = book.share(source, "team", refresh="snapshot").id
    book.edit(source, text="oil costs seven, in confidence")
    bob = by_a_writer_of_the_copy(book)
    with pytest.raises(NotAllowed, match="may not read the source"):
        TAPS[tap](bob, copy)
    assert state(bob, copy) == [("oil costs five", "stale")]
    assert bob.get(copy).shared.mode == "snapshot"
    book.grant(BOB, "facts", "reader")
    TAPS[tap](bob, copy)
    assert state(bob, copy) == [("oil costs seven, in confidence", "fresh")]
    assert book.get(copy).shared.by == "user:local"


def test_a_snapshot_of_a_reflection_is_adopted_only_by_those_who_may_read_the_reflection(book, source):
    # A history that a random test has found: its model had let a writer adopt what has the same words already.
    ground = book.share(source, "third", refresh="snapshot").id
    reflection = book.reflect("oil is cheap", [ground], space="facts").id
    copy = book.share(reflection, "team", refresh="snapshot").id
    book.delete(source)
    book.delete(ground)
    bob = by_a_writer_of_the_copy(book)
    with pytest.raises(NotAllowed, match="may not read the source"):
        bob.adopt(copy)
    book.delete(reflection)
    with pytest.raises(NotFound):
        bob.adopt(copy)
    assert state(bob, copy) == [("oil is cheap", "source_deleted")]


def test_a_key_that_does_not_reach_the_source_pulls_nothing_through_a_snapshot(book, source):
    book.grant(ALICE, "facts", "reader")
    book.grant(ALICE, "team", "writer")
    copy = book.acting_as(ALICE).share(source, "team", refresh="snapshot").id
    book.edit(source, text="oil costs seven")
    narrow = book.with_key(book.create_key(ALICE, limits=[("team", "writer")]).secret)
    with pytest.raises(NotAllowed):
        narrow.set_refresh(copy, "live")
    book.acting_as(ALICE).set_refresh(copy, "live")
    assert state(book, copy) == [("oil costs seven", "fresh")]


@pytest.mark.promise("copies.new-words")
@pytest.mark.parametrize("mode", ["live", "lazy", "snapshot"])
def test_an_edit_of_the_copy_gives_no_right_to_the_words_of_its_source(book, source, mode):
    copy = book.share(source, "team", refresh=mode).id
    bob = by_a_writer_of_the_copy(book)
    bob.edit(copy, text="oil is ours")
    book.edit(source, text="oil costs seven")
    with pytest.raises(NotAllowed, match="may not read the source"):
        bob.adopt(copy)
    assert state(bob, copy) == [("oil is ours", "diverged")]
    book.adopt(copy)
    assert state(bob, copy) == [("oil costs seven", "fresh")]


@pytest.mark.promise("copies.new-words")
def test_a_writer_refreshes_what_follows_by_itself_and_may_make_it_follow_less(book, source):
    copy = book.share(source, "team", refresh="lazy").id
    bob = by_a_writer_of_the_copy(book)
    book.edit(source, text="oil costs seven")
    bob.refresh(copy)
    assert state(bob, copy) == [("oil costs seven", "fresh")]
    book.edit(source, text="oil costs nine")
    bob.set_refresh(copy, "live")
    assert state(bob, copy) == [("oil costs nine", "fresh")]
    bob.set_refresh(copy, "snapshot")
    with pytest.raises(NotAllowed):
        bob.set_refresh(copy, "live")


# --- tied again


@pytest.mark.promise("copies.retied")
def test_sharing_again_ties_a_revoked_copy_in_the_name_of_the_one_who_shares(book, source):
    copy = pulled_by_alice(book, source)
    book.edit(source, text="oil costs seven")
    receipt = book.share(source, "team", refresh="lazy")
    assert (receipt.id, receipt.new, receipt.retied, receipt.freshness) == (copy, False, True, "fresh")
    memory = book.get(copy)
    assert (memory.text, memory.shared.by, memory.shared.mode) == ("oil costs seven", "user:local", "lazy")
    again = book.share(source, "team")
    assert (again.id, again.retied, again.freshness, again.refresh) == (copy, False, "fresh", "lazy")
    assert book.verify_log().findings == ()


def test_a_revoked_copy_that_was_edited_keeps_its_words_when_it_is_tied_again(book, source):
    copy = pulled_by_alice(book, source)
    book.edit(copy, text="oil is ours")
    receipt = book.share(source, "team")
    assert (receipt.id, receipt.retied, receipt.freshness) == (copy, True, "diverged")
    assert book.get(copy).text == "oil is ours"
    book.adopt(copy)
    assert state(book, copy) == [("oil costs five", "fresh")]


def test_an_orphan_is_tied_to_the_root_when_that_is_shared_again(book, source):
    middle = book.share(source, "middle").id
    copy = book.share(middle, "team").id
    book.unshare(middle)
    book.edit(source, text="oil costs seven")
    assert book.get(copy).freshness == "source_deleted"
    receipt = book.share(source, "team")
    assert (receipt.id, receipt.retied, receipt.freshness) == (copy, True, "fresh")
    assert [one.id for one in book.lineage(copy).ancestors] == [source]
    book.edit(source, text="oil costs nine")
    assert state(book, copy) == [("oil costs nine", "fresh")]


@pytest.mark.promise("copies.retied")
def test_nobody_ties_a_copy_again_without_the_rights_to_share(book, source):
    copy = pulled_by_alice(book, source)
    alice = book.acting_as(ALICE)
    with pytest.raises(NotFound):
        alice.share(source, "team")
    with pytest.raises(NotAllowed):
        alice.adopt(copy)
    book.grant(BOB, "facts", "reader")
    book.grant(BOB, "team", "reader")
    with pytest.raises(NotAllowed):
        book.acting_as(BOB).share(source, "team")
    assert (book.get(copy).shared.by, book.get(copy).freshness) == (ALICE, "revoked")


def test_adopting_a_revoked_copy_ties_it_in_the_name_of_the_one_who_adopts(book, source):
    copy = pulled_by_alice(book, source)
    book.grant(BOB, "facts", "reader")
    book.grant(BOB, "team", "writer")
    book.acting_as(BOB).adopt(copy)
    assert (book.get(copy).shared.by, book.get(copy).freshness) == (BOB, "fresh")
    book.edit(source, text="oil costs seven")
    assert state(book, copy) == [("oil costs seven", "fresh")]


def test_a_revoked_copy_whose_source_was_deleted_adopts_nothing(book, source):
    copy = pulled_by_alice(book, source)
    book.edit(copy, text="oil is dear")
    book.delete(source)
    with pytest.raises(NotFound):
        book.adopt(copy)
    assert (book.get(copy).text, book.get(copy).freshness) == ("oil is dear", "revoked")


def test_sharing_what_is_there_already_tells_how_it_stands(book, source):
    copy = book.share(source, "team", refresh="snapshot").id
    book.edit(source, text="oil costs seven")
    receipt = book.share(source, "team")
    assert (receipt.id, receipt.retied, receipt.freshness) == (copy, False, "stale")


# --- all copies


@pytest.mark.promise("lineage.ends")
def test_all_copies_are_listed_however_long_the_chain_is(book, source):
    last, chain = source, []
    for number in range(40):
        last = book.share(last, f"s{number:02}", refresh="snapshot").id
        chain.append(last)
    assert [one.id for one in book.copies(source)] == chain
    assert book.lineage(source).truncated


@pytest.mark.parametrize("through", ["itself", "its copy", "a copy of its copy"])
def test_a_dead_copy_is_not_tied_to_itself_or_to_its_own_copies(book, source, through):
    dead = pulled_by_alice(book, source)
    copy = book.share(dead, "below").id
    further = book.share(copy, "further", refresh="snapshot").id
    again = book.share({"itself": dead, "its copy": copy, "a copy of its copy": further}[through], "team")
    assert (again.id, again.retied, again.freshness) == (dead, False, "revoked")
    assert [one.id for one in book.lineage(further).ancestors] == [copy, dead, source]
    assert book.share(source, "team").retied
    assert book.get(dead).freshness == "fresh"
