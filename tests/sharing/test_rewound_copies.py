"""Copies of an episode whose messages were rewound: those that follow lose them, and no verb brings them back."""

from __future__ import annotations

from pathlib import Path

import pytest

from commonbook import Book, Conflict, NotFound, Refresh

BOB = "user:bob"
FOLLOWING: tuple[Refresh, ...] = ("live", "lazy")


@pytest.fixture
def episode(book: Book) -> str:
    book.append("s", ["the zebra is striped", "the walrus is fat"], space="hr")
    return book.settle("s", space="hr").episodes[0]


def recalled(book: Book, word: str, *spaces: str) -> list[str]:
    return [hit.space for hit in book.recall(word, spaces=spaces).hits if word in hit.text]


@pytest.mark.promise("rewind.copies")
@pytest.mark.parametrize("refresh", FOLLOWING)
def test_a_copy_that_follows_loses_rewound_messages_in_the_same_transaction(book: Book, episode: str, refresh):
    copy = book.share(episode, "pub", refresh=refresh).id
    below = book.share(copy, "press", refresh=refresh).id
    book.rewind("s", 1, space="hr")
    assert recalled(book, "walrus", "pub", "press") == []
    assert recalled(book, "zebra", "pub") == ["pub"]
    assert [book.get(one).freshness for one in (copy, below)] == ["fresh", "fresh"]
    assert all("walrus" not in book.get(one).text for one in (copy, below))


@pytest.mark.promise("rewind.copies")
@pytest.mark.parametrize("refresh", FOLLOWING)
def test_a_copy_that_follows_is_deleted_when_all_its_messages_are_rewound(book: Book, episode: str, refresh):
    copy = book.share(episode, "pub", refresh=refresh).id
    below = book.share(copy, "press", refresh=refresh).id
    book.rewind("s", 0, space="hr")
    assert recalled(book, "walrus", "pub", "press") == []
    for one in (copy, below):
        with pytest.raises(NotFound):
            book.get(one)
        with pytest.raises(Conflict, match="rewound"):
            book.undelete(one)
    assert book.verify_log().ok
    assert book.doctor() == ()


@pytest.mark.promise("rewind.copies")
def test_snapshots_and_copies_that_were_edited_or_detached_keep_their_words(book: Book, episode: str):
    snapshot = book.share(episode, "a", refresh="snapshot").id
    edited, detached = book.share(episode, "b").id, book.share(episode, "c").id
    book.edit(edited, text=book.get(edited).text + "\n\nand heavy")
    book.detach(detached)
    book.rewind("s", 1, space="hr")
    assert [(one, book.get(one).freshness, "walrus" in book.get(one).text) for one in (snapshot, edited, detached)] == [
        (snapshot, "stale", True),
        (edited, "diverged", True),
        (detached, "detached", True),
    ]
    book.rewind("s", 0, space="hr")
    assert [book.get(one).freshness for one in (snapshot, edited)] == ["source_deleted", "source_deleted"]
    assert book.get(snapshot).text


def test_a_copy_whose_sharer_lost_the_right_keeps_its_words(book: Book, episode: str):
    book.grant(BOB, "hr", "reader")
    book.grant(BOB, "pub", "writer")
    copy = book.acting_as(BOB).share(episode, "pub").id
    book.revoke(BOB, "hr")
    book.rewind("s", 0, space="hr")
    assert (book.get(copy).freshness, "walrus" in book.get(copy).text) == ("revoked", True)


@pytest.mark.promise("rewind.final")
def test_an_older_revision_brings_no_rewound_message_back(book: Book, episode: str):
    copy = book.share(episode, "pub").id
    book.rewind("s", 1, space="hr")
    book.edit(copy, tags=["x"])
    for one in (episode, copy):
        book.edit(one, to_revision=1)
        assert "walrus" not in book.get(one).text
    assert recalled(book, "walrus", "hr", "pub") == []
    assert book.get(copy).freshness == "fresh"


@pytest.mark.promise("rewind.final")
def test_an_older_revision_of_a_moved_episode_brings_back_nothing_that_was_rewound_before_the_move(book, episode):
    copy = book.share(episode, "pub").id
    book.rewind("s", 1, space="hr")
    book.move(episode, "press")
    for one in (episode, copy):
        book.edit(one, to_revision=1)
        assert "walrus" not in book.get(one).text
    assert recalled(book, "walrus", "hr", "pub", "press") == []


@pytest.mark.promise("rewind.final")
def test_a_message_whose_rewind_did_not_reach_a_moved_episode_stays_in_its_revisions(book: Book, episode: str):
    book.grant(BOB, "hr", "writer")
    book.move(episode, "press")
    first = book.get(episode)
    book.edit(episode, text=first.text + "\n\nand heavy")
    book.acting_as(BOB).rewind("s", 1, space="hr")
    book.edit(episode, to_revision=first.revision)
    assert book.get(episode).text == first.text


@pytest.mark.promise("rewind.final")
@pytest.mark.parametrize("is_moved", [False, True])
def test_an_import_brings_no_rewound_message_back_into_a_deleted_episode(book, episode, tmp_path, is_moved):
    copy = book.share(episode, "pub").id
    book.export(str(tmp_path / "exported"))
    book.rewind("s", 1, space="hr")
    if is_moved:
        book.move(episode, "press")
    book.delete(episode)
    book.import_folder(str(tmp_path / "exported"))
    assert [("zebra" in book.get(one).text, "walrus" in book.get(one).text) for one in (episode, copy)] == [
        (True, False),
        (True, False),
    ]
    assert (recalled(book, "walrus", "hr", "pub", "press"), book.get(copy).freshness) == ([], "fresh")


def test_an_import_brings_no_rewound_message_back_into_a_deleted_copy(book: Book, episode: str, tmp_path: Path):
    copy = book.share(episode, "pub").id
    book.export(str(tmp_path / "exported"))
    book.rewind("s", 1, space="hr")
    book.unshare(copy)
    book.import_folder(str(tmp_path / "exported"))
    assert ("walrus" in book.get(copy).text, book.get(copy).freshness) == (False, "fresh")


@pytest.mark.promise("rewind.final")
def test_an_import_does_not_bring_back_an_episode_that_was_rewound_as_a_whole(book, episode, tmp_path):
    book.export(str(tmp_path / "exported"))
    book.rewind("s", 0, space="hr")
    for dry_run in (True, False):
        report = book.import_folder(str(tmp_path / "exported"), dry_run=dry_run)
        assert "rewound" in " ".join(finding.why for finding in report.skipped)
    with pytest.raises(NotFound):
        book.get(episode)


@pytest.mark.promise("rewind.final")
@pytest.mark.parametrize("mode", ["live", "snapshot"])
def test_an_undeleted_copy_brings_no_rewound_message_back(book: Book, episode: str, mode):
    book.grant(BOB, "pub", "writer")
    copy = book.share(episode, "pub", refresh=mode).id
    book.unshare(copy)
    book.rewind("s", 1, space="hr")
    book.acting_as(BOB).undelete(copy)
    assert "walrus" not in book.get(copy).text
    assert recalled(book, "walrus", "pub") == []
    book.edit(episode, text=book.get(episode).text + "\n\nand black")
    assert book.get(copy).freshness == "stale"


def test_more_copies_than_one_transaction_takes_are_removed_by_a_job(book: Book, episode: str, monkeypatch):
    monkeypatch.setattr("commonbook.subjects.sharing.propagate.MAX_PER_WRITE", 2)
    for number in range(5):
        book.share(episode, f"pub/s{number}", refresh=FOLLOWING[number % 2])
    book.rewind("s", 0, space="hr")
    book.work()
    assert recalled(book, "walrus", "pub/") == []
    assert book.copies(episode) == () or all(not one.readable for one in book.copies(episode))


@pytest.mark.promise("rewind.final")
@pytest.mark.parametrize("refresh", FOLLOWING)
def test_a_save_that_puts_rewound_messages_back_reaches_no_copy(home: Path, book: Book, episode: str, refresh):
    copy = book.share(episode, "pub", refresh=refresh).id
    path = home / book.get(episode).path
    before = path.read_text()
    book.rewind("s", 1, space="hr")
    path.write_text(before)
    book.sync()
    assert "walrus" in book.get(episode).text
    new = book.share(episode, "press").id
    for one in (copy, new):
        assert "walrus" not in book.get(one).text
    assert recalled(book, "walrus", "hr", "pub", "press") == []


def test_a_file_that_does_not_parse_holds_up_no_copy(home: Path, book: Book, episode: str):
    copy = book.share(episode, "pub").id
    path = home / book.get(episode).path
    path.write_text("---\n: [\n---\n")
    book.sync()
    book.rewind("s", 1, space="hr")
    assert "walrus" not in book.get(copy).text
    assert recalled(book, "walrus", "hr", "pub") == []
