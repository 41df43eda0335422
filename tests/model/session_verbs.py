"""Verbs of the random test: sessions."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition

from commonbook.values.session import AppendReceipt, SwitchReason
from tests.model.machine import AT, NAMES, PLACE, WHERE, WHO, Machine, verb
from tests.support.promise_facts import OWNER, Message, SessionKey, words_of
from tests.support.promise_reads import WITHOUT
from tests.support.promise_world import DEFAULT_SPACE


class SessionVerbs(Machine):
    """Principals append to sessions, settle, rewind and move them."""

    @verb(who=WHO, name=st.sampled_from(NAMES), where=PLACE, count=st.integers(1, 3))
    def append(self, who: str, name: str, where: str | None, count: int) -> None:
        self._begin("append", who)
        words = [self._word() for _ in range(count)]
        space = where or DEFAULT_SPACE
        who, name = self._likely(who, space), self._name(name, space)
        key = self.model.reached((space, name))
        # Only the owner has a default space here: others have no key that names one.
        may = self._may_record(who, space, key) and (where is not None or who == OWNER)
        receipt = self._try(lambda: self._append(name, words, where), may=may, must=True)
        if receipt is not None and receipt.space != key[0]:
            self.checks.fail("sessions", f"a message to {name} of {space} is in {receipt.space}, not in {key[0]}")

    def _append(self, name: str, words: list[str], where: str | None) -> AppendReceipt:
        key = self.model.reached((where or DEFAULT_SPACE, name))
        receipt = self.world.append(self.who, name, words, where)
        self.model.moved.pop(key, None)
        self.model.sessions.setdefault(key, []).extend(Message(word, by=self.who) for word in words)
        return receipt

    def _may_record(self, who: str, space: str, key: SessionKey) -> bool:
        """Tell whether a principal may write to a session that it names by a space, which may be its former one."""
        return self.model.granted(who, space, "writer") and self.model.granted(who, key[0], "writer")

    def _name(self, name: str, space: str) -> str:
        """Return a name of a session; if that is left out, each space has names of its own."""
        return f"{name}.{space.replace(chr(47), chr(46))}" if "shared_names" in WITHOUT else name

    def _named(self, at: int, key: SessionKey) -> str:
        """Return the space by which a session is named: mostly its own, and at times one that it was moved out of."""
        former = [space for space, name in self.model.moved if self.model.present((space, name)) == key]
        return former[at % len(former)] if former and at % 4 == 3 else key[0]

    def _may_find(self, who: str, space: str, key: SessionKey) -> bool | None:
        """Tell whether a principal may change a session; by a former space, only if it may read that too."""
        may = self.model.granted(who, key[0], "writer")
        return may if space == key[0] or not may or self.model.may(who, space, "reader") else None

    @precondition(lambda self: self._session(0))
    @verb(who=WHO, at=AT, where=WHERE)
    def move_session(self, who: str, at: int, where: str) -> None:
        """Move a session with all of it: only into a space where there is and was no other of this name."""
        self._begin("move session", who)
        key = self._session(at)
        if key is None:
            return
        name, there = key[1], (where, key[1])
        who = self._likely(who, where)
        may = self.model.may(who, key[0], "writer") and self.model.may(who, where, "writer")
        free = there == key or (there not in self.model.sessions and self.model.present(there) in (key, there))
        must = free and not self.switched
        moved = self._try(
            lambda: self.world.hands[who].move_session(name, where, space=key[0]),
            may=may,
            must=must,
        )
        if moved is None or there == key:
            return
        if self.model.sessions.get(there) or self.model.present(there) not in (key, there):
            self.checks.fail("sessions", f"{who} moves {key} to {where}, where there is or was another one")
        self.model.move_session(who, key, where)

    def _session(self, at: int) -> SessionKey | None:
        spoken = [key for key, messages in self.model.sessions.items() if messages]
        return spoken[at % len(spoken)] if spoken else None

    @precondition(lambda self: self._session(0))
    @verb(who=WHO, at=AT, close=st.booleans())
    def settle(self, who: str, at: int, close: bool) -> None:
        self._begin("close" if close else "settle", who)
        key = self._session(at)
        if key is None:
            return
        space, name = self._named(at, key), key[1]
        who = self._likely(who, key[0])
        act = self.world.close_session if close else self.world.settle
        self._try(lambda: act(who, name, space), may=self._may_find(who, space, key), must=space == key[0])

    @verb(who=WHO, names=st.permutations(NAMES), where=PLACE, reason=st.sampled_from(["new", "resume", "branch"]))
    def switch(self, who: str, names: list[str], where: str | None, reason: SwitchReason) -> None:
        self._begin("switch", who)
        self.switched = True
        space = where or DEFAULT_SPACE
        old, new = (self._name(name, space) for name in names)
        keys = [self.model.reached((space, name)) for name in (old, new)]
        may = all(self._may_record(who, space, key) for key in keys) and (where is not None or who == OWNER)
        if self._try(lambda: self.world.switch(who, old, new, reason, where), may=may) is not None:
            for key in keys:
                self.model.moved.pop(key, None)
                self.model.sessions.setdefault(key, [])

    @precondition(lambda self: self._session(0))
    @verb(who=WHO, at=AT, after=st.integers(0, 4))
    def rewind(self, who: str, at: int, after: int) -> None:
        self._begin("rewind", who)
        key = self._session(at)
        if key is None:
            return
        space, name = self._named(at, key), key[1]
        who = self._likely(who, key[0])
        messages = self.world.messages(OWNER, name, key[0]) or ()
        last = messages[min(after, len(messages)) - 1] if after and messages else None
        may = self._may_find(who, space, key)
        if may and self.model.holds_back(who, key[0]):
            # An agent takes back its own messages, unless their episode was edited, or the log of them is lost.
            may = None if self.model.are_own(who, key, words_of(last.text)[0] if last else None) else False
        if (
            self._try(
                lambda: self.world.rewind(who, name, last.id if last else 0, space), may=may, must=space == key[0]
            )
            is not None
        ):
            word = words_of(last.text)[0] if last else None
            self.model.rewind(who, key, word)
            shown = self.world.listed(OWNER)
            for copy in self.model.rewound_copies():
                # A copy that was edited, or whose sharer lost the right, stays.
                copy.deleted = copy.id not in shown
