"""Times turns of both providers in Hermes' own interpreter, and prints the rounds as JSON. `benchmarks.hermes` runs it.

Arguments: a new folder, the number of facts that both providers have, rounds, and turns in a round.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

PLACES = ("mill", "weir", "pond", "ford", "lock", "marsh", "dam", "bridge")
BIRDS = ("heron", "stork", "crane", "ibis", "egret", "bittern", "coot", "grebe")


def fact(number: int) -> str:
    """Return a fact, another one for each number."""
    return f"The {BIRDS[number % 8]} number {number} nests behind the {PLACES[number // 8 % 8]} of farm {number // 64}"


def timed(call: Callable[..., Any], *args: object, **kwargs: object) -> float:
    """Return the milliseconds of a call."""
    begun = time.perf_counter()
    call(*args, **kwargs)
    return 1000 * (time.perf_counter() - begun)


class Turns:
    """One conversation that both providers and Hermes' own record get, call by call."""

    def __init__(self, folder: Path, facts: int) -> None:
        """Start both providers, which have the same facts."""
        self.ours, self.bundled, self._store = _ours(facts), _bundled(facts), _store(folder)
        self._messages: list[dict[str, str]] = []
        self._number = 0

    def turn(self) -> dict[str, float]:
        """Have one turn, and return the milliseconds of each call."""
        self._number += 1
        bird, place = BIRDS[self._number % 8], PLACES[self._number // 8 % 8]
        question = f"where does the {bird} of the {place} nest, asked for the {self._number}th time"
        answer = f"Behind the {place}, as far as I know, and that is answer {self._number}."
        turn = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        self._messages += turn
        milliseconds = {
            "start": timed(self.ours.on_turn_start, self._number, question),
            "prefetch": timed(self.ours.prefetch, question, session_id="s1"),
            "bundled prefetch": timed(self.bundled.prefetch, question, session_id="s1"),
            "sync": timed(self.ours.sync_turn, question, answer, session_id="s1", messages=list(self._messages)),
            "bundled fact": timed(self.bundled.handle_tool_call, "fact_store", {"action": "add", "content": answer}),
            "store": timed(_append, self._store, turn),
        }
        self.ours.queue_prefetch(question, session_id="s1")
        return milliseconds

    def end(self) -> None:
        """Shut both providers down."""
        self.ours.shutdown()
        self.bundled.shutdown()


def main(folder: Path, facts: int, rounds: int, turns: int) -> dict[str, list[float]]:
    """Return the median milliseconds of every round, by what was measured."""
    os.environ |= {"HERMES_HOME": str(folder / "hermes"), "COMMONBOOK_HOME": str(folder / "book")}
    (folder / "hermes").mkdir(parents=True)
    conversation = Turns(folder, facts)
    measured: dict[str, list[float]] = {}
    for _ in range(rounds):
        times = [conversation.turn() for _ in range(turns)]
        for name in times[0]:
            measured.setdefault(name, []).append(median(one[name] for one in times))
    conversation.end()
    return measured


def _ours(facts: int) -> Any:  # noqa: ANN401 - as Hermes sees it
    import commonbook
    from commonbook.adapters.hermes.provider import CommonbookMemoryProvider
    from commonbook.values.memory import Draft

    with commonbook.open(os.environ["COMMONBOOK_HOME"], create=True) as book:
        book.remember_many([Draft(text=fact(number), space="hermes/default/local") for number in range(facts)])
        book.recall("herons")
    provider = CommonbookMemoryProvider()
    provider.initialize("s1", platform="cli", agent_identity="default", hermes_home=os.environ["HERMES_HOME"])
    return provider


def _bundled(facts: int) -> Any:  # noqa: ANN401 - a class of Hermes
    provider = import_module("plugins.memory").load_memory_provider("holographic")
    provider.initialize("s1", platform="cli", hermes_home=os.environ["HERMES_HOME"])
    for number in range(facts):
        provider.handle_tool_call("fact_store", {"action": "add", "content": fact(number)})
    return provider


def _store(folder: Path) -> Any:  # noqa: ANN401 - a class of Hermes
    store = import_module("hermes_state").SessionDB(folder / "hermes" / "state.db")
    store.create_session(session_id="s1", source="cli", model="stub")
    return store


def _append(store: Any, turn: list[dict[str, str]]) -> None:  # noqa: ANN401 - a class of Hermes
    for message in turn:
        store.append_message(session_id="s1", role=message["role"], content=message["content"])


if __name__ == "__main__":
    place, *numbers = sys.argv[1:]
    # The bundled provider warns at each fact that it has many.
    logging.disable(logging.WARNING)
    print(json.dumps(main(Path(place), *map(int, numbers))))
