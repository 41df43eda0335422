"""Validate a recall request and parse its query."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple, get_args

from commonbook.errors import BadInput
from commonbook.model.recall import Include, RecallRequest
from commonbook.ports.engines import Engines
from commonbook.recall import indexed_passages
from commonbook.recall.indexed_passages import micros
from commonbook.text import dates_in_text, phrases, terms, user_times, validation

MAX_HITS: Final = 200
INCLUDE: Final[tuple[Include, ...]] = get_args(Include)
"""Passages of these kinds are left out unless the request includes them."""

MAX_QUERY_CHARS: Final = 20_000
_MAX_TERMS: Final = 64
_MAX_DAYS: Final = 8
_RECENT_YEARS: Final = 10
_MAX_PHRASE_CHARS: Final = 400
_MIN_PHRASE_WORDS: Final = 2
_MIN_SMALL_WORDS: Final = 5
"""Fewer words that are all stop words are no phrase: everybody says "how are you"."""


def parse(engines: Engines, request: RecallRequest) -> ParsedQuery:
    """Validate every argument of a request, and parse its times and words."""
    _require_types(request)
    if not validation.is_unicode(request.query):
        raise BadInput("the query has characters that are no text", fix="send UTF-8")
    if not 1 <= request.k <= MAX_HITS:
        raise BadInput(f"k {request.k} is out of range", fix=f"ask for 1 to {MAX_HITS} hits")
    if request.budget_tokens is not None and request.budget_tokens < 1:
        raise BadInput(f"a budget of {request.budget_tokens} tokens has room for nothing", fix="give at least 1")
    for name in request.include:
        if name not in INCLUDE:
            raise BadInput(f"{name!r} is nothing that is left out", fix=f"include some of {', '.join(INCLUDE)}")
    if request.min_confidence is not None and not 0 <= request.min_confidence <= 1:
        raise BadInput(f"min_confidence {request.min_confidence} is out of range", fix="give a number from 0 to 1")
    now = engines.clock.now()
    text = request.query[:MAX_QUERY_CHARS]
    quoted = phrases.quoted(text)
    words = _limit_words(_words_of(text, quoted))
    if request.session is not None:
        validation.validate_session_id(request.session)
    if request.author is not None:
        validation.validate_author(request.author)
    request = request._replace(
        tags=validation.validate_tags(request.tags),
        kinds=validation.validate_kinds(request.kinds),
        metadata=validation.validate_metadata(request.metadata),
    )
    if not request.query.strip():
        request = request._replace(min_confidence=0.0)
    return ParsedQuery(
        request=request,
        words=words,
        since=_time(engines, "since", request.since, now),
        until=_time(engines, "until", request.until, now),
        as_of=_time(engines, "as_of", request.as_of, now),
        now=now,
        quoted=quoted,
        days=() if quoted else _named_days(engines, text, now),
        phrase=None if quoted else _whole_phrase(text, words),
    )


def _require_types(request: RecallRequest) -> None:
    """Refuse arguments of a wrong type, before any code fails on them."""
    one_of_each = (text for text in (request.session, request.author) if text is not None)
    texts = (request.query, *request.spaces, *request.kinds, *request.tags, *request.include, *one_of_each)
    if not all(isinstance(text, str) for text in texts):
        raise BadInput("a query, space, kind, tag, session, author or include is no text", fix="give strings")
    optional = (request.min_confidence, request.budget_tokens)
    numbers: list[object] = [request.k, *(number for number in optional if number is not None)]
    has_wrong_type = any(isinstance(number, bool) or not isinstance(number, int | float) for number in numbers)
    if has_wrong_type or request.k != int(request.k):
        raise BadInput("k, min_confidence or budget_tokens is no number", fix="give numbers")


def _time(engines: Engines, name: str, value: datetime | str | None, now: datetime) -> datetime | None:
    if value is None:
        return None
    return user_times.parse_user_time(value, zone=engines.zone, edge=user_times.field_edge(name), now=now)


def _words_of(text: str, quoted: Sequence[phrases.Phrase]) -> list[tuple[str, str]]:
    """Return the words of a query without stop words; of a quoted phrase that has no others, its stop words too."""
    words = terms.query_words(text)
    known = {term for _, term in words}
    return [*(pair for one in quoted if known.isdisjoint(one.terms) for pair in terms.literal_terms(one.text)), *words]


def _whole_phrase(text: str, words: Sequence[tuple[str, str]]) -> phrases.Phrase | None:
    """Return a query as a phrase; None if it is too short or too long to be one that somebody has copied."""
    phrase = phrases.phrase(text[:_MAX_PHRASE_CHARS])
    least = _MIN_PHRASE_WORDS if words else _MIN_SMALL_WORDS
    return phrase if least <= phrase.size and len(text) <= _MAX_PHRASE_CHARS else None


def _named_days(engines: Engines, text: str, now: datetime) -> tuple[tuple[int, int], ...]:
    """Return the days that a query names, in the home's zone; a day without a year is one of the last years."""
    recent = range(now.year, now.year - _RECENT_YEARS, -1)
    days = [
        datetime(one, month, day, tzinfo=engines.zone)
        for year, month, day in dates_in_text.days_in(text)[:_MAX_DAYS]
        for one in (recent if year is None else (year,))
        if day <= monthrange(one, month)[1]
    ]
    return tuple((micros(day), micros(day + timedelta(days=1))) for day in days)


def _limit_words(words: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return the distinct words of a query; of a long one those at both ends, where people say what it is about."""
    distinct = list({term: (word, term) for word, term in words}.values())
    half = _MAX_TERMS // 2
    return tuple(distinct if len(distinct) <= _MAX_TERMS else distinct[:half] + distinct[-half:])


class ParsedQuery(NamedTuple):
    """A validated request, with its times in UTC and its query as (word, term) pairs."""

    request: RecallRequest
    words: tuple[tuple[str, str], ...]
    since: datetime | None
    until: datetime | None
    as_of: datetime | None
    now: datetime
    quoted: tuple[phrases.Phrase, ...] = ()
    """The phrases that must occur."""
    days: tuple[tuple[int, int], ...] = ()
    """The days that it names: when each begins, and when the next one does, in microseconds."""
    phrase: phrases.Phrase | None = None
    """The whole query as a phrase, which counts if it occurs."""

    @property
    def terms(self) -> tuple[str, ...]:
        """The terms of the query, each once."""
        return tuple(dict.fromkeys(term for _, term in self.words))

    @property
    def labels(self) -> tuple[str, ...]:
        """The tags and other labels that a passage must have."""
        return (*self.request.tags, *indexed_passages.labels_of_request(self.request))

    @property
    def has_only_stop_words(self) -> bool:
        """Whether every word of the query is a stop word, so that only a name or a phrase can be found."""
        return not self.words and any(map(str.isalnum, self.request.query))

    @property
    def is_empty(self) -> bool:
        """Whether the query is blank: the recall then returns the newest passages."""
        return not self.request.query.strip()
