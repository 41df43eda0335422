"""What goes over the wire to an OpenAI-compatible service for embeddings, and what is believed of its answers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from commonbook.ports import Floats

# Services limit how many texts and how many tokens one request may have; these are below all known limits.
_MOST_TEXTS: Final = 96
_MOST_CHARACTERS: Final = 100_000


class BadAnswer(Exception):
    """What an answer holds in place of the vectors."""


def request_batches(texts: Sequence[str]) -> Iterator[list[str]]:
    """Cut texts into requests that no service finds too large; a text is never cut."""
    batch: list[str] = []
    size = 0
    for text in texts:
        if batch and (len(batch) == _MOST_TEXTS or size + len(text) > _MOST_CHARACTERS):
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += len(text)
    if batch:
        yield batch


def question(model: str, texts: Sequence[str]) -> bytes:
    """Return the body of a request."""
    return json.dumps({"model": model, "input": list(texts)}).encode()


def response_vectors(answer: bytes, count: int) -> Floats:
    """Return the vectors of an answer in the order of the texts, each at unit length."""
    try:
        data: Any = json.loads(answer)["data"]
        rows = {item["index"]: item["embedding"] for item in data}
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise BadAnswer("something else than embeddings") from error
    if len(data) != count or set(rows) != set(range(count)):
        raise BadAnswer(f"other vectors than the {count} that were asked for")
    try:
        raw = np.array([rows[index] for index in range(count)])
    except (ValueError, OverflowError) as error:
        raise BadAnswer("vectors of different lengths") from error
    if raw.ndim != 2 or raw.shape[1] == 0 or raw.dtype.kind not in "fi":
        raise BadAnswer("vectors that are no lists of numbers")
    exact = raw.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = np.linalg.norm(exact, axis=1, keepdims=True)
    if not np.isfinite(lengths).all():
        raise BadAnswer("numbers that are not finite")
    lengths[lengths == 0] = 1
    unit: Floats = (exact / lengths).astype(np.float32)
    return unit


def complaint(body: bytes) -> str:
    """Return the message of a refusal as OpenAI and others word it, or nothing."""
    try:
        said: Any = json.loads(body)["error"]
        message = said if isinstance(said, str) else said["message"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return ""
    return message if isinstance(message, str) else ""
