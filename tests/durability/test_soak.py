"""A soak test: four processes append, switch, rewind, close, settle, recall and are killed; the store equals a model.

Each process has sessions of its own, whose whole history the test knows, and all share one more, of which the test
knows the acknowledgements. A process is killed in the middle of an operation: that has happened whole or not at all,
and the test finds out which before it goes on.

SOAK_SECONDS          how long it goes on (4)
COMMONBOOK_SEED      what the random steps follow from
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import commonbook
from tests.support import capture_child
from tests.support.capture_child import Log, logs_of, wrong_with

SECONDS = float(os.environ.get("SOAK_SECONDS", "4"))
SEED = os.environ["COMMONBOOK_SEED"]
SHARED = "shared"
_MIN_STEPS = 6

Op = dict[str, Any]


# --- the model


@dataclass
class KnownMessage:
    """A message as the model knows it."""

    id: str
    text: str
    client_id: str
    rewound: bool = False


@dataclass
class Own:
    """A session that only one process uses."""

    messages: list[KnownMessage] = field(default_factory=list)
    parent: str | None = None
    closed: bool = False


class Model:
    """The acknowledged changes of one process, which must be stored."""

    def __init__(self, who: int) -> None:
        self.who = who
        self.sessions: dict[str, Own] = {}
        self.shared: list[tuple[int, str, str]] = []
        self.rewound: list[int] = []
        self.perhaps: list[Op] = []
        self.killed = self.steps = 0
        self.verbs: Counter[str] = Counter()

    def write(self, op: Op, answer: Any) -> None:
        """Record an acknowledged operation, and check its receipt against the earlier state."""
        self.steps += 1
        self.verbs[op["verb"]] += 1
        match op["verb"]:
            case "append":
                self._append(op, answer["messages"])
            case "switch":
                self.sessions.setdefault(op["session"], Own()).closed = True
                new = self.sessions.setdefault(op["to"], Own(parent=op["session"]))
                new.closed = False
            case "rewind" if op["session"] == SHARED:
                self.rewound += answer
            case "rewind":
                taken = self._rewind(op)
                assert answer == taken, (op, answer, taken)
            case "close" if op["session"] != SHARED:
                self.sessions[op["session"]].closed = True
            case "recall":
                self._found(op, answer)

    def _append(self, op: Op, receipts: list[Any]) -> None:
        if op["session"] == SHARED:
            self.shared += [
                (receipt["seq"], receipt["id"], sent["text"])
                for receipt, sent in zip(receipts, op["messages"], strict=True)
            ]
            assert all(receipt["new"] for receipt in receipts)
            return
        own = self.sessions.setdefault(op["session"], Own(parent=op.get("parent")))
        for receipt, sent in zip(receipts, op["messages"], strict=True):
            known = next((message for message in own.messages if message.client_id == sent["client_id"]), None)
            if known is None:
                assert (receipt["seq"], receipt["new"]) == (len(own.messages) + 1, True), (op, receipt)
                own.messages.append(KnownMessage(receipt["id"], sent["text"], sent["client_id"]))
                own.closed = False
            else:
                actual = (receipt["id"], receipt["new"], receipt["rewound"])
                assert actual == (known.id, False, known.rewound), (op, receipt)

    def _rewind(self, op: Op) -> list[int]:
        messages = self.sessions[op["session"]].messages
        taken = [at for at, message in enumerate(messages, start=1) if at > op["after"] and not message.rewound]
        for at in taken:
            messages[at - 1].rewound = True
        return taken

    def _found(self, op: Op, ids: list[str]) -> None:
        message = next(one for one in self.sessions[op["session"]].messages if one.id == op["id"])
        if message.rewound:
            assert message.id not in ids, f"a message that was taken back is recalled: {op}"
        else:
            assert message.id in ids, f"an acknowledged message is not found: {op}"

    # --- the next operation

    def invent(self, dice: random.Random, number: int) -> Op:
        """Return a random operation."""
        token = f"p{self.who}n{number}"
        live = list(self.sessions)
        if not live or dice.random() < 0.35:
            session = dice.choice([*live, SHARED, SHARED, f"p{self.who}s{dice.randrange(3)}"])
            return _append(session, [f"{token}x{at} says a few words" for at in range(dice.choice([1, 2, 3, 45]))])
        session = dice.choice(live)
        own = self.sessions[session]
        verb = dice.choice(["repeat", "switch", "rewind", "close", "settle", "work", "recall", "recall", "shared"])
        if verb == "repeat" and own.messages:
            first = dice.randrange(len(own.messages))
            some = own.messages[first : first + 3]
            again = [{"text": message.text, "client_id": message.client_id} for message in some]
            return {"verb": "append", "session": session, "messages": again}
        if verb == "switch":
            to = dice.choice([one for one in [*live, f"p{self.who}t{number}"] if one != session])
            return {"verb": verb, "session": session, "to": to}
        if verb == "rewind" and own.messages:
            return {"verb": verb, "session": session, "after": max(0, len(own.messages) - dice.randrange(6))}
        if verb == "recall" and own.messages:
            message = dice.choice(own.messages)
            return {"verb": verb, "session": session, "query": message.text.split()[0], "id": message.id, "k": 5}
        if verb == "shared" and self.shared:
            after = max(seq for seq, _, _ in self.shared)
            return {"verb": dice.choice(["settle", "rewind", "close"]), "session": SHARED, "after": after}
        return {"verb": verb if verb in {"close", "settle"} else "work", "session": session}

    # --- after a kill

    def look(self, op: Op, logs: dict[str, Log]) -> None:
        """Find out whether an unacknowledged operation has happened after all, and record it if so."""
        self.killed += 1
        if op["session"] == SHARED:
            self.perhaps.append(op)
            return
        before = self._shape(op, logs)
        if before == self._wanted(op):
            return
        log = logs[op["session"]]
        if op["verb"] == "append":
            by_client = {one.client_id: one for one in log.messages}
            assert all(sent["client_id"] in by_client for sent in op["messages"]), f"half of {op} has happened"
            known = {message.client_id for message in self.sessions.get(op["session"], Own()).messages}
            receipts = [
                {
                    "seq": by_client[sent["client_id"]].seq,
                    "id": by_client[sent["client_id"]].id,
                    "new": sent["client_id"] not in known,
                    "rewound": by_client[sent["client_id"]].rewound_at is not None,
                }
                for sent in op["messages"]
            ]
            self.write(op, {"messages": receipts})
        elif op["verb"] == "rewind":
            self.write(op, self._still_there(op))
        elif op["verb"] in {"switch", "close"}:
            self.write(op, None)
        assert self._shape(op, logs) == self._wanted(op), f"half of {op} has happened"

    def _still_there(self, op: Op) -> list[int]:
        messages = self.sessions[op["session"]].messages
        return [at for at, message in enumerate(messages, start=1) if at > op["after"] and not message.rewound]

    def _shape(self, op: Op, logs: dict[str, Log]) -> list[Any]:
        return [_shape_of(logs.get(name)) for name in (op["session"], op.get("to")) if name]

    def _wanted(self, op: Op) -> list[Any]:
        return [self.wanted(name) for name in (op["session"], op.get("to")) if name]

    def wanted(self, name: str) -> Any:
        """Return the expected state of a session."""
        own = self.sessions.get(name)
        if own is None:
            return None
        messages = [(at, message.id, message.text, message.rewound) for at, message in enumerate(own.messages, start=1)]
        return own.parent, own.closed, messages


def _append(session: str, texts: list[str]) -> Op:
    return {
        "verb": "append",
        "session": session,
        "messages": [{"text": text, "client_id": text.split()[0]} for text in texts],
    }


def _shape_of(log: Log | None) -> Any:
    if log is None:
        return None
    messages = [(one.seq, one.id, one.text, one.rewound_at is not None) for one in log.messages]
    return log.session.parent, log.session.closed is not None, messages


# --- the processes


def _live(place: Path | str, model: Model, ready: threading.Barrier, trouble: list[BaseException]) -> None:
    """Run one process, kill and restart it, until the time is up, which starts when all are ready.

    On a slow machine it runs longer, until a minimum of steps.
    """
    dice = random.Random(f"{SEED}-{model.who}")
    child = capture_child.start("serve", place)
    number = 0
    try:
        assert capture_child.answer(child) == "ready"
        ready.wait(60)
        until = time.monotonic() + SECONDS
        while (time.monotonic() < until or model.steps < _MIN_STEPS) and not trouble:
            number += 1
            op = model.invent(dice, number)
            capture_child.ask(child, op)
            if killed := dice.random() < 0.03:
                time.sleep(dice.uniform(0, 0.02))
                child.kill()
            answer = capture_child.answer(child)
            if answer is not None:
                model.write(op, answer)
            if killed or answer is None:
                assert child.wait() == -9, f"a process died by itself at {op}"
                child.communicate()
                child = capture_child.start("serve", place)
                assert capture_child.answer(child) == "ready"
                if answer is None:
                    capture_child.after_a_kill(place)
                    with closing(commonbook.open(place, create=True)) as book:
                        # Killed while it waited for the disk, it may have written pages that are not visible yet, but
                        # would be after the last process has ended. The next write decides.
                        book.remember(f"a look at {model.who} after step {number}", space="looks")
                        model.look(op, logs_of(book))
    except BaseException as error:  # noqa: BLE001 - it is raised again by the test
        trouble.append(error)
    finally:
        child.kill()
        child.communicate()


@pytest.mark.slow
@pytest.mark.timeout(180 + 2 * SECONDS)
def test_after_a_soak_the_store_is_what_everybody_was_told(place, record_property):
    commonbook.open(place, create=True).close()
    models = [Model(who) for who in range(4)]
    trouble: list[BaseException] = []
    ready = threading.Barrier(len(models))
    threads = [threading.Thread(target=_live, args=(place, model, ready, trouble)) for model in models]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not trouble, f"seed {SEED}: {trouble}"
    record_property("steps", sum(model.steps for model in models))
    record_property("kills", sum(model.killed for model in models))
    with closing(commonbook.open(place)) as book:
        logs = logs_of(book)
        assert book.verify_log().ok
        assert book.doctor() == ()
        assert book.status().failed_jobs == 0
    for model in models:
        for name in model.sessions:
            assert _shape_of(logs[name]) == model.wanted(name), f"seed {SEED}, session {name}"
    known = {name for model in models for name in model.sessions}
    perhaps = {op["to"] for model in models for op in model.perhaps if "to" in op}
    assert logs.keys() - {SHARED} <= known | perhaps
    _check_shared(logs.get(SHARED), models)
    assert wrong_with(place) == [], f"seed {SEED}"


def _check_shared(log: Log | None, models: list[Model]) -> None:
    """Check the shared session: each acknowledged message once, and beside them only unacknowledged ones."""
    stored = {(one.seq, one.id, one.text): one for one in log.messages} if log else {}
    acknowledged = {one for model in models for one in model.shared}
    assert len(acknowledged) == sum(len(model.shared) for model in models), (
        "two messages were acknowledged at the same place"
    )
    assert acknowledged <= stored.keys(), f"seed {SEED}: acknowledged messages of the shared session are lost"
    more = {text for seq, id_, text in stored.keys() - acknowledged}
    for model in models:
        for op in model.perhaps:
            texts = {sent["text"] for sent in op.get("messages", ())}
            assert texts <= more or not texts & more, f"seed {SEED}: a batch was stored in part"
            more -= texts
        seqs = [seq for seq, _, _ in model.shared]
        assert seqs == sorted(seqs), f"seed {SEED}: the messages of one process are out of order"
    assert not more, f"seed {SEED}: nobody ever sent {more}"
    rewound = [seq for model in models for seq in model.rewound]
    assert len(rewound) == len(set(rewound)), "one message was taken back twice"
    taken = {one.seq for one in stored.values() if one.rewound_at}
    assert set(rewound) <= taken, f"seed {SEED}: what was taken back is there again"
    lost = [op["after"] for model in models for op in model.perhaps if op["verb"] == "rewind"]
    assert all(seq > min(lost, default=10**9) for seq in taken - set(rewound)), f"seed {SEED}"
