"""A library to recall from: texts whose words are as frequent as in real English, some of them conversations.

Words come from the vocabulary of the static table, which stands in the order of frequency, by the law of Zipf and
Mandelbrot: a few words are in every text, most in hardly any. So postings are as long as they are in life, and so is
what a search has to read. Conversations have speakers, whose names are words of what they say, and who call each other
by name as often as people do in LoCoMo (ten long chats, 5,882 turns, 1,536 questions).

There are two homes: a `shared` one, seven of ten passages notes and the others chats among five people; and a `chat`,
in which the same two people talk with each other all the time, as in each of LoCoMo's. Questions have seven words, none
of them a stop word:

- `as_in_a_chat`, to the chat: a speaker's name, as often as LoCoMo's questions have one, and words of what the two talk
  about, as frequent there as LoCoMo's are in the chat that is asked. LoCoMo asks each question within its own chat, and
  so does somebody who asks a space: this set carries the bar.
- `by_frequency`, to the shared home: a speaker's name as often, and words drawn as the texts' are.
- `from_a_passage`, to the shared home: up to five words of one passage, and others drawn as the texts' are.

How much there is to read for a question, as the share of all passages that have one of its words:

    mean over the words of questions               names   others  together, of a question
    LoCoMo, each question within its own chat       .673     .025                      .82
    LoCoMo, all ten chats in one home               .094     .012                      .15
    here, as in a chat                              .667     .014                      .72
    here, by frequency                              .080     .008                      .13
    here, from a passage                            .080     .008                      .07
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import accumulate, count, cycle, islice
from typing import Final, NamedTuple
from uuid import UUID

from commonbook.engines.embedders.static_table import TABLE
from commonbook.model.memory import Draft
from commonbook.text.space_paths import PERSONAL
from commonbook.text.terms import query_words

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
SHARED: Final = "shared"
CHAT: Final = "chat"
_SPEAKERS: Final = {SHARED: ("alice", "bob", "carol", "dave", "erin"), CHAT: ("alice", "bob")}
"""As few that a name is in not quite as many passages as in LoCoMo's chats together, and in each of them."""

_NOTES: Final = {SHARED: 47, CHAT: 0}
"""So many notes come before each conversation."""

_TOPICS: Final = 1.5
"""Two people come back to what they talk about: so much more often than in texts are frequent words in questions."""

_CALLED: Final = 0.334
"""The share of LoCoMo's turns that call the other speaker by name."""

_NAMED: Final = (0.890, 0.097)
"""The shares of LoCoMo's questions that name one speaker of their chat, and both."""

_BEGAN: Final = datetime(2026, 1, 5, 8, tzinfo=UTC)


class Shelf(NamedTuple):
    """A memory to store, and the passages that it will be found by, with the names of who says them, if anybody."""

    draft: Draft
    passages: tuple[str, ...]
    speakers: tuple[str, ...]

    @property
    def searched(self) -> tuple[str, ...]:
        """The passages with their speakers' names: the words by which they are found."""
        return tuple(f"{name} {said}".strip() for name, said in zip(self.speakers, self.passages, strict=True))


@cache
def vocabulary() -> tuple[str, ...]:
    """Return some 20,000 English words, the most frequent first (the layout: tools/distil/README.md)."""
    data = TABLE.read_bytes()
    _, _, _, size, *_ = _HEADER.unpack_from(data)
    pieces = data[_HEADER.size : _HEADER.size + size].decode().split("\n")
    return tuple(piece for piece in pieces if piece.isascii() and piece.isalpha() and len(piece) > 1)


@cache
def _frequencies(steepness: float) -> tuple[float, ...]:
    """Return the weights of the vocabulary, summed up."""
    return tuple(accumulate((rank + _SHIFT) ** -steepness for rank in range(1, len(vocabulary()) + 1)))


def prose(chance: random.Random) -> str:
    """Return a text of 8 to 60 words, mostly short, in sentences."""
    words = iter(_drawn(chance, round(chance.triangular(_SHORTEST, _LONGEST, _USUAL))))
    sentences = []
    while sentence := list(islice(words, chance.randint(*_SENTENCE))):
        sentences.append(" ".join(sentence).capitalize() + ".")
    return " ".join(sentences)


def _drawn(chance: random.Random, words: int, steepness: float = _STEEPNESS) -> list[str]:
    return chance.choices(vocabulary(), cum_weights=_frequencies(steepness), k=words)


def shelves(passages: int, home: str = SHARED) -> Iterator[Shelf]:
    """Return memories that have so many passages together: notes and conversations, or conversations alone."""
    chance = random.Random(f"library {passages}" if home == SHARED else f"{home} {passages}")
    left, notes = passages, _NOTES[home]
    for number in count():
        if left <= 0:
            return
        talk = min(left, _MESSAGES) if number % (notes + 1) == notes else 0
        shelf = _conversation(chance, number, talk, _SPEAKERS[home]) if talk else _note(chance)
        left -= len(shelf.passages)
        yield shelf


def _note(chance: random.Random) -> Shelf:
    text = prose(chance)
    return Shelf(Draft(text=text, space=PERSONAL), (text,), ("",))


def _conversation(chance: random.Random, number: int, messages: int, people: Sequence[str]) -> Shelf:
    """Return an episode, written as docs/TRANSCRIPTS.md says."""
    user, agent = chance.sample(people, k=2)
    speakers = tuple(islice(cycle((user, agent)), messages))
    said = tuple(_called(chance, user if speaker == agent else agent) + prose(chance) for speaker in speakers)
    time = _BEGAN + timedelta(minutes=number)
    written = []
    for seq, (speaker, text) in enumerate(zip(speakers, said, strict=True)):
        author = f"user:{speaker} (user)" if speaker == user else f"agent:{speaker} (assistant)"
        at = (time + timedelta(seconds=20 * seq)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        written.append(f"### {author} · {at} · {seq} · {UUID(int=chance.getrandbits(128))}\n\n{text}")
    draft = Draft(text="\n\n".join(written), space=PERSONAL, kind="episode", title=f"Conversation {number}")
    return Shelf(draft, said, speakers)


def _called(chance: random.Random, name: str) -> str:
    return f"{name.capitalize()}, " if chance.random() < _CALLED else ""


# --- questions


def by_frequency(chance: random.Random) -> str:
    """Return a question of seven words, drawn as the texts' words are, and mostly with a speaker's name."""
    return _filled(_named(chance, SHARED), chance)


def as_in_a_chat(chance: random.Random) -> str:
    """Return a question of seven words of what two people talk about, mostly with the name of one."""
    return _filled(_named(chance, CHAT), chance, steepness=_TOPICS)


def _named(chance: random.Random, home: str) -> list[str]:
    (names,) = chance.choices((1, 2, 0), (*_NAMED, 1 - sum(_NAMED)))
    return chance.sample(_SPEAKERS[home], k=names)


def from_a_passage(passage: str, chance: random.Random) -> str:
    """Return a question of seven words: up to five that a passage has, and others drawn as the texts' words are."""
    words = list(_content(passage).values())
    return _filled(chance.sample(words, k=min(_OF_ONE, len(words))), chance)


def _filled(words: Sequence[str], chance: random.Random, *, steepness: float = _STEEPNESS) -> str:
    """Return these words and so many others that a question has seven, no two of one stem, in any order."""
    chosen = _content(" ".join(words))
    while len(chosen) < ASKED:
        for term, word in _content(*_drawn(chance, 1, steepness)).items():
            chosen.setdefault(term, word)
    asked = list(chosen.values())
    chance.shuffle(asked)
    return " ".join(asked)


def _content(text: str) -> dict[str, str]:
    """Return the words of a text that are no stop words, each by its stem."""
    return {term: word for word, term in query_words(text)}
