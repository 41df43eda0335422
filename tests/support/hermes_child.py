"""A process with a Hermes in it, for tests that kill it.

`python -m tests.support.hermes_child HERMES_HOME SESSION FIRST LAST`

It has one turn after the other, each with the whole transcript, and says so when the provider has returned.
"""

from __future__ import annotations

import os
import sys

from commonbook.adapters.hermes.provider import CommonbookMemoryProvider


def words(number: int) -> tuple[str, str]:
    return f"question {number}", f"answer {number}"


def transcript(last: int) -> list[dict[str, object]]:
    roles = ("user", "assistant")
    return [
        {"role": role, "content": text} for n in range(last + 1) for role, text in zip(roles, words(n), strict=True)
    ]


def main(hermes_home: str, session: str, first: int, last: int) -> None:
    provider = CommonbookMemoryProvider(hermes_home=hermes_home)
    provider.initialize(session, hermes_home=hermes_home, platform="cli", agent_context="primary")
    for number in range(first, last):
        provider.on_turn_start(number, words(number)[0])
        provider.sync_turn(*words(number), session_id=session, messages=transcript(number))
        os.write(1, f"{number}\n".encode())
        if number % 7 == 6:
            provider.on_pre_compress(transcript(number))
        if number % 11 == 10:
            provider.on_session_end(transcript(number))
    os.write(1, b"done\n")
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
