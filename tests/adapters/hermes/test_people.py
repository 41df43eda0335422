"""People and profiles: each has a space of their own, and is given nothing that another one said."""

from __future__ import annotations

import json
import random
import string

import pytest

from commonbook.adapters.hermes import user_spaces
from commonbook.adapters.hermes.provider import CommonbookMemoryProvider
from commonbook.core.text.space_names import require_new_name
from commonbook.values.memory import Filter
from tests.support.hermes import Hermes, reading

HERON = "the heron nests behind the old mill"
QUESTION = "where does the heron nest"
BOB = {"platform": "telegram", "user_id": "Bob", "chat_type": "dm"}
PEOPLE = {
    "the same letters in lower case": {**BOB, "user_id": "bob"},
    "another platform": {**BOB, "platform": "discord"},
    "another profile": {**BOB, "agent_identity": "coder"},
    "nobody named": {"platform": "api_server"},
    "a client of the API": {"platform": "api_server", "gateway_session_key": "Bob"},
    "a group in which Bob is": {
        **BOB,
        "chat_type": "group",
        "chat_id": "-100",
        "gateway_session_key": "agent:main:telegram:group:-100",
    },
    "the terminal": {"platform": "cli"},
    "the terminal with another profile": {"platform": "cli", "agent_identity": "coder"},
}


@pytest.fixture
def agent(place, tmp_path):
    """Return a function that starts Hermes for somebody; all of them use one book."""
    started: list[Hermes] = []

    def start(session, *, home="hermes", options=None, **arguments):
        folder = str(tmp_path / home)
        provider = CommonbookMemoryProvider(hermes_home=folder)
        provider.save_config({"write_seconds": 60, "recall_seconds": 7, **(options or {})}, folder)
        started.append(Hermes(provider, session, hermes_home=folder, **arguments))
        return started[-1]

    yield start
    for one in started:
        one.exit()
        assert not one.errors


@pytest.mark.promise("hermes.people")
@pytest.mark.parametrize("who", PEOPLE, ids=str)
def test_nobody_is_given_what_another_one_said(agent, who):
    agent("s1", **BOB).turn(HERON, "Noted.")
    other = agent("s2", **PEOPLE[who])
    assert other.turn(QUESTION, "I do not know.") == ""
    answer = json.loads(other.provider.handle_tool_call("commonbook_recall", {"query": QUESTION}))
    assert "mill" not in answer["recalled"]
    assert HERON in agent("s3", **BOB).turn(QUESTION, "Behind the mill.")


def test_memories_of_the_model_belong_to_the_person(agent, place):
    agent("s1", **BOB).provider.handle_tool_call("commonbook_remember", {"text": HERON})
    assert agent("s2", platform="cli").turn(QUESTION, "I do not know.") == ""
    assert HERON in agent("s3", **BOB).turn(QUESTION, "Behind the mill.")


def test_notes_of_the_owner_are_for_the_owner_at_the_terminal_alone(agent, place):
    with reading(place) as book:
        book.remember(HERON, space="personal")
        book.remember("the pond is drained in March", space="team")
    assert agent("s1", **BOB).turn(QUESTION, "I do not know.") == ""
    assert HERON in agent("s2", platform="cli").turn(QUESTION, "Behind the mill.")
    assert "March" not in agent("s3", platform="cli").turn("when is the pond drained", "I do not know.")
    shared = agent("s4", options={"recall_spaces": "team"}, **BOB)
    assert "drained in March" in shared.turn("when is the pond drained", "In March.")


def test_one_space_for_everybody_can_be_chosen(agent, place):
    agent("s1", options={"space": "family"}, **BOB).turn(HERON, "Noted.")
    ann = agent("s2", options={"space": "family"}, platform="discord", user_id="ann", agent_identity="coder")
    assert HERON in ann.turn(QUESTION, "Behind the mill.")
    with reading(place) as book:
        assert {one.space.name for one in book.sessions()} == {"family"}


def test_spaces_are_named_by_profile_and_user(agent, place):
    for number, who in enumerate(PEOPLE.values()):
        agent(f"s{number}", **who).turn("hello", "Hello.")
    with reading(place) as book:
        names = [one.space.name for one in book.sessions()]
    assert len(set(names)) == len(PEOPLE)
    assert {"hermes/default/telegram.bob", "hermes/default/local", "hermes/coder/local"} <= set(names)
    assert {"hermes/default/api_server", "hermes/default/telegram.100__"} <= {
        name if "__" not in name else name.partition("__")[0] + "__" for name in names
    }


@pytest.mark.promise("hermes.people")
def test_no_two_people_share_a_name():
    chosen = random.Random(1)
    ids = ["Bob", "bob", "a@b", "a-b", "a_b", "a__b", "2026-11", "x.md", "..", "日本", "\ud800", "A" * 300, "a" * 300]
    ids += ["sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH", "0f8fad5b-d9cb-469f-a165-70867728950e"]
    ids += ["".join(chosen.choices("aAb-_.@", k=chosen.randint(1, 5))) for _ in range(2000)]
    ids += ["".join(chosen.choices(string.printable, k=chosen.randint(1, 90))) for _ in range(300)]
    names: dict[str, object] = {}
    for platform in ("telegram", "api_server", "Weird Platform " * 5):
        for user in dict.fromkeys(ids):
            for who in ({"user_id": user}, {"chat_id": user, "chat_type": "group", "gateway_session_key": "k"}):
                name = user_spaces.user_spaces({"platform": platform, **who}).own
                assert require_new_name(name) == name
                assert names.setdefault(name, (platform, who)) == (platform, who)
    assert user_spaces.profile_space("Coder") != user_spaces.profile_space("coder")


# --- MEMORY.md and USER.md


def mirrored(place, space="hermes/default"):
    with reading(place) as book:
        return sorted((one.text, one.kind) for one in book.list(Filter(space=space)).items)


def test_the_files_of_hermes_memory_are_mirrored_as_they_are(agent, place, tmp_path):
    folder = tmp_path / "hermes" / "memories"
    folder.mkdir(parents=True)
    (folder / "MEMORY.md").write_text("The pond is deep.\n§\nThe mill is old.")
    (folder / "USER.md").write_text("Bob likes herons.")
    hermes = agent("s1", platform="cli")
    hermes.turn("hello", "Hello.")
    entries = [("Bob likes herons.", "preference"), ("The mill is old.", "note"), ("The pond is deep.", "note")]
    assert mirrored(place) == entries
    # Another agent of the profile finds them there.
    agent("s2", **BOB).turn("hello", "Hello.")
    assert mirrored(place) == entries
    # A background review writes the file without a word to the provider.
    (folder / "MEMORY.md").write_text("The pond is shallow.\n§\nThe mill is old.")
    hermes.turn("how are you", "Fine.")
    assert mirrored(place) == [entries[0], entries[1], ("The pond is shallow.", "note")]
    with reading(place) as book:
        (pond,) = (one for one in book.list(Filter(space="hermes/default")).items if "pond" in one.text)
        assert pond.revision == 2
    # `hermes memory reset` removes the files.
    (folder / "MEMORY.md").unlink()
    (folder / "USER.md").unlink()
    hermes.turn("and now", "Fine.")
    assert mirrored(place) == []


def test_files_that_cannot_be_read_or_do_not_exist_take_nothing_away(agent, place, tmp_path):
    hermes = agent("s1", platform="cli")
    folder = tmp_path / "hermes" / "memories"
    folder.mkdir(parents=True)
    (folder / "MEMORY.md").write_text("The pond is deep.")
    hermes.turn("hello", "Hello.")
    assert mirrored(place) == [("The pond is deep.", "note")]
    folder.rename(tmp_path / "elsewhere")
    hermes.turn("are you there", "Yes.")
    hermes.provider.on_memory_write("add", "memory", "The mill is old.")
    assert mirrored(place) == [("The pond is deep.", "note")]
    folder.mkdir()
    (folder / "MEMORY.md").write_bytes(b"\xff\xfe broken")
    hermes.turn("how are you", "Fine.")
    assert mirrored(place) == [("The pond is deep.", "note")]
