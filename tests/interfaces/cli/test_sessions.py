"""The commands of sessions and the worker, as people and programs use them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta

import pytest

import commonbook
from commonbook.core.tables.jobs import MAX_ATTEMPTS
from commonbook.subjects.sessions import episode_boundaries
from commonbook.values.session import Message, Session
from tests.interfaces.cli.test_cli import cli
from tests.interfaces.cli.test_terminal import terminal

__all__ = ["cli", "terminal"]

MESSAGE = set(Message._fields)
SESSION = set(Session._fields)
KEY = "sk-ant-api03-" + "a" * 80


def lines(*objects: object) -> bytes:
    return "".join(json.dumps(one) + "\n" for one in objects).encode()


def texts(cli, session: str) -> list[str]:
    return [one["text"] for one in cli("session", "show", session, "--json").json["items"]]


# --- append


def test_append_prints_the_receipt_that_others_rely_on(cli):
    result = cli("session", "append", "s1", "We ship on Tuesday", "--json")
    assert (result.code, result.err) == (0, "")
    assert result.json.keys() == {"session", "space", "messages", "durable", "searchable", "settled"}
    (message,) = result.json["messages"]
    assert message.keys() == {"id", "seq", "new", "masked", "rewound"}
    assert (result.json["session"], message["seq"], message["new"], message["masked"]) == ("s1", 1, True, 0)
    assert (result.json["durable"], result.json["searchable"], result.json["settled"]) == (True, True, False)
    (hit,) = cli("recall", "when do we ship", "--json").json["hits"]
    assert (hit["id"], hit["session"], hit["seq"]) == (message["id"], "s1", 1)


def test_append_in_a_pipe_prints_session_number_id_whether_it_is_new_and_the_space(cli):
    for word in ("new", "repeat"):
        result = cli("session", "append", "s1", "hello", "--client-id", "c1", "--space", "team")
        session, seq, message_id, new, space = result.out.rstrip("\n").split("\t")
        assert (session, seq, new, space) == ("s1", "1", word, "team")
    assert cli("session", "show", "s1", "--json").json["items"][0]["id"] == message_id
    assert "sent before" in result.err


def test_every_field_of_a_message_and_of_its_session_can_be_given(cli):
    cli(
        "session", "append", "s2", "it rains", "--role", "tool", "--author", "agent:weather", "--time",
        "2026-11-01T10:00Z", "--client-id", "c1", "--parent", "s1", "--tag", "a,b", "--space", "team/x",
    )  # fmt: skip
    shown = cli("session", "show", "s2", "--json").json
    assert shown.keys() == {"session", "items", "next", "uses"}
    assert shown["session"].keys() == SESSION
    assert (shown["session"]["space"]["name"], shown["session"]["parent"], shown["session"]["tags"]) == (
        "team/x", "s1", ["a", "b"],
    )  # fmt: skip
    (message,) = shown["items"]
    assert message.keys() == MESSAGE
    assert (message["role"], message["author"], message["text"]) == ("tool", "agent:weather", "it rains")
    assert (message["time"], message["client_id"]) == ("2026-11-01T10:00:00.000000Z", "c1")


def test_a_text_from_standard_input_is_one_message_byte_by_byte(cli):
    text = '  zwei Zeilen\n{"text": "not a line of its own"}\nÜ 🍵\n'
    for args in (["-"], []):
        assert cli("session", "append", "s1", *args, stdin=text.encode()).code == 0
    assert texts(cli, "s1") == [text, text]


@pytest.mark.parametrize("how", [["--jsonl"], ["-"], [], ["-", "--jsonl"]])
def test_json_lines_are_many_messages_in_order_and_in_one_step(cli, how):
    given = lines({"text": "one"}, {"text": "two", "role": "assistant", "author": None, "client_id": "c2"})
    receipt = cli("session", "append", "s1", *how, "--json", stdin=b"\n" + given + b"\n").json
    assert [(one["seq"], one["new"]) for one in receipt["messages"]] == [(1, True), (2, True)]
    shown = cli("session", "show", "s1", "--json").json["items"]
    assert [(one["text"], one["role"], one["client_id"]) for one in shown] == [
        ("one", "user", None), ("two", "assistant", "c2"),
    ]  # fmt: skip


def test_a_text_that_is_json_is_one_message_when_an_option_says_whose(cli):
    given = lines({"text": "a tool's answer", "score": 1})
    assert cli("session", "append", "s1", "-", "--role", "tool", stdin=given).code == 0
    assert texts(cli, "s1") == [given.decode()]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b'{"text": "x", "id": "7"}\n', "'id' is not a field"),
        (b'{"text": 7}\n', "text is not a string"),
        (b'{"text": null}\n', "text is not a string"),
        (b'{"text": "x", "time": 12}\n', "time is not a string"),
        (b'{"role": "user"}\n', "there is no text"),
        (b"[]\n", "not a JSON object"),
        (b"{\n", "not JSON"),
        (b"\xff\n", "not UTF-8"),
        (b'{"text": "x", "role": "No Role"}\n', "not a role"),
        (b'{"text": "x", "time": "gibberish"}\n', "not a time"),
        (b'{"text": "\\u0000"}\n', "NUL"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_stored(cli, line, why):
    given = lines({"text": "good"}) + b"\n" + line + lines({"text": "good too"})
    result = cli("session", "append", "s1", "--jsonl", "--json", stdin=given)
    assert (result.code, result.out) == (2, "")
    assert result.error["message"].startswith("line 3: ")
    assert why in result.error["message"]
    assert "nothing is stored" in result.error["fix"]
    assert cli("session", "show", "s1").code == 3


@pytest.mark.parametrize(
    ("args", "given"),
    [
        ([], b""),
        (["--jsonl"], b""),
        (["--jsonl"], b"\n \n"),
        (["text", "--jsonl"], b'{"text": "x"}'),
        (["--jsonl", "--role", "user"], b'{"text": "x"}'),
        (["--jsonl", "--client-id", "c"], b'{"text": "x"}'),
        (["text", "--role", "NO"], b""),
        (["text", "--time", "gibberish"], b""),
        (["text", "--space", "no space"], b""),
    ],
)
def test_what_cannot_be_is_refused(cli, args, given):
    result = cli("session", "append", "s1", *args, stdin=given)
    assert (result.code, result.out) == (2, "")
    assert cli("session", "list", "--json").json == []


def test_one_time_too_many_lines_are_refused_whole(cli):
    given = b'{"text": "x"}\n' * 10_001
    result = cli("session", "append", "s1", "--jsonl", "--json", stdin=given)
    assert (result.code, result.error["type"]) == (2, "too_large")
    assert cli("session", "show", "s1").code == 3


@pytest.mark.promise("writes.bad-input")
def test_errors_have_their_exit_codes(cli):
    cli("session", "append", "s1", "x", "--client-id", "c", "--space", "team/x")
    assert cli("session", "append", "s1", "other", "--client-id", "c", "--space", "team/x").code == 5
    assert cli("session", "append", "s1", "x", "--parent", "s0", "--space", "team/x").code == 5
    for space in ("team/x", "team/y"):
        cli("session", "append", "twice", "x", "--space", space)
    ambiguous = cli("session", "show", "twice", "--json")
    assert (ambiguous.code, ambiguous.error["type"]) == (2, "ambiguous")
    assert cli("session", "show", "twice", "--space", "team/y").code == 0
    assert cli("session", "append", "a b", "x").code == 2
    for args in (["show", "nope"], ["close", "nope"], ["flush", "nope"], ["rewind", "nope", "0"]):
        assert cli("session", *args).code == 3, args
    assert cli("session", "rewind", "s1", "7").code == 2
    assert cli("session", "rewind", "s1", "-1").code == 2
    assert cli("session", "rewind", "s1", "01a1e1f5-9b48-7c33-be29-b5b7d0c9db76").code == 3
    assert cli("session", "switch", "s1", "s2", "--reason", "boredom").code == 2
    assert cli("session", "show", "s1", "--limit", "0").code == 2
    assert cli("session", "show", "s1", "--json", "--jsonl").code == 2
    assert cli("worker", "--every", "0").code == 2
    assert cli("worker", "--every", "1", "--once").code == 2


def test_secrets_are_masked_before_they_are_stored_and_that_is_told(cli):
    receipt = cli("session", "append", "s1", f"use {KEY}", "--json").json
    assert receipt["messages"][0]["masked"] == 1
    assert "1 secret was masked" in cli("session", "append", "s1", f"again {KEY}").err
    assert all(KEY not in text for text in texts(cli, "s1"))


def test_a_repeat_of_what_was_taken_back_says_so(cli):
    cli("session", "append", "s1", "one")
    cli("session", "append", "s1", "two", "--client-id", "c2")
    cli("session", "rewind", "s1", "1")
    (again,) = cli("session", "append", "s1", "two", "--client-id", "c2", "--json").json["messages"]
    assert (again["new"], again["rewound"]) == (False, True)
    assert "rewound before" in cli("session", "append", "s1", "two", "--client-id", "c2").err


# --- switch, rewind, close, flush


def test_switch_settles_the_old_session_and_begins_the_new_one(cli):
    cli("session", "append", "s1", "hello", "--tag", "a")
    for number, reason in enumerate(("new", "reset", "resume", "branch", "compress"), start=1):
        report = cli("session", "switch", f"s{number}", f"s{number + 1}", "--reason", reason, "--json").json
        assert (report["session"], report["space"]) == (f"s{number}", "personal")
        assert (len(report["episodes"]), report["unsettled"]) == (number == 1, 0)
    found = {one["id"]: one for one in cli("session", "list", "--json").json}
    assert (found["s2"]["parent"], found["s2"]["tags"], found["s1"]["closed"] is not None) == ("s1", ["a"], True)
    assert found["s4"]["parent"] is None
    assert found["s4"]["closed"] is None


def test_rewind_takes_back_by_number_and_by_id(cli):
    given = lines(*({"text": f"message {number}"} for number in range(1, 5)))
    ids = [one["id"] for one in cli("session", "append", "s1", "-", "--json", stdin=given).json["messages"]]
    rewound = cli("session", "rewind", "s1", "3", "--json").json
    assert [(one["id"], one["seq"]) for one in rewound] == [(ids[3], 4)]
    rewound = cli("session", "rewind", "s1", ids[1].upper(), "--json").json
    assert [one["seq"] for one in rewound] == [3]
    shown = cli("session", "show", "s1", "--json").json["items"]
    assert [one["rewound_at"] is not None for one in shown] == [False, False, True, True]


def test_flush_and_close_make_episodes_that_show_names(cli):
    cli("session", "append", "s1", "hello")
    session, episode, space = cli("session", "flush", "s1").out.rstrip("\n").split("\t")
    assert (session, space) == ("s1", "personal")
    assert cli("session", "show", "s1", "--json").json["items"][0]["episode"] == episode
    assert cli("show", episode, "--json").json["kind"] == "episode"
    cli("session", "append", "s1", "bye")
    assert len(cli("session", "close", "s1", "--json").json["episodes"]) == 1
    assert cli("session", "list", "--json").json[0]["closed"]
    cli("session", "append", "s1", "one thing more")
    assert cli("session", "list", "--json").json[0]["closed"] is None


# --- show and list


def test_show_pages_and_json_lines_are_whole(cli):
    given = lines(*({"text": f"message {number}"} for number in range(1, 1203)))
    assert cli("session", "append", "s1", "--jsonl", stdin=given).code == 0
    page = cli("session", "show", "s1", "--after", "3", "--limit", "2", "--json").json
    assert ([one["seq"] for one in page["items"]], page["next"]) == ([4, 5], 5)
    result = cli("session", "show", "s1", "--limit", "2")
    assert "there are more: --after 2" in result.err
    messages = [json.loads(line) for line in cli("session", "show", "s1", "--jsonl").out.splitlines()]
    assert [one["seq"] for one in messages] == list(range(1, 1203))
    assert messages[0].keys() == MESSAGE
    assert len(cli("session", "show", "s1", "--jsonl", "--limit", "7").out.splitlines()) == 7


def test_list_is_newest_first_and_of_a_space(cli):
    for name, space in (("s1", "team/x"), ("s2", "team/y"), ("s3", "team/x")):
        cli("session", "append", name, "hello", "--space", space)
    assert [one["id"] for one in cli("session", "list", "--json").json] == ["s3", "s2", "s1"]
    found = cli("session", "list", "--space", "team/x", "--limit", "1", "--json").json
    assert [one["id"] for one in found] == ["s3"]
    assert cli("session", "list").out.splitlines()[0].split("\t")[:2] == ["s3", "team/x"]


def test_no_message_can_pass_for_a_heading_or_steer_the_terminal(cli):
    text = "first\nuser:boss (user)  just now  2\n\x1b[2J\x9b31mred\rover"
    cli("session", "append", "s1", text, "--author", "agent:\u202eeve")
    for args in (["show", "s1"], ["list"], ["show", "s1", "--json"], ["show", "s1", "--jsonl"]):
        out = cli("session", *args).out
        assert not set(out) & {"\x1b", "\x9b", "\r"}, args
    lines_of_boss = [line for line in cli("session", "show", "s1").out.splitlines() if "boss" in line]
    assert lines_of_boss == ["  user:boss (user)  just now  2"]


def test_a_terminal_shows_a_transcript(cli, home, terminal, tmp_path):
    cli("session", "append", "s1", "We ship on Tuesday. " * 10)
    cli("session", "append", "s1", "Noted.", "--role", "assistant")
    cli("session", "flush", "s1")
    cli("session", "append", "s1", "Or Wednesday?")
    cli("session", "rewind", "s1", "2")
    cli("session", "append", "s1", "Thursday.")
    shown = terminal("session", "show", "s1")
    assert shown.code == 0
    assert "\x1b[1;36muser:local" in shown.text
    plain = shown.plain.splitlines()
    assert plain[0].startswith("s1  personal  4 messages, 1 not settled  started just now")
    assert any(line.startswith("- episode ") for line in plain)
    assert "- not in an episode yet" in plain
    assert "agent:assistant  just now  2" in plain
    assert "user:local  just now  3  rewound just now" in plain
    assert all(line.startswith("  ") for line in plain if "Tuesday" in line)
    assert "Appended 1 message to s1 in personal (number 5)" in terminal("session", "append", "s1", "ok").plain
    assert "s1" in terminal("session", "list").plain


# --- the worker


def _process(tmp_path, *args: str, given: bytes | None = None, **more) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "commonbook", *args],
        cwd=tmp_path,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.PIPE if given is not None else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **more,
    )


def _old_messages(count: int) -> bytes:
    """Messages of which each is hours from the next."""
    begun = datetime.now(UTC) - timedelta(days=100)
    return lines(*({"text": f"m {at}", "time": (begun + timedelta(hours=13 * at)).isoformat()} for at in range(count)))


def _make_due() -> None:
    """Let every job be due now, as if the hour of silence had passed."""
    with commonbook.open() as book:
        book._engines.db.write(lambda tx: tx.run("UPDATE job SET due = '2026-01-01T00:00:00.000000Z'"))


def test_an_append_that_makes_something_due_takes_a_turn_by_itself(cli):
    receipt = cli("session", "append", "s1", "--jsonl", "--json", stdin=_old_messages(50)).json
    assert receipt["settled"] is False
    found = cli("session", "show", "s1", "--json").json
    assert sum(one["episode"] is not None for one in found["items"]) >= 49


def test_a_worker_does_what_is_due_once_and_says_so(cli):
    assert (cli("worker", "--once").code, cli("worker", "--once").err) == (0, "nothing is due\n")
    assert cli("worker", "--once", "--json").out == ""
    cli("session", "append", "s1", "--jsonl", stdin=_old_messages(3))
    _make_due()
    (report,) = (json.loads(line) for line in cli("worker", "--once", "--json").out.splitlines())
    settled = report["settled"]
    assert (settled["session"], len(settled["episodes"]), settled["unsettled"]) == ("s1", 3, 0)
    cli("session", "append", "s1", "hello")
    _make_due()
    assert cli("worker", "--once").out == "s1 in personal: nothing to settle yet, 1 message not settled yet\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_worker_settles_until_it_is_interrupted_and_ends_cleanly(cli, tmp_path, number):
    cli("session", "append", "s1", "--jsonl", stdin=_old_messages(3))
    worker = _process(tmp_path, "worker", "--every", "0.05")
    try:
        _make_due()
        assert worker.stdout is not None
        assert worker.stdout.readline().startswith(b"s1 in personal: settled into 3 episodes (")
        time.sleep(0.2)
        worker.send_signal(number)
        out, err = worker.communicate(timeout=60)
    finally:
        worker.kill()
    assert (worker.returncode, out, b"Traceback" in err) == (0, b"", False)
    assert cli("doctor").code == 0


@pytest.mark.promise("sessions.episodes")
def test_a_worker_that_is_interrupted_in_the_middle_leaves_every_message_in_one_place(cli, tmp_path):
    for session in range(8):
        cli("session", "append", f"s{session}", "--jsonl", stdin=_old_messages(30))
    _make_due()
    worker = _process(tmp_path, "worker")
    assert worker.stdout is not None
    worker.stdout.readline()
    worker.send_signal(signal.SIGINT)
    _, err = worker.communicate(timeout=60)
    assert (worker.returncode, b"Traceback" in err) == (0, False)
    _make_due()
    assert cli("worker", "--once").code == 0
    for session in range(8):
        shown = cli("session", "show", f"s{session}", "--json").json["items"]
        assert len({one["episode"] for one in shown}) == 30
    assert cli("doctor").code == 0


# --- status and doctor


def test_status_counts_sessions_messages_and_jobs(cli):
    cli("session", "append", "s1", "--jsonl", stdin=lines({"text": "a"}, {"text": "b"}))
    status = cli("status", "--json").json
    assert (status["sessions"], status["messages"]) == (1, 2)
    assert (status["unsettled"], status["waiting_jobs"], status["failed_jobs"]) == (2, 1, 0)
    assert "messages: 2 (2 not in an episode yet)\n" in cli("status").out


@pytest.mark.promise("sessions.failures")
def test_work_that_failed_for_good_is_shown_with_its_error_and_can_be_retried(cli, monkeypatch):
    cli("session", "append", "s1", "--jsonl", stdin=_old_messages(3))

    def fails(*_args, **_options):
        raise RuntimeError("no \x1b[31mtable")

    with monkeypatch.context() as broken:
        broken.setattr(episode_boundaries, "segments", fails)
        for _ in range(MAX_ATTEMPTS):
            _make_due()
            status = cli("worker", "--once")
            assert status.code == 1
            assert "s1 in personal: failed: RuntimeError: no ␛[31mtable" in status.out
    cli("session", "append", "s2", "another goes on")
    status = cli("status", "--json").json
    assert (status["waiting_jobs"], status["failed_jobs"]) == (1, 1)
    (finding,) = status["findings"]
    assert (finding["what"], finding["where"]) == ("failed work", "session s1 in personal")
    assert f"{MAX_ATTEMPTS} attempts" in finding["why"]
    assert "RuntimeError" in finding["why"]
    assert "commonbook worker --once --retry" in finding["fix"]
    assert cli("doctor").code == 1
    assert cli("worker", "--once").out == ""
    (report,) = (json.loads(line) for line in cli("worker", "--once", "--retry", "--json").out.splitlines())
    assert len(report["settled"]["episodes"]) == 3
    assert cli("status", "--json").json["findings"] == []
    assert cli("doctor").code == 0


# --- help and completion


def test_help_and_completion_know_the_commands(cli, home):
    for action in ("append", "switch", "rewind", "close", "flush", "show", "list"):
        assert cli("session", action, "--help").code == 0
        assert action in cli("session", "--help").out
    assert "--retry" in cli("worker", "--help").out
    for shell in ("bash", "zsh", "tcsh"):
        script = cli("completion", shell).out
        assert "rewind" in script
        assert "compress" in script
        assert "worker" in script
