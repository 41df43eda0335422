"""The book for asyncio: the same verbs as coroutines, in threads, with the same types."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import commonbook
from commonbook import aio
from commonbook.aio.threads import CONTEXT_MANAGERS
from commonbook.errors import HomeError, NotFound
from commonbook.service.book import Book
from commonbook.subjects.maintenance import health

ROOT = Path(__file__).parents[2]
VERBS = [name for name in dir(Book) if not name.startswith("_")]


@pytest.mark.promise("processes.async")
@pytest.mark.parametrize("name", VERBS)
def test_every_verb_is_there_with_the_same_signature_and_help(name):
    verb, own = getattr(Book, name), getattr(aio.Book, name)
    assert inspect.getdoc(own)
    if isinstance(verb, property):
        assert isinstance(own, property)
        return
    assert inspect.signature(own) == inspect.signature(verb)
    assert inspect.iscoroutinefunction(own) == (name not in CONTEXT_MANAGERS)


def test_a_book_is_opened_with_the_same_arguments():
    assert inspect.signature(aio.open).parameters == inspect.signature(commonbook.open).parameters


def test_only_the_default_home_is_made_without_being_asked(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    asyncio.run(_opened(None))
    assert (tmp_path / "user" / "commonbook").is_dir()
    with pytest.raises(commonbook.NoHome):
        asyncio.run(_opened(tmp_path / "elsewhere"))
    assert not (tmp_path / "elsewhere").exists()


def test_there_is_no_other_verb():
    assert [name for name in dir(aio.Book) if not name.startswith("_")] == VERBS


@pytest.mark.promise("processes.async")
def test_the_types_are_those_of_the_verbs():
    made = subprocess.run(
        [sys.executable, "-c", "import make_aio; print(make_aio.stub(), end='')"],
        cwd=ROOT / "tools", capture_output=True, text=True, check=True,
    )  # fmt: skip
    stub = ROOT / "src" / "commonbook" / "aio" / "book.pyi"
    assert made.stdout == stub.read_text(encoding="utf-8"), "run `python tools/make_aio.py`"


PROGRAM = """
import asyncio
from commonbook import Hit, Memory, aio

async def main() -> None:
    async with aio.open("home", space="team") as book:
        receipt = await book.remember("Alice owns the billing service", kind="fact")
        memory: Memory = await book.get(receipt.id)
        hits: tuple[Hit, ...] = (await book.recall(memory.title, kinds=["fact"])).hits
        bob: aio.Book = await book.acting_as("user:bob")
        async with book.working():
            print(hits, bob.actor, [one.id for one in (await book.list()).items])
    other = await aio.open()
    await other.close()

asyncio.run(main())
"""


def test_a_strict_type_checker_sees_the_types(tmp_path):
    wrong = PROGRAM.replace('kind="fact")', 'kind="facts")')
    forgotten = PROGRAM.replace("= await book.get", "= book.get")
    for name, text in (("right", PROGRAM), ("wrong", wrong), ("forgotten", forgotten)):
        (tmp_path / f"{name}.py").write_text(text)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={tmp_path / 'cache'}"]
    files = ["right.py", "wrong.py", "forgotten.py"]
    done = subprocess.run([*command, *files], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert {line.partition(":")[0] for line in done.stdout.splitlines() if ": error:" in line} == {*files[1:]}


def test_memories_are_written_and_found_by_many_tasks_at_once(place):
    async def main() -> None:
        async with aio.open(place, create=True) as book:
            receipts = await asyncio.gather(*(book.remember(f"otter {number}") for number in range(40)))
            assert len({receipt.id for receipt in receipts}) == 40
            await asyncio.gather(*(book.append("s", [f"message {number}"]) for number in range(40)))
            assert len((await book.messages("s")).items) == 40
            assert len((await book.recall("otter", k=100)).hits) == 40
            with pytest.raises(NotFound):
                await book.get("01a1e0fa-b693-70c3-9466-cb4f44719619")

    asyncio.run(main())


@pytest.mark.promise("processes.async")
def test_the_event_loop_goes_on_while_a_verb_waits(place, monkeypatch):
    released, status = threading.Event(), health.status
    # Any verb will do that waits for something.
    monkeypatch.setattr(health, "status", lambda *args: released.wait(60) and status(*args))

    async def main() -> None:
        async with aio.open(place, create=True) as book:
            waiting = asyncio.create_task(book.status())
            await book.remember("something else meanwhile")
            assert not waiting.done()
            released.set()
            assert await waiting

    asyncio.run(main())


def test_a_view_acts_for_another_and_closes_nothing(place):
    async def main() -> None:
        async with aio.open(place, create=True) as book:
            await book.remember("the otter swims", space="team")
            await book.grant("user:bob", "team", "reader")
            async with await book.acting_as("user:bob") as bob:
                assert isinstance(bob, aio.Book)
                assert (bob.actor, book.actor) == ("user:bob", "user:local")
                assert [hit.text for hit in (await bob.recall("otter", spaces="team")).hits] == ["the otter swims"]
            assert (await book.status()).memories == 1

    asyncio.run(main())


async def fail_inside(book: aio.Book) -> None:
    async with book.working(every=0.01):
        assert any(thread.name == "commonbook-worker" for thread in threading.enumerate())
        raise KeyError("inside")


def test_the_worker_runs_in_the_background_and_ends_with_the_block(place):
    async def main() -> None:
        async with aio.open(place, create=True) as book:
            with pytest.raises(KeyError, match="inside"):
                await fail_inside(book)
            assert not any(thread.name == "commonbook-worker" for thread in threading.enumerate())

    asyncio.run(main())


def test_a_closed_book_says_so_and_leaves_no_thread(place):
    async def main() -> None:
        book = await aio.open(place, create=True)
        await book.remember("x")
        await book.close()
        await book.close()
        with pytest.raises(HomeError, match="closed"):
            await book.status()

    asyncio.run(main())
    for thread in threading.enumerate():
        if thread.name.startswith("commonbook-aio"):
            thread.join(60)
            assert not thread.is_alive()


def test_a_book_that_cannot_be_opened_raises_its_error(tmp_path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(commonbook.CommonbookError):
        asyncio.run(_opened(tmp_path / "file"))


async def _opened(home: Path | None) -> None:
    async with aio.open(home):
        pass


def test_context_variables_of_the_caller_are_seen_in_callbacks(home):
    who = contextvars.ContextVar("who", default="nobody")
    seen = set()

    async def main() -> None:
        async with aio.open(home, create=True) as book:
            await book.remember("x")
            who.set("caller")
            await book.export(str(home.parent / "out"), progress=lambda *_: seen.add(who.get()))

    asyncio.run(main())
    assert seen == {"caller"}
