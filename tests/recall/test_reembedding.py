"""Changing the embedder: recall works throughout, and vectors of two embedders never meet."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from commonbook.errors import EmbedderFailed
from commonbook.values.memory import Draft
from tests.conftest import OpenBook
from tests.support import embedding_service
from tests.support.embedding_service import Service, serving

TEXTS = [f"note {number} about {word}" for number in range(30) for word in ("tea", "roses", "ships", "paint")]
WORDS_ONLY = "searched by words only"


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with serving() as found:
        yield found


@pytest.fixture
def remotely(monkeypatch: pytest.MonkeyPatch, service: Service):
    """Choose a model behind the service."""

    def choose(model: str = "small") -> None:
        monkeypatch.setenv("COMMONBOOK_EMBEDDER", f"openai:{model}")
        monkeypatch.setenv("COMMONBOOK_EMBEDDER_URL", service.url)

    return choose


def meanings(found) -> set[bool]:
    return {hit.parts["meaning"] != 0 for hit in found.hits}


def embedder_of(place: Path | str) -> str:
    """Return whose vectors the index has."""
    if isinstance(place, Path):
        return str(json.loads((place / ".commonbook/index/manifest.json").read_text())["embedder"])
    with psycopg.connect(place) as connection:
        ((embedder,),) = connection.execute("SELECT embedder FROM recall_index")
        return str(embedder)


def test_after_a_change_recall_goes_by_words_until_the_vectors_are_made(
    place: Path | str, open_book: OpenBook, remotely
):
    with open_book() as book:
        book.remember_many([Draft(text) for text in TEXTS])
        book.reindex()
        before = [hit.id for hit in book.recall("tea", k=20).hits]
    remotely()
    with open_book() as book:
        found = book.recall("tea", k=20)
        assert {hit.id for hit in found.hits} <= {
            memory.id for memory in book.list(limit=200).items if "tea" in memory.text
        }
        assert (meanings(found), len(found.hits)) == ({False}, len(before))
        assert WORDS_ONLY in found.notes[0]
        assert "commonbook reindex" in found.notes[0]
        seen: list[tuple[str, int, int]] = []
        assert book.reindex(progress=lambda *step: seen.append(step)) == len(TEXTS)
        assert {what for what, _, _ in seen} == {"embedding", "indexing"}
        assert all(done <= total for _, done, total in seen)
        found = book.recall("tea", k=20)
        assert (meanings(found), found.notes) == ({True}, ())
    assert embedder_of(place).startswith("openai/")


def test_what_is_written_meanwhile_waits_for_its_vector_and_is_found_by_words(open_book: OpenBook, remotely, service):
    remotely()
    with open_book() as book:
        book.remember_many([Draft(text) for text in TEXTS])
        book.reindex()
        requests = len(service.requests)
        memory = book.remember("a pelican")
        assert len(service.requests) == requests, "no write waits for a model"
        first = book.recall("pelican").hits[0]
        assert (first.id, first.parts["meaning"]) == (memory.id, 0)
        assert book.reindex() == 1
        first = book.recall("pelican").hits[0]
        assert (first.id, first.parts["meaning"] > 0) == (memory.id, True)
        assert book.reindex() == 0


def test_no_text_is_embedded_twice_by_one_embedder(open_book: OpenBook, remotely, service):
    remotely()
    with open_book() as book:
        book.remember_many([Draft(text) for text in TEXTS] + [Draft(text, space="other") for text in TEXTS])
        book.reindex()
        sent = [text for batch in service.batches for text in batch]
        assert sorted(sent) == sorted(TEXTS)
        book.reindex(anew=True)
        book.rebuild()
        assert len([text for batch in service.batches for text in batch]) == len(TEXTS)


def test_two_models_of_one_length_never_meet(place: Path | str, open_book: OpenBook, remotely, service):
    remotely("small")
    with open_book() as book:
        book.remember_many([Draft(text) for text in TEXTS])
        book.reindex()
        assert meanings(book.recall("tea")) == {True}
    remotely("other")
    with open_book() as book:
        assert meanings(book.recall("tea")) == {False}
        # More than is searched directly: the index is written while it still has the old vectors.
        book.remember_many([Draft(f"later {text}") for text in TEXTS + TEXTS])
        assert meanings(book.recall("tea")) == {False}
        assert embedder_of(place).endswith("/small")
    remotely("small")
    with open_book() as book:
        late = [hit for hit in book.recall("later tea", k=50).hits if hit.text.startswith("later")]
        assert late
        assert {hit.parts["meaning"] for hit in late} == {0.0}, "a vector of the other model was kept"


def test_a_service_that_is_down_takes_nothing_away(open_book: OpenBook, remotely, service):
    remotely()
    with open_book() as book:
        book.remember_many([Draft(text) for text in TEXTS])
        book.reindex()
        service.orders = [embedding_service.refusing(401)] * 50
        found = book.recall("ships")
        assert found.hits
        assert meanings(found) == {False}
        assert WORDS_ONLY in found.notes[0]
        book.remember("one more ship")
        with pytest.raises(EmbedderFailed):
            book.reindex()
        service.orders = []
        assert book.reindex() == 1
        assert meanings(book.recall("ships")) == {True}


def test_an_interrupted_run_goes_on_where_it_stopped(open_book: OpenBook, remotely, service):
    remotely()
    with open_book() as book:
        book.remember_many([Draft(text) for text in TEXTS])

        def stop(what: str, done: int, _total: int) -> None:
            if done > 60:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            book.reindex(progress=stop)
        some = sum(len(batch) for batch in service.batches)
        assert 0 < some < len(TEXTS)
        assert book.recall("tea").hits
        book.reindex()
        assert sum(len(batch) for batch in service.batches) == len(TEXTS) + 1, "the question, and each text once"


def test_recall_goes_on_while_another_thread_embeds(open_book: OpenBook, remotely, service):
    with open_book() as book:
        book.remember_many([Draft(text) for text in TEXTS])
        book.reindex()
    remotely()
    with open_book() as book:
        service.orders = [embedding_service.silent_for(0.2)] * 2
        worker = threading.Thread(target=book.reindex)
        worker.start()
        answers = []
        while worker.is_alive():
            answers.append(book.recall("tea", k=5))
        worker.join()
        answers.append(book.recall("tea", k=5))
        assert all(len(answer.hits) == 5 for answer in answers)
        assert all(len(meanings(answer)) == 1 for answer in answers), "some hits had vectors and some had none"
        assert meanings(answers[-1]) == {True}


def test_back_to_the_table_and_everything_is_as_it_was(monkeypatch, open_book: OpenBook, remotely):
    with open_book() as book:
        book.remember_many([Draft(text) for text in TEXTS])
        before = [(hit.id, hit.score, hit.parts) for hit in book.recall("tea and roses").hits]
    remotely()
    with open_book() as book:
        book.reindex()
    monkeypatch.delenv("COMMONBOOK_EMBEDDER")
    monkeypatch.delenv("COMMONBOOK_EMBEDDER_URL")
    with open_book() as book:
        book.remember("something else")
        book.recall("tea")
        book.reindex()
        assert [(hit.id, hit.score, hit.parts) for hit in book.recall("tea and roses").hits] == before
