"""Hooks: recorded events of real agents are replayed, and nothing disturbs an agent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import commonbook
from commonbook.core.text import recall_fence
from commonbook.engines.process import FairLock
from commonbook.errors import Busy
from commonbook.interfaces.agents.hooks import context
from commonbook.interfaces.agents.hooks.events import parse_event
from commonbook.interfaces.cli.call import Call
from commonbook.interfaces.cli.commands import make_parser
from commonbook.interfaces.cli.commands.agents import answer_event
from commonbook.service.book import Book
from commonbook.values import prompts
from tests.support.best_of import seconds, takes_less_than
from tests.support.mcp_clients import environment
from tests.support.repositories import repository

RECORDED = Path(__file__).parent / "events"
CLIENTS = ("claude-code", "codex", "gemini")
SESSION = "5d0c1f6e-0000-4000-8000-000000000001"
MAX_SECONDS = 2.0
MAX_SECONDS_AT_THE_END = 1.0
SLACK_SECONDS = 2.0
"""Its time begins when the process runs, which takes a while to start."""


@pytest.fixture
def garden(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project, in whose folder agents work that were let into the book."""
    monkeypatch.setenv("COMMONBOOK_HOME", str(home))
    # The deadline is tested with processes: here a busy machine would cut off what a test looks at.
    for name in ("_SECONDS", "_END_SECONDS"):
        monkeypatch.setattr(f"commonbook.interfaces.cli.commands.agents.{name}", 60.0)
    with commonbook.open(home, create=True) as book:
        book.create_space("projects")
        for client in CLIENTS:
            for space in ("personal", "projects"):
                if space == "personal" and not {each.name for each in book.spaces()} & {"personal"}:
                    book.create_space("personal")
                book.grant(f"agent:{client}", space, "writer")
    folder = repository(tmp_path / "garden")
    monkeypatch.chdir(folder)
    return folder


def hook(event: Any, *arguments: str, client: str = "claude-code") -> str:
    """Give an event to the hook, and return the context that it adds."""
    argv = ["hook", client, *arguments]
    data = event if isinstance(event, bytes) else json.dumps(event).encode()
    return _context(answer_event(Call(make_parser(argv).parse_args(argv)), data))


def hook_process(event: Any, *arguments: str, client: str = "claude-code", env: dict[str, str] | None = None) -> str:
    """Give an event to a process of the hook as an agent does; it must end well in any case."""
    data = event if isinstance(event, bytes) else json.dumps(event).encode()
    command = [sys.executable, "-m", "commonbook", "hook", client, *arguments]
    done = subprocess.run(command, input=data, capture_output=True, timeout=60, env=environment(env), check=False)
    assert done.returncode == 0
    return _context(done.stdout.decode())


def command_line(*arguments: str) -> str:
    command = [sys.executable, "-m", "commonbook", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment(), check=True).stdout


def _context(output: str) -> str:
    if not output:
        return ""
    answer = json.loads(output)
    assert answer.keys() == {"hookSpecificOutput"}
    assert answer["hookSpecificOutput"].keys() == {"hookEventName", "additionalContext"}
    return str(answer["hookSpecificOutput"]["additionalContext"])


def event(name: str, session: str = SESSION, **fields: Any) -> dict[str, Any]:
    return {
        "session_id": session,
        "cwd": "/nowhere",
        "transcript_path": "/etc/passwd",
        "hook_event_name": name,
        **fields,
    }


def prompt(text: str, turn: str = "1", **more: Any) -> dict[str, Any]:
    return event("UserPromptSubmit", prompt_id=turn, prompt=text, **more)


def answer(text: str, turn: str = "1", **more: Any) -> dict[str, Any]:
    return event("Stop", prompt_id=turn, last_assistant_message=text, **more)


def stored(home: Path, session: str = SESSION) -> list[tuple[str, str, str]]:
    with commonbook.open(home) as book:
        return [(each.role, each.author, each.text) for each in book.messages(session).items]


@pytest.mark.promise("hooks.once")
@pytest.mark.parametrize("client", CLIENTS)
def test_the_recorded_events_of_an_agent_are_stored_once(garden, home, client):
    events = [json.loads(line) for line in (RECORDED / f"{client}.jsonl").read_text().splitlines()]
    for each in events:
        hook_process(each, client=client)
    for each in events:
        hook(each, client=client)
    session = events[0]["session_id"]
    assert stored(home, session) == [
        ("user", "user:local", "What tea do I like?"),
        ("assistant", f"agent:{client}", "You like oolong."),
    ]
    with commonbook.open(home) as book:
        found = book.messages(session).session
        assert (found.space.name, found.tags) == ("projects/garden", (client,))
        actors = {entry.actor for entry in book.log(space="projects/garden", limit=100) if "append" in entry.action}
        assert actors == {f"agent:{client}"}


@pytest.mark.promise("hooks.next-session")
def test_what_was_told_in_one_session_is_in_the_prompt_of_the_next(garden, home):
    hook(event("SessionStart", source="startup"))
    hook(prompt("The roses by the south wall are watered on Mondays"))
    hook(answer("Noted: the roses are watered on Mondays."))
    hook(event("SessionEnd", reason="other"))
    later = "another-session"
    found = hook(prompt("When are the roses by the wall watered?", session=later))
    assert "south wall are watered on Mondays" in found
    assert "user:local" in found
    assert "projects/garden" in found
    assert recall_fence.unfence_any(found).strip() == ""


@pytest.mark.promise("hooks.cacheable")
def test_a_start_brings_the_newest_memories_with_the_same_bytes_each_time(garden, home):
    with commonbook.open(home) as book:
        for number in range(5):
            book.remember(f"Decision {number}: plant tulips in row {number}", kind="decision", space="projects/garden")
        book.remember("Another project's secret", space="projects/other")
    first = hook(event("SessionStart", source="startup"))
    # In the order in which they were made: a new one comes last, and those before it stay the same.
    assert first.index("row 0") < first.index("row 1") < first.index("row 4")
    assert "secret" not in first
    hook(prompt("Please plant more tulips in another row", session="elsewhere"))
    assert hook(event("SessionStart", "third", source="startup")) == first
    assert hook(event("SessionStart", source="resume")) == ""


def test_words_that_a_prompt_quotes_need_not_occur(garden, home):
    with commonbook.open(home) as book:
        book.remember("Tulips need sandy soil", space="projects/garden")
    assert "sandy" in hook(prompt('Which soil do "red" tulips need here?'))


@pytest.mark.promise("hooks.budget")
def test_a_prompt_that_nothing_answers_gets_nothing(garden, home):
    with commonbook.open(home) as book:
        book.remember("Tulips need sandy soil", space="projects/garden")
    assert hook(prompt("Please explain how the tax on diesel engines is computed")) == ""


@pytest.mark.promise("hooks.cacheable")
def test_what_is_in_the_conversation_already_is_not_added_again(garden, home):
    with commonbook.open(home) as book:
        book.remember("Tulips need sandy soil", space="projects/garden")
    question = "Which soil do tulips need here?"
    assert "sandy" in hook(prompt(question, "1"))
    assert hook(prompt(question, "2")) == ""
    assert "sandy" in hook(prompt(question, "1", session="other"))


@pytest.mark.promise("hooks.next-session")
def test_what_was_said_before_a_compaction_is_recalled_after_it(garden, home):
    hook(prompt("The gardener's phone number ends with seventeen", "1"))
    question = "With what does the phone number of the gardener end?"
    assert "seventeen" not in hook(prompt(question, "2"))
    hook(event("PreCompact", trigger="auto"))
    hook(event("SessionStart", source="compact"))
    assert "ends with seventeen" in hook(prompt(question, "3"))


@pytest.mark.promise("hooks.uses")
def test_the_book_keeps_which_memory_was_put_into_which_turn(garden, home):
    with commonbook.open(home) as book:
        memory = book.remember("Tulips need sandy soil", space="projects/garden").id
    started = hook(event("SessionStart", source="startup"))
    hook(prompt("The gardener's phone number ends with seventeen", "1"))
    secret = "sk-ant-api03-" + "a1B2c3D4" * 11
    prompted = hook(prompt(f"Which soil do tulips need? My key is {secret}", "1", session="other"))
    hook(event("PreCompact", trigger="auto"))
    hook(event("SessionStart", source="compact"))
    with commonbook.open(home) as book:
        found = {(use.session, use.seq): use for use in book.uses(memory)}
        assert found.keys() == {(SESSION, 0), ("other", 1), (SESSION, 1)}
        assert {use.by for use in found.values()} == {"agent:claude-code"}
        assert {use.revision for use in found.values()} == {1}
        for use, text in ((found[SESSION, 0], started), (found["other", 1], prompted)):
            lines = text.partition(prompts.NOTE)[2].strip().split("\n")
            assert use.hash in {sha256(line.encode()).hexdigest() for line in lines}
        first = book.messages(SESSION).items[0]
        hook(prompt("With what does the phone number of the gardener end?", "2"))
        assert (SESSION, 2) in [(use.session, use.seq) for use in book.uses(first.id)]
    shown = command_line("show", "--used", memory)
    assert shown.count(SESSION) == 2
    assert "agent:claude-code" in shown
    assert memory in command_line("session", "show", "other")


@pytest.mark.promise("hooks.uses")
def test_what_was_put_into_a_turn_is_kept_until_the_book_can_take_it(garden, home, monkeypatch):
    with commonbook.open(home) as book:
        memory = book.remember("Tulips need sandy soil", space="projects/garden").id

    def refuse(*_: Any, **__: Any) -> None:
        raise Busy("another process writes", fix="try again")

    with monkeypatch.context() as patched:
        patched.setattr(Book, "record_uses", refuse)
        assert "sandy" in hook(prompt("Which soil do tulips need here?"))
    with commonbook.open(home) as book:
        assert book.uses(memory) == ()
        hook(answer("Sandy soil."))
        assert [(use.session, use.seq) for use in book.uses(memory)] == [(SESSION, 1)]
    assert list((home / ".commonbook" / "hooks" / "uses" / "claude-code").iterdir()) == []


@pytest.mark.promise("hooks.budget")
def test_recalled_text_that_comes_back_is_not_stored(garden, home):
    fenced = prompts.fence(["Tulips need sandy soil"], "0" * 32)
    hook(prompt(f"{fenced}\n\nHow deep do I plant them?"))
    hook(
        event("BeforeAgent", timestamp="t", prompt=f"<hook_context>{fenced}</hook_context>\n\nAnd when?"),
        client="gemini",
    )
    assert [text for _, _, text in stored(home)] == ["How deep do I plant them?", "And when?"]


def test_secrets_are_masked_before_they_are_spooled(garden, home):
    secret = "sk-ant-api03-" + "a1B2c3D4" * 11
    with _locked(home):
        hook_process(prompt(f"My key is {secret}, keep it"))
        (spooled,) = (home / ".commonbook" / "hooks" / "spool" / "claude-code").iterdir()
        assert secret not in spooled.read_text()
        assert spooled.stat().st_mode & 0o077 == 0


@pytest.mark.promise("hooks.harmless")
def test_a_locked_home_delays_nothing_and_loses_nothing(garden, home):
    hook(prompt("The first thing that was said", "1"))
    second, end = prompt("The second thing that was said", "2"), event("SessionEnd", reason="other")
    with _locked(home):
        takes_less_than(MAX_SECONDS + SLACK_SECONDS, lambda: seconds(lambda: hook_process(second)))
        takes_less_than(MAX_SECONDS_AT_THE_END + SLACK_SECONDS, lambda: seconds(lambda: hook_process(end)))
    hook(prompt("The third thing that was said", "3"))
    assert [text.split()[1] for _, _, text in stored(home)] == ["first", "second", "third"]


def _locked(home: Path) -> Any:
    return FairLock(str(home / ".commonbook" / "write.lock")).hold(60.0)


@pytest.mark.promise("hooks.harmless")
@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b'{"hook_event_name": "Stop"}', b"{}" + b" " * (5 << 20)],
    ids=["empty", "broken", "list", "null", "not UTF-8", "deep", "no session", "too large"],
)
def test_input_that_is_no_event_is_nothing(garden, home, data):
    assert hook(data) == ""


@pytest.mark.promise("hooks.harmless")
def test_unknown_events_agents_and_options_end_with_zero(garden, home):
    assert hook_process(event("PreToolUse", tool_name="Bash")) == ""
    assert hook_process(event("SessionStart"), client="emacs") == ""
    assert hook_process(event("SessionStart"), "--no-such-option") == ""
    assert hook_process({**event("UserPromptSubmit"), "prompt": 7, "session_id": ["x"]}) == ""


@pytest.mark.promise("hooks.harmless")
def test_a_missing_or_broken_home_or_a_missing_grant_does_not_disturb(garden, home, tmp_path):
    assert hook_process(prompt("Where do the tulips grow?"), env={"COMMONBOOK_HOME": str(tmp_path / "nowhere")}) == ""
    assert not (tmp_path / "nowhere").exists()
    with commonbook.open(home) as book:
        for space in ("personal", "projects"):
            book.revoke("agent:codex", space)
    assert hook_process(prompt("Where do the tulips grow?"), client="codex") == ""
    for path in (home / ".commonbook").glob("state.db*"):
        path.write_bytes(b"broken" * 1000)
    assert hook_process(prompt("Where do the tulips grow?")) == ""
    assert len(list((home / ".commonbook" / "hooks" / "spool" / "claude-code").iterdir())) == 1


@pytest.mark.promise("hooks.harmless")
def test_a_server_that_is_down_does_not_disturb(garden, tmp_path):
    env = {"COMMONBOOK_KEY": "cbk_none", "XDG_STATE_HOME": str(tmp_path / "state")}

    def ask() -> None:
        assert hook_process(prompt("Where do the tulips grow?"), "--url", "http://127.0.0.1:9", env=env) == ""

    takes_less_than(MAX_SECONDS + SLACK_SECONDS, lambda: seconds(ask))


def tool_use(name: str, output: Any, call: str = "toolu_1", **more: Any) -> dict[str, Any]:
    fields = {"tool_name": name, "tool_input": {"command": "ls"}, "tool_response": output, "tool_use_id": call}
    return event("PostToolUse", prompt_id="1", **fields, **more)


@pytest.mark.promise("hooks.tool-output")
def test_output_of_tools_is_stored_if_the_agent_sends_it(garden, home):
    hook(prompt("List the beds of the garden, please", "1"))
    for _ in range(2):
        assert hook(tool_use("Bash", {"stdout": "north-bed\nsouth-bed"})) == ""
    secret = "sk-ant-api03-" + "a1B2c3D4" * 11
    hook(tool_use("Bash", f"{secret} " + "long " * 5000, "toolu_2"))
    hook(tool_use("mcp__commonbook__recall", "Tulips need sandy soil", "toolu_3"))
    hook(answer("Two beds."))
    first, second = [text for role, _, text in stored(home) if role == "tool"]
    assert first == 'Bash {"command": "ls"}\n{"stdout": "north-bed\\nsouth-bed"}'
    assert secret not in second
    assert len(second) < 9000
    assert [role for role, _, _ in stored(home)] == ["user", "tool", "tool", "assistant"]


@pytest.mark.promise("hooks.off")
def test_a_project_can_switch_it_off(garden, home):
    (garden / ".commonbook.toml").write_text('capture = "off"\n')
    assert hook(prompt("The roses are watered on Mondays")) == ""
    with commonbook.open(home) as book:
        assert book.sessions() == ()
    assert not (home / ".commonbook" / "hooks").exists()


@pytest.mark.promise("hooks.once")
def test_a_session_stays_in_the_space_of_its_first_event(garden, home, tmp_path, monkeypatch):
    hook(event("SessionStart", source="startup"))
    monkeypatch.chdir(repository(tmp_path / "kitchen"))
    hook(prompt("The roses are watered on Mondays", "1"))
    monkeypatch.chdir(tmp_path)
    hook(prompt("And the tulips on Tuesdays", "2"))
    with commonbook.open(home) as book:
        (session,) = book.sessions()
        assert (session.space.name, session.last) == ("projects/garden", 2)


def test_a_compaction_settles_the_session_and_its_end_closes_it(garden, home):
    hook(prompt("The roses are watered on Mondays", "1"))
    hook(event("PreCompact", trigger="auto"))
    with commonbook.open(home) as book:
        (session,) = book.sessions()
        assert (session.unsettled, session.closed) == (0, None)
        hook(event("SessionEnd", reason="other"))
        (session,) = book.sessions()
        assert session.closed is not None


def test_a_message_that_the_book_refuses_is_kept(garden, home):
    with commonbook.open(home) as book:
        for space in ("personal", "projects"):
            book.revoke("agent:claude-code", space)
    assert hook(prompt("The roses are watered on Mondays")) == ""
    (kept,) = (home / ".commonbook" / "hooks" / "spool" / "claude-code").iterdir()
    assert kept.name.endswith(".refused")
    assert "Mondays" in kept.read_text()


def test_the_state_of_a_session_that_ended_long_ago_is_removed(garden, home):
    hook(prompt("The roses are watered on Mondays"))
    (state,) = (home / ".commonbook" / "hooks" / "sessions" / "claude-code").iterdir()
    hook(event("SessionStart", "another", source="startup"))
    assert state.exists()
    forty_days_ago = state.stat().st_mtime - 40 * 86400
    os.utime(state, (forty_days_ago, forty_days_ago))
    hook(event("SessionStart", "third", source="startup"))
    assert not state.exists()


def test_events_of_vs_code_are_read_too(garden, home):
    hook({"sessionId": SESSION, "hookEventName": "UserPromptSubmit", "promptId": "1", "prompt": "Water the roses"})
    hook({"sessionId": SESSION, "hookEventName": "Stop", "promptId": "1", "lastAssistantMessage": "Done."})
    assert [text for _, _, text in stored(home)] == ["Water the roses", "Done."]


@pytest.mark.promise("hooks.paths")
def test_no_field_of_an_event_is_opened_or_becomes_a_name(garden, home, tmp_path):
    trap = tmp_path / "trap"
    os.mkfifo(trap)
    odd = "../../../../" + "x" * 300
    hook(prompt("Where do the tulips grow?", session=odd, transcript_path=str(trap), cwd=str(trap)))
    with commonbook.open(home) as book:
        (session,) = book.sessions()
        assert "/" not in session.id
    inside = {path.parent.name for path in (home / ".commonbook" / "hooks").rglob("*.json")}
    assert inside <= {"claude-code", "hooks"}


@pytest.mark.promise("hooks.budget")
def test_the_context_has_at_most_1500_tokens(garden, home):
    with commonbook.open(home) as book:
        for number in range(30):
            book.remember(f"Tulip rule {number}. " + "Tulips grow in sandy soil. " * 40, space="projects/garden")
            book.remember(f"Bench {number} was painted green.", space="projects/garden")
            book.remember(f"Letter {number} went to the mayor.", space="projects/garden")
    for found in (
        hook(event("SessionStart", source="startup")),
        hook(prompt("Which soil do tulips need?", session="b")),
    ):
        assert 0 < len(found) <= 1500 * 4


@pytest.mark.promise("hooks.budget")
@pytest.mark.parametrize("text", ["yes", "ok, go ahead", "Continue, please!", "/compact now", "thanks", "1", ""])
def test_a_trivial_prompt_asks_for_nothing(text):
    assert context.is_trivial(text)


@pytest.mark.parametrize("text", ["What tea do I like?", "water the roses", "バラの水やりはいつ"])
def test_other_prompts_are_not_trivial(text):
    assert not context.is_trivial(text)


@pytest.mark.promise("hooks.once")
def test_the_same_words_in_two_turns_are_two_messages(garden, home):
    for turn in ("1", "2", "2"):
        hook(prompt("Please water the roses", turn))
    assert len(stored(home)) == 2


def test_status_says_what_hooks_did(garden, home):
    hook(prompt("The roses are watered on Mondays"))
    command = [sys.executable, "-m", "commonbook", "status"]
    shown = subprocess.run(command, capture_output=True, text=True, env=environment(), check=True).stdout
    assert "hooks of claude-code: 1 events, 1 messages stored" in shown
    report = json.loads(
        subprocess.run([*command, "--json"], capture_output=True, text=True, env=environment(), check=True).stdout
    )
    assert report["hooks"]["claude-code"]["last"] == "UserPromptSubmit"


@pytest.mark.promise("hooks.harmless")
def test_two_agents_at_once_on_one_home(garden, home):
    processes = []
    for number in range(6):
        client = CLIENTS[number % 3]
        command = [sys.executable, "-m", "commonbook", "hook", client]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment())
        assert process.stdin
        process.stdin.write(json.dumps(prompt(f"Thing number {number}", str(number), session=client)).encode())
        process.stdin.close()
        processes.append(process)
    for process in processes:
        assert process.wait(60) == 0
        assert process.stdout
        process.stdout.close()
    for client in CLIENTS:
        # A busy machine may cut the delivery off; the next event brings it.
        hook(event("SessionStart", "next", source="startup"), client=client)
    with commonbook.open(home) as book:
        assert _texts(book) == {f"Thing number {number}" for number in range(6)}


def _texts(book: Book) -> set[str]:
    return {message.text for client in CLIENTS for message in book.messages(client).items}


def test_an_event_has_one_form_whatever_the_agent():
    for client in CLIENTS:
        lines = (RECORDED / f"{client}.jsonl").read_bytes().splitlines()
        kinds = [found.kind for line in lines if (found := parse_event(line))]
        assert kinds == ["start", "prompt", "answer", "end"]


@pytest.mark.promise("recall.wishes")
def test_a_start_brings_the_wishes_of_the_person_from_former_sessions(garden, home):
    hook(prompt("Never prune the roses in spring. Which ones need water now?"))
    hook(answer("Always water them in the evening."))
    with commonbook.open(home) as book:
        book.remember("Short answers", kind="preference", space="personal")
    first = hook(event("SessionStart", "next", source="startup"))
    assert "Standing wishes of the user" in first
    assert ", local: Never prune the roses in spring.\n" in first
    assert "in the evening" not in first
    assert first.count("Short answers") == 1
    assert hook(event("SessionStart", "third", source="startup")) == first
    assert recall_fence.unfence_any(first).strip() == ""
