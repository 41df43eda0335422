"""Validate a recall request and parse its query."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from commonbook.errors import BadInput
from commonbook.model.recall import RecallRequest
from commonbook.ports.engines import Engines
from commonbook.text import dates, terms, validation

MAX_HITS: Final = 200
INCLUDE: Final = ("superseded", "expired", "notices")
"""What is left out unless it is asked for."""

MAX_QUERY_CHARS: Final = 20_000
_TERMS: Final = 64


# --- the question


def parse(engines: Engines, asked: RecallRequest) -> ParsedQuery:
    """Check everything that was asked, and read its times and words."""
    _require_types(asked)
    if not validation.is_unicode(asked.query):
        raise BadInput("the question has characters that are no text", fix="send UTF-8")
    if not 1 <= asked.k <= MAX_HITS:
        raise BadInput(f"k {asked.k} is out of range", fix=f"ask for 1 to {MAX_HITS} hits")
    if asked.budget_tokens is not None and asked.budget_tokens < 1:
        raise BadInput(f"a budget of {asked.budget_tokens} tokens has room for nothing", fix="give at least 1")
    for name in asked.include:
        if name not in INCLUDE:
            raise BadInput(f"{name!r} is nothing that is left out", fix=f"include some of {', '.join(INCLUDE)}")
    if asked.min_score is not None and not 0 <= asked.min_score <= 2:
        raise BadInput(f"min_score {asked.min_score} is out of range", fix="give a number from 0 to 2")
    now = engines.clock.now()
    asked = asked._replace(tags=validation.validate_tags(asked.tags), kinds=validation.validate_kinds(asked.kinds))
    if not asked.query.strip():
        asked = asked._replace(min_score=0.0)
    return ParsedQuery(
        asked=asked,
        words=_few(terms.query_words(asked.query[:MAX_QUERY_CHARS])),
        since=_time(engines, "since", asked.since, now),
        until=_time(engines, "until", asked.until, now),
        as_of=_time(engines, "as_of", asked.as_of, now),
        now=now,
    )


def _require_types(asked: RecallRequest) -> None:
    """Refuse what is no text or number, before anything stumbles over it."""
    texts = (asked.query, *asked.spaces, *asked.kinds, *asked.tags, *asked.include)
    if not all(isinstance(text, str) for text in texts):
        raise BadInput("a question, space, kind, tag or include is no text", fix="give strings")
    numbers: list[object] = [asked.k, *(one for one in (asked.min_score, asked.budget_tokens) if one is not None)]
    if any(isinstance(one, bool) or not isinstance(one, int | float) for one in numbers) or asked.k != int(asked.k):
        raise BadInput("k, min_score or budget_tokens is no number", fix="give numbers")


def _time(engines: Engines, name: str, value: datetime | str | None, now: datetime) -> datetime | None:
    if value is None:
        return None
    return dates.read_time(value, zone=engines.zone, edge=dates.field_edge(name), now=now)


def _few(words: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return the words of a question; of a long one those at its ends, where people say what it is about."""
    distinct = list({term: (word, term) for word, term in words}.values())
    half = _TERMS // 2
    return tuple(distinct if len(distinct) <= _TERMS else distinct[:half] + distinct[-half:])


class ParsedQuery(NamedTuple):
    """A question with everything in it read and checked."""

    asked: RecallRequest
    words: tuple[tuple[str, str], ...]
    since: datetime | None
    until: datetime | None
    as_of: datetime | None
    now: datetime

    @property
    def terms(self) -> tuple[str, ...]:
        """The terms asked for, each once."""
        return tuple(dict.fromkeys(term for _, term in self.words))

    @property
    def is_empty(self) -> bool:
        """Whether nothing was asked: then the newest are told."""
        return not self.asked.query.strip()
