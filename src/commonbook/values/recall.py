"""The request of a recall, and its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal, NamedTuple, TypeAlias

from commonbook.values import prompts
from commonbook.values.hit import Bars, Hit
from commonbook.values.memory import NO_METADATA, Kind, MetadataValue

Include: TypeAlias = Literal["superseded", "expired", "notices", "wishes"]
"""Memories that recall leaves out unless they are included, and the list of standing wishes."""


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
    exclude_session: str | None = None
    exclude_last: int | None = None
    author: str | None = None
    metadata: Mapping[str, MetadataValue] = NO_METADATA
    since: datetime | str | None = None
    until: datetime | str | None = None
    as_of: datetime | str | None = None
    min_confidence: float | None = None
    budget_tokens: int | None = None
    include: tuple[Include, ...] = ()
    explain: bool = False
    default_spaces: tuple[str, ...] = ()
    """The spaces of a recall that names none: wishes come from these, whatever spaces the caller has named."""


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
        return f"- {self.time.date().isoformat()}, {self.author.rpartition(':')[2]}: {' '.join(self.text.split())}"


class RecallResult(NamedTuple):
    """The hits of a recall, best first, and its duration; with `explain`, also the duration of each step.

    `left_out` counts the hits among the best k that were left out because of their confidence or the budget; a note
    says how many the budget left out. If none has enough confidence, `nearest` is the best of them. `fence` is the tag
    around these hits in a prompt, which only this home can make. `meant` maps misspelt words of the query to the known
    names that were searched in their place.
    """

    hits: tuple[Hit, ...]
    took_ms: float
    steps: Mapping[str, float] = {}
    notes: tuple[str, ...] = ()
    left_out: int = 0
    nearest: Hit | None = None
    fence: str = ""
    meant: Mapping[str, str] = {}
    bars: Bars = Bars()
    wishes: tuple[Wish, ...] = ()
    """If they were included, the newest standing wishes of the user who asks, each once, whatever the query is."""

    @property
    def likely(self) -> Sequence[Hit]:
        """The hits without those at the end that hardly answer, which the command line shows as less likely."""
        return prompts.likely(self.hits, self.bars)

    @property
    def answering(self) -> Sequence[Hit]:
        """The hits that a model is given which has asked for them."""
        return prompts.answering(self.hits, self.bars, least=self.bars.likely)

    @property
    def for_prompt(self) -> Sequence[Hit]:
        """The hits that a prompt is given which nobody has asked for: by a stricter bar, none rather than some."""
        return prompts.answering(self.hits, self.bars, least=self.bars.prompt)

    def as_prompt(self, *, max_tokens: int) -> str:
        """Return the hits that answer as a block for a prompt, of at most `max_tokens`; but the first is always in it.

        Messages that follow each other are merged into runs. Times, spaces, titles, authors and doubts are named. More
        hits than the default of ten fill a large budget better. Included wishes come first, and take at most half of
        the budget.
        """
        wishes = [wish.line for wish in self.wishes]
        return prompts.as_prompt(self.for_prompt, self.fence, max_tokens=max_tokens, wishes=wishes)
