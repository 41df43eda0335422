"""Cut a text into parts of some 60 to 120 words: a part, not a whole page, is indexed and ranked.

Parts end where paragraphs end. A long paragraph is cut between sentences, and a long sentence between words. Every
character that is not blank is in exactly one part. Parts are numbered, so that a part's neighbours are known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias

MIN_PART_WORDS: Final = 60
MAX_PART_WORDS: Final = 120

_Span: TypeAlias = tuple[int, int]

_UNSPACED: Final = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
# Two characters of a script without spaces count as a word, and so do 64 characters of a longer run.
_WORD: Final = re.compile(rf"[{_UNSPACED}]{{1,2}}|[^\s{_UNSPACED}]{{1,64}}")
_LINE: Final = re.compile(r"[^\n]*\n|[^\n]+")
_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})")
_SENTENCE_END: Final = re.compile(r"[.!?][\"'\u201d\u2019)\]]*(?=\s)|[\u3002\uff01\uff1f\n]")


class Part(NamedTuple):
    """A part of a text: its position among the parts, and its start and end in the text."""

    position: int
    start: int
    end: int
    text: str


def parts(text: str) -> list[Part]:
    """Cut a text into parts; a blank text has none."""
    pieces = (piece for paragraph in _paragraphs(text) for piece in _pieces(text, paragraph))
    return [
        Part(position, start, end, text[start:end]) for position, (start, end) in enumerate(_join_pieces(text, pieces))
    ]


def size(text: str) -> int:
    """Count the words of a text, as the limits of parts count them."""
    return len(_WORD.findall(text))


def _paragraphs(text: str) -> Iterator[_Span]:
    """Yield the runs of lines between blank lines; a fenced code block is one run, with its blank lines."""
    start, fence = None, ""
    for line in _LINE.finditer(text):
        opening = _FENCE.match(line[0])
        if fence:
            if opening and opening[1].startswith(fence):
                fence = ""
        elif not line[0].strip():
            if start is not None:
                yield start, line.start()
            start = None
            continue
        elif opening:
            fence = opening[1]
        start = line.start() if start is None else start
    if start is not None:
        yield start, len(text)


def _pieces(text: str, span: _Span) -> Iterator[_Span]:
    """Yield a paragraph if it is short enough, else its sentences, and long sentences cut into runs of words."""
    if size(text[slice(*span)]) <= MAX_PART_WORDS:
        yield span
        return
    for start, end in _cut_at(_SENTENCE_END.finditer(text, *span), span):
        words = list(_WORD.finditer(text, start, end))
        if len(words) <= MAX_PART_WORDS:
            yield start, end
        else:
            yield from _cut_at(words[MIN_PART_WORDS - 1 :: MIN_PART_WORDS], (start, end))


def _cut_at(cuts: Iterable[re.Match[str]], span: _Span) -> Iterator[_Span]:
    start, end = span
    for cut in cuts:
        if start < cut.end() < end:
            yield start, cut.end()
            start = cut.end()
    yield start, end


def _join_pieces(text: str, pieces: Iterable[_Span]) -> Iterator[_Span]:
    """Join pieces until a part has enough words, and trim the blanks around it."""
    part: _Span | None = None
    words = 0
    for start, end in pieces:
        more = size(text[start:end])
        if part is not None and (words >= MIN_PART_WORDS or words + more > MAX_PART_WORDS):
            yield _trim(text, part)
            part, words = None, 0
        part = (start if part is None else part[0], end)
        words += more
    if part is not None and words:
        yield _trim(text, part)


def _trim(text: str, span: _Span) -> _Span:
    part = text[slice(*span)]
    return span[0] + len(part) - len(part.lstrip()), span[1] - len(part) + len(part.rstrip())
