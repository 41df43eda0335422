"""A memory in parts: what is indexed and ranked is a part of some 60 to 120 words, not a whole page.

Parts end where paragraphs do; a long paragraph is cut between sentences, and a long sentence between words. Every
character that is not blank is in exactly one part, and a part knows its neighbours by its position.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias

LEAST: Final = 60
MOST: Final = 120

_Span: TypeAlias = tuple[int, int]

_UNSPACED: Final = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
# Two characters of a script without spaces count as a word, and so does a piece of a run that never ends.
_WORD: Final = re.compile(rf"[{_UNSPACED}]{{1,2}}|[^\s{_UNSPACED}]{{1,64}}")
_LINE: Final = re.compile(r"[^\n]*\n|[^\n]+")
_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})")
_SENTENCE_END: Final = re.compile(r"[.!?][\"'\u201d\u2019)\]]*(?=\s)|[\u3002\uff01\uff1f\n]")


class Part(NamedTuple):
    """A part of a text: its place among the parts, and where it begins and ends in the text."""

    position: int
    start: int
    end: int
    text: str


def parts(text: str) -> list[Part]:
    """Cut a text into parts; a text of blanks has none."""
    pieces = (piece for paragraph in _paragraphs(text) for piece in _pieces(text, paragraph))
    return [Part(at, start, end, text[start:end]) for at, (start, end) in enumerate(_gathered(text, pieces))]


def size(text: str) -> int:
    """Count words, as far as parts are concerned."""
    return len(_WORD.findall(text))


def _paragraphs(text: str) -> Iterator[_Span]:
    """Yield the runs of lines between blank lines; a fenced block of code is one, blank lines and all."""
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
    """Yield a paragraph whole if it is short enough, else its sentences, and long sentences in runs of words."""
    if size(text[slice(*span)]) <= MOST:
        yield span
        return
    for start, end in _cut_at(_SENTENCE_END.finditer(text, *span), span):
        words = list(_WORD.finditer(text, start, end))
        if len(words) <= MOST:
            yield start, end
        else:
            yield from _cut_at(words[LEAST - 1 :: LEAST], (start, end))


def _cut_at(cuts: Iterable[re.Match[str]], span: _Span) -> Iterator[_Span]:
    start, end = span
    for cut in cuts:
        if start < cut.end() < end:
            yield start, cut.end()
            start = cut.end()
    yield start, end


def _gathered(text: str, pieces: Iterable[_Span]) -> Iterator[_Span]:
    """Join pieces until a part has enough words, and trim the blanks around it."""
    begun: _Span | None = None
    held = 0
    for start, end in pieces:
        more = size(text[start:end])
        if begun is not None and (held >= LEAST or held + more > MOST):
            yield _trimmed(text, begun)
            begun, held = None, 0
        begun = (start if begun is None else begun[0], end)
        held += more
    if begun is not None and held:
        yield _trimmed(text, begun)


def _trimmed(text: str, span: _Span) -> _Span:
    part = text[slice(*span)]
    return span[0] + len(part) - len(part.lstrip()), span[1] - len(part) + len(part.rstrip())
