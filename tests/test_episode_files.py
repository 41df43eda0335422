"""What people do to the files of episodes, and what their sessions make of it."""

from __future__ import annotations

from pathlib import Path

import pytest


def found(book, query, **asked):
    return [hit.id for hit in book.recall(query, k=50, **asked).hits]


def file_of(book, episode):
    return Path(book.home) / book.get(episode).path


def settled(book, *texts, session="s", **asked):
    """Append messages and make one episode of them; return their ids, and the episode's."""
    ids = [one.id for one in book.append(session, list(texts), **asked).messages]
    (episode,) = book.settle(session).episodes
    return ids, episode


# --- taken back


@pytest.mark.parametrize("introduction", ["", "A talk about animals.\n\n"], ids=["bare", "introduced"])
def test_a_stale_save_does_not_bring_back_into_recall_what_was_taken_back(book, open_book, introduction):
    (walrus, otter), episode = settled(book, "the walrus sleeps", "the otter swims")
    path = file_of(book, episode)
    stale = path.read_text().replace("### ", introduction + "### ", 1)
    book.rewind("s", walrus)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(stale)
    assert book.sync().edited == 1
    assert "otter" in book.get(episode).text
    for look in (book, open_book(), open_book()):
        assert otter not in found(look, "the otter swims")
        assert walrus in found(look, "the walrus sleeps")
        assert not any("otter" in said(hit) for query in ("", "animals otter") for hit in look.recall(query).hits)
        book.rebuild()


def said(hit):
    return " ".join((hit.text, hit.passage, hit.before, hit.after))


def test_an_episode_that_a_rewind_emptied_may_come_back_as_a_file_but_not_into_recall(book, open_book):
    _, episode = settled(book, "the walrus sleeps")
    path = file_of(book, episode)
    stale = path.read_text()
    book.rewind("s", 0)
    assert not path.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(stale)
    assert book.sync().restored == 1
    assert book.get(episode).deleted is None
    for look in (book, open_book()):
        assert found(look, "walrus") == found(look, "") == []
        book.rebuild()
    assert [one.taken_back is not None for one in book.messages("s").items] == [True]
    assert book.append("s", ["the walrus is back"]).messages[0].id in found(book, "walrus")
