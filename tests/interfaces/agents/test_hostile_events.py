"""Hostile and broken events, homes and pipes: a hook ends with 0, prints one form or nothing, and loses no word."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import commonbook
from commonbook.service.book import Book
from commonbook.values.memory import Draft
from commonbook.values.session import MAX_MESSAGE_BYTES
from tests.interfaces.agents.test_hooks import (
    SESSION,
    answer,
    command_line,
    event,
    garden,
    hook,
    hook_process,
    prompt,
    stored,
)
from tests.support.mcp_clients import environment

__all__ = ["garden"]

WORDS = "Water the roses"


def texts(home: Path, session: str = SESSION) -> list[str]:
    return [text for _, _, text in stored(home, session)]


def report(home: Path, client: str = "claude-code") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((home / ".commonbook" / "hooks" / f"{client}.json").read_text())
    return found


@pytest.mark.promise("hooks.odd-events")
@pytest.mark.parametrize(
    ("odd", "kept"),
    [
        (prompt(f"{WORDS}\0 now"), f"{WORDS}\ufffd now"),
        (prompt(f"{WORDS}\ud800 now"), f"{WORDS}\ufffd now"),
        (prompt(f"{WORDS} \x1b[31m\x07"), f"{WORDS} \x1b[31m\x07"),
        (prompt(WORDS, "a\0\n:b"), WORDS),
        (prompt(WORDS, "t" * 5000), WORDS),
        (prompt(WORDS, "\ud800"), WORDS),
        ({**prompt(WORDS), "prompt_id": {"a": 1}}, WORDS),
        ({**prompt(WORDS), "sessionId": "another", "promptId": "2"}, WORDS),
        ({**prompt(WORDS), "session_id": None, "sessionId": SESSION}, WORDS),
        ({**prompt(WORDS), "hook_event_name": "user_prompt_submit"}, WORDS),
        ({**prompt(WORDS), "source": ["fork"], "cwd": 7, "transcript_path": {}}, WORDS),
        (prompt(f"<commonbook-recall {'0' * 32}>\nnever closed\n{WORDS}"), f"never closed\n{WORDS}"),
    ],
)  # fmt: skip
def test_the_words_of_an_odd_event_are_stored(garden, home, odd, kept):
    for _ in range(2):
        hook(odd)
    (text,) = texts(home)
    assert text.endswith(kept)
    assert not list((home / ".commonbook" / "hooks" / "spool" / "claude-code").iterdir())


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "utf-32"])
def test_an_event_in_another_encoding_of_unicode_is_read(garden, home, encoding):
    hook(json.dumps(prompt(WORDS)).encode(encoding))
    assert texts(home) == [WORDS]


@pytest.mark.promise("hooks.odd-events")
@pytest.mark.parametrize("session", ["..", ".", "--help", "a\0b", "x" * 5000, "../../etc", "é", "-", "a b"])
def test_any_id_of_a_session_can_be_stored(garden, home, session):
    hook(prompt(WORDS, session=session))
    with commonbook.open(home) as book:
        (found,) = book.sessions()
        assert [message.text for message in book.messages(found.id).items] == [WORDS]


@pytest.mark.promise("hooks.odd-events")
def test_a_prompt_that_is_too_long_for_a_message_is_stored_in_parts(garden, home):
    long = "".join(f"Line {number} is about roses\U0001f339.\n" for number in range(60_000)).strip()
    assert len(long.encode()) > MAX_MESSAGE_BYTES
    for _ in range(2):
        hook(prompt(long))
    parts = texts(home)
    assert len(parts) > 1
    assert "".join(parts) == long


def test_parts_that_are_equal_are_all_stored(garden, home):
    hook(prompt("ab" * MAX_MESSAGE_BYTES))
    assert "".join(texts(home)) == "ab" * MAX_MESSAGE_BYTES


@pytest.mark.promise("hooks.odd-events")
def test_an_event_that_is_too_large_is_reported(garden, home):
    hook(json.dumps(prompt("x" * (5 << 20))).encode())
    assert report(home)["failed"] == 1
    assert "an event of more than 4 MiB was left out" in command_line("status")


@pytest.mark.promise("hooks.harmless")
@pytest.mark.parametrize(
    "words",
    [
        ["hook", "claude-code"],
        ["hook", "claude-code", "--home", "/nowhere"],
        ["--home", "HOME", "hook", "claude-code", "--no-such"],
    ],
)
@pytest.mark.parametrize("closed", ["stdin", "stdout", "stderr", "all"])
def test_closed_pipes_end_with_zero_and_nothing_on_standard_output(garden, home, words, closed):
    script = {"stdin": "<&-", "stdout": ">&-", "stderr": "2>&-", "all": "<&- >&- 2>&-"}[closed]
    command = [sys.executable, "-m", "commonbook", *(str(home) if word == "HOME" else word for word in words)]
    line = ["sh", "-c", f'"$@" {script}', "sh", *command]
    with commonbook.open(home) as book:
        book.remember("Tulips need sandy soil", space="projects/garden")
    data = json.dumps(prompt("Which soil do tulips need here?")).encode()
    done = subprocess.run(line, input=data, capture_output=True, timeout=60, env=environment(), check=False)
    assert done.returncode == 0
    if done.stdout:
        assert json.loads(done.stdout).keys() == {"hookSpecificOutput"}


@pytest.mark.promise("hooks.harmless")
def test_a_reader_that_is_gone_ends_with_zero(garden, home):
    with commonbook.open(home) as book:
        book.remember("Tulips need sandy soil", space="projects/garden")
    command = [sys.executable, "-m", "commonbook", "hook", "claude-code"]
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=writer, env=environment())
    os.close(writer)
    process.communicate(json.dumps(prompt("Which soil do tulips need here?")).encode(), timeout=60)
    assert process.returncode == 0
    # A busy machine may cut the delivery off; the next event brings it.
    hook(event("SessionStart", "next", source="startup"))
    assert texts(home) == ["Which soil do tulips need here?"]


@pytest.mark.promise("hooks.refused")
def test_a_fault_on_one_message_keeps_back_its_session_alone(garden, home, monkeypatch):
    real = Book.append

    def faulty(book: Book, session: str, messages: Any, **options: Any) -> Any:
        if "first" in messages[0].text:
            raise ValueError("a fault of the program")
        return real(book, session, messages, **options)

    with monkeypatch.context() as patched:
        patched.setattr(Book, "append", faulty)
        hook(prompt("The first of the bad session", "1", session="bad"))
        hook(answer("The second of the bad session", "1", session="bad"))
        hook(prompt(WORDS, "2"))
        assert texts(home) == [WORDS]
    hook(answer("Done.", "2"))
    assert texts(home, "bad") == ["The first of the bad session", "The second of the bad session"]


@pytest.mark.promise("hooks.refused")
def test_a_session_that_was_moved_out_of_reach_keeps_no_other_back(garden, home):
    hook(prompt("The first words of the session", "1"))
    with commonbook.open(home) as book:
        book.create_space("private")
        book.move_session(SESSION, "private")
    hook(prompt("Words that have no place any more", "2"))
    hook(prompt(WORDS, "3", session="another"))
    assert texts(home, "another") == [WORDS]
    (kept,) = (home / ".commonbook" / "hooks" / "spool" / "claude-code").iterdir()
    assert kept.name.endswith(".refused")
    assert "have no place" in kept.read_text()


@pytest.mark.promise("hooks.harmless")
def test_a_recall_that_was_cut_off_is_told_and_the_index_catches_up_in_steps(garden, home):
    with commonbook.open(home) as book:
        book.remember_many(
            [Draft(f"Rule {number} about bed {number}", space="projects/garden") for number in range(1200)]
        )
        behind = book.metrics().index_lag
    path = home / ".commonbook" / "hooks" / "claude-code.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"events": 1, "cut": 1, "behind": True}))
    assert "1 cut off by the deadline" in command_line("status")
    hook(answer("Done.", "1"))
    with commonbook.open(home) as book:
        assert book.metrics().index_lag < behind - 400
    assert report(home)["behind"] is True
    assert "Rule 17 about bed 17" in hook(prompt("What is the rule about bed 17?", "2"))
    assert report(home)["behind"] is False


def test_what_was_stored_is_counted_also_if_the_recall_fails(garden, home, monkeypatch):
    def fail(*_: Any, **__: Any) -> None:
        raise ValueError("a fault of the program")

    monkeypatch.setattr("commonbook.interfaces.agents.hooks.context.at_prompt", fail)
    assert hook(prompt(WORDS)) == ""
    assert (report(home)["stored"], report(home)["failed"]) == (1, 1)


@pytest.mark.promise("hooks.harmless")
def test_a_home_that_cannot_be_written_does_not_disturb(garden, home):
    hook(prompt("The first thing that was said", "1"))
    folder = home / ".commonbook" / "hooks" / "spool" / "claude-code"
    # A file in its place refuses writes to everybody, also to root.
    folder.rmdir()
    folder.write_text("")
    assert hook_process(prompt("The second thing that was said", "2")) == ""
    folder.unlink()
    hook(prompt("The third thing that was said", "3"))
    assert [text.split()[1] for text in texts(home)] == ["first", "third"]


def test_what_a_killed_hook_left_half_written_is_removed_in_time(garden, home):
    hook(prompt(WORDS))
    spool = home / ".commonbook" / "hooks" / "spool" / "claude-code"
    part = spool / "01a1.json.7-7.part"
    part.write_text('{"event": {"kind": "pro')
    waiting = spool / "01a2.json"
    waiting.write_text("{")
    hook(event("SessionStart", "another", source="startup"))
    assert part.exists()
    for path in (part, waiting):
        os.utime(path, (path.stat().st_mtime - 40 * 86400,) * 2)
    hook(event("SessionStart", "third", source="startup"))
    assert (part.exists(), waiting.exists()) == (False, True)


@pytest.mark.promise("hooks.next-session")
def test_a_compression_that_a_person_asked_gemini_for_is_a_compaction(garden, home):
    def say(name: str, at: str, **fields: Any) -> str:
        return hook(event(name, timestamp=at, **fields), client="gemini")

    say("BeforeAgent", "1", prompt="The gardener's phone number ends with seventeen")
    question = "With what does the phone number of the gardener end?"
    say("PreCompress", "2", trigger="auto")
    assert "seventeen" not in say("BeforeAgent", "3", prompt=question)
    say("PreCompress", "4", trigger="manual")
    assert "ends with seventeen" in say("BeforeAgent", "5", prompt=question)
