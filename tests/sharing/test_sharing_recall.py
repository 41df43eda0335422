"""Copies in recall: found as memories of their own, with vectors that are made once, and nobody else's business."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from commonbook.values.memory import Filter
from commonbook.values.session import NewMessage
from tests.support.embedding_service import Service, serving
from tests.support.lost_databases import lose_database

ALICE, BOB = "user:alice", "user:bob"


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with serving() as found:
        monkeypatch.setenv("COMMONBOOK_EMBEDDER", "openai:small")
        monkeypatch.setenv("COMMONBOOK_EMBEDDER_URL", found.url)
        yield found


def texts(service: Service) -> list[str]:
    return [text for batch in service.batches for text in batch]


# --- vectors


def test_a_refresh_does_not_call_the_embedder(service, open_book):
    book = open_book()
    source = book.remember("Alice owns the billing service", title="billing", space="personal").id
    book.reindex()
    copies = {mode: book.share(source, mode, refresh=mode).id for mode in ("live", "lazy", "snapshot")}
    before = len(service.requests)
    book.reindex()
    assert len(service.requests) == before, "a copy has its source's vectors"
    book.edit(source, text="Bertha runs the invoicing desk")
    assert len(service.requests) == before, "no write waits for a model"
    book.reindex()
    made = texts(service)
    assert sum("Bertha" in text for text in made) == 1, "once, for the source and the live copy"
    book.get(copies["lazy"])
    book.refresh(copies["snapshot"])
    book.edit(source, tags=["money"])
    book.reindex()
    assert texts(service) == made
    for space, copy in copies.items():
        (hit,) = book.recall("Bertha", spaces=[space]).hits
        assert hit.id == copy
        assert hit.parts["meaning"] != 0


# --- episodes


def talk(book):
    texts = ["where is the brass telescope", "the lighthouse keeper hid it", "below the stair", "thank you, keeper"]
    book.append(
        "talk", [NewMessage(text, role="user" if at % 2 == 0 else "assistant") for at, text in enumerate(texts)]
    )
    (episode,) = book.settle("talk").episodes
    return episode


def search(book, space):
    results = [book.recall(query, spaces=[space], k=20).hits for query in ("telescope", "keeper stair", "who hid it")]
    return [(hit.id, hit.score, hit.parts, hit.before, hit.after) for hits in results for hit in hits]


def test_a_copied_episode_is_found_as_its_own_memory_and_the_original_as_before(book):
    episode = talk(book)
    before = search(book, "personal")
    assert before
    copy = book.share(episode, "team").id
    assert search(book, "personal") == before
    assert book.get(copy).session is None
    hits = book.recall("telescope keeper", spaces=["team"], k=20).hits
    assert [(hit.type, hit.id, hit.memory) for hit in hits] == [("memory", copy, copy)]
    both = book.recall("telescope keeper", spaces=["personal", "team"], k=20).hits
    assert len({hit.memory for hit in both}) == 1
    assert {both[0].memory, *(place.id for place in both[0].also_in)} == {episode, copy}
    book.reindex()
    assert search(book, "personal") == before
    book.rebuild()
    assert search(book, "personal") == before
    assert [one.id for one in book.messages("talk").items if one.episode != episode] == []


def test_the_copy_of_an_episode_follows_a_rewind(book):
    episode = talk(book)
    copy = book.share(episode, "team").id
    book.rewind("talk", 2)
    assert "thank you" not in book.get(copy).text
    assert book.get(copy).freshness == "fresh"
    assert book.recall("thank you keeper", spaces=["team"]).hits[0].passage.count("thank you") == 0


def test_a_copied_episode_comes_back_from_its_file_without_taking_the_messages(home, book, open_book):
    episode = talk(book)
    book.share(episode, "a-team")
    book.close()
    lose_database(home)
    book = open_book()
    book.sync()
    assert {one.episode for one in book.messages("talk").items} == {episode}
    assert [one.freshness for one in book.list(Filter(space="a-team")).items] == ["fresh"]


# --- copies of others do not show in scores


def test_scores_are_the_same_to_the_last_digit_with_and_without_other_peoples_copies(book):
    book.grant(ALICE, "alices", "admin")
    alice = book.acting_as(ALICE)
    words = ("billing service", "invoicing desk", "brass telescope", "lighthouse keeper")
    own = [alice.remember(f"note {at} on the {words[at % 4]}", space="alices").id for at in range(30)]
    others = [book.remember(f"a secret on the {words[at % 4]}", space="bobs").id for at in range(20)]
    pulled = alice.share(own[0], "alices/copies").id

    def visible_state():
        hits = [hit for query in words for hit in alice.recall(query, spaces="alices/", k=50).hits]
        return hits, alice.list(limit=100), alice.status()._replace(log_entries=0, database_bytes=0, markdown_bytes=0)

    before = visible_state()
    book.grant(BOB, "alices", "reader")
    book.grant(BOB, "bobs", "admin")
    bob = book.acting_as(BOB)
    copies = [bob.share(one, "bobs").id for one in own]
    copies += [bob.share(one, "bobs/more").id for one in others]
    for again in (lambda: None, book.reindex, lambda: bob.delete(*copies), book.reindex):
        again()
        now = visible_state()
        assert now[0] == before[0]
        assert now[1] == before[1]
    assert alice.edit(own[0], text="new words").copies == 1
    assert alice.get(pulled).text == "new words"
    assert [one.readable for one in alice.copies(own[0])] == [True]


# --- below a copy that was deleted


def expire(book, source: str) -> None:
    book.edit(source, expires="2020-01-01")


def supersede(book, source: str) -> None:
    book.remember("petrol idea", space="personal", replaces=source)


def retract(book, source: str) -> None:
    (ground,) = [link.target for link in book.get(source).links]
    book.delete(ground)
    book.triage(source, "retract")


@pytest.mark.promise("copies.no-better")
@pytest.mark.parametrize("end", [expire, supersede, retract])
def test_recall_agrees_with_get_below_an_unshared_copy_when_the_source_ends(book, end):
    ground = book.remember("ground", space="personal").id
    source = book.reflect("oil thought", [ground], space="personal").id
    middle = book.share(source, "team").id
    last = book.share(book.share(middle, "below").id, "last").id
    assert [hit.id for hit in book.recall("oil thought", spaces=["last"]).hits] == [last]
    book.unshare(middle)
    assert [hit.id for hit in book.recall("oil thought", spaces=["last"]).hits] == [last]
    end(book, source)
    assert {"expired", "superseded"} & set(book.get(last).marks)
    assert not book.recall("oil thought", spaces=["last"]).hits


def test_recall_agrees_with_get_below_an_unshared_copy_when_the_source_holds_again(book):
    source = book.remember("oil", space="personal").id
    middle = book.share(source, "team").id
    last = book.share(middle, "last").id
    book.edit(source, expires="2020-01-01")
    book.unshare(middle)
    assert not book.recall("oil", spaces=["last"]).hits
    book.edit(source, expires=None)
    assert book.get(last).marks == ()
    assert [hit.id for hit in book.recall("oil", spaces=["last"]).hits] == [last]
