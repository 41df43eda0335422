"""Build the hits of a recall from ranked candidate rows.

A hit has the passage, the passages before and after it, and the memory's marks (suspect, stale, superseded). Penalties
for suspect memories and outdated copies are applied here, since only the rows that may become hits are read.

Field collapsing: memories of one root that say the same are one hit, which names the other searched spaces.

The index has already dropped most copies with the same words; copies of an episode are dropped here. A memory with
other words is a hit of its own: an older version never stands for the present one, however it scores. Which memories
are hits does not depend on how many are asked for.

Penalties: what is taken off the score of a memory that is suspect, or that is an outdated copy.

A memory that others link to gets a little more instead.

Complete the result of a recall: keep the hits within a budget of tokens, and make the tag of their fence.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from commonbook.core.markdown import obsidian, transcript
from commonbook.core.tables import copies, links, memories, sessions
from commonbook.core.text import content_hashes, recall_fence, terms, titles
from commonbook.core.text.metadata import words_of
from commonbook.errors import HomeError
from commonbook.ports.database import Reading
from commonbook.ports.engines import Engines
from commonbook.ports.index import BY_USER, IS_COPY, IS_MESSAGE, CandidatePool
from commonbook.ports.keys import Keys
from commonbook.subjects.memories import marks
from commonbook.subjects.recall import confidence, indexed_passages, non_answers, scoring
from commonbook.subjects.recall.indexed_passages import root_of
from commonbook.subjects.recall.query import ParsedQuery
from commonbook.subjects.sharing.freshness import REFRESHED_BY_READING
from commonbook.values import prompts
from commonbook.values.hit import CopyPlace, Hit
from commonbook.values.memory import LAZY
from commonbook.values.recall import RecallResult, Wish
from commonbook.values.session import Message
from commonbook.values.spaces import SpaceScope
from commonbook.values.stored_memory import StoredMemory

_ECHO_PENALTY: Final = -2.0
"""Added to the score of a message that only asks the question again, or says that nothing is known."""

_CROWD: Final = 25
"""An index returns 50 candidates by words, and 50 by meaning."""

_OTHER_NAME_PART: Final = 0.7
"""The part of its score that a passage loses if it names somebody, but nobody whom the question names."""

_MAX_NAMING_WORDS: Final = 50
"""A longer passage names many, and may be about any of them."""

_OTHER_NAME_CHANCE: Final = 0.15
_FEW_WORDS: Final = 8
_MAX_QUESTION_CHARS: Final = 4_000
_MAX_TEXT_CHARS: Final = 8_000
"""Of a longer text, a hit has only the passage and those around it."""


class Answer(NamedTuple):
    """The hits of a recall, how many were left out because of their confidence, and the best of those if all were."""

    hits: Iterator[Hit]
    left_out: int
    nearest: Hit | None = None


class HitBuilder:
    """Builds the hits of one recall, lazily and best first."""

    def __init__(
        self,
        engines: Engines,
        tx: Reading,
        allowed: SpaceScope,
        query: ParsedQuery,
        pool: CandidatePool,
        scores: scoring.Scores,
        *,
        readable: SpaceScope,
        nearness: Callable[[Sequence[float], str], Mapping[int, float]],
        word_nearness: non_answers.Nearness,
    ) -> None:
        """Build hits from this transaction and this pool; `readable` is the scope from which marks may come.

        `nearness` compares the words of the query that a text lacks with its words (`query_expansion`), `word_nearness`
        compares any words.
        """
        self._nearness = nearness
        self._word_nearness = word_nearness
        self._question = non_answers.read_question(query.request.query[:_MAX_QUESTION_CHARS])
        self._echoes: set[int] = set()
        self._empty_answers: set[int] = set()
        self._repeats: Counter[int] = Counter()
        self._engines = engines
        self._tx = tx
        self._allowed = allowed
        self._readable = readable
        self._query = query
        self._pool = pool
        self._scores = scores
        self._terms = frozenset(query.terms)
        self._memories: dict[str, StoredMemory] = {}
        self._penalties_by_memory: dict[str, dict[str, float]] = {}
        self._penalties_by_row: dict[int, dict[str, float]] = {}
        self._messages: dict[str, tuple[Message, str]] = {}
        self._ids: dict[int, tuple[str, str]] = {}
        self._parts_by_row: dict[int, scoring.RowParts] = {}
        self._confidence: dict[int, float] = {}
        self._tags: dict[tuple[str, str], tuple[str, ...]] = {}
        self._weighed: set[str] = set()
        self._doubts = marks.NO_DOUBTS
        self._weighed_rows: set[int] = set()
        self._loaded_rows: set[int] = set()
        self._places: dict[int, int] = {}
        self._bounds = scores.total if query.is_empty else bounds(scores.total, pool.suspect)
        # Lists: reading single numbers from an array is slow, and these are read many times.
        self._threads: list[int] = pool.threads.tolist()
        self._positions: list[int] = pool.positions.tolist()
        self._flags: list[int] = pool.flags.tolist()
        self._totals: list[float] = scores.total.tolist()
        self._highest: list[float] = self._totals if self._bounds is scores.total else self._bounds.tolist()

    def answer(self, rows: Sequence[int]) -> Answer:
        """Return the best hits: each message by itself, and each memory once with its best passage.

        Of the memories of one root that say the same, the best is a hit; if several are equal, the root itself. Hits
        are left out because of their confidence.
        """
        ranked = self._choose(rows)
        if not self._query.is_empty:
            ranked = self._lift_linked(ranked)
        # What asks the question again says nothing about the chance that something else answers, and comes last.
        last = [row for row in ranked if self._is_wanted_last(row)]
        ranked = [row for row in ranked if row not in self._echoes and row not in self._empty_answers]
        best = ranked[: self._query.request.k]
        kept = best if self._query.is_empty else self._confident(best, is_relevant=self._judge(ranked))
        left_out, kept = len(best) - len(kept), [*kept, *last[: self._query.request.k - len(best)]]
        if kept or not best:
            return Answer(self._hits(kept), left_out)
        nearest = max(best, key=self._totals.__getitem__)
        return Answer(iter(()), len(best), next(self._hits([nearest]), None))

    def _is_wanted_last(self, row: int) -> bool:
        """Return whether a row that cannot answer is a hit: an echo by default, and both sorts if everything is."""
        least = self._query.request.min_confidence
        return (row in self._echoes and not least) or (row in self._empty_answers and least == 0)

    def _lift_linked(self, ranked: list[int]) -> list[int]:
        """Give the memories among the best that others of the searched spaces link to a little more, and rank again.

        Only the best are looked at, which are the same for every k.
        """
        best = ranked[: confidence.BEST_HITS]
        ids = dict.fromkeys(self._ids_of(row)[1] for row in best if not self._is_message(row))
        targets = [self._memories[id_] for id_ in ids if id_ in self._memories]
        if len(best) < 2 or not targets:
            return ranked
        for id_, bonus in link_bonuses(self._tx, self._allowed, targets).items():
            self._penalties_by_memory[id_] = {**self._penalties_by_memory.get(id_, {}), "linked": bonus}
        return sorted(best, key=lambda row: -self._score(row)) + ranked[confidence.BEST_HITS :]

    def _hits(self, chosen: Sequence[int]) -> Iterator[Hit]:
        self._load(chosen)
        self._mark(chosen)
        places = self._other_places(chosen)
        for row in chosen:
            passage, memory = self._ids_of(row)
            if memory in self._memories:
                yield self._hit(self._memories[memory], passage, row, places.get(memory, ()))
            elif passage in self._messages:
                yield self._message_hit(*self._messages[passage], row)

    def _judge(self, ranked: Sequence[int]) -> bool:
        """Note the confidence of each row, and return whether anything found is probably about the query.

        What is known about somebody else tells nothing about it, unless there is nothing else.
        """
        others = {row for row in ranked if "other_name" in self._penalties_by_row.get(row, {})}
        judged = [row for row in ranked if row not in others]
        if others and not any(self._names_asked(row) for row in judged):
            # Nothing here is about whom the question names: perhaps it has another name.
            others, judged = set(), list(ranked)
        rarity, features = self._scores.rarity, [self._features(row) for row in judged]
        shares = self._scores.coverage[judged[: confidence.BEST_HITS]].max(axis=0, initial=0.0).tolist()
        covered = confidence.coverage(rarity, shares)
        if features and not confidence.judged_as_message(rarity, features[0]):
            first: list[float] = self._scores.coverage[judged[0]].tolist()
            covered = confidence.explained(covered, shares, first, self._nearness(first, self._named_text(judged[0])))
        relevance = confidence.relevance(rarity, features, covered)
        all_features = features if len(judged) == len(ranked) else [self._features(row) for row in ranked]
        chances = confidence.confidences(relevance, all_features, covered.other_attribute)
        self._confidence = {
            row: round(chance * (_OTHER_NAME_CHANCE if row in others else 1), 4)
            for row, chance in zip(ranked, chances, strict=True)
        }
        return relevance >= covered.least_relevance

    def _named_text(self, row: int) -> str:
        """Return the text of a row's passage, with the title of its memory."""
        memory = self._memories.get(self._ids_of(row)[1])
        fields = " ".join(f"{name} {words_of(value)}" for name, value in memory.metadata.items()) if memory else ""
        return f"{memory.title} {self._passage(row)} {fields}" if memory else self._passage(row)

    def _passage(self, row: int) -> str:
        """Return the text of a row's passage, which was read before."""
        passage, memory_id = self._ids_of(row)
        if memory_id in self._memories:
            return self._text(self._memories[memory_id], row)
        return self._messages[passage][0].text if passage in self._messages else ""

    def _confident(self, best: list[int], *, is_relevant: bool) -> list[int]:
        """Return the rows whose confidence suffices.

        By default these are all if anything is about the query at all, but for those far below a memory that probably
        answers.
        """
        least = self._query.request.min_confidence
        if least is not None or not best:
            return [row for row in best if self._confidence[row] >= (least or 0.0)]
        if not is_relevant:
            return [row for row in best if self._has_words(row)]
        if self._scores.rarity.words == 1:
            return [row for row in best if scoring.named_share(self._score_parts(row)) > 0]
        # The first hit is the same for every k. A message may be the question itself, as in the session that asks it.
        highest = 0.0 if self._is_message(best[0]) else self._confidence[best[0]]
        return [
            row
            for row in best
            if self._score(row) >= scoring.MIN_SCORE
            and not confidence.is_far_below(self._confidence[row], highest, scoring.named_share(self._score_parts(row)))
        ]

    def _has_words(self, row: int) -> bool:
        """Return whether a row has a phrase of the query, or the only word of a query of one word.

        Such a query is a search for those words, however long the text around them is.
        """
        rarity, parts = self._scores.rarity, self._score_parts(row)
        is_word_search = rarity.terms == 1 and rarity.known > 0
        return parts["phrase"] > 0 or (is_word_search and parts["lexical"] > 0)

    def _features(self, row: int) -> confidence.HitFeatures:
        parts = self._score_parts(row)
        return confidence.HitFeatures(
            lexical=scoring.word_share(parts),
            cosine=scoring.cosine(parts),
            speaker=parts["speaker"],
            evidence=scoring.evidence(parts) + self._penalty(row),
            score=self._score(row),
            length=int(self._pool.lengths[row]),
            is_message=self._is_message(row),
            name=parts["name"],
        )

    def _choose(self, rows: Sequence[int]) -> list[int]:
        """Return the rows of the best hits; copies do not take the places of others.

        They are at most one more than k, and so many more that the confidence of each is the same for every k. More
        rows are read until none that is left can score higher than the last hit. So fewer hits are always the first of
        more, although not all penalties are known of the rows that were not read.
        """
        limit = depth = self._depth()
        rows = self._by_bounds(rows)
        selected, above = self._select(rows, limit), math.inf
        while True:
            distinct = self._collapse(self._rank(selected))
            if len(distinct) >= depth:
                above = self._score(distinct[depth - 1])
            else:
                limit *= 2
            further = self._select(rows, limit, above)
            if len(further) <= len(selected):
                return distinct[:depth]
            selected = further

    def _depth(self) -> int:
        k = self._query.request.k
        return k if self._query.is_empty else max(k, confidence.BEST_HITS) + 1

    def _by_bounds(self, rows: Sequence[int]) -> Sequence[int]:
        """Return rows by the highest score that they can have; of equal ones, in the order that they had.

        Those that score less than zero without penalties are left out.
        """
        by_total = np.array(rows, np.intp)
        by_total = by_total[self._scores.total[by_total] >= 0]
        if self._bounds is not self._scores.total:
            self._places = {row: place for place, row in enumerate(rows)}
            by_total = by_total[np.argsort(-self._bounds[by_total], kind="stable")]
        by_bound: list[int] = by_total.tolist()
        return by_bound

    def _rank(self, selected: list[int]) -> list[int]:
        """Weigh the selected rows, and return them by score; of equal scores, in the order of `order_candidates`."""
        self._weigh(selected)
        return sorted(selected, key=lambda row: (-self._score(row), self._places.get(row, 0)))

    def _has_copies(self, rows: Sequence[int]) -> bool:
        return any(self._flags[row] & IS_COPY for row in rows)

    def _collapse(self, rows: list[int]) -> list[int]:
        if not self._query.is_empty:
            rows = self._without_repeats(rows)
        if not self._has_copies(rows):
            return rows
        self._load(rows)
        return collapse(rows, lambda row: self._memories.get(self._ids_of(row)[1]))

    def _without_repeats(self, rows: list[int]) -> list[int]:
        """Return the rows without messages that say the same as a better one, and count those.

        An answer, and a short message such as "Yes.", say what they say only together with the one before it.
        """
        kept: dict[int, None] = {}
        first: dict[tuple[str, str, str], int] = {}
        self._repeats.clear()
        for row in rows:
            best = row
            if self._is_message(row):
                text, before = self._passage(row).strip(), self._before(row)
                needs_before = self._pool.lengths[row] < _FEW_WORDS or before.endswith("?")
                author = self._pool.speakers[self._pool.speaker[row]]
                best = first.setdefault((author, text, before if needs_before else ""), row)
                self._repeats[best] += best != row
            kept[best] = None
        return list(kept)

    def _other_places(self, rows: Sequence[int]) -> Mapping[str, tuple[CopyPlace, ...]]:
        """Return the other searched spaces that have the memory of each row."""
        ids = dict.fromkeys(self._ids_of(row)[1] for row in rows)
        chosen = [self._memories[id_] for id_ in ids if id_ in self._memories]
        alive_at = None if "expired" in self._query.request.include else self._query.now
        return other_places(self._tx, self._engines.keys, self._allowed, chosen, alive_at)

    def _select(self, rows: Sequence[int], limit: int, above: float = math.inf) -> list[int]:
        """Return the first rows that become hits: messages, and the best passage of each memory.

        They are `limit` or fewer, and further ones that may score higher than `above`. `rows` are given by bounds.
        """
        chosen: dict[str, int] = {}
        for row in rows:
            if len(chosen) >= limit and self._highest[row] <= above:
                break
            passage, memory = self._ids_of(row)
            chosen.setdefault(passage if self._is_message(row) else memory, row)
        return list(chosen.values())

    def _penalty(self, row: int) -> float:
        """Return the sum of a row's penalties."""
        return sum(self._penalties(row).values())

    def _penalties(self, row: int) -> dict[str, float]:
        """Return the penalties of a row and of its memory, by feature; none without a query."""
        own = self._penalties_by_row.get(row, {})
        if not self._penalties_by_memory:
            return own
        return {**self._penalties_by_memory.get(self._ids_of(row)[1], {}), **own}

    def _score(self, row: int) -> float:
        return round(self._totals[row] + self._penalty(row), 6)

    def _score_parts(self, row: int) -> scoring.RowParts:
        """Return the parts of a row's score, without penalties."""
        parts = self._parts_by_row.get(row)
        if parts is None:
            parts = self._parts_by_row[row] = self._scores.parts_of(row)
        return parts

    def _parts(self, row: int) -> dict[str, float]:
        return {**self._score_parts(row), **self._penalties(row)}

    def _is_message(self, row: int) -> bool:
        return self._flags[row] & IS_MESSAGE > 0

    @property
    def is_crowded(self) -> bool:
        """Whether so many echoes were found that they may have kept answers from being candidates."""
        return len(self._echoes) + len(self._empty_answers) >= _CROWD

    @property
    def stale(self) -> list[StoredMemory]:
        """The lazy copies among the memories that were read that may be stale: they should be refreshed."""
        lazy = (memory for memory in self._memories.values() if memory.shared and memory.shared.mode == LAZY)
        return [copy for copy in lazy if self._doubts.freshness_of(copy) in REFRESHED_BY_READING]

    def _ids_of(self, row: int) -> tuple[str, str]:
        """Return the ids of a row's passage and of its memory; the memory's is "" for a message without an episode."""
        ids = self._ids.get(row)
        if ids is None:
            ids = self._ids[row] = self._pool.ids_of(row)
        return ids

    def _weigh(self, rows: Sequence[int]) -> None:
        """Read these rows with their penalties, in addition to those read before."""
        rows = [row for row in rows if row not in self._weighed_rows]
        self._weighed_rows.update(rows)
        own = sorted({memory for _, memory in map(self._ids_of, rows) if memory} - self._weighed)
        self._weighed.update(own)
        self._load(rows)
        new = [self._memories[id_] for id_ in own if id_ in self._memories]
        doubts = marks.doubts_about(self._tx, self._readable, new)
        self._doubts = self._doubts.merged(doubts)
        if not self._query.is_empty:
            self._penalties_by_memory |= {memory.id: found for memory in new if (found := penalties_of(memory, doubts))}
            self._penalties_by_row |= {row: found for row in rows if (found := self._non_answer(row))}

    def _non_answer(self, row: int) -> dict[str, float]:
        """Return the penalty of a row that cannot answer; none if the query has words that must occur."""
        if self._query.quoted:
            return {}
        asks = self._question, self._word_nearness
        if self._is_message(row) and self._pool.lengths[row] <= non_answers.MAX_WORDS:
            is_by_user = self._flags[row] & BY_USER > 0
            if non_answers.is_echo(self._passage(row), *asks):
                self._echoes.add(row)
            elif not is_by_user and non_answers.is_empty_answer(self._passage(row), self._before(row), *asks):
                self._empty_answers.add(row)
        if row in self._echoes or row in self._empty_answers:
            return {"echo": _ECHO_PENALTY}
        if self._question.abbreviated and non_answers.lacks_abbreviation(self._named_text(row), self._question):
            return {"small_letters": round(-_OTHER_NAME_PART * max(self._totals[row], 0.0), 6)}
        is_short = self._pool.lengths[row] <= _MAX_NAMING_WORDS
        if (
            self._question.names
            and is_short
            and non_answers.names_another(self._passage(row), self._around(row), asks[0])
        ):
            return {"other_name": round(-_OTHER_NAME_PART * max(self._totals[row], 0.0), 6)}
        return {}

    def _names_asked(self, row: int) -> bool:
        return non_answers.names_asked((self._passage(row), *self._around(row)), self._question)

    def _around(self, row: int) -> tuple[str, ...]:
        """Return the texts around a passage that may name whom it is about: names, speaker and neighbours."""
        memory = self._memories.get(self._ids_of(row)[1])
        names = (memory.title, *obsidian.names_of(memory), *obsidian.tags_of(memory)) if memory else ()
        speaker = self._pool.speakers[self._pool.speaker[row]]
        return *names, speaker, self._before(row), self._neighbour_text(row, 1)

    def _before(self, row: int) -> str:
        return self._neighbour_text(row, -1)

    def _load(self, rows: Sequence[int]) -> None:
        """Read the memories and messages of these rows and of their neighbours, in addition to those read before."""
        rows = [row for row in rows if row not in self._loaded_rows]
        self._loaded_rows.update(rows)
        if not rows:
            return
        window = {other for row in rows for other in (row - 1, row, row + 1) if self._is_neighbour(row, other)}
        ids = [self._ids_of(row) for row in sorted(window)]
        wanted = {memory for _, memory in ids if memory} - self._memories.keys()
        self._memories |= memories.get_many(self._tx, self._allowed, tuple(wanted))
        unsettled = [passage for passage, memory in ids if not memory]
        self._messages |= sessions.get_many(self._tx, self._allowed, unsettled)
        self._tags = sessions.tags_of(
            self._tx, {(space, message.session) for message, space in self._messages.values()}
        )

    def _mark(self, rows: Sequence[int]) -> None:
        """Mark the memories of these rows."""
        ids = dict.fromkeys(self._ids_of(row)[1] for row in rows)
        unmarked = [self._memories[id_] for id_ in ids if id_ in self._memories]
        marked = marks.with_marks(
            self._engines, self._tx, self._readable, unmarked, self._query.now, doubts=self._doubts
        )
        self._memories |= {memory.id: memory for memory in marked}

    def _message_hit(self, message: Message, space: str, row: int) -> Hit:
        """Return the hit of a message that is not in an episode yet."""
        return Hit(
            type="message",
            id=message.id,
            passage_id=message.id,
            memory="",
            session=message.session,
            seq=message.seq,
            kind="episode",
            space=self._allowed[space].name,
            title=titles.derive_title(message.text),
            text=message.text,
            passage=message.text,
            before=self._companion(row, -1),
            after=self._companion(row, 1),
            author=message.author,
            score=self._score(row),
            confidence=self._confidence.get(row, 0.0),
            parts=self._parts(row),
            freshness=None,
            suspect=False,
            superseded_by=None,
            marks=(),
            path=None,
            revision=None,
            tags=self._tags.get((space, message.session), ()),
            occurred=message.time,
            created=message.time,
            matched=self._matched(message.text),
            repeats=self._repeats[row],
        )

    def _hit(self, memory: StoredMemory, passage: str, row: int, also_in: tuple[CopyPlace, ...]) -> Hit:
        """Return the hit of a passage, or of a message in an episode."""
        pool = self._pool
        is_message = self._is_message(row)
        # An episode that was moved away from its session, or that only names one, is a memory of its own.
        in_session = is_message and not indexed_passages.is_part_of(memory, passage)
        text = self._text(memory, row)
        before, after = self._companion(row, -1), self._companion(row, 1)
        # A message has the time at which it was sent, not the time of the episode.
        at = indexed_passages.time_of_micros(int(pool.times[row])) if is_message else None
        return Hit(
            type="message" if is_message else "memory",
            id=passage if is_message else memory.id,
            passage_id=passage,
            memory=memory.id,
            session=memory.session if in_session else None,
            seq=int(pool.seqs[row]) if is_message else None,
            kind=memory.kind,
            space=memory.space.name,
            title=memory.title,
            text=text if is_message else self._full_text(memory, row),
            passage=text,
            before=before,
            after=after,
            author=pool.speakers[pool.speaker[row]] if is_message else memory.author,
            score=self._score(row),
            confidence=self._confidence.get(row, 0.0),
            parts=self._parts(row),
            freshness=memory.freshness,
            suspect="suspect" in memory.marks,
            superseded_by=memory.superseded_by,
            marks=memory.marks,
            path=memory.path,
            revision=memory.revision,
            tags=memory.tags,
            occurred=at or memory.occurred,
            created=at or memory.created,
            matched=self._matched(text),
            shared=memory.copy_info,
            successor=memory.successor,
            also_in=also_in,
            repeats=self._repeats[row],
            metadata=memory.metadata,
        )

    def _text(self, memory: StoredMemory, row: int) -> str:
        start, end = int(self._pool.starts[row]), int(self._pool.ends[row])
        return indexed_passages.text_between(memory, start, end, is_message=self._is_message(row))

    def _full_text(self, memory: StoredMemory, row: int) -> str:
        """Return all of a memory's text; of a long one, the passage and those around it, as they stand.

        The introduction of a transcript is returned alone: each message is a passage of its own.
        """
        if memory.kind == "episode" and transcript.is_transcript(memory.text):
            return self._text(memory, row)
        if len(memory.text) <= _MAX_TEXT_CHARS:
            return memory.text
        window = [other for other in (row - 1, row, row + 1) if self._is_neighbour(row, other)]
        return memory.text[int(self._pool.starts[window[0]]) : int(self._pool.ends[window[-1]])]

    def _is_neighbour(self, row: int, other: int) -> bool:
        """Return whether two rows are the same, or next to each other in one thread."""
        if not 0 <= other < len(self._threads) or self._threads[other] != self._threads[row]:
            return False
        return -1 <= self._positions[other] - self._positions[row] <= 1

    def _companion(self, row: int, step: int) -> str:
        """Return the text before or after a hit; nothing for a message that says only that nothing is known."""
        text, other = self._neighbour_text(row, step), row + step
        if text and self._is_message(row) and self._pool.lengths[other] <= non_answers.MAX_WORDS:
            before = self._passage(row) if step == 1 else ""
            is_by_user = self._flags[other] & BY_USER > 0
            asks = self._question, self._word_nearness
            if not is_by_user and non_answers.is_empty_answer(self._passage(other), before, *asks):
                return ""
        return text

    def _neighbour_text(self, row: int, step: int) -> str:
        """Return the text of the passage before or after a row, with its speaker if it is a message."""
        pool, other = self._pool, row + step
        if not self._is_neighbour(row, other):
            return ""
        speaker, text = pool.speakers[pool.speaker[other]], self._passage(other)
        return f"{speaker}: {text}" if speaker else text

    def _matched(self, text: str) -> tuple[str, ...]:
        """Return the words of a text whose terms are in the query."""
        return tuple(dict.fromkeys(terms.matching(text, self._terms)))


MAX_PLACES: Final = 100
"""The maximum of other places that are named with a hit."""


def collapse(rows: Sequence[int], memory_of: Callable[[int], StoredMemory | None]) -> list[int]:
    """Return the rows in the same order, best first, without further memories of a root with the same words.

    All rows of the memory that comes first are kept: each message of an episode is a hit by itself.
    """
    kept: list[int] = []
    first_with_words: dict[tuple[str, str, str], str] = {}
    for row in rows:
        memory = memory_of(row)
        if memory is None or first_with_words.setdefault(_wording(memory), memory.id) == memory.id:
            kept.append(row)
    return kept


def _wording(memory: StoredMemory) -> tuple[str, str, str]:
    return root_of(memory), memory.title, memory.text


def other_places(
    tx: Reading, keys: Keys, searched: SpaceScope, hits: Sequence[StoredMemory], alive_at: datetime | None
) -> Mapping[str, tuple[CopyPlace, ...]]:
    """Return the places of the other memories of the same root that say the same, for each of these that has any.

    Memories that expire before `alive_at` are not named.
    """
    rows = copies.members(tx, sorted({root_of(memory) for memory in hits}))
    if not rows:
        return {}
    ids_of_root: dict[str, set[str]] = {}
    for root, space, memory in rows:
        ids_of_root.setdefault(root, {root}).update([memory] if space in searched else [])
    others = {id_ for hit in hits for id_ in ids_of_root.get(root_of(hit), ())} - {hit.id for hit in hits}
    living = {
        id_: memory
        for id_, memory in memories.get_headers(tx, searched, sorted(others)).items()
        if memory.deleted is None and not (alive_at and memory.expires and memory.expires <= alive_at)
    }
    candidates = {hit.id: [living[id_] for id_ in ids_of_root.get(root_of(hit), ()) if id_ in living] for hit in hits}
    return {hit.id: places for hit in hits if (places := _same_words(keys, hit, candidates[hit.id]))}


def _same_words(keys: Keys, hit: StoredMemory, candidates: Iterable[StoredMemory]) -> tuple[CopyPlace, ...]:
    """Return the other spaces that have the root of a hit in the same words; candidates have no texts."""
    same = (
        CopyPlace(memory.space.name, memory.id)
        for memory in candidates
        if root_of(memory) == root_of(hit)
        and memory.space.id != hit.space.id
        and memory.content_hash == content_hashes.content_hash(keys, memory.id, hit.title, hit.text)
    )
    return tuple(sorted(same))[:MAX_PLACES]


_OUTDATED: Final = frozenset({"stale", "source_superseded"})
"""The freshness of a copy that differs from its source, or whose source was superseded."""

_OUTDATED_COPY_PENALTY: Final = -0.08
"""Added to the score of a copy whose source has changed or was superseded."""

_LINK_BONUS: Final = 0.01
_MAX_LINKS: Final = 3

_LINKING: Final = ("related_to", "derived_from", "reflects_on")
"""The relations whose links say that a memory is worth something; those in texts do too."""

SUSPECT_PENALTY: Final = -0.12
"""Added to the score of a memory that depends on something invalidated, until somebody decides about it."""


def bounds(scores: npt.NDArray[np.float64], suspect: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """Return the highest score that each row can have, if these are its scores without penalties.

    `suspect` are rows that are suspect for certain. Without any, the scores themselves are returned.
    """
    if not suspect.any():
        return scores
    penalised: npt.NDArray[np.float64] = np.round(scores + np.where(suspect, SUSPECT_PENALTY, 0.0), 6)
    return penalised


def penalties_of(memory: StoredMemory, doubts: marks.Doubts) -> dict[str, float]:
    """Return the penalties of a memory that is suspect, or that is an outdated copy."""
    penalties = {"suspect": SUSPECT_PENALTY} if doubts.is_suspect(memory) else {}
    is_outdated = doubts.freshness_of(memory) in _OUTDATED
    return {**penalties, "freshness": _OUTDATED_COPY_PENALTY} if is_outdated else penalties


def link_bonuses(tx: Reading, spaces: SpaceScope, targets: Sequence[StoredMemory]) -> dict[str, float]:
    """Return what is added to the score of each memory that others of these spaces link to."""
    counts = links.count_linking(tx, spaces, targets, relations=_LINKING)
    return {id_: _LINK_BONUS * min(count, _MAX_LINKS) for id_, count in counts.items()}


_HEADING_TOKENS: Final = 8


def result_of(
    keys: Keys, answer: Answer, wishes: tuple[Wish, ...], *, budget_tokens: int | None, notes: list[str]
) -> RecallResult:
    """Return the result of an answer, without its times."""
    found = tuple(answer.hits)
    hits = found if budget_tokens is None else tuple(_within_budget(found, budget_tokens))
    if beyond := len(found) - len(hits):
        notes.append(f"the budget of {budget_tokens} tokens left out {beyond} of {len(found)} hits")
    ids = [*(hit.passage_id for hit in hits), *(wish.id for wish in wishes)]
    tag = _tag(keys, ids) if ids else ""
    return RecallResult(hits, 0.0, {}, tuple(notes), answer.left_out + beyond, answer.nearest, tag, wishes=wishes)


def _tag(keys: Keys, ids: Sequence[str]) -> str:
    """Return the tag of the fence around these passages; "" in a home without its keys, which recall does not need."""
    with suppress(HomeError):
        return recall_fence.new_tag(keys.keyed_hash, ids)
    return ""


def _within_budget(hits: Sequence[Hit], budget: int) -> list[Hit]:
    """Return the hits that fit into a budget of tokens; a later one may fit. If none does, the first is cut."""
    fitting, left = [], budget
    for hit in hits:
        needed = _tokens(hit)
        if needed <= left:
            left -= needed
            fitting.append(hit)
    if fitting or not hits:
        return fitting
    limit = max(budget - prompts.tokens(hits[0].title) - _HEADING_TOKENS, prompts.MIN_FIRST_TOKENS)
    return [hits[0]._replace(before="", passage=prompts.cut(hits[0].passage, limit, hits[0].matched), after="")]


def _tokens(hit: Hit) -> int:
    """Estimate the tokens of a hit in a prompt, with its heading."""
    return prompts.tokens("\n".join((hit.title, hit.before, hit.passage, hit.after))) + _HEADING_TOKENS
