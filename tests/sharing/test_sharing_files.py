"""Shared copies and their files: what people do to them, what a rebuild makes of them, and what comes in a folder."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import commonbook
from commonbook.core.tables import jobs
from commonbook.errors import BadInput, Conflict, FileInTheWay, NotFound, TooLarge
from commonbook.service.book import Book
from commonbook.subjects.sharing import propagate
from commonbook.values.memory import MAX_FRONT_BYTES, Filter
from tests.sharing.test_sharing_races import wrong_with_copies
from tests.support.hand_edits import space_folder
from tests.support.lost_databases import lose_database
from tests.support.stored import stored

UNKNOWN = "0192f3a1-5c2e-7b1d-9a3f-4e6d7f3a9c2e"
MODES = ("live", "lazy", "snapshot")


@pytest.fixture
def source(home, book):
    return book.remember("Alice owns the billing service", space="personal").id


def file_of(home: Path, book: Book, memory: str) -> Path:
    return home / book.get(memory).path


def retype(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def freshness_of(book, *ids: str) -> list[str | None]:
    """Return the freshness of copies as a list shows it: a get would refresh a lazy one."""
    by_id = {memory.id: memory.freshness for memory in book.list(limit=1000).items}
    return [by_id[id_] for id_ in ids]


def visible_state(book) -> object:
    """Return everything of the copies that a reader could see."""
    memories = {memory.id: memory for memory in book.list(limit=1000).items}
    lineages = {id_: book.lineage(id_) for id_ in memories}
    hits = [
        (hit.id, hit.passage, hit.freshness, hit.score, hit.path, hit.revision)
        for query in ("billing service", "invoices", "")
        for hit in book.recall(query, spaces="/", k=50).hits
    ]
    return memories, lineages, hits, {id_: book.history(id_) for id_ in memories}


@pytest.fixture
def every_kind(book, source):
    """Copies in every state of freshness."""
    ids = {mode: book.share(source, mode, refresh=mode).id for mode in MODES}
    ids["below"] = book.share(ids["snapshot"], "below").id
    ids["diverged"] = book.share(source, "diverged").id
    ids["detached"] = book.share(source, "detached").id
    gone = book.remember("soon gone", space="personal").id
    ids["source_deleted"] = book.share(gone, "gone").id
    old = book.remember("soon replaced", space="personal").id
    ids["source_superseded"] = book.share(old, "replaced").id
    book.grant("user:alice", "personal", "reader")
    book.grant("user:alice", "alices", "writer")
    ids["revoked"] = book.acting_as("user:alice").pull(source, "alices").id
    book.edit(ids["diverged"], text="our own words on invoices")
    book.detach(ids["detached"])
    book.revoke("user:alice", "personal")
    book.edit(source, text="Bertha runs the billing service and the invoices")
    book.delete(gone)
    book.remember("the newer one", space="personal", replaces=old)
    return ids


def test_the_fixture_has_every_freshness(book, every_kind):
    names = (
        "live",
        "lazy",
        "snapshot",
        "below",
        "diverged",
        "detached",
        "source_deleted",
        "source_superseded",
        "revoked",
    )
    assert freshness_of(book, *(every_kind[name] for name in names)) == ["fresh", "stale", "stale", "stale", *names[4:]]


# --- rebuilding


def test_after_a_rebuild_every_copy_stands_as_before(home, book, every_kind):
    book.reindex()
    before = visible_state(book)
    shutil.rmtree(home / ".commonbook" / "index")
    book.rebuild()
    assert visible_state(book) == before
    assert book.verify_log().findings == ()


def test_what_follows_a_source_is_derived_from_the_memories_themselves(book, source, every_kind):
    with book._engines.db.reading() as tx:
        before = tx.rows("SELECT * FROM copy ORDER BY space, root")
    book._engines.db.write(lambda tx: tx.run("DELETE FROM copy"))
    book.rebuild()
    with book._engines.db.reading() as tx:
        assert tx.rows("SELECT * FROM copy ORDER BY space, root") == before
    assert book.edit(source, text="a third text").copies == 1
    assert book.get(every_kind["live"]).text == "a third text"


def test_with_the_database_lost_copies_come_back_with_their_ties(home, book, open_book, source, every_kind):
    before = {one.id: one for one in book.list(limit=1000).items}
    lineages = {id_: [one.id for one in book.lineage(id_).ancestors] for id_ in every_kind.values()}
    book.close()
    lose_database(home)
    book = open_book()
    book.sync()
    after = {one.id: one for one in book.list(limit=1000).items}
    assert all(one.shared.claimed for one in after.values() if one.shared)
    assert {id_: (one.text, one.shared and one.shared.source) for id_, one in after.items()} == {
        id_: (one.text, one.shared and one.shared.source) for id_, one in before.items()
    }
    assert {id_: [one.id for one in book.lineage(id_).ancestors] for id_ in every_kind.values()} == lineages
    assert book.share(source, "live").id == every_kind["live"]
    book.adopt_all()
    book.edit(source, text="after the loss")
    assert book.get(every_kind["live"]).text == book.get(every_kind["lazy"]).text == "after the loss"
    assert book.get(every_kind["diverged"]).text == "our own words on invoices"


def test_a_deleted_root_is_an_unknown_ancestor_after_the_loss_of_the_database(home, book, open_book, source):
    middle = book.share(source, "b").id
    last = book.share(middle, "c").id
    book.delete(source)
    book.close()
    lose_database(home)
    book = open_book()
    book.sync()
    assert [(one.id, one.readable) for one in book.lineage(last).ancestors] == [(middle, True), (source, False)]
    assert freshness_of(book, middle, last) == ["detached", "fresh"]
    # The root is gone, so its own space can have a copy of it, by hand too.
    assert book.share(last, "personal").new


# --- edits by hand


def test_a_copy_edited_by_hand_is_diverged(home, book, source):
    copy = book.share(source, "team").id
    below = book.share(copy, "below").id
    retype(file_of(home, book, copy), "Alice owns", "Bertha owns")
    book.sync()
    assert freshness_of(book, copy, below) == ["diverged", "fresh"]
    assert book.get(below).text == "Bertha owns the billing service"
    book.edit(source, text="Carla owns it")
    assert book.get(copy).text == "Bertha owns the billing service"


def test_a_copy_that_is_edited_by_hand_just_before_its_source_changes_is_not_written_over(home, book, source):
    copy = book.share(source, "team").id
    retype(file_of(home, book, copy), "Alice owns", "Bertha owns")
    assert book.edit(source, text="Carla owns it").copies == 0
    memory = book.get(copy)
    assert (memory.text, memory.freshness) == ("Bertha owns the billing service", "diverged")


def test_a_source_edited_by_hand_takes_its_copies_along(home, book, source):
    copies = [book.share(source, mode, refresh=mode).id for mode in MODES]
    retype(file_of(home, book, source), "Alice owns", "Bertha owns")
    book.sync()
    assert freshness_of(book, *copies) == ["fresh", "stale", "stale"]
    assert "Bertha owns" in file_of(home, book, copies[0]).read_text()


@pytest.mark.promise("lineage.walks")
@pytest.mark.parametrize("line", ["shared", "links", "tags"])
def test_what_makes_a_copy_is_not_for_editing(home, book, source, line):
    other = book.remember("something else", space="personal").id
    copy = book.share(source, "team").id
    before = book.get(copy)
    path = file_of(home, book, copy)
    match line:
        case "shared":
            retype(path, "shared: live", "shared: snapshot")
        case "links":
            retype(path, f"shared_from {source}", f"shared_from {other}")
        case "tags":
            # A second source, above the first.
            retype(path, "links:\n", f"links:\n  - shared_from {other}\n")
    book.sync()
    after = book.get(copy)
    assert (after.shared, after.links, after.freshness) == (before.shared, before.links, "fresh")
    assert f"shared_from {source}@{stored(book, source).content_hash}" in path.read_text()
    assert other not in path.read_text()
    assert "shared: live" in path.read_text()
    book.edit(source, text="it follows still")
    assert book.get(copy).text == "it follows still"


def test_front_matter_taken_out_of_a_copy_is_put_back(home, book, source):
    copy = book.share(source, "team").id
    path = file_of(home, book, copy)
    path.write_text(path.read_text().split("---\n", 2)[2].lstrip())
    book.sync()
    assert book.get(copy).freshness == "fresh"
    assert "shared: live" in path.read_text()


def test_a_memory_is_no_copy_because_its_file_says_so(home, book, source):
    other = book.remember("private words", space="personal").id
    path = file_of(home, book, other)
    line = file_of(home, book, book.share(source, "team").id).read_text().split("shared: ")[1].splitlines()[0]
    retype(path, "---\n", f"---\nshared: {line}\nlinks:\n  - shared_from {source}\n")
    book.sync()
    memory = book.get(other)
    assert (memory.shared, memory.freshness) == (None, None)


def test_the_links_of_a_copy_cannot_be_changed_to_another_source(home, book, source):
    copy = book.share(source, "team").id
    other = book.remember("something else", space="personal").id
    with pytest.raises(BadInput, match="only sharing"):
        book.link(copy, "shared_from", other)
    with pytest.raises(BadInput, match="one source"):
        book.unlink(copy, "shared_from", source)
    book.link(copy, "related_to", other)
    assert book.get(copy).freshness == "fresh"


def test_a_late_save_of_an_old_text_does_not_make_a_copy_diverged_nor_its_copies_stale(home, book, source):
    copy = book.share(source, "team").id
    below = book.share(copy, "below", refresh="snapshot").id
    path = file_of(home, book, copy)
    typed = path.read_text().replace("Alice owns", "Zoe owns")
    book.edit(source, text="Bertha owns the billing service")
    book.refresh(below)
    path.write_text(typed)
    book.sync()
    texts = [one.text for one in book.history(copy)]
    assert "Zoe owns the billing service" in texts, "what was typed is kept"
    memory = book.get(copy)
    if memory.text == "Bertha owns the billing service":
        assert memory.freshness == "fresh"
    else:
        assert memory.freshness == "diverged"


# --- files that are moved, copied and removed


def move(home: Path, book, memory: str, space: str) -> Path:
    path = file_of(home, book, memory)
    to = space_folder(home, space) / "2026-11" / path.name
    to.parent.mkdir(exist_ok=True)
    path.rename(to)
    book.sync()
    return to


def test_a_copy_moved_by_hand_into_a_new_space_goes_on_following(home, book, source):
    copy = book.share(source, "team").id
    move(home, book, copy, "elsewhere")
    assert freshness_of(book, copy) == ["fresh"]
    book.edit(source, text="new words")
    assert book.get(copy).text == "new words"
    assert book.share(source, "elsewhere").id == copy
    assert book.share(source, "team").new


@pytest.mark.parametrize("to", ["personal", "other"])
def test_a_copy_moved_by_hand_to_where_its_root_or_a_copy_is_detached(home, book, source, to):
    copy, other = book.share(source, "team").id, book.share(source, "other").id
    path = move(home, book, copy, to)
    assert freshness_of(book, copy, other) == ["detached", "fresh"]
    assert "shared: detached" in path.read_text()
    book.edit(source, text="new words")
    assert book.get(copy).text == "Alice owns the billing service"
    assert book.share(source, "team").new


def test_a_copy_can_be_moved_to_where_its_root_was_deleted(home, book, source):
    copy = book.share(source, "team").id
    book.delete(source)
    move(home, book, copy, "personal")
    assert freshness_of(book, copy) == ["source_deleted"]


def test_a_removed_file_is_an_unshare(home, book, source):
    copy = book.share(source, "team").id
    below = book.share(copy, "below").id
    file_of(home, book, copy).unlink()
    book.sync()
    with pytest.raises(NotFound):
        book.get(copy)
    assert freshness_of(book, below) == ["source_deleted"]
    assert book.share(source, "team").new


def test_a_change_of_the_source_does_not_bring_back_a_copy_that_was_removed_by_hand(home, book, source):
    copy = book.share(source, "team").id
    path = file_of(home, book, copy)
    path.unlink()
    book.edit(source, text="new words")
    assert not path.exists()
    book.sync()
    with pytest.raises(NotFound):
        book.get(copy)


def test_a_copy_moved_by_hand_while_its_source_changes_follows_as_soon_as_it_is_found(home, book, source):
    copy = book.share(source, "team").id
    path = file_of(home, book, copy)
    to = space_folder(home, "elsewhere") / path.name
    path.rename(to)
    book.edit(source, text="new words")
    assert not path.exists()
    book.sync()
    memory = book.get(copy)
    assert (memory.text, memory.freshness, memory.space) == ("new words", "fresh", "elsewhere")
    assert "new words" in to.read_text()


@pytest.mark.parametrize("with_id", [True, False])
@pytest.mark.parametrize("space", ["team", "elsewhere"])
def test_a_copied_file_is_another_memory_that_follows_nobody(home, book, source, space, with_id):
    copy = book.share(source, "team").id
    book.edit(source, text="the second words")
    path = file_of(home, book, copy)
    twin = space_folder(home, space) / "twin.md"
    twin.write_text(path.read_text() if with_id else path.read_text().replace(f"id: {copy}\n", "", 1))
    book.sync()
    (other,) = [one.id for one in book.list(Filter(space=space)).items if one.id != copy]
    assert freshness_of(book, copy, other) == ["fresh", "detached"]
    assert [one.id for one in book.lineage(other).ancestors] == [source]
    book.edit(source, text="the third words")
    assert (book.get(copy).text, book.get(other).text) == ("the third words", "the second words")


def test_a_restored_file_is_a_copy_again_unless_another_took_its_place(home, book, source):
    copy = book.share(source, "team").id
    path = file_of(home, book, copy)
    content = path.read_text()
    book.unshare(copy)
    book.edit(source, text="new words")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    book.sync()
    memory = book.get(copy)
    assert (memory.text, memory.freshness) == ("new words", "fresh"), "it follows at once"
    book.unshare(copy)
    second = book.share(source, "team").id
    path.write_text(content)
    book.sync()
    assert freshness_of(book, copy, second) == ["detached", "fresh"]


# --- files in trouble


def test_a_copy_whose_file_does_not_parse_does_not_hold_up_its_source_and_follows_when_it_is_mended(home, book, source):
    copy, other = book.share(source, "team").id, book.share(source, "other").id
    path = file_of(home, book, copy)
    content = path.read_text()
    path.write_text(content.replace("title:", "title: [unclosed\ntitle:"))
    for text in ("the second words", "the third words"):
        assert book.edit(source, text=text).copies == 1
    assert freshness_of(book, copy, other) == ["stale", "fresh"]
    assert "malformed" in book.get(copy).marks
    with pytest.raises(FileInTheWay):
        book.refresh(copy)
    path.write_text(content)
    book.sync()
    memory = book.get(copy)
    assert (memory.text, memory.freshness, memory.marks) == ("the third words", "fresh", ())
    assert [one.text for one in book.history(copy)] == ["Alice owns the billing service", "the third words"]


def test_a_copy_mended_with_other_words_is_diverged(home, book, source):
    copy = book.share(source, "team").id
    path = file_of(home, book, copy)
    content = path.read_text()
    path.write_text(content.replace("title:", "title: [unclosed\ntitle:"))
    book.edit(source, text="the second words")
    path.write_text(content.replace("Alice owns", "Bertha owns"))
    book.sync()
    memory = book.get(copy)
    assert (memory.text, memory.freshness) == ("Bertha owns the billing service", "diverged")


def test_a_folder_in_the_way_of_a_copy_does_not_hold_up_its_source(home, book, source, tmp_path):
    copy = book.share(source, "team").id
    away = tmp_path / "away"
    (home / "team").rename(away)
    (home / "team").symlink_to(tmp_path)
    book.edit(source, text="the second words")
    assert book.get(source).text == "the second words"
    (home / "team").unlink()
    away.rename(home / "team")
    book.sync()
    assert book.get(copy).text in ("the second words", "Alice owns the billing service")
    assert book.get(copy).freshness == ("fresh" if book.get(copy).text == "the second words" else "stale")


def test_a_lazy_copy_is_told_as_it_is_when_it_cannot_be_refreshed(home, book, source, monkeypatch):
    copy = book.share(source, "team", refresh="lazy").id
    book.edit(source, text="the second words")
    monkeypatch.setattr(type(book._engines.folder), "free_bytes", lambda _folder: 0)
    memory = book.get(copy)
    assert (memory.text, memory.freshness) == ("Alice owns the billing service", "stale")
    monkeypatch.undo()
    assert book.get(copy).text == "the second words"


# --- cycles and chains made by hand


def by_hand(home: Path, name: str, own: str, mode: str, of: str) -> None:
    (space_folder(home, name) / f"{name}.md").write_text(
        f"---\nid: {own}\nlinks:\n  - shared_from {of}@{'0' * 16}\n"
        f"shared: {mode} {of} user:local 2026-11-01T10:00:00.000000Z\n---\nwords of {name}\n"
    )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("length", [1, 2, 5])
def test_a_circle_made_by_hand_has_bounded_answers(home, book, mode, length):
    ids = [UNKNOWN[:-1] + f"{at:x}" for at in range(length)]
    for at, own in enumerate(ids):
        by_hand(home, f"s{at}", own, mode, ids[at - 1])
    book.sync()
    book.adopt_all()
    assert set(freshness_of(book, *ids)) <= {"fresh", "diverged", "stale", "detached"}
    book.edit(ids[0], text="round and round")
    for own in ids:
        found = book.lineage(own)
        assert len(found.ancestors) < length + 1
        assert len(book.copies(own)) <= length
        assert book.get(own).freshness is not None
        if book.get(own).freshness not in ("detached", "diverged"):
            book.refresh(own)
        assert book.recall("words round", spaces="/").hits
    revisions = [book.get(own).revision for own in ids]
    assert max(revisions) <= 3
    book.work()
    book.rebuild()
    assert [book.get(own).revision for own in ids] == revisions
    assert book.verify_log().findings == ()


def test_a_file_that_claims_words_that_its_source_never_had_is_still_told(home, book, source):
    by_hand(home, "ahead", UNKNOWN, "live", source)
    book.sync()
    assert freshness_of(book, UNKNOWN) == ["stale"]
    assert book.get(UNKNOWN).shared.claimed
    assert book.lineage(UNKNOWN).ancestors[0].id == source


# --- import


def test_imported_copies_are_claimed_and_follow_nobody_until_somebody_lets_them(home, book, source, tmp_path):
    team = book.share(source, "team").id
    below = book.share(team, "below").id
    book.edit(below, text="edited there")
    book.export(str(tmp_path / "out"))
    with commonbook.open(tmp_path / "new", create=True) as other:
        other.import_folder(str(tmp_path / "out"))
        found = {one.id: one for one in other.list().items}
        assert [one.shared.claimed for one in found.values() if one.shared] == [True, True]
        assert [(one.id, one.claimed) for one in other.lineage(team).ancestors] == [(source, True)]
        assert [one.claimed for one in other.lineage(below).ancestors] == [True, True]
        # The hashes of another home say nothing here: it is not known what the copies took over.
        assert freshness_of(other, team, below) == ["fresh", "stale"]
        other.edit(source, text="new words")
        assert freshness_of(other, team) == ["stale"], "nobody here shared it"
        with pytest.raises(Conflict, match="was imported"):
            other.refresh(team)
        other.adopt(team)
        memory = other.get(team)
        assert (memory.text, memory.freshness) == ("new words", "fresh")
        assert memory.shared is not None
        assert (memory.shared.by, memory.shared.claimed) == ("user:local", False)
        other.edit(source, text="newer words")
        assert other.get(team).text == "newer words"
        assert other.share(source, "team").id == team
        assert other.import_folder(str(tmp_path / "out")).done == 0


def test_a_folder_cannot_claim_its_way_to_what_its_reader_may_not_read(home, book, tmp_path):
    secret = book.remember("nothing for the team", space="personal").id
    by_hand(tmp_path / "folder", "team", UNKNOWN, "live", secret)
    book.import_folder(str(tmp_path / "folder"))
    book.grant("user:alice", "team", "writer")
    book.edit(secret, text="the secret is out")
    alice = book.acting_as("user:alice")
    assert alice.get(UNKNOWN).text.strip() == "words of team"
    for verb in (alice.refresh, alice.adopt):
        with pytest.raises(NotFound):
            verb(UNKNOWN)
    book.work()
    assert alice.get(UNKNOWN).text.strip() == "words of team"
    assert alice.recall("secret", spaces=["team"]).hits == ()


def test_an_imported_copy_of_what_was_never_here_is_nobodys_copy(home, book, source, tmp_path):
    team = book.share(source, "team").id
    book.export(str(tmp_path / "out"), space="team")
    with commonbook.open(tmp_path / "new", create=True) as other:
        other.import_folder(str(tmp_path / "out"))
        assert freshness_of(other, team) == ["detached"]
        (ancestor,) = other.lineage(team).ancestors
        assert (ancestor.id, ancestor.readable, ancestor.claimed) == (source, False, True)


# --- no room in the front matter


@pytest.mark.promise("copies.stuck")
def test_a_copy_whose_front_matter_is_full_keeps_nobody_from_editing_the_source(home, book, source):
    full, other = (book.share(source, space).id for space in ("team", "other"))
    path = file_of(home, book, full)
    room = MAX_FRONT_BYTES - path.read_bytes().index(b"\n---\n") - 40
    retype(path, "type:", f"mine: {'x' * room}\ntype:")
    assert book.sync().edited == 1
    long = "a title that is much longer than the one before " * 4
    assert book.edit(source, title=long.strip(), text="Bertha owns it").copies == 1
    assert freshness_of(book, full, other) == ["stale", "fresh"]
    assert book.get(full).text == "Alice owns the billing service"
    before = path.read_bytes()
    with pytest.raises(TooLarge):
        book.refresh(full)
    book.work()
    assert path.read_bytes() == before
    with book._engines.db.reading() as tx:
        (job,) = jobs.in_state(tx, state="waiting")
    assert (job.subject, job.attempts, "front matter" in job.error) == (full, 1, True)
    retype(path, "x" * room, "short")
    assert book.sync().edited == 1
    book.refresh(full)
    memory = book.get(full)
    assert (memory.text, memory.freshness, memory.revision) == ("Bertha owns it", "fresh", 2)
    assert "mine: short" in path.read_text()
    assert wrong_with_copies(book) == []


@pytest.mark.promise("copies.stuck")
def test_the_job_goes_on_past_a_copy_without_room_and_doctor_says_why(home, book, source, monkeypatch):
    full = book.share(source, "team").id
    path = file_of(home, book, full)
    room = MAX_FRONT_BYTES - path.read_bytes().index(b"\n---\n") - 40
    retype(path, "type:", f"mine: {'x' * room}\ntype:")
    book.sync()
    # All by the job, as beyond the first hundred.
    monkeypatch.setattr(propagate, "MAX_PER_WRITE", 0)
    monkeypatch.setattr(jobs, "MAX_ATTEMPTS", 1)
    others = [book.share(source, f"s{at}").id for at in range(3)]
    assert book.edit(source, title="t" * 200, text="Bertha owns it").copies == 0
    book.work()
    assert freshness_of(book, full, *others) == ["stale", *["fresh"] * 3]
    assert (book.status().failed_jobs, book.status().waiting_jobs) == (1, 0)
    (finding,) = [one for one in book.doctor() if one.what == "failed work"]
    assert finding.where == f"memory {full}"
    assert "could not follow its source" in finding.why
    assert "front matter" in finding.why


@pytest.mark.parametrize("typed", [False, True], ids=["touched", "typed"])
@pytest.mark.parametrize("role", [None, "reader"])
def test_a_file_that_the_editor_of_the_source_may_not_change_is_taken_in_all_the_same(home, book, source, role, typed):
    copy = book.share(source, "secret").id
    book.grant("user:alice", "personal", "writer")
    if role:
        book.grant("user:alice", "secret", role)
    path = file_of(home, book, copy)
    if typed:
        retype(path, "Alice owns", "Carol owns")
    else:
        os.utime(path, (0, 0))
    book.acting_as("user:alice").edit(source, text="Bob owns the billing service")
    assert book.get(source).text == "Bob owns the billing service"
    assert book.get(copy).text == ("Carol" if typed else "Bob") + " owns the billing service"
    assert wrong_with_copies(book) == []


def test_what_superseded_a_memory_where_one_may_not_read_is_taken_in_when_it_is_reinstated(home, book, source):
    newer = book.remember("Bob owns the billing service", space="secret").id
    book.supersede(source, by=newer)
    book.grant("user:alice", "personal", "writer")
    os.utime(file_of(home, book, newer), (0, 0))
    book.acting_as("user:alice").reinstate(source)
    assert book.get(newer).links == ()
