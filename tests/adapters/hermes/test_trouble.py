"""The provider when something is wrong: a slow or failing book, a crash.

COMMONBOOK_KILLS     how many times a process is killed (3; the full setting is 50)
COMMONBOOK_SEED      what the random moments follow from
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest

import commonbook
from commonbook.adapters.hermes import provider as hermes_provider
from commonbook.adapters.hermes.provider import CommonbookMemoryProvider
from commonbook.engines.process import FairLock
from commonbook.errors import Busy, CommonbookError, HomeError
from commonbook.service.book import Book
from tests.support import crashing
from tests.support.hermes import Hermes, check, everything, reading, turns_of
from tests.support.hermes_child import transcript, words
from tests.support.postgres_server import wait_for_transactions

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("COMMONBOOK_KILLS", "3"))
SEED = os.environ["COMMONBOOK_SEED"]


@contextmanager
def hurried(provider):
    """Let the provider have little patience, and only here: on a busy machine everything takes longer than that."""
    keeper = provider._active.keeper
    patience, keeper._write_seconds = keeper._write_seconds, 0.3
    try:
        yield
    finally:
        keeper._write_seconds = patience


@contextmanager
def held(place):
    """Keep others from writing to the book, as a process does that writes and hangs."""
    go_on, holding = threading.Event(), threading.Event()

    def operation(tx):
        if isinstance(place, str):
            tx.run("LOCK TABLE space, session, message, memory IN EXCLUSIVE MODE")
        holding.set()
        go_on.wait(60)

    def hold():
        with commonbook.open(place, create=True) as book:
            book._engines.db.write(operation)

    thread = threading.Thread(target=hold)
    thread.start()
    assert holding.wait(60)
    try:
        yield
    finally:
        go_on.set()
        thread.join(60)
        # Those who gave up waiting have had their turn too when ours has come.
        if isinstance(place, str):
            wait_for_transactions(place)
        else:
            with FairLock(str(place / ".commonbook" / "write.lock")).hold(30):
                pass


def arrived(place, session, count):
    """Wait until a session has so many messages."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        with reading(place) as book:
            if len(everything(book).get(session, (None, []))[1]) >= count:
                return
        time.sleep(0.1)
    raise AssertionError("the spilled messages did not arrive")


# --- a slow and a failing book


@pytest.mark.promise("hermes.slow")
def test_a_book_that_hangs_holds_up_no_call_and_everything_arrives_once_and_in_order(provider, place, caplog):
    hermes = Hermes(provider)
    hermes.turn("before", "all is well")
    with held(place), hurried(provider):
        begun = time.monotonic()
        for number in range(4):
            hermes.turn(f"question {number}", f"answer {number}")
        hermes.compress("s2")
        hermes.turn("in the new session", "still held")
        hermes.new("s3")
        hermes.turn("and another", "held too")
        assert time.monotonic() - begun < 40
        assert "in the spill file" in caplog.text
    arrived(place, "s3", 2)
    hermes.turn("after", "all is well again")
    hermes.exit()
    check(place, hermes, parents={"s1": None, "s2": "s1", "s3": "s2"})


def test_what_a_hanging_book_has_not_taken_is_on_disk_and_a_later_process_brings_it_in(
    provider, place, tmp_path, monkeypatch
):
    monkeypatch.setattr(hermes_provider, "_CLOSE_SECONDS", 0.5)
    hermes = Hermes(provider)
    hermes.turn("before", "all is well")
    with held(place), hurried(provider):
        hermes.turn("during", "held")
        hermes.exit()
    again = Hermes(CommonbookMemoryProvider(hermes_home=str(tmp_path / "hermes")))
    again.messages, again.recorded = hermes.messages, hermes.recorded
    again.turn("after", "all is well again")
    arrived(place, "s1", 6)
    again.exit()
    check(place, again)


def _another(request):
    """Make a database for another book."""
    server, migrated = (request.getfixturevalue(name) for name in ("postgres", "postgres_migrated"))
    request.addfinalizer(lambda: server.drop_database("another"))
    return server.make_database("another", template=migrated)


def test_what_was_kept_beside_one_book_never_goes_into_another(provider, place, tmp_path, monkeypatch, request):
    monkeypatch.setattr(hermes_provider, "_CLOSE_SECONDS", 0.5)
    hermes = Hermes(provider)
    hermes.turn("before", "all is well")
    with held(place), hurried(provider):
        hermes.turn("during", "kept beside it")
        provider.shutdown()
        with monkeypatch.context() as elsewhere:
            other = _another(request) if isinstance(place, str) else tmp_path / "other"
            for name, value in crashing.named(other).items():
                elsewhere.setenv(name, value)
            second = Hermes(CommonbookMemoryProvider(hermes_home=str(tmp_path / "hermes")), "s2")
            second.turn("another", "book")
            second.exit()
            check(other, second)
    third = Hermes(CommonbookMemoryProvider(hermes_home=str(tmp_path / "hermes")))
    arrived(place, "s1", 4)
    third.exit()
    check(place, hermes)


def test_a_book_that_fails_at_once_loses_nothing_either(provider, place, monkeypatch):
    monkeypatch.setenv("COMMONBOOK_BUSY_SECONDS", "0")
    hermes = Hermes(provider)
    with held(place), hurried(provider):
        for number in range(3):
            hermes.turn(f"question {number}", f"answer {number}")
    arrived(place, "s1", 6)
    hermes.exit()
    check(place, hermes)


def test_secrets_are_masked_in_what_is_kept_beside_the_book(provider, place, tmp_path):
    hermes = Hermes(provider)
    secret = "sk-ant-" + "a1B2" * 10
    with held(place), hurried(provider):
        hermes.turn(f"the key is {secret}", "noted")
        for path in (tmp_path / "hermes").rglob("*"):
            assert not path.is_file() or secret.encode() not in path.read_bytes()
    arrived(place, "s1", 2)
    hermes.exit()
    assert not hermes.errors


def test_a_home_that_cannot_be_opened_is_an_error_that_hermes_logs_and_its_turns_are_kept(provider, home, tmp_path):
    home.mkdir()
    (home / ".commonbook").mkdir()
    (home / ".commonbook" / "state.db").write_bytes(b"this is not a database, and never was" * 100)
    hermes = Hermes(provider)
    assert isinstance(hermes.errors[0], HomeError)
    hermes.turn("is anybody there", "no")
    hermes.exit()
    assert len(hermes.errors) == 1
    (home / ".commonbook" / "state.db").unlink()
    again = Hermes(CommonbookMemoryProvider(hermes_home=str(tmp_path / "hermes")))
    again.recorded = hermes.recorded
    arrived(home, "s1", 2)
    again.exit()
    check(home, again)


def test_an_undo_that_a_hanging_book_does_not_take_happens_later_and_takes_nothing_else_with_it(
    provider, place, caplog
):
    hermes = Hermes(provider)
    hermes.turn("first", "one")
    hermes.turn("second", "two")
    with held(place), hurried(provider):
        hermes.undo()
        hermes.turn("third", "three")
        hermes.turn("fourth", "four")
    arrived(place, "s1", 6)
    hermes.turn("fifth", "five")
    hermes.exit()
    check(place, hermes)
    assert "could not be rewound" not in caplog.text


def test_an_undo_that_cannot_be_carried_out_is_told_and_nothing_is_lost(provider, place, monkeypatch, caplog):
    monkeypatch.setenv("COMMONBOOK_BUSY_SECONDS", "0")
    hermes = Hermes(provider)
    hermes.turn("first", "one")
    hermes.turn("second", "two")
    with held(place), hurried(provider):
        hermes.undo()
        hermes.turn("third", "three")
    arrived(place, "s1", 6)
    hermes.turn("fourth", "four")
    hermes.exit()
    with reading(place) as book:
        texts = [one.text for one in everything(book)["s1"][1]]
    assert texts == ["first", "one", "second", "two", "third", "three", "fourth", "four"]
    assert "could not be rewound" in caplog.text


def test_trouble_is_told_to_the_user_and_with_the_next_recall(provider, place, book):
    book.remember("The heron nests in the reeds.")
    warnings: list[str] = []
    hermes = Hermes(provider, warning_callback=warnings.append)
    with held(place), hurried(provider):
        hermes.turn("during", "held")
    arrived(place, "s1", 2)
    assert any("in the spill file" in one for one in warnings)
    assert (
        provider.prefetch("where does the heron nest") == ""
        or "in the spill file" in provider.recall_status().provider_label
    )


def test_an_entry_of_hermes_memory_that_cannot_be_mirrored_is_told(provider, place, tmp_path, caplog):
    Hermes(provider)
    (tmp_path / "hermes" / "memories").mkdir(parents=True)
    (tmp_path / "hermes" / "memories" / "USER.md").write_text("an entry")
    with held(place), hurried(provider), pytest.raises(CommonbookError):
        provider.on_memory_write("add", "memory", "an entry")
    assert "could not be mirrored" in caplog.text


def test_a_checkpoint_that_is_not_on_disk_raises(provider, place, tmp_path, monkeypatch):
    monkeypatch.setenv("COMMONBOOK_BUSY_SECONDS", "0")
    hermes = Hermes(provider)
    hermes.turn("first", "one")
    shutil.rmtree(tmp_path / "hermes")
    (tmp_path / "hermes").write_text("in the way of the spill file")
    hermes.messages += [{"role": "user", "content": "second"}, {"role": "assistant", "content": "two"}]
    with held(place), hurried(provider):
        with pytest.raises(CommonbookError):
            provider.on_pre_compress(hermes.messages)
        with pytest.raises(CommonbookError):
            provider.sync_turn("second", "two", session_id="s1", messages=hermes.messages)
    provider.sync_turn("second", "two", session_id="s1", messages=hermes.messages)
    with reading(place) as book:
        assert turns_of(everything(book)["s1"][1]) == [("first", "one"), ("second", "two")]


def test_a_checkpoint_of_a_session_that_cannot_be_read_raises(provider, place, monkeypatch):
    hermes = Hermes(provider)
    hermes.turn("first", "one")
    hermes.exit()
    again = Hermes(provider)
    go_on = threading.Event()
    with monkeypatch.context() as broken, hurried(provider):
        broken.setattr(Book, "messages", lambda *_args, **_kwargs: go_on.wait(60))
        with pytest.raises(Busy):
            provider.on_pre_compress([*hermes.messages, {"role": "user", "content": "second"}])
    go_on.set()
    provider.on_pre_compress([*hermes.messages, {"role": "user", "content": "second"}])
    assert not again.errors
    with reading(place) as book:
        assert [one.text for one in everything(book)["s1"][1]] == ["first", "one", "second"]


# --- shutdown


def test_a_write_before_the_beginning_and_after_the_end_fails_loudly(provider, place):
    def write():
        provider.sync_turn("hello", "hi", session_id="s1")

    with pytest.raises(HomeError):
        write()
    hermes = Hermes(provider)
    hermes.turn("hello", "hi")
    hermes.exit()
    for call in (
        write,
        lambda: provider.on_session_end([{"role": "user", "content": "x"}]),
        lambda: provider.on_pre_compress([]),
        lambda: provider.on_session_switch("s2"),
        lambda: provider.on_delegation("t", "r"),
        lambda: provider.on_memory_write("add", "memory", "x"),
    ):
        with pytest.raises(HomeError, match="not initialized, or was shut down"):
            call()
    assert provider.prefetch("hello") == ""
    assert "not initialized" in provider.handle_tool_call("commonbook_recall", {"query": "x"})
    provider.shutdown()


def test_a_provider_that_was_shut_down_stores_again_after_a_new_beginning(provider, place):
    hermes = Hermes(provider)
    hermes.turn("first", "one")
    hermes.exit()
    again = Hermes(provider, "s2")
    again.turn("second", "two")
    again.exit()
    third = Hermes(provider, "s1")
    third.messages = hermes.messages
    third.turn("third", "three")
    third.exit()
    third.recorded = [*hermes.recorded, *third.recorded]
    check(place, again, third, parents={"s1": None, "s2": None})


def test_a_shutdown_in_the_middle_of_a_conversation_keeps_every_turn_that_was_told(provider, place):
    hermes = Hermes(provider)
    for number in range(5):
        hermes.turn(f"question {number}", f"answer {number}")
    provider.shutdown()
    check(place, hermes)


def test_a_shutdown_does_not_wait_for_a_book_that_hangs(provider, place, monkeypatch):
    monkeypatch.setattr(hermes_provider, "_CLOSE_SECONDS", 0.5)
    hermes = Hermes(provider)
    hermes.turn("before", "all is well")
    with held(place), hurried(provider):
        hermes.turn("during", "held")
        begun = time.monotonic()
        provider.shutdown()
        assert time.monotonic() - begun < 30


def test_a_second_beginning_without_an_end_is_a_new_beginning(provider, place):
    hermes = Hermes(provider)
    hermes.turn("first", "one")
    again = Hermes(provider, "s2")
    again.turn("second", "two")
    again.exit()
    check(place, hermes, again)


# --- a crash


def start(tmp_path, place, first, last):
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.hermes_child", str(tmp_path / "hermes"), "s1", str(first), str(last)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=crashing.environment(**crashing.named(place)),
        cwd=crashing._ROOT,
        bufsize=0,
    )


@pytest.mark.promise("hermes.durable")
def test_every_turn_that_was_acknowledged_survives_kill_minus_nine_once(place, tmp_path, provider):
    dice, done = random.Random(SEED), 0
    for _ in range(KILLS):
        child = start(tmp_path, place, done, done + 400)
        lines = iter(child.stdout.readline, b"")
        for _ in range(dice.randrange(1, 12)):
            done = int(next(lines)) + 1
        time.sleep(dice.random() * 0.01)
        child.send_signal(signal.SIGKILL)
        for line in lines:
            done = int(line) + 1
        child.wait()
        child.stdin.close()
        child.stdout.close()
        with reading(place) as book:
            turns = turns_or_more(everything(book)["s1"][1])
        assert turns[:done] == [words(n) for n in range(done)], SEED
        assert len(turns) <= done + 1, SEED
    provider.initialize("s1", platform="cli")
    provider.sync_turn(*words(done), messages=transcript(done))
    provider.on_session_end(transcript(done))
    provider.shutdown()
    with reading(place) as book:
        assert turns_of(everything(book)["s1"][1]) == [words(n) for n in range(done + 1)], SEED


def turns_or_more(messages):
    texts = [one.text for one in messages]
    return list(zip(texts[::2], texts[1::2], strict=False))


@pytest.mark.slow
def test_what_was_kept_beside_a_hanging_book_survives_kill_minus_nine(place, tmp_path, provider):
    provider.save_config({"write_seconds": 0.3}, str(tmp_path / "hermes"))
    commonbook.open(place, create=True).close()
    with held(place):
        child = start(tmp_path, place, 0, 3)
        while child.stdout.readline() != b"done\n":
            pass
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdin.close()
        child.stdout.close()
    Hermes(provider)
    arrived(place, "s1", 6)
    provider.on_session_end(transcript(2))
    with reading(place) as book:
        assert turns_of(everything(book)["s1"][1]) == [words(n) for n in range(3)]


# --- a server
