"""Sharing at random: several principals do anything to copies, and a simple model says what each of them then sees.

COMMONBOOK_STEPS   how many steps each run has (60; the full setting is 1000)
COMMONBOOK_SEED    where the dice begin; a failure names it
"""

from __future__ import annotations

import os
import random
import time
from dataclasses import dataclass, field
from typing import Any

import pytest

from commonbook.book import Book
from commonbook.errors import BadInput, Conflict, NotAllowed, NotFound
from commonbook.model import Filter
from tests.test_sharing_races import wrong_with_copies

STEPS = int(os.environ.get("COMMONBOOK_STEPS", "60"))
SEED = os.environ.get("COMMONBOOK_SEED") or str(time.time_ns())
OWNER = "user:local"
PEOPLE = (OWNER, "user:alice", "user:bob", "user:carol")
SPACES = ("a", "b", "c", "d")
ROLES = ("reader", "writer")

pytestmark = pytest.mark.timeout(120 + 2 * STEPS)


@dataclass
class Known:
    """A memory as the model has it; `took` is the source's revision that a copy has."""

    id: str
    space: str
    text: str
    revision: int = 1
    deleted: bool = False
    source: str | None = None
    root: str = ""
    mode: str = ""
    by: str = ""
    took: int = 0
    edited: bool = False


@dataclass
class Model:
    """What there is, and who may do what: everything as plain as can be."""

    known: dict[str, Known] = field(default_factory=dict)
    roles: dict[tuple[str, str], str] = field(default_factory=dict)

    def may(self, who: str, space: str, role: str) -> bool:
        return who == OWNER or (
            ROLES.index(self.roles.get((who, space), "reader")) >= ROLES.index(role) and ((who, space) in self.roles)
        )

    def sees(self, who: str, memory: Known) -> bool:
        return not memory.deleted and self.may(who, memory.space, "reader")

    def root(self, memory: Known) -> str:
        return memory.root if memory.source and memory.mode != "detached" else memory.id

    def there(self, root: str, space: str) -> Known | None:
        """What a space has of a root."""
        for one in self.known.values():
            if one.space == space and not one.deleted and one.id == root:
                return one
        for one in self.known.values():
            is_copy = one.source is not None and one.mode != "detached" and one.root == root
            if one.space == space and not one.deleted and is_copy:
                return one
        return None

    def holds(self, copy: Known) -> bool:
        """Tell whether a copy follows its source, or would if it were asked to."""
        source = self.known.get(copy.source or "")
        return (
            source is not None
            and copy.mode != "detached"
            and self.may(copy.by, source.space, "reader")
            and not source.deleted
            and not copy.edited
        )

    def behind(self, copy: Known) -> bool:
        if copy.source is None or not self.holds(copy):
            return False
        source = self.known[copy.source]
        return copy.took < source.revision or self.behind(source)

    def freshness(self, copy: Known) -> str | None:
        if copy.source is None:
            return None
        source = self.known[copy.source]
        if copy.mode == "detached":
            return "detached"
        if not self.may(copy.by, source.space, "reader"):
            return "revoked"
        if source.deleted:
            return "source_deleted"
        if copy.edited:
            return "diverged"
        return "stale" if self.behind(copy) else "fresh"

    def take_over(self, copy: Known) -> None:
        """Let a copy say what its source says, and its own copies follow."""
        source = self.known[copy.source or ""]
        copy.took, copy.edited = source.revision, False
        if copy.text != source.text:
            copy.text = source.text
            copy.revision += 1
            self.spread(copy)

    def spread(self, source: Known) -> None:
        for copy in sorted(self.known.values(), key=lambda one: one.id):
            is_live = copy.source == source.id and copy.mode == "live" and not copy.deleted
            if is_live and self.holds(copy) and copy.took < source.revision:
                self.take_over(copy)

    def bring_up(self, copy: Known) -> None:
        """Let a copy and those that it came through take over what their sources say."""
        chain = [copy]
        while (source := self.known.get(chain[-1].source or "")) and not chain[-1].deleted:
            if chain[-1].mode == "detached" or (chain[-1] is not copy and chain[-1].mode == "snapshot"):
                break
            chain.append(source)
        for one in reversed(chain[:-1]):
            if self.holds(one) and not one.deleted and one.took < self.known[one.source or ""].revision:
                self.take_over(one)

    def edit(self, memory: Known, text: str) -> None:
        if text != memory.text:
            memory.text = text
            memory.revision += 1
            memory.edited = memory.source is not None
            self.spread(memory)


class World:
    """A book, its model, and the dice."""

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
        """Do what needs the right to write; return its answer, or why it was rightly refused."""
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
        # Now and then what was said before: a refresh then changes nothing.
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
        space, mode = self.dice.choice(SPACES), self.dice.choice(["live", "lazy", "snapshot"])
        act = lambda: self.hands[who].share(source.id, space, refresh=mode)  # noqa: E731
        if not self.model.may(who, space, "writer"):
            return self._refused(NotAllowed, act)
        if not self.model.sees(who, source):
            return self._refused(NotFound, act)
        made = act()
        there = self.model.there(self.model.root(source), space)
        assert made.new == (there is None)
        if there is not None:
            assert made.id == there.id
        else:
            self.model.known[made.id] = Known(
                made.id,
                space,
                source.text,
                source=source.id,
                root=self.model.root(source),
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
        stands = self.model.freshness(memory)
        refusals: dict[str | None, type[Exception]] = {
            "detached": Conflict,
            "revoked": NotAllowed,
            "source_deleted": NotFound,
        }
        if stands in refusals:
            return self._refused(refusals[stands], act)
        act()
        if memory.edited or memory.took < self.model.known[memory.source or ""].revision:
            self.model.take_over(memory)
        return memory.id

    def _refresh(self, who: str) -> Any:
        memory, act = self._with_copy(who, "refresh")
        if memory is None:
            return act
        stands = self.model.freshness(memory)
        refusals: dict[str | None, type[Exception]] = {
            "detached": Conflict,
            "revoked": NotAllowed,
            "source_deleted": NotFound,
            "diverged": Conflict,
        }
        if stands in refusals:
            return self._refused(refusals[stands], act)
        act()
        self.model.bring_up(memory)
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
        if space != memory.space:
            if memory.source is not None and memory.mode != "detached" and self.model.there(memory.root, space):
                memory.mode = "detached"
            memory.space = space
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
        """Get one memory: a lazy copy that is stale is then no longer, if it may."""
        if (memory := self._some()) is None:
            return None
        if not self.model.sees(who, memory):
            return self._refused(NotFound, lambda: self.hands[who].get(memory.id))
        found = self.hands[who].get(memory.id)
        if memory.mode == "lazy" and self.model.freshness(memory) == "stale":
            self.model.bring_up(memory)
        assert (found.text, found.freshness) == (memory.text, self.model.freshness(memory))
        return memory.id

    def check(self) -> None:
        """Compare what everybody is told with what the model says."""
        for who, book in self.hands.items():
            seen = {
                one.id: (one.text, one.freshness, one.space.name, one.revision)
                for one in book.list(Filter(), limit=1000).items
            }
            said = {
                one.id: (one.text, self.model.freshness(one), one.space, one.revision)
                for one in self.model.known.values()
                if self.model.sees(who, one)
            }
            assert seen == said, who
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
    told = []
    for _ in range(STEPS):
        try:
            told.append(world.step())
            world.check()
        except (AssertionError, KeyError) as error:
            last = "\n".join(told[-12:])
            raise AssertionError(f"COMMONBOOK_SEED={SEED} run {run}, after {len(told)} steps:\n{last}") from error
    assert wrong_with_copies(book) == []
