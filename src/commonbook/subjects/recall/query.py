"""Validate a recall request, parse its query, and build the query to an index from it.

The phrases of a query are the parts of it in double quotes (`"so"`, `“so”`, `«so»`), which must occur, and the query as
a whole, which counts if it occurs. Case, accents and punctuation do not matter. The index holds no positions: the terms
of a phrase give the passages that have all its words, and `subjects.recall.phrases` compares their texts.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple, get_args

from commonbook.core.markdown import front_matter
from commonbook.core.tables import sessions
from commonbook.core.text import dates_in_text, recall_fence, stopwords, terms, user_times, validation
from commonbook.errors import BadInput
from commonbook.ports.database import Reading
from commonbook.ports.embedding import Thesaurus
from commonbook.ports.engines import Engines
from commonbook.ports.index import FOREVER, IndexQuery
from commonbook.subjects.recall import confidence, indexed_passages, scoring
from commonbook.subjects.recall.indexed_passages import micros
from commonbook.values.recall import Include, RecallRequest
from commonbook.values.spaces import SpaceScope

MAX_HITS: Final = 200
INCLUDE: Final[tuple[Include, ...]] = get_args(Include)
"""Passages of these kinds are left out unless the request includes them."""

MAX_QUERY_CHARS: Final = 20_000
_MAX_TERMS: Final = 64
_MAX_DAYS: Final = 8
_RECENT_YEARS: Final = 10
_MAX_PHRASE_CHARS: Final = 400
_MIN_PHRASE_WORDS: Final = 2
_QUESTION_WORDS: Final = re.compile(
    r"\A\W*(?:(?:who|what|when|where|which|how|is|are|was|were|do|does|did|the|an?|my|our|your)\b(?![’'])\W*)+",
    re.IGNORECASE,
)
_SENTENCE_END: Final = re.compile(r"(?<=[.!?:])\s+|\n+")
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
    quoted = _quoted_phrases(text)
    words = _limit_words(_words_of(text, quoted))
    _validate_names(request)
    request = request._replace(
        tags=validation.validate_tags(request.tags),
        kinds=validation.validate_kinds(request.kinds),
        metadata=front_matter.require_metadata(request.metadata),
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


def questions_in(query: str) -> str:
    """Return the questions in a query of several sentences; "" if it is one sentence, has none, or quotes words."""
    sentences = _SENTENCE_END.split(query.strip())
    questions = [sentence for sentence in sentences if sentence.endswith("?")]
    return "" if len(questions) == len(sentences) or recall_fence.quoted_parts(query) else " ".join(questions)


def _require_types(request: RecallRequest) -> None:
    """Refuse arguments of a wrong type, before any code fails on them."""
    named = (request.session, request.exclude_session, request.author)
    one_of_each = (text for text in named if text is not None)
    texts = (request.query, *request.spaces, *request.kinds, *request.tags, *request.include, *one_of_each)
    if not all(isinstance(text, str) for text in texts):
        raise BadInput("a query, space, kind, tag, session, author or include is no text", fix="give strings")
    optional = (request.min_confidence, request.budget_tokens, request.exclude_last)
    numbers: list[object] = [request.k, *(number for number in optional if number is not None)]
    has_wrong_type = any(isinstance(number, bool) or not isinstance(number, int | float) for number in numbers)
    if has_wrong_type or request.k != int(request.k):
        raise BadInput("k, min_confidence, budget_tokens or exclude_last is no number", fix="give numbers")


def _validate_names(request: RecallRequest) -> None:
    for session in (request.session, request.exclude_session):
        if session is not None:
            validation.validate_session_id(session)
    if request.exclude_last is not None and (request.exclude_session is None or request.exclude_last < 1):
        raise BadInput("exclude_last has no session, or is not positive", fix="give exclude_session, and at least 1")
    if request.author is not None:
        validation.validate_author(request.author)


def _time(engines: Engines, name: str, value: datetime | str | None, now: datetime) -> datetime | None:
    if value is None:
        return None
    return user_times.parse_user_time(value, zone=engines.zone, edge=user_times.field_edge(name), now=now)


def _words_of(text: str, quoted: Sequence[Phrase]) -> list[tuple[str, str]]:
    """Return the words of a query without stop words; of a quoted phrase that has no others, its stop words too."""
    words = terms.query_words(text)
    known = {term for _, term in words}
    return [*(pair for one in quoted if known.isdisjoint(one.terms) for pair in terms.literal_terms(one.text)), *words]


def _whole_phrase(text: str, words: Sequence[tuple[str, str]]) -> Phrase | None:
    """Return a query as a phrase, without "who is the"; None if it is too short or too long to have been copied."""
    beginning = text[:_MAX_PHRASE_CHARS]
    phrase = _phrase_of(_QUESTION_WORDS.sub("", beginning) if words else beginning)
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
    quoted: tuple[Phrase, ...] = ()
    """The phrases that must occur."""
    days: tuple[tuple[int, int], ...] = ()
    """The days that it names: when each begins, and when the next one does, in microseconds."""
    phrase: Phrase | None = None
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


_MIN_CANDIDATES: Final = 50


_FEW_TERMS: Final = 3
_LONG_PHRASE: Final = 4


def _phrase_terms(query: ParsedQuery, name: str) -> tuple[str, ...]:
    """Return the terms of the query as a phrase, if its stop words are needed to find it.

    With more other words, the passages that have all of them are the first candidates anyway. A few stop words alone
    are no phrase, but may be the name of a memory, such as "About us".
    """
    phrase = query.phrase
    if query.has_only_stop_words and phrase is None:
        return (name,)
    if phrase is None or phrase.size < _LONG_PHRASE or len(query.terms) > _FEW_TERMS:
        return ()
    return phrase.terms


def _kept_until(tx: Reading, query: ParsedQuery, allowed: SpaceScope) -> tuple[tuple[str, int], ...]:
    """Return the last message of the excluded session that is not left out, for each space that has such a session."""
    name, last = query.request.exclude_session, query.request.exclude_last
    if name is None or last is None:
        return ()
    found = sessions.find_by_name(tx, allowed, name)
    return tuple((session.space.id, sessions.number_before_last(tx, session, last)) for session in found)


class IndexQueryBuilder:
    """Builds queries to an index; its state consists of the cache of near terms."""

    def __init__(self, thesaurus: Thesaurus) -> None:
        """Expand queries with the near words of this thesaurus."""
        self._expansion = QueryExpansion(thesaurus)
        self.nearness = self._expansion.nearness

    def build(
        self, tx: Reading, query: ParsedQuery, allowed: SpaceScope, vector: indexed_passages.Vector | None
    ) -> tuple[IndexQuery, list[scoring.ExpandedTerm]]:
        """Return the query to the index, with expansion terms, and the pairs of query and expansion terms."""
        own_terms = query.terms
        expansion_terms, expansions = self._expansion.expand(query.words, own_terms)
        # It is found only in memories with the query as their name.
        name = terms.name_term(query.request.query[:MAX_QUERY_CHARS])
        phrase_terms = _phrase_terms(query, name)
        include, excluded = query.request.include, query.request.exclude_session
        kinds = query.request.kinds
        index_query = IndexQuery(
            terms=own_terms,
            expansion_terms=(
                *expansion_terms,
                *(term for term in phrase_terms if term not in own_terms and term != name),
                name,
            ),
            vector=vector,
            spaces=frozenset(allowed),
            kinds=frozenset(kinds),
            excluded_kinds=frozenset() if "notices" in include or "notice" in kinds else frozenset({"notice"}),
            tags=query.labels,
            since=indexed_passages.micros(query.since) if query.since else -FOREVER,
            until=indexed_passages.micros(query.until) if query.until else FOREVER,
            as_of=indexed_passages.micros(query.as_of) if query.as_of else None,
            alive_at=-FOREVER if "expired" in include else indexed_passages.micros(query.now),
            superseded="superseded" in include,
            now=indexed_passages.micros(query.now),
            max_candidates=max(_MIN_CANDIDATES, query.request.k),
            reach=scoring.REACH,
            newest=query.is_empty,
            required_terms=max(query.quoted, key=lambda phrase: len(phrase.terms)).terms if query.quoted else (),
            phrase_terms=phrase_terms,
            spans=query.days,
            excluded_tag=indexed_passages.session_label(excluded) if excluded else "",
            kept_until=_kept_until(tx, query, allowed),
        )
        return index_query, expansions


_CACHED_WORDS: Final = 4_000
"""How many query words keep their near stems, the most recent ones: about two kilobytes each."""

_MAX_COMPARED_WORDS: Final = 80
"""The number of words of a passage that are compared with the words of a query that it lacks."""


class QueryExpansion:
    """Expands queries, and caches the near stems of recent query words."""

    def __init__(self, thesaurus: Thesaurus) -> None:
        """Expand with the near words of this thesaurus."""
        self._thesaurus = thesaurus
        self._near_stems = lru_cache(_CACHED_WORDS)(self._find_near_stems)

    def expand(
        self, words: Sequence[tuple[str, str]], terms: tuple[str, ...]
    ) -> tuple[tuple[str, ...], list[scoring.ExpandedTerm]]:
        """Return the added terms, and their pairs with the query terms: for each query term, the nearest first.

        `words` holds (word, term) pairs; `terms` holds the distinct query terms, in order.
        """
        place_of = {term: place for place, term in enumerate(terms)}
        pairs = [
            (place_of[term], place_of.setdefault(stem, len(place_of)), cosine)
            for word, term in words
            for stem, cosine in self._near_stems(word)
            if stem != term
        ]
        return tuple(place_of)[len(terms) :], pairs

    def nearness(self, query: ParsedQuery, shares: Sequence[float], text: str) -> dict[int, float]:
        """Return how near the words of the query that a text lacks are to any of its words, by the place of the term.

        `shares` says how much of each term of the query the text has.
        """
        # The time of a passage may match a month or a year, and a number is near to any other.
        word_of = {
            term: word for word, term in query.words if word.isalpha() and word not in dates_in_text.CALENDAR_WORDS
        }
        # A query without terms has one share.
        places = confidence.lacked_terms(shares[: len(query.terms)])
        lacked = {place: word_of[term] for place in places if (term := query.terms[place]) in word_of}
        if not lacked:
            return {}
        own = dict.fromkeys(terms.words(text)[:_MAX_COMPARED_WORDS])
        others = [word for word in own if word not in stopwords.ENGLISH]
        return dict(zip(lacked, self._thesaurus.nearness(list(lacked.values()), others), strict=True))

    def _find_near_stems(self, word: str) -> tuple[tuple[str, float], ...]:
        """Return the stems of the words near this one, each once with its best cosine, nearest first."""
        near = [pair for pair in self._thesaurus.near(word) if pair[0] not in stopwords.ENGLISH]
        best: dict[str, float] = {}
        for stem, (_, cosine) in zip(terms.stems([other for other, _ in near]), near, strict=True):
            best.setdefault(stem, cosine)
        return tuple(best.items())


_MAX_PHRASE_TERMS: Final = 8
"""The number of terms of a phrase that are looked up: few passages have all, and each is compared anyway."""


# --- phrases


class Phrase(NamedTuple):
    """Words in a row: as they were given, one after the other as texts are compared, and terms of the index."""

    text: str
    words: str
    terms: tuple[str, ...]

    @property
    def size(self) -> int:
        """The number of words; in scripts without spaces, of characters."""
        return len(self.words.split())

    def is_in(self, text: str) -> bool:
        """Return whether the words follow each other in a text."""
        return self.words in _sequence(text)


def _phrase_of(text: str) -> Phrase:
    """Return a text as a phrase; the terms of rarer words come first."""
    distinct = dict.fromkeys(terms.literal_terms(text))
    rarest = sorted(distinct, key=lambda pair: (pair[0] in stopwords.ENGLISH, -len(pair[0])))
    return Phrase(text, _sequence(text), tuple(dict.fromkeys(term for _, term in rarest))[:_MAX_PHRASE_TERMS])


def _quoted_phrases(text: str) -> tuple[Phrase, ...]:
    """Return the phrases of a query that stand in double quotes and have words."""
    return tuple(found for part in recall_fence.quoted_parts(text) if (found := _phrase_of(part)).terms)


def _sequence(text: str) -> str:
    """Return the words of a text with a blank before and after each."""
    return f" {' '.join(terms.plain_words(text))} "
