"""Episode boundaries: decides where a segment of messages ends and becomes an episode, without a language model.

A segment ends by time (a silence), by size, or by topic. A shift of topic is found as in TextTiling: by how much less
similar the messages before and after a place are than those around it.

A segment is decided from its first message on, and looks only a bounded number of messages ahead. So the number of
steps in which a session is settled does not matter: a later call with more messages, or only with those not yet
settled, returns the same segments as one call at the end. (This assumes that messages which come later are not older
than the `now` of earlier calls.) docs/decisions/0009 says how the limits were chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final, Literal, NamedTuple, TypeAlias

SILENCE: Final = timedelta(hours=1)
MAX_EPISODE_MESSAGES: Final = 60

_MIN_MESSAGES_FOR_BOUNDARY: Final = 40
"""With fewer unsettled messages, no boundary is looked for until the session falls silent."""


def is_silence(last: datetime, until: datetime, *, silence: timedelta = SILENCE) -> bool:
    """Tell whether the time from a message until the next one, or until now, is long enough to settle."""
    return until - last >= silence


def is_due_at_once(*, before: int, unsettled: int) -> bool:
    """Tell whether an append makes a settle job due at once, by the numbers of unsettled messages before and after it.

    It does when the first boundary may exist, and whenever the size alone makes one; not at every message.
    """
    return before < _MIN_MESSAGES_FOR_BOUNDARY <= unsettled or unsettled >= MAX_EPISODE_MESSAGES


Reason: TypeAlias = Literal["gap", "size", "topic", "flush"]
WindowSimilarity: TypeAlias = Callable[[Sequence[str], Sequence[str]], float]
"""Returns how similar two neighbouring windows of texts are: 1 for the same topic. It must be deterministic."""


class BoundaryInput(NamedTuple):
    """The fields of a message that decide about boundaries."""

    seq: int
    role: str
    time: datetime
    text: str


class Segment(NamedTuple):
    """Messages that belong together, and the reason for the end; `first` and `last` are sequence numbers (`seq`)."""

    first: int
    last: int
    reason: Reason


class Limits(NamedTuple):
    """The limits at which a segment ends.

    A silence of `gap` ends it, regardless of who spoke last. It has at most `messages` messages and `tokens` tokens,
    unless a single message has more. The topic shifts where the two windows of `window` messages before and after a
    place are less similar than those at any place within `reach`, by at least `shift` less than the mean of the
    highest similarities on both sides.
    """

    gap: timedelta = SILENCE
    messages: int = MAX_EPISODE_MESSAGES
    tokens: int = 6_000
    window: int = 10
    reach: int = 10
    shift: float = 0.2


LIMITS: Final = Limits()

_USER_ROLES: Final = frozenset({"user", "human"})
_TOOL_CALL_ROLES: Final = frozenset({"tool_call", "tool_use", "function_call"})
_TOOL_RESULT_ROLES: Final = frozenset({"tool", "tool_result", "tool_response", "function"})
_QUESTION_MARKS: Final = ("?", "\uff1f", "\u061f")
_CUT_OFFSETS: Final = (0, -1, 1, -2, 2)
"""By how many messages a cut may be moved to fall between an answer and the next question, the nearest first."""


def segments(
    messages: Sequence[BoundaryInput],
    *,
    now: datetime,
    similarity: WindowSimilarity | None = None,
    limits: Limits = LIMITS,
    flush: bool = False,
) -> list[Segment]:
    """Return the decided segments in order; with `flush`, they cover all messages, else those before the open one."""
    segmenter = _Segmenter(messages, similarity, limits)
    decided: list[Segment] = []
    start = 0
    while start < len(messages):
        end, reason = segmenter.next_end(start, now)
        if reason is None:
            if not flush:
                break
            reason = "flush"
        decided.append(Segment(messages[start].seq, messages[end - 1].seq, reason))
        start = end
    return decided


def estimate_tokens(text: str) -> int:
    """Estimate the number of tokens of a text, in any script, as a quarter of its UTF-8 bytes."""
    return len(text.encode("utf-8", "surrogatepass")) // 4 + 1


def cohesion(before: BoundaryInput, after: BoundaryInput) -> int:
    """Rate how strongly two neighbours belong together: 2 tool call and result, 1 question and reply, 0 neither."""
    if after.role in _TOOL_RESULT_ROLES or before.role in _TOOL_CALL_ROLES:
        return 2
    return int(_is_question(before) or (before.role in _USER_ROLES and after.role not in _USER_ROLES))


def _is_question(message: BoundaryInput) -> bool:
    return message.text.rstrip().endswith(_QUESTION_MARKS)


class _Segmenter:
    """Decides the segments of some messages; token counts and similarities are computed once."""

    def __init__(self, messages: Sequence[BoundaryInput], similarity: WindowSimilarity | None, limits: Limits) -> None:
        self._messages: Final = messages
        self._similarity: Final = similarity
        self._limits: Final = limits
        self._tokens: Final = [estimate_tokens(message.text) for message in messages]
        self._similarities: Final[dict[int, float]] = {}

    def next_end(self, start: int, now: datetime) -> tuple[int, Reason | None]:
        """Return the end (exclusive) of the segment that begins at `start`, and the reason: None while it is open."""
        end, reason = self._latest_end(start)
        if shift := self._topic_shift(start, end):
            return shift, "topic"
        if reason == "size":
            return self._best_cut(start, end), reason
        if reason is None and self._has_gone_silent(now):
            return end, "gap"
        return end, reason

    def _latest_end(self, start: int) -> tuple[int, Reason | None]:
        """Return the latest possible end of the segment: a silence, a limit of size, or the last message."""
        total = 0
        for place in range(start, len(self._messages)):
            total += self._tokens[place]
            too_large = total > self._limits.tokens or place - start >= self._limits.messages
            if place == start:
                if too_large:
                    return place + 1, "size"
            elif self._follows_gap(place):
                return place, "gap"
            elif too_large:
                return place, "size"
        return len(self._messages), None

    def _follows_gap(self, place: int) -> bool:
        return is_silence(self._messages[place - 1].time, self._messages[place].time, silence=self._limits.gap)

    def _has_gone_silent(self, now: datetime) -> bool:
        return is_silence(self._messages[-1].time, now, silence=self._limits.gap)

    def _topic_shift(self, start: int, end: int) -> int | None:
        """Return the first cut at which the topic shifts, if there is one."""
        if self._similarity is None:
            return None
        window, reach = self._limits.window, self._limits.reach
        for place in range(start + window, end - window - reach + 1):
            left = [self._similarity_at(near) for near in range(max(start + window, place - reach), place + 1)]
            right = [self._similarity_at(near) for near in range(place, place + reach + 1)]
            lowest = self._similarity_at(place)
            if lowest == min(left + right) and (max(left) + max(right)) / 2 - lowest >= self._limits.shift:
                cuts = (place + offset for offset in _CUT_OFFSETS if start < place + offset < end)
                if cut := next((cut for cut in cuts if not self._cohesion_at(cut)), None):
                    return cut
        return None

    def _best_cut(self, start: int, end: int) -> int:
        """Return where to cut a segment that is too long: at the least cohesion, and there at the least similarity."""
        if end - start == 1 or self._tokens[end] > self._limits.tokens:
            return end
        places = range(start + 1, end + 1)
        least = min(self._cohesion_at(place) for place in places)
        candidates = [place for place in places if self._cohesion_at(place) == least]
        window = self._limits.window
        middle = start + max((end - start) // 2, window)
        # Only places behind the middle that have a whole window on both sides can be compared.
        comparable = [place for place in candidates if middle < place <= end + 1 - window]
        if self._similarity is None or not comparable:
            return candidates[-1]
        return min(reversed(comparable), key=self._similarity_at)

    def _cohesion_at(self, place: int) -> int:
        return cohesion(self._messages[place - 1], self._messages[place])

    def _similarity_at(self, place: int) -> float:
        """Return how similar the windows before and after a place are."""
        if place not in self._similarities and self._similarity is not None:
            window = self._limits.window
            before = [message.text for message in self._messages[place - window : place]]
            after = [message.text for message in self._messages[place : place + window]]
            self._similarities[place] = self._similarity(before, after)
        return self._similarities[place]
