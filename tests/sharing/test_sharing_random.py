"""Sharing at random: several principals do anything to copies, and a simple model says what each of them then sees.

COMMONBOOK_STEPS   how many steps each run has (60; the full setting is 1000)
COMMONBOOK_SEED    the seed of the random numbers; a failure names it
"""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

from commonbook.book.book import Book
from commonbook.errors import BadInput, Conflict, NotAllowed, NotFound
from commonbook.model.memory import MODES, Filter
from commonbook.model.spaces import Role
from tests.sharing.test_sharing_races import wrong_with_copies
from tests.support.reasoning_model import OWNER, Known, Model

STEPS = int(os.environ.get("COMMONBOOK_STEPS", "60"))
SEED = os.environ["COMMONBOOK_SEED"]
PEOPLE = (OWNER, "user:alice", "user:bob", "user:carol")
SPACES = ("a", "b", "c", "d")
ROLES: tuple[Role, ...] = ("reader", "writer")

pytestmark = pytest.mark.timeout(120 + 2 * STEPS)


class World:
    """A book, its model, and a random generator."""

    def __init__(self, book: Book, seed: str) -> None:
        self.book = book
        self.model = Model()
        self.dice = random.Random(seed)
        self.hands = {who: book if who == OWNER else book.acting_as(who) for who in PEOPLE}
        self.number = 0
        for space in SPACES:
            book.create_space(space)

    def step(self) -> str:
        who = self.dice.choice(PEOPLE)
        verbs = ["remember", *["edit"] * 3, *["share"] * 4, "unshare", "detach", "adopt", *["refresh"] * 2]
        verb = self.dice.choice([*verbs, "delete", "move", "move", "grant", "grant", "revoke", "look"])
        return f"{who} {verb} {getattr(self, f'_{verb}')(who)}"

    def _some(self) -> Known | None:
        return self.dice.choice(list(self.model.known.values())) if self.model.known else None

    def _refused(self, expected: type[Exception] | tuple[type[Exception], ...], act: Any) -> str:
        with pytest.raises(expected) as caught:
            act()
        return f"refused: {caught.value}"

    def _change(self, who: str, memory: Known, act: Any) -> Any:
        """Run an operation that needs the right to write; return its result, or why it was rightly refused."""
        if not self.model.sees(who, memory):
            return self._refused(NotFound, act)
        if not self.model.may(who, memory.space, "writer"):
            return self._refused(NotAllowed, act)
        return None

    def _remember(self, who: str) -> Any:
        space, text = self.dice.choice(SPACES), self._text()
        if not self.model.may(who, space, "writer"):
            return self._refused(NotAllowed, lambda: self.hands[who].remember(text, space=space))
        made = self.hands[who].remember(text, space=space)
        self.model.known[made.id] = Known(made.id, space, text)
        return made.id

    def _text(self) -> str:
        self.number += 1
        # Now and then the same text as before: a refresh then changes nothing.
        return f"text {self.dice.choice([self.number, self.number, max(1, self.number - 3)])}"

    def _edit(self, who: str) -> Any:
        if (memory := self._some()) is None:
            return None
        text = self._text()
        act = lambda: self.hands[who].edit(memory.id, text=text)  # noqa: E731
        if (refused := self._change(who, memory, act)) is not None:
            return refused
        receipt = act()
        before = {one.id: one.revision for one in self.model.known.values()}
        self.model.edit(memory, text)
        followed = [
            one
            for one in self.model.known.values()
            if one is not memory and one.revision != before[one.id] and self.model.may(who, one.space, "reader")
        ]
        assert receipt.copies >= len(followed)
        return f"{memory.id} to {text}"

    def _share(self, who: str) -> Any:
        if (source := self._some()) is None:
            return None
        space, mode = self.dice.choice(SPACES), self.dice.choice(MODES)
        act = lambda: self.hands[who].share(source.id, space, refresh=mode)  # noqa: E731
        if not self.model.may(who, space, "writer"):
            return self._refused(NotAllowed, act)
        if not self.model.sees(who, source):
            return self._refused(NotFound, act)
        made = act()
        there = self.model.memory_of_root(self.model.origin(source), space)
        assert made.new == (there is None)
        if there is not None:
            assert made.id == there.id
        else:
            self.model.known[made.id] = Known(
                made.id,
                space,
                source.text,
                source=source.id,
                root=self.model.origin(source),
                mode=mode,
                by=who,
                took=source.revision,
            )
        return f"{source.id} into {space} as {mode}: {made.id}"

    def _with_copy(self, who: str, verb: str) -> tuple[Known | None, Any]:
        memory = self._some()
        if memory is None:
            return None, None
        act = lambda: getattr(self.hands[who], verb)(memory.id)  # noqa: E731
        if (refused := self._change(who, memory, act)) is not None:
            return None, refused
        if memory.source is None:
            return None, self._refused(BadInput, act)
        return memory, act

    def _unshare(self, who: str) -> Any:
        memory, act = self._with_copy(who, "unshare")
        if memory is None:
            return act
        act()
        memory.deleted = True
        return memory.id

    def _detach(self, who: str) -> Any:
        memory, act = self._with_copy(who, "detach")
        if memory is None:
            return act
        act()
        memory.mode = "detached"
        return memory.id

    def _adopt(self, who: str) -> Any:
        memory, act = self._with_copy(who, "adopt")
        if memory is None:
            return act
        stands = self.model.broken_tie(memory)
        refusals: dict[str | None, type[Exception]] = {
            "detached": Conflict,
            "revoked": NotAllowed,
            "source_deleted": NotFound,
        }
        if stands in refusals:
            return self._refused(refusals[stands], act)
        act()
        if memory.edited or memory.took < self.model.known[memory.source or ""].revision:
            self.model.overwrite(memory)
        return memory.id

    def _refresh(self, who: str) -> Any:
        memory, act = self._with_copy(who, "refresh")
        if memory is None:
            return act
        stands = self.model.broken_tie(memory)
        refusals: dict[str | None, type[Exception]] = {
            "detached": Conflict,
            "revoked": NotAllowed,
            "source_deleted": NotFound,
            "diverged": Conflict,
        }
        if stands in refusals:
            return self._refused(refusals[stands], act)
        act()
        self.model.refresh_chain(memory)
        return memory.id

    def _delete(self, who: str) -> Any:
        if (memory := self._some()) is None:
            return None
        act = lambda: self.hands[who].delete(memory.id)  # noqa: E731
        if (refused := self._change(who, memory, act)) is not None:
            return refused
        act()
        memory.deleted = True
        return memory.id

    def _move(self, who: str) -> Any:
        if (memory := self._some()) is None:
            return None
        space = self.dice.choice(SPACES)
        act = lambda: self.hands[who].move(memory.id, space)  # noqa: E731
        if (refused := self._change(who, memory, act)) is not None:
            return refused
        if not self.model.may(who, space, "writer"):
            return self._refused(NotAllowed, act)
        act()
        self.model.move(memory, space, by=who)
        return f"{memory.id} to {space}"

    def _grant(self, _who: str) -> Any:
        whom, space, role = self.dice.choice(PEOPLE[1:]), self.dice.choice(SPACES), self.dice.choice(ROLES)
        self.book.grant(whom, space, role)
        self.model.roles[whom, space] = role
        return f"{whom} {role} of {space}"

    def _revoke(self, _who: str) -> Any:
        if not self.model.roles:
            return None
        whom, space = self.dice.choice(list(self.model.roles))
        self.book.revoke(whom, space)
        del self.model.roles[whom, space]
        return f"{whom} from {space}"

    def _look(self, who: str) -> Any:
        """Get one memory: that refreshes a stale lazy copy if its sharer may still read the source."""
        if (memory := self._some()) is None:
            return None
        if not self.model.sees(who, memory):
            return self._refused(NotFound, lambda: self.hands[who].get(memory.id))
        found = self.hands[who].get(memory.id)
        if memory.mode == "lazy" and self.model.can_follow(memory):
            self.model.refresh_chain(memory)
        assert (found.text, found.freshness) == (memory.text, self.model.freshness(memory))
        return memory.id

    def check(self) -> None:
        """Compare the memories that each principal sees with those of the model."""
        for who, book in self.hands.items():
            seen = {
                one.id: (one.text, one.freshness, one.space.name, one.revision)
                for one in book.list(Filter(), limit=1000).items
            }
            expected = {
                one.id: (one.text, self.model.freshness(one), one.space, one.revision)
                for one in self.model.known.values()
                if self.model.sees(who, one)
            }
            assert seen == expected, who
        for who, book in self.hands.items():
            spaces = [space for space in SPACES if self.model.may(who, space, "reader")]
            if not spaces:
                continue
            for hit in book.recall("text", spaces=spaces, k=50).hits:
                one = self.model.known[hit.id]
                assert (hit.passage, hit.freshness) == (one.text, self.model.freshness(one)), who


@pytest.mark.parametrize("run", [0, 1])
def test_whatever_people_do_everybody_sees_what_a_simple_model_says(book, run):
    seed = f"{SEED}.{run}"
    world = World(book, seed)
    steps = []
    for _ in range(STEPS):
        try:
            steps.append(world.step())
            world.check()
        except (AssertionError, KeyError) as error:
            last = "\n".join(steps[-12:])
            raise AssertionError(f"COMMONBOOK_SEED={SEED} run {run}, after {len(steps)} steps:\n{last}") from error
    assert wrong_with_copies(book) == []
