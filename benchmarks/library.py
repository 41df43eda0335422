"""A library to recall from: texts whose words are as frequent as in real English, some of them conversations.

Words come from the vocabulary of the static table, which stands in the order of frequency, by the law of Zipf and
Mandelbrot: a few words are in every text, most in hardly any. So postings are as long as they are in life, and so is
what a search has to read.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import accumulate, count, islice
from typing import Final, NamedTuple
from uuid import UUID

from commonplace.analysis import query_words
from commonplace.engines.static_table import TABLE
from commonplace.model import Draft
from commonplace.paths import PERSONAL

ASKED: Final = 7
"""So many words has a question, stop words aside."""

_OF_ONE: Final = 5
"""So many of them, at most, are of one passage; the others are of any kind."""

_HEADER: Final = struct.Struct("<8s5I")
_SHIFT: Final = 2.7
_STEEPNESS: Final = 1.05
_SHORTEST, _LONGEST, _USUAL = 8, 60, 14
_SENTENCE: Final = (6, 14)
_MESSAGES: Final = 20
_SPEAKERS: Final = ("alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi")
_BEGAN: Final = datetime(2026, 1, 5, 8, tzinfo=UTC)


class Shelf(NamedTuple):
    """A memory to store, and the passages that it will be found by."""

    draft: Draft
    passages: tuple[str, ...]


@cache
def vocabulary() -> tuple[str, ...]:
    """Return some 20,000 English words, the most frequent first (the layout: tools/distil/README.md)."""
    data = TABLE.read_bytes()
    _, _, _, size, *_ = _HEADER.unpack_from(data)
    pieces = data[_HEADER.size : _HEADER.size + size].decode().split("\n")
    return tuple(piece for piece in pieces if piece.isascii() and piece.isalpha() and len(piece) > 1)


@cache
def _frequencies() -> tuple[float, ...]:
    """Return the weights of the vocabulary, summed up."""
    return tuple(accumulate((rank + _SHIFT) ** -_STEEPNESS for rank in range(1, len(vocabulary()) + 1)))


def prose(chance: random.Random) -> str:
    """Return a text of 8 to 60 words, mostly short, in sentences."""
    length = round(chance.triangular(_SHORTEST, _LONGEST, _USUAL))
    words = iter(chance.choices(vocabulary(), cum_weights=_frequencies(), k=length))
    sentences = []
    while sentence := list(islice(words, chance.randint(*_SENTENCE))):
        sentences.append(" ".join(sentence).capitalize() + ".")
    return " ".join(sentences)


def shelves(passages: int) -> Iterator[Shelf]:
    """Return memories that have so many passages together: seven of ten are notes, three are messages."""
    chance = random.Random(f"library {passages}")
    left = passages
    for number in count():
        if left <= 0:
            return
        # A conversation of 20 after every 47 notes or so.
        messages = min(left, _MESSAGES) if number % 48 == 47 else 0
        shelf = _conversation(chance, number, messages) if messages else _note(chance)
        left -= len(shelf.passages)
        yield shelf


def _note(chance: random.Random) -> Shelf:
    text = prose(chance)
    return Shelf(Draft(text=text, space=PERSONAL), (text,))


def _conversation(chance: random.Random, number: int, messages: int) -> Shelf:
    """Return an episode, written as docs/TRANSCRIPTS.md says."""
    said = tuple(prose(chance) for _ in range(messages))
    speakers = chance.sample(_SPEAKERS, k=2)
    time = _BEGAN + timedelta(minutes=number)
    written = []
    for seq, text in enumerate(said):
        speaker, role = (f"user:{speakers[0]}", "user") if seq % 2 == 0 else (f"agent:{speakers[1]}", "assistant")
        at = (time + timedelta(seconds=20 * seq)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        written.append(f"### {speaker} ({role}) · {at} · {seq} · {UUID(int=chance.getrandbits(128))}\n\n{text}")
    return Shelf(Draft(text="\n\n".join(written), space=PERSONAL, kind="episode", title=f"Conversation {number}"), said)


def question(passage: str, chance: random.Random) -> str:
    """Return a question of seven words: up to five that a passage has, and others."""
    words = _content(passage)
    chosen = chance.sample(words, k=min(_OF_ONE, len(words)))
    while len(chosen) < ASKED:
        chosen += [word for word in _content(prose(chance)) if word not in chosen][: ASKED - len(chosen)]
    chance.shuffle(chosen)
    return " ".join(chosen)


def _content(text: str) -> Sequence[str]:
    """Return the words of a text, each once, without stop words."""
    return list(dict.fromkeys(word for word, _ in query_words(text)))
