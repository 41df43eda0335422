"""The injected functions that complete a write: before its changes are finalized, and after its commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

import commonbook
from commonbook.core.write.context import ForeignWrite, WriteContext
from commonbook.core.write.transaction import write, write_all
from commonbook.errors import Conflict, HomeDamaged
from commonbook.ports.database import Result, RetryTransaction, Transaction
from commonbook.ports.engines import AfterCommit, BeforeFinalize, Engines
from commonbook.service.book import Book
from commonbook.values.request import OWNER_CONTEXT
from commonbook.values.spaces import OWNER_ACTOR, Actor
from tests.support.stored import stored


def with_before_finalize(book: Book, step: BeforeFinalize) -> None:
    book._engines = book._engines._replace(before_finalize=step)


def with_after_commit(book: Book, step: AfterCommit) -> None:
    book._engines = book._engines._replace(after_commit=step)


# --- before the changes are finalized


def test_every_actor_of_a_transaction_is_completed_behind_the_operation_and_before_anything_is_finalized(book: Book):
    ran: list[tuple[str, list[str], int]] = []

    def step(ctx: WriteContext) -> None:
        (logged,) = ctx.tx.rows("SELECT count(*) FROM log_entry")
        ran.append((ctx.actor.principal, [change.action for change in ctx.tx.recorded], logged[0]))

    def operation(contexts: Sequence[WriteContext]) -> None:
        contexts[0].log(contexts[0].system_space("weather"), "look", ())

    book.create_space("weather")
    before = book.verify_log().entries
    with_before_finalize(book, step)
    write_all(book._engines, [OWNER_ACTOR, Actor("user:bob")], operation)
    assert ran == [(principal, ["look"], before) for principal in (OWNER_ACTOR.principal, "user:bob")]


def test_a_step_that_fails_undoes_the_whole_write(book: Book):
    committed: list[object] = []
    with_before_finalize(book, _failing)
    with_after_commit(book, lambda _engines, _tx, contents: committed.append(contents))
    with pytest.raises(Conflict):
        book.remember("It rains.")
    assert (book.list().items, book.spaces(), committed) == ((), (), [])
    assert book.verify_log().findings == ()


def _failing(ctx: WriteContext) -> None:
    ctx.log(ctx.system_space("weather"), "step", ())
    raise Conflict("a step refuses", fix="leave it out")


# --- what the write contexts of a transaction share


def test_the_actors_of_a_transaction_share_all_but_their_changes(book: Book):
    memory = stored(book, book.remember("It rains.", space="weather").id)

    def operation(contexts: Sequence[WriteContext]) -> None:
        alice, bob = contexts
        assert (alice.tx, alice.spaces, alice.permissions) == (bob.tx, bob.spaces, bob.permissions)
        alice.pending.note_changed_text(memory)
        alice.pending.note_changed_id(memory.id, space=memory.space.id, principal="user:alice")
        alice.pending.note_reasoning_change(None, memory)
        alice.pending.files_to_write[memory.id] = b"It rains."
        made = alice.system_space("made")
        assert bob.spaces[made.id] == made
        assert (bob.pending.changed_texts, bob.pending.changed_ids, bob.pending.reasoning_changed) == ({}, {}, {})
        assert bob.pending.files_to_write is alice.pending.files_to_write
        raise Conflict("enough was seen", fix="roll it back")

    with pytest.raises(Conflict, match="enough"):
        write_all(book._engines, [Actor("user:alice"), Actor("user:bob")], operation)


def test_a_principal_that_acts_for_an_actor_leaves_its_changes_to_the_steps_of_that_actor(book: Book):
    memory = stored(book, book.remember("It rains.", space="weather").id)
    seen: list[tuple[str, dict[str, object]]] = []
    with_before_finalize(book, lambda ctx: seen.append((ctx.actor.principal, dict(ctx.pending.changed_ids))))

    def operation(contexts: Sequence[WriteContext]) -> None:
        alice, _ = contexts
        alice.acting_as(Actor("user:carla"), ForeignWrite.SHARER).log_memory(memory, "look")

    write_all(book._engines, [Actor("user:alice"), Actor("user:bob")], operation)
    assert seen == [("user:alice", {memory.id: (memory.space.id, "user:carla")}), ("user:bob", {})]


def test_an_operation_that_runs_again_begins_with_nothing_pending(book: Book, monkeypatch: pytest.MonkeyPatch):
    memory = stored(book, book.remember("It rains.", space="weather").id)
    seen: list[tuple[int, int, int, int]] = []
    committed: list[Mapping[str, bytes | None]] = []
    with_before_finalize(book, lambda _ctx: None)
    with_after_commit(book, lambda _engines, _tx, contents: committed.append(contents))

    def operation(ctx: WriteContext) -> None:
        pending = ctx.pending
        seen.append(
            (len(pending.changed_texts), len(pending.changed_ids), len(pending.files_to_write), len(ctx.spaces))
        )
        ctx.system_space(f"made/{len(seen)}/_invalidations")
        pending.note_changed_text(memory)
        pending.note_changed_id(memory.id, space=memory.space.id, principal="user:alice")
        pending.files_to_write[str(len(seen))] = b""
        if len(seen) < 3:
            raise RetryTransaction

    once = book._engines.db.write

    def again(wanted: Callable[[Transaction], Result], **named: bool) -> Result:
        """Repeat the transaction for each RetryTransaction, also on an engine where no other writer causes one."""
        while True:
            with suppress(RetryTransaction):
                return once(wanted, **named)

    monkeypatch.setattr(book._engines.db, "write", again)
    write(book._engines, OWNER_CONTEXT, operation)
    assert seen == [(0, 0, 0, 1)] * 3
    assert committed == [{"3": b""}]
    assert [space.name for space in book.spaces()] == ["made/3/_invalidations", "weather"]


# --- after the commit


def test_the_step_behind_the_commit_is_given_the_files_of_what_others_see_already(home: Path):
    with commonbook.open(home, create=True) as book, commonbook.open(home) as other:
        book.create_space("personal")
        seen: list[str] = []

        def step(_engines: Engines, _tx: Transaction, contents: Mapping[str, bytes | None]) -> None:
            for id_, data in contents.items():
                assert data is not None
                assert b"It rains." in data
                seen.append(other.get(id_).text)

        with_after_commit(book, step)
        book.remember("It rains.")
        assert seen == ["It rains."]


@pytest.mark.promise("writes.files-follow")
def test_what_goes_wrong_behind_the_commit_takes_nothing_back_and_is_made_good_later(home: Path):
    with commonbook.open(home, create=True) as book:
        book.create_space("personal")
        for error in (OSError(5, "the disk is away"), HomeDamaged("the folder is away", fix="bring it back")):

            def failing(_engines: Engines, _tx: object, _contents: object, error: Exception = error) -> None:
                raise error

            with_after_commit(book, failing)
            receipt = book.remember("It rains.", tags=[type(error).__name__.lower()])
            assert book.get(receipt.id).text == "It rains."
            assert not (home / receipt.path).exists()
        assert book.status().pending_files == 2
    with commonbook.open(home) as book:
        assert book.status().pending_files == 0
        assert all((home / memory.path).exists() for memory in book.list().items)
        assert book.doctor() == ()
