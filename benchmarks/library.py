"""Generates a library to recall from: notes and conversations with the word frequencies of real English.

Words are drawn from the vocabulary of the static table, which is sorted by frequency, by the law of Zipf and
Mandelbrot: a few words are in every text, most in hardly any. So postings are as long as those of real texts.
Conversations have speakers, whose names are terms of their messages, and who call each other by name as often as people
do in LoCoMo (ten long chats, 5,882 turns, 1,536 questions).

There are two homes: in the `shared` one, seven of ten passages are notes and the others chats among five people; in the
`chat`, the same two people talk with each other all the time, as in each of LoCoMo's chats. Questions have seven words,
none of them a stop word:

- `as_in_a_chat`, for the chat: a speaker's name as often as in LoCoMo's questions, and words of the topics of the two,
  as frequent there as LoCoMo's are in their chats. LoCoMo asks each question within its own chat, as users ask within a
  space: this set has the bar.
- `by_frequency`, for the shared home: a speaker's name as often, and words drawn as those of the texts.
- `from_a_passage`, for the shared home: up to five words of one passage, and others drawn as those of the texts.

The share of all passages that have a word of a question, which a search has to read:

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

from commonbook.core.text.space_names import PERSONAL
from commonbook.core.text.stopwords import ENGLISH
from commonbook.core.text.terms import query_words
from commonbook.engines.embedders.static_table import TABLE
from commonbook.values.memory import Draft

QUESTION_WORDS: Final = 7
"""The words of a question, without stop words."""

_MAX_WORDS_OF_PASSAGE: Final = 5
"""At most so many of them come from one passage."""

_HEADER: Final = struct.Struct("<8s5I")
_SHIFT: Final = 2.7
_STEEPNESS: Final = 1.05
_MIN_WORDS, _MAX_WORDS, _USUAL_WORDS = 8, 60, 14
_SENTENCE_WORDS: Final = (6, 14)
_MESSAGES_OF_CHAT: Final = 20
SHARED: Final = "shared"
CHAT: Final = "chat"
_SPEAKERS: Final = {SHARED: ("alice", "bob", "carol", "dave", "erin"), CHAT: ("alice", "bob")}
"""So few that a name is in nearly as many passages as in LoCoMo's chats together, and in each of them."""

_NOTES_PER_CHAT: Final = {SHARED: 47, CHAT: 0}
"""The number of notes before each conversation."""

_TOPIC_STEEPNESS: Final = 1.5
"""The steepness of frequencies in questions to a chat: two people come back to the same topics."""

_SHARE_CALLED: Final = 0.334
"""The share of LoCoMo's turns that call the other speaker by name."""

_SHARES_NAMED: Final = (0.890, 0.097)
"""The shares of LoCoMo's questions that name one speaker of their chat, and both."""

_FIRST_TIME: Final = datetime(2026, 1, 5, 8, tzinfo=UTC)


class Shelf(NamedTuple):
    """A memory to store, its passages, and their speakers, which are empty for notes."""

    draft: Draft
    passages: tuple[str, ...]
    speakers: tuple[str, ...]

    @property
    def searched(self) -> tuple[str, ...]:
        """The indexed text of the passages: with the names of their speakers."""
        return tuple(f"{name} {text}".strip() for name, text in zip(self.speakers, self.passages, strict=True))


@cache
def vocabulary() -> tuple[str, ...]:
    """Return some 20,000 English words, the most frequent first (the layout: tools/distil/README.md)."""
    data = TABLE.read_bytes()
    _, _, _, size, *_ = _HEADER.unpack_from(data)
    pieces = data[_HEADER.size : _HEADER.size + size].decode().split("\n")
    return tuple(piece for piece in pieces if piece.isascii() and piece.isalpha() and len(piece) > 1)


@cache
def _frequencies(steepness: float) -> tuple[float, ...]:
    """Return the cumulative weights of the vocabulary."""
    return tuple(accumulate((rank + _SHIFT) ** -steepness for rank in range(1, len(vocabulary()) + 1)))


def prose(chance: random.Random) -> str:
    """Return a text of 8 to 60 words, mostly short, in sentences."""
    words = iter(_draw_words(chance, round(chance.triangular(_MIN_WORDS, _MAX_WORDS, _USUAL_WORDS))))
    sentences = []
    while sentence := list(islice(words, chance.randint(*_SENTENCE_WORDS))):
        sentences.append(" ".join(sentence).capitalize() + ".")
    return " ".join(sentences)


def _draw_words(chance: random.Random, words: int, steepness: float = _STEEPNESS) -> list[str]:
    return chance.choices(vocabulary(), cum_weights=_frequencies(steepness), k=words)


def shelves(passages: int, home: str = SHARED) -> Iterator[Shelf]:
    """Yield memories with so many passages in all: notes and conversations, or only conversations."""
    chance = random.Random(f"library {passages}" if home == SHARED else f"{home} {passages}")
    left, notes = passages, _NOTES_PER_CHAT[home]
    for number in count():
        if left <= 0:
            return
        talk = min(left, _MESSAGES_OF_CHAT) if number % (notes + 1) == notes else 0
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
    message_texts = tuple(
        _salutation(chance, user if speaker == agent else agent) + prose(chance) for speaker in speakers
    )
    time = _FIRST_TIME + timedelta(minutes=number)
    written = []
    for seq, (speaker, text) in enumerate(zip(speakers, message_texts, strict=True)):
        author = f"user:{speaker} (user)" if speaker == user else f"agent:{speaker} (assistant)"
        at = (time + timedelta(seconds=20 * seq)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        written.append(f"### {author} · {at} · {seq} · {UUID(int=chance.getrandbits(128))}\n\n{text}")
    draft = Draft(text="\n\n".join(written), space=PERSONAL, kind="episode", title=f"Conversation {number}")
    return Shelf(draft, message_texts, speakers)


def _salutation(chance: random.Random, name: str) -> str:
    return f"{name.capitalize()}, " if chance.random() < _SHARE_CALLED else ""


# --- questions


def by_frequency(chance: random.Random) -> str:
    """Return a question of seven words, drawn as those of the texts, mostly with a speaker's name."""
    return _fill_question(_draw_names(chance, SHARED), chance)


def as_in_a_chat(chance: random.Random) -> str:
    """Return a question of seven words of the topics of two people, mostly with the name of one."""
    return _fill_question(_draw_names(chance, CHAT), chance, steepness=_TOPIC_STEEPNESS)


def _draw_names(chance: random.Random, home: str) -> list[str]:
    (names,) = chance.choices((1, 2, 0), (*_SHARES_NAMED, 1 - sum(_SHARES_NAMED)))
    return chance.sample(_SPEAKERS[home], k=names)


def from_a_passage(passage: str, chance: random.Random) -> str:
    """Return a question of seven words: up to five of a passage, and others drawn as those of the texts."""
    words = list(_content(passage).values())
    return _fill_question(chance.sample(words, k=min(_MAX_WORDS_OF_PASSAGE, len(words))), chance)


def _fill_question(words: Sequence[str], chance: random.Random, *, steepness: float = _STEEPNESS) -> str:
    """Return a question of seven words that has these words, no two of one stem, in random order."""
    chosen = _content(" ".join(words))
    while len(chosen) < QUESTION_WORDS:
        for term, word in _content(*_draw_words(chance, 1, steepness)).items():
            chosen.setdefault(term, word)
    words = list(chosen.values())
    chance.shuffle(words)
    return " ".join(words)


def _content(text: str) -> dict[str, str]:
    """Return the words of a text by their stems, without stop words."""
    return {term: word for word, term in query_words(text) if word not in ENGLISH}
