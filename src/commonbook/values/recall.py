"""The request of a recall, its hits, and its result."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal, NamedTuple, TypeAlias

from commonbook.values import prompts
from commonbook.values.memory import NO_METADATA, CopyInfo, Freshness, Kind, Mark, Scalar

Include: TypeAlias = Literal["superseded", "expired", "notices", "wishes"]
"""Memories that recall leaves out unless they are included, and the list of standing wishes."""

HitType: TypeAlias = Literal["memory", "message"]
"""Whether a hit is a passage of a memory, or a message of a session."""


class RecallRequest(NamedTuple):
    """The arguments of a recall; passages are filtered by every given condition before the best are chosen."""

    query: str = ""
    spaces: tuple[str, ...] = ()
    spaces_by_default: bool = False
    """Whether the caller has named no spaces; spaces of the default that it may not read are then left out."""
    k: int = 10
    kinds: tuple[Kind, ...] = ()
    tags: tuple[str, ...] = ()
    session: str | None = None
    author: str | None = None
    metadata: Mapping[str, Scalar] = NO_METADATA
    since: datetime | str | None = None
    until: datetime | str | None = None
    as_of: datetime | str | None = None
    min_confidence: float | None = None
    budget_tokens: int | None = None
    include: tuple[Include, ...] = ()
    explain: bool = False
    default_spaces: tuple[str, ...] = ()
    """The spaces of a recall that names none: wishes come from these, whatever spaces the caller has named."""


class CopyPlace(NamedTuple):
    """A space that has the same memory as a hit, and the id of that copy or source there."""

    space: str
    id: str


class Hit(NamedTuple):
    """A passage that answers a query, with its place and the properties of its memory.

    `passage` is the matching text, `before` and `after` are the texts around it; `text` is the whole message or memory.
    `path` is the file of its memory, which is at `revision`; both are None for a message that is in no episode yet.
    `session` and `seq` are the place of a message, None for a memory. `confidence` is the estimated chance that this
    hit answers the query, from 0 to 1; 0 without a query. `also_in` names the other searched spaces where a memory of
    the same root says the same; it is not a hit of its own.
    """

    type: HitType
    id: str
    passage_id: str
    memory: str
    session: str | None
    seq: int | None
    kind: Kind
    space: str
    title: str
    text: str
    passage: str
    before: str
    after: str
    author: str
    score: float
    confidence: float
    parts: Mapping[str, float]
    freshness: Freshness | None
    suspect: bool
    superseded_by: str | None
    marks: tuple[Mark, ...]
    path: str | None
    revision: int | None
    tags: tuple[str, ...]
    occurred: datetime | None
    created: datetime
    matched: tuple[str, ...] = ()
    shared: CopyInfo | None = None
    successor: str | None = None
    also_in: tuple[CopyPlace, ...] = ()


class Wish(NamedTuple):
    """A standing wish of the user who asks, `Never deploy on Fridays.`, and the memory or message that has it."""

    text: str
    author: str
    time: datetime
    space: str
    id: str

    @property
    def line(self) -> str:
        """The wish as a line of a prompt, with its day and the name of its author."""
        return f"- {self.time.date().isoformat()}, {self.author.rpartition(':')[2]}: {self.text}"


class RecallResult(NamedTuple):
    """The hits of a recall, best first, and its duration; with `explain`, also the duration of each step.

    `left_out` counts the hits among the best k that were left out because of their confidence. If nothing is left,
    `nearest` is the best of them. `fence` is the tag around these hits in a prompt, which only this home can make.
    """

    hits: tuple[Hit, ...]
    took_ms: float
    steps: Mapping[str, float] = {}
    notes: tuple[str, ...] = ()
    left_out: int = 0
    nearest: Hit | None = None
    fence: str = ""
    wishes: tuple[Wish, ...] = ()
    """If they were included, the newest standing wishes of the user who asks, each once, whatever the query is."""

    def as_prompt(self, *, max_tokens: int) -> str:
        """Return the most useful stretches of the hits as a block for a prompt, of at most `max_tokens`.

        Messages that follow each other are merged into runs. Times, spaces, titles and authors are named, and what an
        assistant wrote is marked. More hits than the default of ten fill a large budget better. Included wishes come
        first, and take at most half of the budget.
        """
        excerpts, wishes = [_excerpt(hit) for hit in self.hits], [wish.line for wish in self.wishes]
        return prompts.as_prompt(excerpts, self.fence, max_tokens=max_tokens, wishes=wishes)


def _excerpt(hit: Hit) -> prompts.Excerpt:
    """Return a hit as a prompt shows it; a passage of a memory has its place behind the `#` of its id."""
    part = hit.passage_id.rpartition("#")[2]
    doubts = ("may be outdated",) if hit.superseded_by or hit.suspect else ()
    return prompts.Excerpt(
        thread=f"{hit.space} {hit.session or hit.memory}",
        place=hit.seq if hit.seq is not None else int(part) if part.isdecimal() else 0,
        is_message=hit.type == "message",
        day=(hit.occurred or hit.created).date().isoformat(),
        space=hit.space,
        title=hit.title,
        author=hit.author,
        passage=hit.passage,
        before=hit.before,
        after=hit.after,
        marks=(*doubts, *hit.marks),
    )
