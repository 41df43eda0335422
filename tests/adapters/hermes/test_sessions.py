"""Sessions through the provider: they begin, go on, split, shrink and are undone while Hermes runs."""

from __future__ import annotations

import threading

import pytest

from commonbook.adapters.hermes.provider import CommonbookMemoryProvider
from commonbook.values.memory import Filter
from tests.support.hermes import Hermes, Turn, check, everything, reading, turns_of

pytestmark = pytest.mark.promise("hermes.once")


def talk(hermes, *words, drain=True):
    for word in words:
        hermes.turn(f"tell me of the {word}", f"the {word} is {word}ish", drain=drain)


def episodes(place):
    with reading(place) as book:
        return {one.session: one for one in book.list(Filter(kinds=("episode",))).items}


@pytest.mark.parametrize("batches", [True, False])
def test_a_switch_settles_three_turns_under_the_old_session_and_begins_an_empty_one(provider, place, batches):
    hermes = Hermes(provider, batches=batches)
    talk(hermes, "heron", "otter", "mill")
    hermes.new("s2")
    hermes.drain()
    check(place, hermes, parents={"s1": None, "s2": "s1"})
    made = episodes(place)
    assert list(made) == ["s1"]
    assert made["s1"].tags == ("hermes", "cli")
    assert all(word in made["s1"].text for word in ("heron", "otter", "mill"))


def test_a_switch_with_nothing_said_makes_no_episode(provider, place):
    hermes = Hermes(provider)
    hermes.new("s2")
    hermes.new("s3")
    hermes.exit()
    assert episodes(place) == {}
    check(place, hermes, parents={"s3": "s2"})


def test_new_after_new_links_each_session_to_the_one_before(provider, place):
    hermes = Hermes(provider)
    for number in range(2, 5):
        talk(hermes, f"bird{number}", drain=False)
        hermes.new(f"s{number}")
    talk(hermes, "last")
    hermes.exit()
    check(place, hermes, parents={"s1": None, "s2": "s1", "s3": "s2", "s4": "s3"})


def test_turns_that_are_still_queued_when_hermes_switches_are_stored_in_the_session_in_which_they_were_said(
    provider, place
):
    hermes = Hermes(provider)
    talk(hermes, "heron")
    hold = threading.Event()
    hermes._worker.submit(hold.wait, 30)
    talk(hermes, "otter", "mill", drain=False)
    hermes.branch("s2")
    talk(hermes, "pond", drain=False)
    hermes.resume("s1")
    hold.set()
    hermes.drain()
    talk(hermes, "reed")
    hermes.exit()
    check(place, hermes, parents={"s1": None, "s2": "s1"})


def test_the_order_of_settling_is_the_order_of_the_messages(provider, place):
    hermes = Hermes(provider)
    for number in range(6):
        hermes.turn(f"question {number}", f"answer {number}", drain=False)
    hermes.new("s2")
    hermes.turn("something new", "indeed", drain=False)
    hermes.new("s3")
    hermes.exit()
    check(place, hermes)
    with reading(place) as book:
        made = sorted(book.list(Filter(kinds=("episode",))).items, key=lambda one: one.created)
    text = "".join(one.text for one in made)
    at = [text.index(word) for word in (*(f"question {number}" for number in range(6)), "something new")]
    assert at == sorted(at)


def test_a_resumed_session_goes_on_where_it_was_and_has_no_new_parent(provider, place):
    hermes = Hermes(provider)
    talk(hermes, "heron", "otter")
    hermes.new("s2")
    talk(hermes, "mill")
    hermes.resume("s1")
    talk(hermes, "pond")
    hermes.exit()
    check(place, hermes, parents={"s1": None, "s2": "s1"})


def test_another_process_resumes_a_session_and_stores_only_what_is_new(provider, place, tmp_path):
    hermes = Hermes(provider)
    talk(hermes, "heron", "otter")
    hermes.exit()
    again = Hermes(CommonbookMemoryProvider(hermes_home=str(tmp_path / "hermes")))
    again.messages, again.recorded = hermes.messages, hermes.recorded
    talk(again, "mill")
    again.exit()
    check(place, again, parents={"s1": None})


def test_a_conversation_from_before_the_provider_was_there_is_stored_when_it_goes_on(provider, place):
    hermes = Hermes(provider)
    for word in ("heron", "otter"):
        hermes.messages += [{"role": "user", "content": word}, {"role": "assistant", "content": f"{word}ish"}]
        hermes.recorded.append(Turn("s1", word, f"{word}ish"))
    talk(hermes, "mill")
    hermes.exit()
    check(place, hermes)


def test_a_branch_stores_nothing_of_its_parent_again(provider, place):
    hermes = Hermes(provider)
    talk(hermes, "heron", "otter")
    hermes.branch("b1")
    talk(hermes, "mill")
    hermes.resume("s1")
    talk(hermes, "pond")
    hermes.branch("b2")
    talk(hermes, "reed")
    hermes.exit()
    check(place, hermes, parents={"s1": None, "b1": "s1", "b2": "s1"})


def test_a_branch_goes_on_in_another_process(provider, place, tmp_path):
    hermes = Hermes(provider)
    talk(hermes, "heron", "otter")
    hermes.branch("b1")
    hermes.exit()
    again = Hermes(CommonbookMemoryProvider(hermes_home=str(tmp_path / "hermes")), "b1")
    again.messages, again.recorded = hermes.messages, hermes.recorded
    talk(again, "mill", "pond")
    again.exit()
    check(place, again, parents={"s1": None, "b1": "s1"})


@pytest.mark.parametrize("other", [None, "s1-2"])
@pytest.mark.parametrize("tail", [0, 1, 4, 9])
def test_compression_stores_every_turn_once_and_no_summary(provider, place, other, tail):
    hermes = Hermes(provider)
    talk(hermes, "heron", "otter", "mill", drain=False)
    hermes.compress(other, tail=tail)
    talk(hermes, "pond", "reed", drain=False)
    hermes.compress(other and "s1-3", tail=tail)
    talk(hermes, "lily")
    hermes.exit()
    check(place, hermes, parents={"s1": None, **({"s1-2": "s1", "s1-3": "s1-2"} if other else {})})


@pytest.mark.parametrize("tail", [4, 9])
def test_a_turn_told_again_after_a_compression_or_by_another_process_is_stored_once(provider, place, tmp_path, tail):
    hermes = Hermes(provider)
    talk(hermes, "heron", "otter", "mill")
    last = hermes.recorded[-1]
    hermes.compress(tail=tail)
    hermes.sync(last.user, last.assistant)
    hermes.drain()
    provider.shutdown()
    again = Hermes(CommonbookMemoryProvider(hermes_home=str(tmp_path / "hermes")))
    again.messages, again.recorded = hermes.messages, hermes.recorded
    again.sync(last.user, last.assistant)
    talk(again, "pond")
    again.exit()
    check(place, again)


def test_compression_in_the_middle_of_a_turn_stores_the_question_before_and_the_answer_after(provider, place):
    hermes = Hermes(provider)
    talk(hermes, "heron")
    question = {"role": "user", "content": "and the otter?"}
    provider.on_pre_compress([*hermes.messages, question])
    with reading(place) as book:
        assert everything(book)["s1"][1][-1].text == "and the otter?"
    provider.on_session_switch("s1", parent_session_id="s1", reset=False, reason="compression")
    hermes.messages = [{"role": "user", "content": "[CONTEXT COMPACTION - REFERENCE ONLY] of herons"}, question]
    hermes.messages.append({"role": "assistant", "content": "it swims"})
    provider.sync_turn("and the otter?", "it swims", session_id="s1", messages=hermes.messages)
    hermes.exit()
    with reading(place) as book:
        assert turns_of(everything(book)["s1"][1])[1:] == [("and the otter?", "it swims")]


def test_what_was_undone_leaves_recall_and_episodes_and_what_was_kept_is_not_stored_again(provider, place):
    hermes = Hermes(provider)
    talk(hermes, "heron", "otter", "mill")
    provider.on_session_end(hermes.messages)
    hermes.undo()
    hermes.undo()
    talk(hermes, "pond")
    hermes.exit()
    check(place, hermes)
    with reading(place) as book:
        assert not [hit for hit in book.recall("otter mill", min_confidence=0.0).hits if "otter" in hit.passage]
        page = book.messages("s1")
        assert [one.text for one in page.items if one.rewound_at] == [
            "tell me of the otter", "the otter is otterish", "tell me of the mill", "the mill is millish",
        ]  # fmt: skip
    assert "otter" not in "".join(one.text for one in episodes(place).values())


def test_the_same_words_after_an_undo_are_stored_anew(provider, place):
    hermes = Hermes(provider)
    talk(hermes, "heron", "otter")
    hermes.undo()
    talk(hermes, "otter")
    hermes.undo()
    talk(hermes, "otter")
    hermes.exit()
    check(place, hermes)


def test_an_undo_shows_at_the_end_if_nothing_is_said_any_more(provider, place):
    hermes = Hermes(provider)
    talk(hermes, "heron", "otter")
    hermes.undo()
    hermes.exit()
    check(place, hermes)


def test_everything_is_undone_and_something_else_is_said(provider, place):
    hermes = Hermes(provider)
    talk(hermes, "heron", "otter")
    hermes.undo()
    hermes.undo()
    talk(hermes, "mill")
    hermes.exit()
    check(place, hermes)


def test_an_undo_after_a_compression_takes_back_no_more_than_was_undone(provider, place):
    hermes = Hermes(provider)
    talk(hermes, "heron", "otter", "mill", "pond")
    hermes.compress(tail=8)
    hermes.undo()
    talk(hermes, "reed")
    hermes.exit()
    check(place, hermes)


def test_an_undo_right_behind_a_compression_that_kept_nothing_takes_back_nothing_and_says_so(provider, place, caplog):
    hermes = Hermes(provider)
    talk(hermes, "heron", "otter")
    hermes.messages = [{"role": "user", "content": "[CONTEXT COMPACTION] all of it"}]
    provider.on_session_switch("s1", rewound=True)
    hermes.interrupted("wait")
    talk(hermes, "mill")
    with reading(place) as book:
        assert len(everything(book)["s1"][1]) >= 6
    assert "not clear what was undone" in caplog.text


def test_an_undo_in_a_branch_leaves_the_parent_alone(provider, place):
    hermes = Hermes(provider)
    talk(hermes, "heron", "otter")
    hermes.branch("b1")
    talk(hermes, "mill")
    hermes.undo()
    last = max(at for at, one in enumerate(hermes.messages) if one["role"] == "user")
    del hermes.messages[last:]
    talk(hermes, "pond")
    hermes.exit()
    check(place, hermes, parents={"b1": "s1"})


def test_two_agents_side_by_side_keep_their_sessions_apart(provider, place, tmp_path):
    other = CommonbookMemoryProvider(hermes_home=str(tmp_path / "other"))
    one, two = Hermes(provider, "a1"), Hermes(other, "b1")
    for number in range(3):
        for hermes in (one, two):
            talk(hermes, f"bird{number}", f"fish{number}", drain=False)
        one.new(f"a{number + 2}")
        two.compress(f"b{number + 2}")
    one.exit()
    two.exit()
    check(place, one, two, parents={"a2": "a1", "b2": "b1", "a4": "a3", "b4": "b3"})


def test_one_provider_serves_two_sessions_by_their_ids(provider, place):
    hermes = Hermes(provider)
    seen: dict[str, list[dict[str, str]]] = {"s1": [], "s2": []}
    for number in range(6):
        session = ("s1", "s2")[number % 2]
        seen[session] += [{"role": "user", "content": f"q{number}"}, {"role": "assistant", "content": f"a{number}"}]
        provider.sync_turn(f"q{number}", f"a{number}", session_id=session, messages=seen[session])
    hermes.exit()
    with reading(place) as book:
        stored = everything(book)
        assert turns_of(stored["s1"][1]) == [("q0", "a0"), ("q2", "a2"), ("q4", "a4")]
        assert turns_of(stored["s2"][1]) == [("q1", "a1"), ("q3", "a3"), ("q5", "a5")]


@pytest.mark.parametrize("context", ["cron", "subagent", "flush"])
def test_nothing_is_stored_from_another_context_than_the_user_s_own(provider, place, context, book):
    book.remember("The heron nests by the mill.")
    hermes = Hermes(provider, agent_context=context, parent_session_id="s0")
    recalled = hermes.turn("where does the heron nest", "by the mill")
    assert "nests" in recalled
    hermes.compress("s2")
    provider.on_delegation("find it", "found", child_session_id="c1")
    provider.on_memory_write("add", "memory", "an entry")
    assert "not stored" not in provider.handle_tool_call("commonbook_recall", {"query": "heron"})
    assert "nothing is stored in this context" in provider.handle_tool_call(
        "commonbook_remember", {"text": "keep this"}
    )
    hermes.new("s3")
    hermes.exit()
    assert not hermes.errors
    with reading(place) as other:
        assert not everything(other)
        assert len(other.list().items) == 1


def test_what_was_delegated_is_a_session_of_its_own_below_the_one_that_asked(provider, place):
    hermes = Hermes(provider)
    talk(hermes, "heron")
    for _ in range(2):
        provider.on_delegation("count the herons", "there are 3", child_session_id="child-1", model="m")
    provider.on_delegation("count the otters", "none")
    hermes.exit()
    with reading(place) as book:
        stored = everything(book)
        assert turns_of(stored["child-1"][1]) == [("count the herons", "there are 3")]
        assert stored["child-1"][0].parent == "s1"
        assert stored["child-1"][0].tags == ("hermes", "cli", "delegation")
        (other,) = [name for name in stored if name not in ("s1", "child-1")]
        assert turns_of(stored[other][1]) == [("count the otters", "none")]
        assert len(stored["s1"][1]) == 2
