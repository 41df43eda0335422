"""The hits of a recall: passages of memories and messages."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal, NamedTuple, TypeAlias

from commonbook.values.memory import NO_METADATA, CopyInfo, Freshness, Kind, Mark, MetadataValue

HitType: TypeAlias = Literal["memory", "message"]
"""Whether a hit is a passage of a memory, or a message of a session."""


class Bars(NamedTuple):
    """The confidence from which on a hit is likely to answer, and that the best ten must have together for a prompt."""

    likely: float = 0.05
    prompt: float = 0.2


class CopyPlace(NamedTuple):
    """A space that has the same memory as a hit, and the id of that copy or source there."""

    space: str
    id: str


class Hit(NamedTuple):
    """A passage that answers a query, with its place and the properties of its memory.

    `passage` is the matching text, `before` and `after` are the texts around it; `text` is the whole message or memory.
    `path` is the file of its memory, which is at `revision`; both are None for a message that is in no episode yet.
    `session` and `seq` are the place of a message, None for a memory. `confidence` is the estimated chance that this
    hit answers the query, from 0 to 1; 0 without a query, and for what only asks the question again. `matched` are the
    words of the passage that are in the query. `also_in` names the other searched spaces where a memory of the same
    root says the same; it is not a hit of its own. `repeats` is how many messages say the same.
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
    repeats: int = 0
    metadata: Mapping[str, MetadataValue] = NO_METADATA
