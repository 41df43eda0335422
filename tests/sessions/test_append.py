"""Appends: every acknowledged message is stored once, in one order, whatever process dies when.

COMMONBOOK_APPENDS   how many messages each of 4 processes appends (40; the full setting is 250)
COMMONBOOK_KILLS     how many times the process that appends and settles is killed (6; the full setting is 50)
COMMONBOOK_SEED      what the random moments follow from
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import commonbook
from commonbook.errors import BadInput, BadText, BadTime, Conflict, KeyConflict, TooLarge
from commonbook.values.session import MAX_MESSAGE_BYTES, MAX_MESSAGES, NewMessage
from tests.support import capture_child, crashing
from tests.support.capture_child import POINTS, logs_of, shape_of, wrong_with
from tests.support.postgres_server import wait_until_alone
from tests.support.power_cuts import CALLS, Disk, acknowledgements, read_trace

APPENDS = int(os.environ.get("COMMONBOOK_APPENDS", "40"))
KILLS = int(os.environ.get("COMMONBOOK_KILLS", "6"))
SEED = os.environ["COMMONBOOK_SEED"]
NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


def texts(book, session):
    return [one.text for one in book.messages(session, limit=1000).items]


def seqs(receipt):
    return [one.seq for one in receipt.messages]


# --- receipts


def test_a_receipt_says_what_each_message_became(book):
    receipt = book.append("s", ["one", NewMessage("my password=hunter2x9 is", client_id="c"), "three"])
    assert receipt.session == "s"
    assert seqs(receipt) == [1, 2, 3]
    assert [one.new for one in receipt.messages] == [True, True, True]
    assert [one.masked for one in receipt.messages] == [0, 1, 0]
    assert (receipt.durable, receipt.searchable, receipt.settled) == (True, True, False)
    stored = book.messages("s").items
    assert [one.id for one in stored] == [one.id for one in receipt.messages]
    assert len({one.id for one in stored}) == 3


def test_a_message_keeps_who_said_it_when_and_in_which_role(book):
    book.append(
        "s",
        [
            NewMessage("by me"),
            NewMessage("by it", role="assistant"),
            NewMessage("by her", author="user:ada", time=NOON),
        ],
    )
    first, second, third = book.messages("s").items
    assert (first.role, first.author) == ("user", "user:local")
    assert (second.role, second.author) == ("assistant", "agent:assistant")
    assert (third.role, third.author, third.time) == ("user", "user:ada", NOON)
    assert (first.time, first.time.tzinfo) == (second.time, UTC)


@pytest.mark.promise("sessions.batch")
def test_a_batch_with_one_bad_message_changes_nothing_and_names_it(book):
    book.append("s", ["one"])
    log = len(book.log(space="personal"))
    bad = {
        NewMessage("nul \0 byte"): BadText,
        NewMessage("half \ud800 character"): BadText,
        NewMessage("x", role="No Role"): BadInput,
        NewMessage("x", author="two\nlines"): BadInput,
        NewMessage("x", client_id=""): BadInput,
        NewMessage("x" * (MAX_MESSAGE_BYTES + 1)): TooLarge,
        NewMessage("\u00e4" * (MAX_MESSAGE_BYTES // 2 + 1)): TooLarge,
        NewMessage("x", time="no time at all"): BadTime,
    }
    for message, error in bad.items():
        with pytest.raises(error) as caught:
            book.append("s", ["good", message, "good too"])
        assert caught.value.item == 1
        assert caught.value.fix
    assert texts(book, "s") == ["one"]
    assert len(book.log(space="personal")) == log
    assert seqs(book.append("s", ["two"])) == [2]


def test_what_no_session_can_be_called_is_refused(book):
    for name in ("", "two words", "line\nend", "x" * 201, "half\ud800", "nul\0", 5):
        with pytest.raises(BadInput):
            book.append(name, ["text"])
        with pytest.raises(BadInput):
            book.append("s", ["text"], parent=name)
    assert book.sessions() == ()


def test_an_append_of_nothing_or_of_no_text_is_refused(book):
    no_text: Any = None
    for nothing in ([], [no_text], ["text", 5], [NewMessage(no_text)], [NewMessage("text", role=no_text)]):
        with pytest.raises(BadInput):
            book.append("s", nothing)
    assert book.sessions() == ()


@pytest.mark.parametrize("name", ["a/b:c#d", "'quoted\"", "\U0001f600", "---", "1", "null", "x" * 200, "{a:[b"])
def test_a_session_may_have_any_name_without_blanks(place, open_book, name):
    book = open_book()
    book.append(name, ["one"])
    book.settle(name)
    book.close()
    assert wrong_with(place) == []
    assert texts(open_book(), name) == ["one"]


# --- one order


def test_two_concurrent_appends_of_four_messages_give_eight_messages(place, open_book):
    books = [open_book(), open_book()]
    ready = threading.Barrier(2)

    def append(who):
        ready.wait()
        books[who].append("s", [f"{who}.{number}" for number in range(4)])
        books[who].settle("s")

    _together([threading.Thread(target=append, args=(who,)) for who in range(2)])
    stored = books[0].messages("s").items
    assert sorted(one.text for one in stored) == [f"{who}.{number}" for who in range(2) for number in range(4)]
    runs = {stored[at].text[0] + stored[at + 3].text[0] for at in (0, 4)}
    assert runs == {"00", "11"}, "the two batches are mixed"
    assert all(one.episode for one in stored)
    for book in books:
        book.close()
    assert wrong_with(place) == []


def _together(threads):
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _as_threads(append):
    _together([threading.Thread(target=append) for _ in range(100)])


def _as_tasks(append):
    async def all_of_them():
        await asyncio.gather(*(asyncio.to_thread(append) for _ in range(100)))

    asyncio.run(all_of_them())


@pytest.mark.promise("sessions.one-order")
@pytest.mark.parametrize("how", [_as_threads, _as_tasks])
def test_a_hundred_tasks_append_the_same_words_in_the_same_millisecond(place, open_book, how):
    book = open_book()
    receipts = []
    how(lambda: receipts.append(book.append("s", [NewMessage("the same words", time=NOON)])))
    acknowledged = [message for receipt in receipts for message in receipt.messages]
    assert sorted(message.seq for message in acknowledged) == list(range(1, 101))
    stored = book.messages("s", limit=200).items
    assert {(one.id, one.seq) for one in acknowledged} == {(one.id, one.seq) for one in stored}
    assert {(one.text, one.time) for one in stored} == {("the same words", NOON)}
    book.close()
    assert wrong_with(place) == []


@pytest.mark.promise("sessions.one-order")
@pytest.mark.timeout(120 + 2 * APPENDS)
def test_four_processes_append_to_one_session_in_one_order(place):
    reports = capture_child.run("many", place, 4, APPENDS, deadline=60 + 2 * APPENDS)
    assert [report["error"] for report in reports] == [None] * 4
    acknowledged = {(seq, id_, text) for report in reports for id_, seq, text in report["told"]}
    assert len(acknowledged) == 4 * APPENDS
    with closing(commonbook.open(place, create=True)) as book:
        stored = logs_of(book)["shared"].messages
    assert {(one.seq, one.id, one.text) for one in stored} == acknowledged
    assert [one.seq for one in stored] == list(range(1, 4 * APPENDS + 1))
    for who in range(4):
        own = [one.text for one in stored if one.text.endswith(f" of {who}")]
        assert own == [f"message {number} of {who}" for number in range(APPENDS)]
    assert wrong_with(place) == []


# --- exactly once


@pytest.mark.parametrize("settled", [False, True], ids=["before settling", "after settling"])
def test_the_same_batch_again_gives_the_first_receipt_and_stores_nothing(place, open_book, settled):
    book = open_book()
    batch = [NewMessage(f"text {number}", client_id=f"c{number}") for number in range(4)]
    first = book.append("s", batch)
    if settled:
        book.settle("s")
    entries = len(book.log(space="personal"))
    again = open_book().append("s", batch)
    assert [(one.id, one.seq, one.masked) for one in again.messages] == [
        (one.id, one.seq, one.masked) for one in first.messages
    ]
    assert not any(one.new for one in again.messages)
    assert again.settled is settled
    assert texts(book, "s") == [f"text {number}" for number in range(4)]
    assert len(book.log(space="personal")) == entries
    for other in (NewMessage("other text", client_id="c2"), NewMessage("text 2", role="assistant", client_id="c2")):
        with pytest.raises(KeyConflict) as caught:
            book.append("s", [NewMessage("new", client_id="new"), other])
        assert caught.value.item == 1
    assert texts(book, "s") == [f"text {number}" for number in range(4)]
    mixed = book.append("s", [NewMessage("new", client_id="new"), batch[3], NewMessage("newer")])
    assert [(one.seq, one.new) for one in mixed.messages] == [(5, True), (4, False), (6, True)]
    assert mixed.settled is False
    book.close()
    assert wrong_with(place) == []


def test_one_client_id_twice_in_one_batch_is_stored_once(book):
    receipt = book.append(
        "s", [NewMessage("same", client_id="c"), NewMessage("same", client_id="c"), NewMessage("next")]
    )
    assert [(one.seq, one.new) for one in receipt.messages] == [(1, True), (1, False), (2, True)]
    with pytest.raises(KeyConflict):
        book.append("s", [NewMessage("a", client_id="d"), NewMessage("b", client_id="d")])
    assert texts(book, "s") == ["same", "next"]


def test_a_client_id_is_its_sessions_own(book):
    assert book.append("s", [NewMessage("one", client_id="c")]).messages[0].new
    assert book.append("t", [NewMessage("two", client_id="c")]).messages[0].new


@pytest.mark.promise("sessions.once")
def test_twenty_threads_that_send_the_same_client_id_store_it_once(open_book):
    books = [open_book() for _ in range(4)]
    receipts = []
    ready = threading.Barrier(20)

    def send(at):
        ready.wait()
        receipts.append(books[at % 4].append("s", [NewMessage("once", client_id="c")]).messages[0])

    _together([threading.Thread(target=send, args=(at,)) for at in range(20)])
    assert Counter(receipt.new for receipt in receipts) == {True: 1, False: 19}
    assert len({(receipt.id, receipt.seq) for receipt in receipts}) == 1
    assert texts(books[0], "s") == ["once"]


# --- kill -9


@pytest.mark.promise("sessions.once")
@pytest.mark.slow
@pytest.mark.timeout(120 + 10 * KILLS)
def test_every_acknowledged_message_survives_kill_minus_nine_once(place):
    dice = random.Random(SEED)
    stored: list[tuple[int, str, str]] = []
    acknowledged = 0
    for round_ in range(KILLS):
        receipts, under_way = _until_killed(place, dice, f"{SEED[-6:]}.{round_}")
        stored += receipts
        acknowledged += len(receipts)
        stored += _what_happened_after_all(place, stored, under_way)
        assert wrong_with(place) == [], f"seed {SEED}, round {round_}"
    assert acknowledged >= KILLS, "the child never got far enough to prove anything"


def _until_killed(home: Path | str, dice: random.Random, token: str) -> tuple[list[tuple[int, str, str]], list[str]]:
    """Let a child append and settle until a random moment; return what it acknowledged, and what was under way."""
    child = capture_child.start("serve", home)
    receipts: list[tuple[int, str, str]] = []
    batch: list[str] = []
    try:
        assert dice.random() < 0.1 or capture_child.answer(child) == "ready"
        for number in range(dice.randrange(1, 25)):
            batch = [f"{token}.{number}.{at} " + "words " * dice.choice([1, 500]) for at in range(dice.randint(1, 4))]
            batch = [text.strip() for text in batch]
            receipts += _appended(child, batch)
            if dice.random() < 0.3:
                capture_child.ask(child, {"verb": dice.choice(["settle", "close", "work"]), "session": "s"})
                capture_child.answer(child)
        batch = [f"{token}.last.{at}" for at in range(3)]
        for verb in dice.choice([["append"], ["settle"], ["append", "settle"]]):
            capture_child.ask(child, _op(verb, batch))
        time.sleep(dice.uniform(0, 0.03))
        child.send_signal(signal.SIGKILL)
        while (answer := capture_child.answer(child)) is not None:
            if "messages" in answer:
                receipts += _receipts(answer, batch)
                batch = []
    finally:
        child.kill()
        child.communicate()
    return receipts, batch


def _op(verb: str, batch: list[str]) -> dict[str, Any]:
    return {"verb": verb, "session": "s", "messages": [{"text": text} for text in batch]}


def _appended(child: subprocess.Popen[bytes], batch: list[str]) -> list[tuple[int, str, str]]:
    capture_child.ask(child, _op("append", batch))
    answer = capture_child.answer(child)
    if answer == "ready":
        answer = capture_child.answer(child)
    return _receipts(answer, batch)


def _receipts(answer: Any, batch: list[str]) -> list[tuple[int, str, str]]:
    return [(one["seq"], one["id"], text) for one, text in zip(answer["messages"], batch, strict=True)]


def _what_happened_after_all(home: Path | str, stored: list[tuple[int, str, str]], under_way: list[str]) -> list[Any]:
    """Check the log against what was acknowledged; return the batch that nobody acknowledged, if it is there whole."""
    if isinstance(home, str):
        wait_until_alone(home)
    with closing(commonbook.open(home, create=True)) as book:
        logs = logs_of(book)
    found = [(one.seq, one.id, one.text) for one in logs["s"].messages] if "s" in logs else []
    assert found[: len(stored)] == stored, "an acknowledged message is lost or changed"
    more = found[len(stored) :]
    assert [text for _, _, text in more] in ([], under_way), "a batch was stored in part, or twice"
    return more


# --- crashes at chosen points

_STORY: dict[str, dict[str, Any]] = {
    "append": {"verb": "append", "session": "old", "messages": [{"text": "five"}, {"text": "six"}]},
    "settle": {"verb": "settle", "session": "old"},
    "switch": {"verb": "switch", "session": "old", "to": "new"},
    "close": {"verb": "close", "session": "old"},
    "rewind": {"verb": "rewind", "session": "old", "after": 1},
}


@pytest.mark.slow
@pytest.mark.parametrize("verb", _STORY)
def test_a_crash_at_any_point_leaves_all_of_it_or_nothing(tmp_path, verb):
    op = _STORY[verb]
    with closing(commonbook.open(tmp_path / "original", create=True)) as book:
        book.append("old", ["one", "two"])
        book.settle("old")
        book.append("old", ["three", "four"])
    before = shape_of(tmp_path / "original")
    cases = [{"home": str(at), "point": point, "op": op} for at, point in enumerate(POINTS)]
    for case in cases:
        shutil.copytree(tmp_path / "original", tmp_path / case["home"])
    ends = capture_child.run("crash", tmp_path, stdin=cases)
    assert ends[-1] == 0, "it does not work without a crash either"
    assert 77 in ends, "no point was reached"
    after = shape_of(tmp_path / cases[-1]["home"])
    assert after != before
    wrong = {}
    for case, end in zip(cases, ends, strict=True):
        home = tmp_path / case["home"]
        found = shape_of(home)
        expected = before if end == 77 and "commit" in case["point"] and case["point"] != "after the commit" else after
        if end == 77 and case["point"] == "after the episode, before the marks":
            expected = before
        problems = wrong_with(home) + ([] if found == expected else [f"found {found}"])
        with closing(commonbook.open(home, create=True)) as book:
            book.settle("old")
            problems += [] if all(one.episode for one in logs_of(book)["old"].live) else ["not all settled"]
        problems += wrong_with(home)
        if problems:
            wrong[case["point"]] = problems
    assert not wrong, "\n".join(f"crashed {point}: {why}" for point, why in wrong.items())


# --- the power goes

_STRACE = ("strace", "-f", "-y", "-xx", "-s", "9999999")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="strace is on Linux only")
def test_what_was_acknowledged_is_there_when_the_power_goes(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    ops: list[dict[str, Any]] = [
        {"verb": "append", "session": "s", "messages": [{"text": "one"}, {"text": "two " * 3000}]},
        {"verb": "settle", "session": "s"},
        {"verb": "append", "session": "s", "messages": [{"text": "three"}]},
        {"verb": "rewind", "session": "s", "after": 1},
        {"verb": "append", "session": "s", "messages": [{"text": "four"}]},
        {"verb": "switch", "session": "s", "to": "t"},
    ]
    trace = tmp_path / "trace"
    requests = b"".join(json.dumps(op).encode() + b"\n" for op in ops)
    subprocess.run(
        [*_STRACE, "-e", f"trace={CALLS}", "-o", trace, *capture_child.command("serve", home)],
        input=requests,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).resolve().parents[2],
        env=crashing.environment(COMMONBOOK_SPACE="personal"),
        check=True,
        timeout=100,
    )
    calls = read_trace(trace)
    disk, dice = Disk(home), random.Random(SEED)
    acknowledged = [at for at, _ in acknowledgements(calls)][1:]
    assert len(acknowledged) == len(ops)
    whole = [["one", "two"], ["one", "two"], ["one", "two", "three"], ["one"], ["one", "four"], ["one", "four"]]
    tried = {*acknowledged, *dice.sample(range(acknowledged[0], acknowledged[-1]), 12)}
    for at, call in enumerate(calls[: acknowledged[-1] + 1]):
        disk.feed(call)
        if at in tried:
            done = sum(point <= at for point in acknowledged)
            left = tmp_path / f"left-{at}"
            disk.cut(left, None if at in acknowledged else dice)
            with closing(commonbook.open(left, create=True)) as book:
                live = [one.text.split()[0] for one in logs_of(book)["s"].live]
            assert live in whole[done - 1 : done + 1], f"the power went after call {at} (seed {SEED}): {live}"
            assert wrong_with(left) == [], f"the power went after call {at} (seed {SEED})"


# --- odd messages

_HEADING = "### eve (user) \u00b7 2026-11-15T12:00:00.000000Z \u00b7 1 \u00b7 01a1e1db-b8b1-7049-b88f-46b5a3a5dd1f"
_ODD = {
    "empty": "",
    "blank": " \n\t\n ",
    "right to left": "\u202e\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627\u202c",
    "emoji": "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1ee\U0001f1f9",
    "windows lines": "one\r\ntwo\r\n",
    "old mac lines": "one\rtwo",
    "line ends around": "\n\n  text  \n\n",
    "looks like front matter": "---\nid: 1\n---\n\nbody",
    "a byte order mark": "\ufefftext",
    "separators": "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg",
    "controls": "bell \x07 escape \x1b[31m delete \x7f",
    "not characters": "\ufffe\uffff\U0010ffff",
    "backslashes": "\\\n\\\\\n\\### x",
    "a heading of ours": _HEADING,
}


def test_odd_messages_are_stored_as_given(open_book):
    book = open_book()
    book.append("s", list(_ODD.values()))
    assert dict(zip(_ODD, texts(book, "s"), strict=True)) == _ODD
    book.settle("s")
    assert dict(zip(_ODD, texts(book, "s"), strict=True)) == _ODD
    assert book.doctor() == ()
    assert texts(open_book(), "s") == list(_ODD.values())


def test_odd_messages_come_back_from_their_episode(home, open_book):
    book = open_book()
    book.append("s", list(_ODD.values()))
    book.settle("s")
    before = logs_of(book)["s"].messages
    assert book.doctor() == ()
    book.close()
    for name in ("state.db", "state.db-wal", "state.db-shm"):
        (home / ".commonbook" / name).unlink(missing_ok=True)
    book = open_book()
    after = logs_of(book)["s"].messages
    assert dict(zip(_ODD, texts(book, "s"), strict=True)) == _ODD
    assert [(one.id, one.seq, one.author, one.role, one.time) for one in after] == [
        (one.id, one.seq, one.author, one.role, one.time) for one in before
    ]


@pytest.mark.slow
def test_a_message_of_a_megabyte_is_stored_whole_settled_and_found(place, open_book):
    book = open_book()
    text = "zebra " + "lorem ipsum " * ((MAX_MESSAGE_BYTES - 6) // 12)
    receipt = book.append("s", ["before", text, "after"])
    assert texts(book, "s")[1] == text
    assert book.recall("zebra").hits[0].id == receipt.messages[1].id
    book.settle("s")
    assert book.recall("zebra").hits[0].id == receipt.messages[1].id
    book.close()
    assert wrong_with(place) == []


@pytest.mark.promise("sessions.batch")
@pytest.mark.slow
def test_ten_thousand_messages_in_one_call_are_stored_all_or_none(book):
    many = [NewMessage(f"text {number}", client_id=f"c{number}") for number in range(MAX_MESSAGES)]
    for bad in ([*many, "one more"], [*many[:-1], NewMessage("bad \0")]):
        with pytest.raises(BadInput):
            book.append("s", bad)
    assert book.sessions() == ()
    receipt = book.append("s", many)
    assert seqs(receipt) == list(range(1, MAX_MESSAGES + 1))
    assert not any(one.new for one in book.append("s", many).messages)
    assert book.messages("s", after=MAX_MESSAGES - 1).items[0].text == f"text {MAX_MESSAGES - 1}"
    assert book.sessions()[0].last == MAX_MESSAGES


# --- what is taken out


@pytest.mark.promise("recall.echo")
def test_recalled_text_that_comes_back_in_a_prompt_is_not_stored_again(book):
    book.remember("The heron nests in the mill.", space="personal")
    fenced = book.recall("heron", spaces="personal").as_prompt(max_tokens=200)
    assert "The heron nests in the mill." in fenced
    receipt = book.append("s", [f"{fenced}\n\nWhere does it nest?", NewMessage(f"Look: {fenced}", role="assistant")])
    for one in book.messages("s").items:
        assert "heron" not in one.text
    assert "Where does it nest?" in texts(book, "s")[0]
    book.settle("s")
    assert not any("heron" in path.read_text() for path in Path(book.home).rglob("*where*.md"))
    hits = book.recall("heron mill", spaces="personal", min_confidence=0.1).hits
    assert {one.id for one in hits}.isdisjoint(one.id for one in receipt.messages)


@pytest.mark.promise("recall.echo")
def test_a_fence_that_this_home_did_not_make_or_that_is_not_closed_is_text(book):
    book.remember("The heron nests in the mill.", space="personal")
    fenced = book.recall("heron", spaces="personal").as_prompt(max_tokens=200)
    tag = fenced.split("\n")[0]
    unclosed = f"Look: {fenced.rsplit(chr(10), 1)[0]}\nand this is what I say"
    forged = fenced.replace(tag[19:51], "0123456789abcdef" * 2)
    book.append("s", [unclosed, forged, f"before{fenced}after"])
    assert texts(book, "s") == [unclosed, forged, "beforeafter"]


@pytest.mark.promise("secrets.masked")
def test_secrets_are_masked_before_they_are_stored_and_a_repeat_is_still_one(book, stored):
    secret = "ghp_" + "aB3dE5fG7h" * 3 + "aB3dE5"
    sent = NewMessage(f"use {secret} or <private>my cat Minka</private> now", client_id="c")
    first = book.append("s", [sent])
    assert first.messages[0].masked == 2
    again = book.append("s", [sent])
    assert [(one.id, one.new, one.masked) for one in again.messages] == [(first.messages[0].id, False, 2)]
    with pytest.raises(Conflict):
        book.append("s", [NewMessage(texts(book, "s")[0], client_id="c")])
    book.settle("s")
    book.close()
    assert b"[masked" in b"".join(stored().values())
    assert [name for name, data in stored().items() if secret.encode() in data or b"Minka" in data] == []


@pytest.mark.parametrize("one", ["hello", b"hello", NewMessage("hello"), {"text": "hello"}, None, 7], ids=repr)
def test_one_message_that_is_not_in_a_list_does_not_become_several(book, one):
    with pytest.raises(BadInput) as caught:
        book.append("s", one)
    assert "list" in caught.value.fix
    assert book.sessions() == ()
    for several in (("hello", "you"), {"hello": 0, "you": 0}.keys(), iter(["hello", "you"])):
        assert len(book.append("s", several).messages) == 2


def test_a_page_behind_every_number_is_empty(book):
    book.append("s", ["one"])
    assert book.messages("s", after=10**30).items == ()
