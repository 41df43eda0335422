"""How the answer to a question is laid out for people.

A heading begins at the left edge and nothing else of a hit does, so that no text in a memory can pass for one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from commonbook.interfaces.cli.output.lineage import standing
from commonbook.interfaces.cli.output.plain import Output, one_line
from commonbook.model.recall import Hit, RecallResult

_INDENT: Final = 2
_BESIDE: Final = 150
"""Characters of what stands before and after a passage: some two lines."""

_LONG: Final = 1200
"""Characters of a passage: most are shorter, but a message may be of any length."""

_Phrase: TypeAlias = tuple[str, str]


def recalled(out: Output, said: RecallResult, *, where: str, explain: bool) -> None:
    """Show the hits, best first; with `explain`, what each score is made of and where the time went."""
    for at, one in enumerate(said.hits):
        if at:
            out.line("")
        _hit(out, one)
        if explain:
            out.facts(_reasons(one))
    if explain:
        out.line("")
        out.facts((step, f"{took:.1f} ms") for step, took in (*said.steps.items(), ("took", said.took_ms)))
    if not said.hits:
        out.note(f"nothing found in {where}")
    for note in said.notes:
        out.note(f"note: {note}")


def _hit(out: Output, said: Hit) -> None:
    words = _any_of(said.matched)
    out.styled(_heading(out, said))
    if said.before:
        # What a message's neighbour begins with is who says it.
        shown = _beginning(said.before) if said.type == "message" else _end(said.before)
        out.styled([(shown, "dim")], indent=2 * _INDENT)
    if passage := _extract(said.passage, words):
        out.styled(_emphasised(passage, words), indent=_INDENT)
    if said.after:
        out.styled([(_beginning(said.after), "dim")], indent=2 * _INDENT)
    out.styled(_apart(_source(out, said), "dim"), indent=_INDENT)


def _heading(out: Output, said: Hit) -> Iterator[_Phrase]:
    if said.type == "message" and said.author:
        yield one_line(said.author), "bold"
        yield " in ", "dim"
        yield one_line(said.title), ""
    else:
        yield one_line(said.title), "bold"
    yield f"  {said.kind}  {said.space}  {out.moment(said.occurred or said.created)}", "dim"
    if said.parts:
        yield f"  {said.score:.2f}", "green"


def _source(out: Output, said: Hit) -> Iterator[_Phrase]:
    """Yield where a hit comes from and what is to be known about it."""
    yield out.name(said.memory), "cyan"
    if said.seq is not None:
        yield f"message {said.seq}", "dim"
    yield str(said.source.get("path", "")), "dim"
    for mark in said.marks:
        by = f" by {out.name(said.superseded_by)}" if mark == "superseded" and said.superseded_by else ""
        yield f"{mark}{by}", "yellow"
    by = f" by {out.name(said.successor)}" if said.successor else ""
    text, style = standing(said.freshness)
    yield f"{text}{by}", style
    yield ", ".join(f"#{tag}" for tag in said.tags), "dim"


def _apart(phrases: Iterable[_Phrase], style: str) -> Iterator[_Phrase]:
    """Yield the phrases that are not empty, each on one line and with blanks between two."""
    told = [(one_line(text), own) for text, own in phrases if text]
    for at, phrase in enumerate(told):
        if at:
            yield "  ", style
        yield phrase


def _reasons(said: Hit) -> Iterator[tuple[str, str]]:
    pad = " " * _INDENT
    for name, value in said.parts.items():
        if round(value, 3):
            yield f"{pad}{name}", f"{value:+.3f}"
    if said.matched:
        yield f"{pad}matched", ", ".join(said.matched)


# --- words and lengths


def _any_of(words: Iterable[str]) -> re.Pattern[str] | None:
    """Return what finds any of these words, each as a whole; longer ones first, since the first that fits is taken."""
    choices = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    return re.compile(rf"(?<![^\W_])(?:{choices})(?![^\W_])", re.IGNORECASE) if choices else None


def _emphasised(text: str, words: re.Pattern[str] | None) -> Iterator[_Phrase]:
    at = 0
    for found in words.finditer(text) if words else ():
        yield text[at : found.start()], ""
        yield found[0], "bold yellow"
        at = found.end()
    yield text[at:], ""


def _extract(passage: str, words: re.Pattern[str] | None) -> str:
    """Return a passage, or of a long one the part around the first word that was asked for."""
    passage = passage.strip()
    if len(passage) <= _LONG:
        return passage
    found = words.search(passage) if words else None
    start = min(max(found.start() - _LONG // 4, 0), len(passage) - _LONG) if found else 0
    end = start + _LONG
    return f"{'… ' if start else ''}{passage[start:end].strip()}{' …' if end < len(passage) else ''}"


def _beginning(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= _BESIDE else f"{line[:_BESIDE].rpartition(' ')[0] or line[:_BESIDE]} …"


def _end(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= _BESIDE else f"… {line[-_BESIDE:].partition(' ')[2] or line[-_BESIDE:]}"
