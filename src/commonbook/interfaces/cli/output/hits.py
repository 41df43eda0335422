"""Layout of recall results for people.

Only headings begin at the left edge, so that no text in a memory can look like a heading.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

from commonbook.interfaces.cli.output import Output, one_line, styled_freshness
from commonbook.values import prompts

if TYPE_CHECKING:
    from commonbook.values.hit import Hit
    from commonbook.values.recall import RecallResult

_INDENT: Final = 2
_MAX_NEIGHBOUR_CHARS: Final = 150
"""Length of the text shown before and after a passage: about two lines."""

_MAX_PASSAGE_CHARS: Final = 1200
"""Most passages are shorter, but a message can have any length."""

_MAX_PLACES: Final = 5
"""The number of other copies that are named with a hit; `--json` has all."""

_Phrase: TypeAlias = tuple[str, str]


def show_recall_result(
    out: Output, result: RecallResult, *, where: str, explain: bool, min_confidence: float | None, budgeted: bool
) -> None:
    """Show the hits, best first; with `explain`, also the parts of each score and the time of each step.

    Hits are ordered by score, so their confidence is shown only if a minimum was given.
    """
    likely = len(result.likely)
    for index, hit in enumerate(result.hits):
        if index:
            out.line("")
        if index == likely and min_confidence is None:
            out.styled([("less likely:", "dim")])
            out.line("")
        _hit(out, hit, with_confidence=min_confidence is not None)
        if explain:
            out.facts(_score_parts(hit))
    if explain:
        out.line("")
        out.facts((step, f"{took:.1f} ms") for step, took in (*result.steps.items(), ("took", result.took_ms)))
    if result.hits and result.left_out:
        limit = "the threshold" if min_confidence is None else f"{100 * min_confidence:g}%"
        budget = " or beyond the budget" if budgeted else ""
        out.note(f"{result.left_out} more below {limit}{budget} (`--min-confidence 0` shows all)")
    _explain_silence(out, result, where)


def show_prompt(out: Output, prompt: str, result: RecallResult, where: str) -> None:
    """Show the block that an agent would be given; nothing but the reason if it would be given nothing."""
    if prompt:
        out.body(prompt)
    _explain_silence(out, result, where)


def _explain_silence(out: Output, result: RecallResult, where: str) -> None:
    """Say why there are no hits, if there are none, and what the book noted."""
    if result.nearest is not None:
        out.note(f"nothing that answers in {where}; nearest: {_nearest(result.nearest)}")
    elif not result.hits:
        out.note(f"nothing found in {where}")
    for note in result.notes:
        out.note(f"note: {note}")


def _nearest(hit: Hit) -> str:
    return f"{one_line(_beginning(hit.title or hit.passage))} ({hit.confidence:.0%}; `--min-confidence 0` shows it)"


def _hit(out: Output, hit: Hit, *, with_confidence: bool) -> None:
    words = _word_pattern(hit.matched)
    out.styled(_heading(out, hit, with_confidence=with_confidence))
    if hit.before:
        # The neighbour of a message begins with its author, so its beginning is shown.
        shown = _beginning(hit.before) if hit.type == "message" else _end(hit.before)
        out.styled([(shown, "dim")], indent=2 * _INDENT)
    if passage := _extract(hit.passage, words):
        out.styled(_highlighted(passage, words), indent=_INDENT)
    if hit.after:
        out.styled([(_beginning(hit.after), "dim")], indent=2 * _INDENT)
    if hit.metadata:
        out.styled([(prompts.properties(hit), "dim")], indent=_INDENT)
    out.styled(_separated(_source(out, hit), "dim"), indent=_INDENT)


def _heading(out: Output, hit: Hit, *, with_confidence: bool) -> Iterator[_Phrase]:
    if hit.type == "message" and hit.author:
        yield one_line(hit.author), "bold"
        yield " in ", "dim"
        # A message that is in no episode yet has no other title than its own words.
        yield one_line(hit.title if hit.memory else hit.session or hit.title), ""
    else:
        yield one_line(hit.title), "bold"
    yield f"  {hit.kind}  {hit.space}  {out.moment(hit.occurred or hit.created)}", "dim"
    if hit.parts and with_confidence:
        yield f"  {hit.confidence:.0%}", "green"


def _source(out: Output, hit: Hit) -> Iterator[_Phrase]:
    """Yield id, place, marks, freshness and tags of a hit; without an id, the command that shows it."""
    yield out.name(hit.memory), "cyan"
    if hit.seq is not None:
        yield f"{hit.session}, message {hit.seq}" if hit.session else f"message {hit.seq}", "dim"
    yield hit.path or "", "dim"
    if not hit.memory and hit.session and hit.seq:
        place = f"{shlex.quote(hit.session)} --space {shlex.quote(hit.space)}"
        yield f"commonbook session show {place} --after {hit.seq - 1}", "cyan"
    for mark in hit.marks:
        by = f" by {out.name(hit.superseded_by)}" if mark == "superseded" and hit.superseded_by else ""
        yield f"{mark}{by}", "yellow"
    by = f" by {out.name(hit.successor)}" if hit.successor else ""
    text, style = styled_freshness(hit.freshness)
    yield f"{text}{by}", style
    yield ", ".join(f"#{tag}" for tag in hit.tags), "dim"
    if hit.repeats:
        yield f"and {hit.repeats} more that say the same", "dim"
    if hit.also_in:
        shown = ", ".join(f"{place.space} {out.name(place.id)}" for place in hit.also_in[:_MAX_PLACES])
        more = f" and {len(hit.also_in) - _MAX_PLACES} more" if len(hit.also_in) > _MAX_PLACES else ""
        yield f"also in {shown}{more}", "dim"


def _separated(phrases: Iterable[_Phrase], style: str) -> Iterator[_Phrase]:
    """Yield the phrases that are not empty, each on one line, separated by blanks."""
    filled = [(one_line(text), own) for text, own in phrases if text]
    for index, phrase in enumerate(filled):
        if index:
            yield "  ", style
        yield phrase


def _score_parts(hit: Hit) -> Iterator[tuple[str, str]]:
    pad = " " * _INDENT
    for name, value in hit.parts.items():
        if round(value, 3):
            yield f"{pad}{name}", f"{value:+.3f}"
    if hit.parts:
        yield f"{pad}score", f"{hit.score:.3f}"
        yield f"{pad}confidence", f"{hit.confidence:.0%}"
    if hit.matched:
        yield f"{pad}matched", ", ".join(hit.matched)


# --- words and lengths


def _word_pattern(words: Iterable[str]) -> re.Pattern[str] | None:
    """Return a pattern for any of these words as whole words; longer ones first, since the first match wins."""
    choices = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    return re.compile(rf"(?<![^\W_])(?:{choices})(?![^\W_])", re.IGNORECASE) if choices else None


def _highlighted(text: str, words: re.Pattern[str] | None) -> Iterator[_Phrase]:
    end = 0
    for match in words.finditer(text) if words else ():
        yield text[end : match.start()], ""
        yield match[0], "bold yellow"
        end = match.end()
    yield text[end:], ""


def _extract(passage: str, words: re.Pattern[str] | None) -> str:
    """Return a passage; of a long one only the part around the first matched word."""
    passage = passage.strip()
    if len(passage) <= _MAX_PASSAGE_CHARS:
        return passage
    match = words.search(passage) if words else None
    start = min(max(match.start() - _MAX_PASSAGE_CHARS // 4, 0), len(passage) - _MAX_PASSAGE_CHARS) if match else 0
    end = start + _MAX_PASSAGE_CHARS
    return f"{'… ' if start else ''}{passage[start:end].strip()}{' …' if end < len(passage) else ''}"


def _beginning(text: str) -> str:
    line = one_line(text)
    return (
        line
        if len(line) <= _MAX_NEIGHBOUR_CHARS
        else f"{line[:_MAX_NEIGHBOUR_CHARS].rpartition(' ')[0] or line[:_MAX_NEIGHBOUR_CHARS]} …"
    )


def _end(text: str) -> str:
    line = one_line(text)
    return (
        line
        if len(line) <= _MAX_NEIGHBOUR_CHARS
        else f"… {line[-_MAX_NEIGHBOUR_CHARS:].partition(' ')[2] or line[-_MAX_NEIGHBOUR_CHARS:]}"
    )
