"""An embedder behind an address: against a real service on this machine, over real sockets. Only waits are not real."""

from __future__ import annotations

import socket
import time
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonbook.engines.embedders import http
from commonbook.engines.embedders.http import HttpEmbedder
from commonbook.errors import BadInput, EmbedderFailed
from commonbook.ports.embedding import Embedder, EmbeddingInput
from tests.support import embedding_service
from tests.support.embedding_service import Service, serving, vector_of

KEY = "sk-secret-0123456789"


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with serving() as found:
        yield found


@pytest.fixture
def waits() -> list[float]:
    """How long the embedder would have slept between its attempts."""
    return []


@pytest.fixture
def embedder(service: Service, waits: list[float]) -> HttpEmbedder:
    return HttpEmbedder(service.url, "small", key=KEY, timeout=60, sleep=waits.append)


def inputs(*texts: str) -> list[EmbeddingInput]:
    return [EmbeddingInput(text, {}) for text in texts]


def unit(text: str) -> np.ndarray:
    vector = np.array(vector_of(text))
    return np.asarray(vector / np.linalg.norm(vector))


def failure(embedder: HttpEmbedder, *texts: str) -> EmbedderFailed:
    """The error, after a look that nothing of it tells the key."""
    with pytest.raises(EmbedderFailed) as caught:
        embedder.embed(inputs(*texts or ("one", "two")), patient=True)
    error = caught.value
    assert type(error) is EmbedderFailed
    assert error.fix
    assert KEY not in "".join(traceback.format_exception(error)) + repr(error) + error.fix
    return error


# When all is well


def test_each_text_gets_its_vector_at_unit_length(embedder, service):
    port: Embedder = embedder
    found = port.embed(inputs("one", "three", "eleven"))
    assert found.dtype == np.float32
    assert np.allclose(found, [unit("one"), unit("three"), unit("eleven")])
    assert port.slow
    assert service.requests[0].path == "/v1/embeddings"
    assert service.requests[0].headers["Authorization"] == f"Bearer {KEY}"
    assert service.requests[0].body == {"model": "small", "input": ["one", "three", "eleven"]}


def test_a_service_without_a_key_is_asked_without_one(service):
    HttpEmbedder(service.url, "small").embed(inputs("one"))
    assert "Authorization" not in service.requests[0].headers


@pytest.mark.parametrize("end", ["", "/", "/embeddings", "/embeddings/"])
def test_an_address_may_be_given_with_or_without_its_last_part(service, end):
    HttpEmbedder(service.url + end, "small").embed(inputs("one"))
    assert service.requests[0].path == "/v1/embeddings"


def test_the_index_tells_the_order_and_not_the_place_in_the_answer(embedder, service):
    service.orders = [embedding_service.shuffled]
    assert np.allclose(embedder.embed(inputs("one", "three")), [unit("one"), unit("three")])


def test_an_answer_in_chunks_is_as_good_as_one_in_a_piece(embedder, service):
    service.orders = [embedding_service.in_chunks]
    assert np.allclose(embedder.embed(inputs("one")), [unit("one")])


def test_many_texts_are_asked_for_in_several_requests_and_come_back_in_order(embedder, service):
    texts = [f"{at} {'x' * (at % 7)}" for at in range(250)]
    found = embedder.embed(inputs(*texts))
    assert np.allclose(found, [unit(text) for text in texts])
    assert [len(batch) for batch in service.batches] == [96, 96, 58]


def test_long_texts_make_smaller_requests(embedder, service):
    texts = [letter * 60_000 for letter in "abc"]
    assert len(embedder.embed(inputs(*texts))) == 3
    assert [len(batch) for batch in service.batches] == [1, 1, 1]


@given(st.lists(st.integers(0, 120_000).map(lambda size: "x" * size), max_size=120))
def test_requests_hold_every_text_once_in_order_and_are_never_empty(texts):
    cut = list(http.request_batches(texts))
    assert [text for batch in cut for text in batch] == texts
    assert all(batch for batch in cut)
    assert all(len(batch) == 1 or sum(map(len, batch)) <= 100_000 for batch in cut)


def test_an_empty_text_is_nowhere_and_is_not_sent(embedder, service):
    found = embedder.embed(inputs("", "one", " \n"))
    assert not found[[0, 2]].any()
    assert np.allclose(found[1], unit("one"))
    assert service.batches == [["one"]]
    assert embedder.embed([]).shape == (0, 3)


def test_the_dimensions_are_asked_for_once_and_only_if_nothing_told_them(service):
    asking = HttpEmbedder(service.url, "small")
    assert (asking.dimensions, asking.dimensions, len(service.requests)) == (3, 3, 1)
    known = HttpEmbedder(service.url, "small", dimensions=3)
    assert (known.dimensions, len(service.requests)) == (3, 1)
    by_the_way = HttpEmbedder(service.url, "small")
    by_the_way.embed(inputs("one"))
    assert (by_the_way.dimensions, len(service.requests)) == (3, 2)


def test_the_fingerprint_tells_address_and_model_apart_asks_nobody_and_never_tells_the_key():
    def of(url: str, model: str, key: str | None = None) -> str:
        return HttpEmbedder(url, model, key=key).fingerprint

    first = of("https://one.example/v1", "small")
    others = [("https://two.example/v1", "small"), ("https://one.example/v2", "small")]
    others += [("https://one.example/v1", "large")]
    assert first == "openai/one.example/v1/embeddings/small"
    assert len({first, *(of(*other) for other in others)}) == 4
    assert of("https://ONE.example/v1/embeddings", "small", KEY) == first


def test_who_only_asks_a_question_does_not_wait_through_all_attempts(service, waits):
    service.orders = [embedding_service.refusing(503)] * 5
    embedder = HttpEmbedder(service.url, "small", sleep=waits.append)
    with pytest.raises(EmbedderFailed, match="503"):
        embedder.embed(inputs("one"))
    assert (len(service.requests), waits) == (1, [])


def test_neither_the_embedder_nor_its_representation_tells_the_key(embedder):
    assert KEY not in repr(embedder) + str(embedder) + embedder.fingerprint


# When the service is in trouble


@pytest.mark.parametrize(
    "trouble",
    [
        embedding_service.refusing(500),
        embedding_service.refusing(503),
        embedding_service.refusing(429),
        embedding_service.hanging_up,
        embedding_service.cut_short,
        embedding_service.no_http,
    ],
    ids=["500", "503", "429", "hangs up", "cut short", "no http"],
)
def test_what_may_pass_is_tried_again_with_longer_and_longer_waits(embedder, service, waits, trouble):
    service.orders = [trouble] * 3
    assert np.allclose(embedder.embed(inputs("one"), patient=True), [unit("one")])
    assert [most / 2 <= wait <= most for wait, most in zip(waits, (2, 4, 8), strict=True)] == [True] * 3
    service.orders = [trouble] * 4
    failure(embedder)
    assert len(service.requests) == 4 + 4


def test_a_service_that_asks_for_patience_gets_it(embedder, service, waits):
    in_half_a_minute = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    service.orders = [embedding_service.refusing(429, Retry_After=value) for value in ("20", in_half_a_minute, "soon")]
    embedder.embed(inputs("one"), patient=True)
    assert waits[0] == 20
    assert 0 < waits[1] <= 30
    assert 4.0 <= waits[2] <= 8.0


def test_a_service_that_asks_for_too_much_patience_is_given_up_at_once(embedder, service, waits):
    service.orders = [embedding_service.refusing(429, "tomorrow again", Retry_After="86400")]
    assert "86400 seconds" in failure(embedder).message
    assert (waits, len(service.requests)) == ([], 1)


def test_a_slow_answer_is_not_waited_for_beyond_the_limit(service, waits):
    service.orders = [embedding_service.silent_for(1.0)] * 4
    error = failure(HttpEmbedder(service.url, "small", key=KEY, timeout=0.1, sleep=waits.append))
    assert "timed out" in error.message
    assert len(waits) == 3


def test_an_answer_that_comes_drop_by_drop_is_not_waited_for_either(service, waits):
    service.orders = [embedding_service.dripping(1.0)] * 4
    error = failure(HttpEmbedder(service.url, "small", key=KEY, timeout=0.2, sleep=waits.append))
    assert "timed out" in error.message


def test_a_slow_answer_within_the_limit_is_fine(embedder, service):
    service.orders = [embedding_service.silent_for(0.2)]
    assert len(embedder.embed(inputs("one"), patient=True)) == 1


def test_a_service_that_stayed_down_is_left_alone_for_a_while(service, waits, monkeypatch):
    embedder = HttpEmbedder(service.url, "small", key=KEY, rest=3600, sleep=waits.append)
    service.orders = [embedding_service.refusing(503, "closed")] * 4
    first = failure(embedder)
    assert failure(embedder).message == first.message
    assert (len(service.requests), len(waits)) == (4, 3)
    now = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: now() + 3601)
    assert np.allclose(embedder.embed(inputs("one"), patient=True), [unit("one")])


def test_an_address_where_nobody_listens_is_named_in_the_error(waits):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        error = failure(HttpEmbedder(address, "small", key=KEY, sleep=waits.append))
    assert address in error.message
    assert len(waits) == 3


def test_a_host_that_cannot_be_a_name_fails_without_waiting(waits):
    failure(HttpEmbedder(f"http://{'x' * 64}.example/v1", "small", key=KEY, sleep=waits.append))
    assert waits == []


# When the service refuses


@pytest.mark.parametrize(
    ("status", "fix"), [(401, "EMBEDDER_KEY"), (403, "EMBEDDER_KEY"), (404, "EMBEDDER_URL"), (400, "model")]
)
def test_a_refusal_is_not_repeated_and_its_fix_says_what_to_set(embedder, service, waits, status, fix):
    service.orders = [embedding_service.refusing(status, f"no such luck with {KEY}")]
    error = failure(embedder)
    assert str(status) in error.message
    assert fix in error.fix
    assert (waits, len(service.requests)) == ([], 1)


def test_what_the_service_says_is_passed_on_in_one_short_line_without_the_key(embedder, service):
    service.orders = [
        embedding_service.refusing(400, f"\x1b[31mthe model\n\n`small`  with {KEY} is no more " + "x" * 5000)
    ]
    error = failure(embedder)
    assert "the model `small` with ... is no more" in error.message
    assert error.message.isprintable()
    assert len(error.message) < 400


def test_who_refuses_a_key_is_not_quoted_since_he_may_quote_the_key(embedder, service):
    service.orders = [embedding_service.refusing(401, f"wrong key: {KEY[:8]}*****{KEY[-4:]}")]
    assert KEY[-4:] not in failure(embedder).message


@pytest.mark.promise("logs.embedder")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed(embedder, service, status):
    with serving() as other:
        service.orders = [embedding_service.refusing(status, Location=f"{other.url}/embeddings")]
        assert "redirect" in failure(embedder).message
        assert other.requests == []


# When the answer is wrong


WRONG = {
    "no JSON": embedding_service.saying("<html>welcome</html>"),
    "no UTF-8": embedding_service.saying(b"\xff\xfe\x00garbage"),
    "nothing": embedding_service.saying(""),
    "JSON without end": embedding_service.saying("[" * 100_000),
    "another object": embedding_service.saying('{"choices": []}'),
    "a list": embedding_service.saying("[1, 2]"),
    "no list of items": embedding_service.saying('{"data": 5}'),
    "one vector too few": embedding_service.giving(lambda data: data[:1]),
    "one vector too many": embedding_service.giving(lambda data: [*data, {**data[0], "index": 2}]),
    "an index twice": embedding_service.giving(lambda data: data[1].update(index=0)),
    "an index beyond": embedding_service.giving(lambda data: data[1].update(index=7)),
    "an index that is none": embedding_service.giving(lambda data: data[1].update(index=[1])),
    "no index": embedding_service.giving(lambda data: data[1].pop("index") and data),
    "lengths that differ": embedding_service.giving(lambda data: data[1].update(embedding=[1.0, 2.0])),
    "empty vectors": embedding_service.giving(lambda data: [{**item, "embedding": []} for item in data]),
    "numbers for vectors": embedding_service.giving(lambda data: [{**item, "embedding": 1.0} for item in data]),
    "strings for numbers": embedding_service.giving(
        lambda data: [{**item, "embedding": ["1", "2", "3"]} for item in data]
    ),
    "nothing for a number": embedding_service.giving(lambda data: data[1].update(embedding=[1.0, None, 3.0])),
    "base64": embedding_service.giving(lambda data: [{**item, "embedding": "AACAPw=="} for item in data]),
    "not a number": embedding_service.giving(lambda data: data[1].update(embedding=[1.0, float("nan"), 3.0])),
    "infinity": embedding_service.giving(lambda data: data[1].update(embedding=[1.0, float("inf"), 3.0])),
    "too large a number": embedding_service.giving(lambda data: data[1].update(embedding=[1.0, 1e300, 3.0])),
    "a number without end": embedding_service.giving(lambda data: data[1].update(embedding=[1.0, 10**400, 3.0])),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_answer_is_an_error_and_never_a_vector(embedder, service, waits, wrong):
    service.orders = [WRONG[wrong]]
    assert "answered with" in failure(embedder).message
    assert (waits, len(service.requests)) == ([], 1)


def test_vectors_of_another_length_than_before_are_an_error(embedder, service):
    assert embedder.dimensions == 3
    service.orders = [embedding_service.giving(lambda data: [{**item, "embedding": [1.0, 2.0]} for item in data])]
    assert "2 numbers, not 3" in failure(embedder).message


def test_after_an_error_the_next_call_works_again(embedder, service):
    service.orders = [embedding_service.saying("garbage")]
    failure(embedder)
    assert len(embedder.embed(inputs("one", "two"))) == 2


@given(st.binary(max_size=300))
def test_no_bytes_at_all_break_the_reading_of_an_answer(answer):
    with pytest.raises(http.BadResponse):
        http.response_vectors(answer, 1)
    assert isinstance(http.error_message(answer), str)


# When it is made wrongly


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://host.example/v1",
        "host.example/v1",
        "https://",
        "https://user:pass@host.example/v1",
        "https://host.example/v1?key=1",
        "https://host.example:99999/v1",
        "https://[::1/v1",
    ],
)
def test_an_address_that_is_none_or_tells_a_secret_is_bad_input(url):
    with pytest.raises(BadInput) as caught:
        HttpEmbedder(url, "small")
    assert "pass" not in str(caught.value)


def test_a_key_that_would_break_out_of_its_header_is_bad_input_that_does_not_show_it():
    with pytest.raises(BadInput) as caught:
        HttpEmbedder("https://host.example/v1", "small", key=f"{KEY}\r\nX-Other: 1")
    assert KEY not in repr(caught.value) + str(caught.value)
