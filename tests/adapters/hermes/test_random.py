"""Random conversations, with everything that Hermes can do in them, against a simple model: what was said where.

COMMONBOOK_SCRIPTS   how many conversations (6; the full setting is 500)
COMMONBOOK_SEED      what they follow from
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from commonbook.adapters.hermes.provider import CommonbookMemoryProvider
from tests.support.hermes import SUMMARY, TRUNCATED, Hermes, Turn, check

SCRIPTS = int(os.environ.get("COMMONBOOK_SCRIPTS", "6"))
SEED = os.environ["COMMONBOOK_SEED"]
STEPS = 30


class Script:
    """One conversation, step by step; the model is what `Hermes` notes as said, and the parents noted here."""

    def __init__(self, seed: str, folder: Path) -> None:
        self.dice, self.folder, self.count = random.Random(seed), folder, 0
        self.parents: dict[str, str | None] = {"s0": None}
        self.provider().save_config({"write_seconds": 60, "recall_seconds": 7}, str(folder / "hermes"))
        self.hermes = Hermes(self.provider(), "s0")
        self.steps: list[str] = []
        self.undone: set[str] = set()
        self.killed: list[CommonbookMemoryProvider] = []

    def provider(self) -> CommonbookMemoryProvider:
        return CommonbookMemoryProvider(hermes_home=str(self.folder / "hermes"))

    def run(self) -> None:
        verbs = [self.turn] * 8 + [self.again, self.interrupted_end, self.new, self.resume, self.branch, self.undo]
        verbs += [self.compress, self.rotate, self.checkpoint, self.restart]
        verbs += [self.interrupt, self.interrupt, self.retry, self.cut_off_turn, self.queued_turns, self.kill]
        for _ in range(STEPS):
            verb = self.dice.choice(verbs)
            self.steps.append(verb.__name__)
            verb()
        self.hermes.drain()
        self.hermes.exit()

    def show_what_was_undone(self) -> None:
        """Hand over a transcript after an undo: without one, a session that is left does not show the undo."""
        self.hermes.drain()
        if self.hermes.session in self.undone:
            self.undone.discard(self.hermes.session)
            self.hermes._call(self.hermes.provider.on_session_end, self.hermes.messages)

    def name(self) -> str:
        self.count += 1
        return f"s{self.count}"

    def begin(self) -> str:
        name = self.name()
        self.parents[name] = self.hermes.session
        return name

    def turn(self) -> None:
        self.count += 1
        words = f"{self.dice.choice(('heron', 'otter', 'mill'))} {self.count}"
        self.hermes.turn(f"ask {words}", f"answer {words}", drain=self.dice.random() < 0.7)
        self.undone.discard(self.hermes.session)

    def interrupt(self) -> None:
        """A turn that the user interrupts; the answer to the one before may still be queued."""
        self.count += 1
        if self.hermes.session in self.undone:
            # What was undone shows only in a whole turn.
            return
        if not self.own():
            # A turn that never ends does not show that it was ahead of two switches to new sessions.
            self.hermes.drain()
        self.hermes.interrupted(f"wait {self.count}")

    def retry(self) -> None:
        self.hermes.drain()
        own = self.own()
        # After a compression, the question cannot be told from the same one asked twice, or if nothing else is left.
        is_clear = len(self.users()) > 1 and own.count(own[-1]) == 1 if own else False
        is_clear |= not any(one["content"] == SUMMARY for one in self.hermes.messages)
        is_clear &= self.hermes.session not in self.undone
        if own and own[-1].assistant and self.last_user() == own[-1].user and is_clear:
            self.count += 1
            same = self.dice.random() < 0.3
            self.hermes.retry(own[-1].assistant if same else f"answer {self.count} in other words")

    def cut_off_turn(self) -> None:
        self.count += 1
        self.hermes.turn(f"tell {self.count}", f"a long answer {self.count} about reeds and mills", parts=3)
        self.undone.discard(self.hermes.session)

    def queued_turns(self) -> None:
        """Two turns with the same words, the second of which starts before the first is handed over."""
        self.count += 1
        self.hermes.turn(f"go on {self.count}", "done", drain=False)
        self.hermes.turn(f"go on {self.count}", "done", drain=self.dice.random() < 0.5)
        self.undone.discard(self.hermes.session)

    def own(self) -> list[Turn]:
        return [one for one in self.hermes.recorded if one.session == self.hermes.session]

    def again(self) -> None:
        self.hermes.drain()
        turns = self.own()
        if (
            turns
            and turns[-1].assistant
            and self.last_user() == turns[-1].user
            and self.hermes.session not in self.undone
        ):
            self.hermes.sync(turns[-1].user, turns[-1].assistant)
            self.hermes.drain()

    def interrupted_end(self) -> None:
        """The end of a session is told, and it goes on all the same; not of one that has not begun."""
        self.hermes.drain()
        if self.hermes.messages:
            self.hermes._call(self.hermes.provider.on_session_end, self.hermes.messages)

    def new(self) -> None:
        self.undone.discard(self.hermes.session)
        self.hermes.new(self.begin())

    def resume(self) -> None:
        others = sorted(set(self.hermes.parked) - {self.hermes.session})
        if others:
            self.show_what_was_undone()
            if not self.undone:
                self.hermes.resume(self.dice.choice(others))

    def branch(self) -> None:
        self.hermes.drain()
        self.hermes.branch(self.begin())

    def undo(self) -> None:
        self.hermes.drain()
        own = self.own()
        # If nothing is left by which it could be known what was undone, the provider says so: that has its own test.
        # Of two equal turns in a compressed transcript, nobody can tell whether one was undone.
        is_clear = bool(own) and own.count(own[-1]) == 1 and len(self.users()) > 1
        if is_clear and own[-1].assistant and self.last_user() == own[-1].user:
            self.hermes.undo()
            self.undone.add(self.hermes.session)

    def users(self) -> list[str]:
        texts = [one["content"] for one in self.hermes.messages if one["role"] == "user"]
        return [one for one in texts if one not in (SUMMARY, TRUNCATED)]

    def last_user(self) -> str:
        """The last message of the user, from which Hermes undoes and retries; a notice of Hermes is one too."""
        texts = [one["content"] for one in self.hermes.messages if one["role"] == "user"]
        return texts[-1] if texts else ""

    def compress(self) -> None:
        self.hermes.drain()
        if self.users():
            self.hermes.compress(tail=self.tail())

    def rotate(self) -> None:
        self.hermes.drain()
        if self.users():
            self.hermes.parked[self.hermes.session] = list(self.hermes.messages)
            self.hermes.compress(self.begin(), tail=self.tail())

    def tail(self) -> int:
        """Hermes cuts before a user's message."""
        starts = [len(self.hermes.messages)] + [
            at
            for at, one in enumerate(self.hermes.messages)
            if one["role"] == "user" and one["content"] not in (SUMMARY, TRUNCATED)
        ]
        return len(self.hermes.messages) - self.dice.choice(starts[-3:] + starts[:1])

    def checkpoint(self) -> None:
        if self.hermes.provider._session != self.hermes.session:
            # A transcript has no session: Hermes compresses only what it has switched to.
            self.hermes.drain()
        self.hermes._call(self.hermes.provider.on_pre_compress, self.hermes.messages)

    def restart(self) -> None:
        """Another process goes on with the conversation."""
        self.show_what_was_undone()
        if not self.undone:
            if self.dice.random() < 0.5:
                self.hermes._call(self.hermes.provider.on_session_end, self.hermes.messages)
            self.hermes._call(self.hermes.provider.shutdown)
            self.go_on_in_another_process()

    def kill(self) -> None:
        """Another process goes on; the provider of the first was not told."""
        self.show_what_was_undone()
        # Words that are held back are in memory: the README names that limit.
        recorder = self.hermes.provider._require_recorder()
        if not self.undone and recorder and not any(recorder._open.held()):
            self.killed.append(self.hermes.provider)
            self.go_on_in_another_process()

    def go_on_in_another_process(self) -> None:
        old = self.hermes
        self.hermes = Hermes(self.provider(), old.session)
        self.hermes.messages, self.hermes.recorded, self.hermes.parked = old.messages, old.recorded, old.parked
        self.hermes.turns = sum(one["role"] == "user" for one in self.hermes.messages)
        self.hermes.errors, self.hermes.slowest = old.errors, max(old.slowest, self.hermes.slowest)


@pytest.mark.promise("hermes.once")
@pytest.mark.parametrize("number", range(SCRIPTS))
def test_a_random_conversation_is_stored_as_it_was(place, number, tmp_path):
    script = Script(f"{SEED} {number}", tmp_path)
    try:
        script.run()
        check(place, script.hermes)
    except BaseException:
        print(f"COMMONBOOK_SEED={SEED}, number {number}:", *script.steps)
        raise
    finally:
        for provider in script.killed:
            provider.shutdown()
