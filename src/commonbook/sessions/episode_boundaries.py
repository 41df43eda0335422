"""Where a run of messages ends and becomes an episode: by time, by size and by topic, without a model.

A run is decided from its first message on, and looks only a bounded number of messages ahead. So it does not matter in
how many steps a session is settled: whoever asks again with more messages, or with those that are not yet settled, gets
the same runs as somebody who asks once at the end. (This takes for granted that messages which come later are not older
than the `now` of earlier questions.) docs/decisions/0009 says how the limits were chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final, Literal, NamedTuple, TypeAlias

Reason: TypeAlias = Literal["gap", "size", "topic", "flush"]
Likeness: TypeAlias = Callable[[Sequence[str], Sequence[str]], float]
"""How alike two neighbouring windows of messages are: 1 for the same topic; the same answer whenever it is asked."""


class Message(NamedTuple):
    """What a boundary depends on."""

    seq: int
    role: str
    time: datetime
    text: str


class Segment(NamedTuple):
    """Messages that belong together, and why they end there; `first` and `last` are their `seq`."""

    first: int
    last: int
    reason: Reason


class Limits(NamedTuple):
    """When a run ends.

    A silence of `gap` ends it; of `answer_gap` if it waits for an answer. It never has more than `messages` and
    `tokens`, except for a single message that has more. The topic shifts where two windows of `window` messages are
    less alike than any within `reach` places around, by at least `shift` less than the mean of the best on both sides.
    """

    gap: timedelta = timedelta(hours=1)
    answer_gap: timedelta = timedelta(hours=12)
    messages: int = 60
    tokens: int = 6_000
    window: int = 10
    reach: int = 10
    shift: float = 0.2


LIMITS: Final = Limits()

_ASKING: Final = frozenset({"user", "human"})
_CALLS: Final = frozenset({"tool_call", "tool_use", "function_call"})
_ANSWERS: Final = frozenset({"tool", "tool_result", "tool_response", "function"})
_QUESTION_MARKS: Final = ("?", "\uff1f", "\u061f")
_NEARBY: Final = (0, -1, 1, -2, 2)
"""How far a shift of topic may move, to stand between an answer and the next question."""


def segments(
    messages: Sequence[Message],
    *,
    now: datetime,
    similarity: Likeness | None = None,
    limits: Limits = LIMITS,
    flush: bool = False,
) -> list[Segment]:
    """Return the runs that are decided, in order: all messages with `flush`, else those before the open run."""
    chat = _Chat(messages, similarity, limits)
    found: list[Segment] = []
    start = 0
    while start < len(messages):
        end, reason = chat.next_end(start, now)
        if reason is None:
            if not flush:
                break
            reason = "flush"
        found.append(Segment(messages[start].seq, messages[end - 1].seq, reason))
        start = end
    return found


def tokens(text: str) -> int:
    """Guess how many tokens a text has, from its bytes: four in English, and fewer letters in other scripts."""
    return len(text.encode("utf-8", "surrogatepass")) // 4 + 1


def cohesion(before: Message, after: Message) -> int:
    """Tell what a cut between two neighbours would part: 2 tool call and answer, 1 question and reply, 0 neither."""
    if after.role in _ANSWERS or before.role in _CALLS:
        return 2
    return int(_asks(before) or (before.role in _ASKING and after.role not in _ASKING))


def _asks(message: Message) -> bool:
    return message.text.rstrip().endswith(_QUESTION_MARKS)


def _waits(message: Message) -> bool:
    """Tell whether an answer may follow, as far as the message alone shows it; a bare call has no text of its own."""
    return message.role in _ASKING | _CALLS or _asks(message) or not message.text.strip()


class _Chat:
    """The messages, with what is computed only once for each."""

    def __init__(self, messages: Sequence[Message], similarity: Likeness | None, limits: Limits) -> None:
        self._messages: Final = messages
        self._similarity: Final = similarity
        self._limits: Final = limits
        self._tokens: Final = [tokens(message.text) for message in messages]
        self._seams: Final[dict[int, float]] = {}

    def next_end(self, start: int, now: datetime) -> tuple[int, Reason | None]:
        """Return where the run that begins at `start` ends (one past its last), and why; None if it is still open."""
        end, reason = self._stop(start)
        if shift := self._shift(start, end):
            return shift, "topic"
        if reason == "size":
            return self._best_cut(start, end), reason
        if reason is None and self._is_over(now):
            return end, "gap"
        return end, reason

    def _stop(self, start: int) -> tuple[int, Reason | None]:
        """Return how far the run can go at most: up to a silence, a limit, or the last message there is."""
        total = 0
        for at in range(start, len(self._messages)):
            total += self._tokens[at]
            too_much = total > self._limits.tokens or at - start >= self._limits.messages
            if at == start:
                if too_much:
                    return at + 1, "size"
            elif self._is_apart(at):
                return at, "gap"
            elif too_much:
                return at, "size"
        return len(self._messages), None

    def _is_apart(self, at: int) -> bool:
        before, after = self._messages[at - 1], self._messages[at]
        # What holds the two together must show in the first: the second is not there yet when the silence is noticed.
        held = _waits(before) and cohesion(before, after) > 0
        return after.time - before.time >= (self._limits.answer_gap if held else self._limits.gap)

    def _is_over(self, now: datetime) -> bool:
        last = self._messages[-1]
        return now - last.time >= (self._limits.answer_gap if _waits(last) else self._limits.gap)

    def _shift(self, start: int, end: int) -> int | None:
        """Return the first place where the topic shifts, if there is one."""
        if self._similarity is None:
            return None
        window, reach = self._limits.window, self._limits.reach
        for at in range(start + window, end - window - reach + 1):
            left = [self._seam(near) for near in range(max(start + window, at - reach), at + 1)]
            right = [self._seam(near) for near in range(at, at + reach + 1)]
            low = self._seam(at)
            if low == min(left + right) and (max(left) + max(right)) / 2 - low >= self._limits.shift:
                near = (at + step for step in _NEARBY if start < at + step < end)
                if cut := next((place for place in near if not self._bond(place)), None):
                    return cut
        return None

    def _best_cut(self, start: int, end: int) -> int:
        """Return where to cut a run that is too long: where it parts least, and of such places at the weakest seam."""
        if end - start == 1 or self._tokens[end] > self._limits.tokens:
            return end
        places = range(start + 1, end + 1)
        least = min(self._bond(place) for place in places)
        places_left = [place for place in places if self._bond(place) == least]
        window = self._limits.window
        middle = start + max((end - start) // 2, window)
        seen = [place for place in places_left if middle < place <= end + 1 - window]
        if self._similarity is None or not seen:
            return places_left[-1]
        return min(reversed(seen), key=self._seam)

    def _bond(self, at: int) -> int:
        return cohesion(self._messages[at - 1], self._messages[at])

    def _seam(self, at: int) -> float:
        """Return how alike the windows before and after a place are."""
        if at not in self._seams and self._similarity is not None:
            window = self._limits.window
            before = [message.text for message in self._messages[at - window : at]]
            after = [message.text for message in self._messages[at : at + window]]
            self._seams[at] = self._similarity(before, after)
        return self._seams[at]
