"""Telling what was found: the hits of a recall, each with its text, what stands around it, and what is to be known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from commonbook.markdown import transcript
from commonbook.memories import marks
from commonbook.model.memory import LAZY, Memory
from commonbook.model.recall import Hit
from commonbook.model.session import Message
from commonbook.model.spaces import SpaceScope
from commonbook.ports.database import Reading
from commonbook.ports.engines import Engines
from commonbook.ports.index import IS_CHAT, CandidatePool
from commonbook.recall import indexed_passages, ranking
from commonbook.recall.query import ParsedQuery
from commonbook.tables import memories, sessions, supersession
from commonbook.text import terms, titles

_WHOLE: Final = 8_000
"""A longer text is not repeated in a hit: the passage and what stands around it are."""

_BEHIND: Final = frozenset({"stale", "source_superseded"})
"""How a copy stands that says what its source says no longer."""


class HitBuilder:
    """Tells hits, one after the other, as long as somebody listens."""

    def __init__(
        self,
        engines: Engines,
        tx: Reading,
        allowed: SpaceScope,
        clear: ParsedQuery,
        pool: CandidatePool,
        scores: ranking.Scores,
        *,
        readable: SpaceScope,
    ) -> None:
        """Tell from this view of the book what a question found; marks may come from everything that is readable."""
        self._book = engines
        self._tx = tx
        self._allowed = allowed
        self._readable = readable
        self._clear = clear
        self._pool = pool
        self._scores = scores
        self._terms = frozenset(clear.terms)
        self._memories: dict[str, Memory] = {}
        self._losing: dict[str, dict[str, float]] = {}
        self._messages: dict[str, tuple[Message, str]] = {}
        self._names: dict[int, tuple[str, str]] = {}
        self._tags: dict[str, tuple[str, ...]] = {}
        # Single numbers are read again and again, which is slow from an array.
        self._threads: list[int] = pool.threads.tolist()
        self._positions: list[int] = pool.positions.tolist()

    def hits(self, rows: Sequence[int]) -> Iterator[Hit]:
        """Yield the best hits: each message, and each memory once with its best passage."""
        k = self._clear.asked.k
        chosen = self._chosen(rows, k)
        self._look_up(chosen)
        if any(self._demoted(row) for row in chosen):
            # What is demoted may have to give way to what comes behind it, and scores more than the last does now.
            last = min(self._score(row) for row in chosen)
            behind = [row for row in self._chosen(rows, 2 * k)[k:] if self._score(row) > last]
            self._look_up(behind)
            chosen = sorted([*chosen, *behind], key=lambda row: -self._score(row))[:k]
            chosen = [row for row in chosen if self._score(row) >= self._least]
        for row in chosen:
            passage, memory = self._name(row)
            if memory in self._memories:
                yield self._hit(self._memories[memory], passage, row)
            elif passage in self._messages:
                yield self._message_hit(*self._messages[passage], row)

    def _chosen(self, rows: Sequence[int], most: int) -> list[int]:
        """Return the first rows that are told: messages, and the best passage of each other memory."""
        chosen: dict[str, int] = {}
        for row in rows:
            if len(chosen) == most or self._scores.total[row] < self._least:
                break
            passage, memory = self._name(row)
            is_message = bool(self._pool.flags[row] & IS_CHAT)
            chosen.setdefault(passage if is_message else memory, row)
        return list(chosen.values())

    @property
    def _least(self) -> float:
        asked = self._clear.asked
        return ranking.LEAST if asked.min_score is None else asked.min_score

    def _demoted(self, row: int) -> float:
        """Return what a row loses in all."""
        return sum(self._lost(row).values())

    def _lost(self, row: int) -> dict[str, float]:
        """Return what a row loses because it is in doubt, or behind its source; nothing where nothing was asked."""
        return self._losing.get(self._name(row)[1], {}) if self._losing else {}

    def _score(self, row: int) -> float:
        return round(float(self._scores.total[row]) + self._demoted(row), 6)

    def _parts(self, row: int) -> dict[str, float]:
        parts = {name: float(part[row]) for name, part in self._scores.parts.items()}
        return {**parts, **self._lost(row)}

    @property
    def stale(self) -> list[Memory]:
        """The lazy copies that were told and are stale: somebody should refresh them."""
        found = self._memories.values()
        return [one for one in found if one.freshness == "stale" and one.shared and one.shared.mode == LAZY]

    def _name(self, row: int) -> tuple[str, str]:
        """Return the ids of a passage and of the memory that it is in."""
        found = self._names.get(row)
        if found is None:
            found = self._names[row] = self._pool.name(row)
        return found

    def _look_up(self, rows: Sequence[int]) -> None:
        """Read what is told, and what stands beside it, besides what was read before."""
        if not rows:
            return
        around = {other for row in rows for other in (row - 1, row, row + 1) if self._is_beside(row, other)}
        names = [self._name(row) for row in sorted(around)]
        own = {self._name(row)[1] for row in rows}
        superseded = supersession.request_links(self._tx, self._readable, tuple(own - {""}))
        there = memories.get_many(self._tx, self._allowed, tuple({memory for _, memory in names if memory}))
        told = [one for one in there.values() if one.id in own]
        marked = marks.with_marks(self._book, self._tx, self._readable, told, self._clear.now, superseded=superseded)
        self._memories = {**there, **self._memories, **{one.id: one for one in marked}}
        if not self._clear.is_empty:
            self._losing |= {one.id: lost for one in marked if (lost := _lost_by(one))}
        loose = [passage for passage, memory in names if not memory]
        self._messages |= sessions.get_many(self._tx, self._allowed, loose)
        self._tags = sessions.tags_of(self._tx, sorted({message.session for message, _ in self._messages.values()}))

    def _message_hit(self, message: Message, space: str, row: int) -> Hit:
        """Return a message that no episode holds yet."""
        return Hit(
            type="message",
            id=message.id,
            passage_id=message.id,
            memory="",
            session=message.session,
            seq=message.seq,
            kind="episode",
            space=self._allowed[space].name,
            title=titles.title_from(message.text),
            text=message.text,
            passage=message.text,
            before=self._beside(row, -1),
            after=self._beside(row, 1),
            author=message.author,
            score=self._score(row),
            parts=self._parts(row),
            freshness=None,
            suspect=False,
            superseded_by=None,
            marks=(),
            source={"session": message.session, "seq": message.seq},
            tags=self._tags.get(message.session, ()),
            occurred=message.time,
            created=message.time,
            matched=self._matched(message.text) if self._clear.asked.explain else (),
        )

    def _hit(self, memory: Memory, passage: str, row: int) -> Hit:
        pool = self._pool
        is_message = bool(pool.flags[row] & IS_CHAT)
        text = self._text(memory, row)
        before, after = self._beside(row, -1), self._beside(row, 1)
        # A message was made when it was said, not when an episode came to hold it.
        at = indexed_passages.time_of_micros(int(pool.times[row])) if is_message else None
        return memory_hit(memory)._replace(
            type="message" if is_message else "memory",
            id=passage if is_message else memory.id,
            passage_id=passage,
            session=memory.session if is_message else None,
            seq=int(pool.seqs[row]) if is_message else None,
            text=text if is_message else self._whole(memory, row),
            passage=text,
            before=before,
            after=after,
            author=pool.speakers[pool.speaker[row]] if is_message else memory.author,
            score=self._score(row),
            parts=self._parts(row),
            occurred=at or memory.occurred,
            created=at or memory.created,
            matched=self._matched(text) if self._clear.asked.explain else (),
        )

    def _text(self, memory: Memory, row: int) -> str:
        start, end = int(self._pool.starts[row]), int(self._pool.ends[row])
        if memory.kind == "episode" and self._pool.flags[row] & IS_CHAT:
            return transcript.message_at(memory.text, start, end)
        return memory.text[start:end]

    def _whole(self, memory: Memory, row: int) -> str:
        """Return all of a memory; of a long one the passage and those around it, as they stand.

        What stands above the messages of a transcript is told alone: each of them is found by itself.
        """
        if memory.kind == "episode" and transcript.is_transcript(memory.text):
            return self._text(memory, row)
        if len(memory.text) <= _WHOLE:
            return memory.text
        around = [other for other in (row - 1, row, row + 1) if self._is_beside(row, other)]
        return memory.text[int(self._pool.starts[around[0]]) : int(self._pool.ends[around[-1]])]

    def _is_beside(self, row: int, other: int) -> bool:
        if not 0 <= other < len(self._threads) or self._threads[other] != self._threads[row]:
            return False
        return -1 <= self._positions[other] - self._positions[row] <= 1

    def _beside(self, row: int, step: int) -> str:
        """Return what stands before or after a passage, with its speaker if it is a message."""
        pool, other = self._pool, row + step
        if not self._is_beside(row, other):
            return ""
        passage, memory = self._name(other)
        speaker = pool.speakers[pool.speaker[other]]
        if memory in self._memories:
            text = self._text(self._memories[memory], other)
        else:
            text = self._messages[passage][0].text if passage in self._messages else ""
        return f"{speaker}: {text}" if speaker else text

    def _matched(self, text: str) -> tuple[str, ...]:
        """Return the words of a passage that were asked for."""
        return tuple(dict.fromkeys(terms.matching(text, self._terms)))


def _lost_by(memory: Memory) -> dict[str, float]:
    """Return what a memory loses because it is in doubt, or behind its source."""
    lost = {"suspect": ranking.SUSPECT} if "suspect" in memory.marks else {}
    return {**lost, "freshness": ranking.BEHIND} if memory.freshness in _BEHIND else lost


def memory_hit(memory: Memory) -> Hit:
    """Return a memory as a hit that no question found."""
    return Hit(
        type="memory",
        id=memory.id,
        passage_id=f"{memory.id}#0",
        memory=memory.id,
        session=None,
        seq=None,
        kind=memory.kind,
        space=memory.space.name,
        title=memory.title,
        text=memory.text if len(memory.text) <= _WHOLE else memory.text[:_WHOLE],
        passage=memory.text[:_WHOLE],
        before="",
        after="",
        author=memory.author,
        score=0.0,
        parts={},
        freshness=memory.freshness,
        suspect="suspect" in memory.marks,
        superseded_by=memory.superseded_by,
        marks=memory.marks,
        source={"path": memory.path, "revision": memory.revision, "how": memory.revised_how},
        tags=memory.tags,
        occurred=memory.occurred,
        created=memory.created,
        shared=memory.shared,
        shared_from=memory.source,
        successor=memory.successor,
    )


def within_budget(hits: Iterator[Hit], budget: int | None) -> Iterator[Hit]:
    """Yield the hits that a prompt has room for; one that is too long is passed over for a shorter one behind it."""
    left = budget
    for hit in hits:
        if left is None:
            yield hit
            continue
        needed = _tokens(hit)
        if needed <= left:
            left -= needed
            yield hit


def _tokens(hit: Hit) -> int:
    """Guess how many tokens a hit takes in a prompt: four letters each, or one character of a script without spaces."""
    said = "\n".join((hit.title, hit.before, hit.passage, hit.after))
    wide = sum(1 for letter in said if letter > "\u2e7f")
    return wide + (len(said) - wide + 3) // 4 + 8
