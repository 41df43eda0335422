"""The pauses between attempts."""

from __future__ import annotations

from commonbook.runtime import pause_seconds


def test_pauses_grow_up_to_a_limit_and_have_a_random_part() -> None:
    assert [pause_seconds(tries, first=0.5, most=5.0, share=1.0) for tries in (0, 1, 2, 10_000)] == [0.5, 1.0, 2.0, 5.0]
    assert pause_seconds(0, first=0.5, most=5.0, share=0.0) == 0.25
    assert 0.25 <= pause_seconds(0, first=0.5, most=5.0) <= 0.5
