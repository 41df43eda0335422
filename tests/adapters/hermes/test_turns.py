"""Turns through the provider: each one of a conversation with Hermes is stored once, as it was said."""

from __future__ import annotations

import pytest

from tests.support.hermes import Hermes, check, everything, reading, turns_of


@pytest.fixture(params=[True, False], ids=["with batches", "without batches"])
def batches(request):
    return request.param


def stored_turns(place, session="s1"):
    with reading(place) as book:
        return turns_of(everything(book)[session][1])


@pytest.mark.promise("hermes.durable")
def test_every_turn_is_on_disk_when_its_call_returns(provider, place, batches):
    hermes = Hermes(provider, batches=batches)
    for number in range(5):
        hermes.turn(f"question {number}", f"answer {number}")
        assert stored_turns(place) == [(f"question {n}", f"answer {n}") for n in range(number + 1)]
    check(place, hermes, parents={"s1": None})
    assert not hermes.errors


@pytest.mark.promise("hermes.once")
def test_a_session_that_ends_is_switched_and_shut_down_has_each_of_its_23_turns_once(provider, place, batches):
    hermes = Hermes(provider, batches=batches)
    for number in range(23):
        hermes.turn(f"question {number}", f"answer {number}", drain=number % 3 == 0)
    hermes.new("s2")
    hermes.exit()
    assert len(stored_turns(place)) == 23
    check(place, hermes, parents={"s1": None, "s2": "s1"})
    with reading(place) as book:
        assert all(message.episode for message in everything(book)["s1"][1])


def test_a_turn_told_again_is_stored_once(provider, place, batches):
    hermes = Hermes(provider, batches=batches)
    hermes.turn("which port", "5432")
    for _ in range(3):
        hermes.sync("which port", "5432")
    hermes.drain()
    check(place, hermes)


def test_the_same_words_in_two_turns_are_two_turns(provider, place, batches):
    hermes = Hermes(provider, batches=batches)
    for _ in range(4):
        hermes.turn("yes", "done")
    hermes.exit()
    assert stored_turns(place) == [("yes", "done")] * 4


def test_the_whole_conversation_handed_over_again_and_again_adds_nothing(provider, place, batches):
    hermes = Hermes(provider, batches=batches)
    for number in range(4):
        hermes.turn(f"question {number}", f"answer {number}")
        provider.on_pre_compress(hermes.messages)
        provider.on_session_end(hermes.messages)
    hermes.exit()
    check(place, hermes)


def test_the_end_of_a_session_may_be_told_before_its_last_turns(provider, place, batches):
    hermes = Hermes(provider, batches=batches)
    hermes.turn("first", "one")
    before = list(hermes.messages)
    hermes.messages += [{"role": "user", "content": "second"}, {"role": "assistant", "content": "two"}]
    provider.on_session_end(hermes.messages)
    provider.sync_turn("second", "two", session_id="s1", messages=hermes.messages if batches else None)
    if batches:
        provider.sync_turn("first", "one", session_id="s1", messages=before)
    assert stored_turns(place) == [("first", "one"), ("second", "two")]


def test_a_skill_s_text_is_not_stored_in_place_of_the_user_s_words(provider, place):
    hermes = Hermes(provider)
    hermes.turn("/deploy now", "deployed", shown="[skill: deploy] " + "instructions " * 500 + "now")
    hermes.turn("thanks", "welcome")
    hermes.exit()
    check(place, hermes)


def test_a_secret_that_hermes_masks_in_later_batches_makes_no_turn_new(provider, place):
    hermes = Hermes(provider)
    for number in range(4):
        hermes.turn(f"the value is zebra{number}", f"noted {number}")
    hermes.messages[4]["content"] = "the value is [redacted]"
    hermes.turn("go on", "going on")
    hermes.exit()
    check(place, hermes)


def test_recalled_text_that_comes_back_is_not_stored_again(provider, place, book):
    book.remember("The heron nests in the reeds by the mill pond.")
    hermes = Hermes(provider)
    recalled = hermes.turn("where does the heron nest", "by the mill pond")
    assert "reeds" in recalled
    shell = (
        f"<memory-context>\n[System note: The following is recalled memory context.]\n\n{recalled}\n</memory-context>"
    )
    hermes.messages += [
        {"role": "user", "content": f"and the otter?\n\n{shell}"},
        {"role": "assistant", "content": f"you told me: {recalled}"},
    ]
    provider.sync_turn(f"and the otter?\n\n{shell}", f"you told me: {recalled}", messages=hermes.messages)
    assert stored_turns(place)[-1] == ("and the otter?", "you told me:")


def test_secrets_and_private_parts_are_masked_and_the_same_turn_is_still_the_same(
    provider, place, stored, tmp_path, batches
):
    hermes = Hermes(provider, batches=batches)
    secret = "sk-ant-" + "a1B2" * 10
    hermes.turn(f"my key is {secret}", "noted <private>his key</private>")
    hermes.sync(f"my key is {secret}", "noted <private>his key</private>")
    hermes.exit()
    assert stored_turns(place) == [("my key is [masked: anthropic key]", "noted [masked: private]")]
    assert [name for name, data in stored().items() if secret.encode() in data] == []
    for path in (tmp_path / "hermes").rglob("*"):
        assert not path.is_file() or secret.encode() not in path.read_bytes(), path


def test_a_turn_of_parts_images_and_broken_characters_is_stored_as_text(provider, place):
    Hermes(provider)
    parts = [{"type": "text", "text": "look \ud800 at\0 this"}, {"type": "image_url", "image_url": {"url": "data:"}}]
    messages = [{"role": "user", "content": parts}, {"role": "assistant", "content": "a \U0001f98a"}]
    provider.sync_turn("look \ud800 at\0 this", "a \U0001f98a", messages=messages)
    assert stored_turns(place) == [("look ? at this", "a \U0001f98a")]


def test_a_turn_of_several_megabytes_is_stored_whole(provider, place):
    Hermes(provider)
    provider.sync_turn("read it to me", "heron " * 500_000)
    with reading(place) as book:
        texts = [one.text for one in everything(book)["s1"][1]]
    assert "".join(texts[1:]) == ("heron " * 500_000).strip()


def test_a_turn_without_words_stores_nothing(provider, place):
    hermes = Hermes(provider)
    provider.sync_turn("", "  ", messages=[])
    provider.on_session_end([])
    hermes.exit()
    with reading(place) as book:
        assert not everything(book)


def test_every_so_many_turns_become_an_episode(provider, place):
    provider.save_config({"settle_every": 3}, provider._hermes_home)
    hermes = Hermes(provider)
    for number in range(7):
        hermes.turn(f"question {number}", f"answer {number}")
    provider.handle_tool_call("commonbook_remember", {"text": "so that what was put in line before is done"})
    with reading(place) as book:
        messages = everything(book)["s1"][1]
    assert [bool(one.episode) for one in messages] == [True] * 12 + [False] * 2


def test_the_author_is_who_writes_on_that_platform(provider, place):
    hermes = Hermes(provider, platform="telegram", user_id="4711", agent_identity="coder")
    hermes.turn("hello there", "good day")
    check(place, hermes, tags=("hermes", "telegram"))
    with reading(place) as book:
        assert [one.author for one in everything(book)["s1"][1]] == ["user:4711", "agent:hermes/coder"]


def test_nothing_is_recorded_where_a_project_does_not_want_it(provider, place, tmp_path):
    (tmp_path / "work" / ".commonbook.toml").write_text('capture = "off"\n')
    hermes = Hermes(provider)
    hermes.turn("hush", "not a word")
    hermes.exit()
    with reading(place) as book:
        assert not everything(book)
    assert not hermes.errors


def stored_texts(place, session="s1"):
    with reading(place) as book:
        return [one.text for one in everything(book)[session][1]]


@pytest.mark.promise("hermes.interrupted")
def test_a_question_is_on_disk_when_its_turn_has_started(provider, place):
    hermes = Hermes(provider)
    hermes.turn("first", "one")
    hermes.interrupted("count the reeds")
    assert stored_texts(place) == ["first", "one", "count the reeds"]


@pytest.mark.promise("hermes.interrupted")
def test_words_of_interrupted_turns_are_kept_apart_though_hermes_joins_them(provider, place, batches):
    hermes = Hermes(provider, batches=batches)
    hermes.turn("first", "one")
    hermes.interrupted("no, wait")
    hermes.interrupted("no, wait")
    hermes.interrupted("stop")
    hermes.turn("second", "two")
    hermes.exit()
    assert stored_texts(place) == ["first", "one", "no, wait", "no, wait", "stop", "second", "two"]


def test_an_interrupted_turn_at_the_end_is_stored(provider, place):
    hermes = Hermes(provider)
    hermes.interrupted("no, wait")
    hermes.interrupted("stop")
    provider.shutdown()
    assert stored_texts(place) == ["no, wait", "stop"]


def test_a_retry_replaces_the_answer(provider, place):
    hermes = Hermes(provider)
    hermes.turn("first", "one")
    hermes.turn("second", "two")
    hermes.retry("another two")
    hermes.retry("another two")
    hermes.turn("third", "three")
    hermes.exit()
    assert stored_turns(place) == [("first", "one"), ("second", "another two"), ("third", "three")]
    with reading(place) as book:
        assert not [hit for hit in book.recall("two").hits if hit.passage.strip() == "two"]


def test_an_answer_that_was_cut_off_is_stored_once_and_whole(provider, place):
    hermes = Hermes(provider)
    for number in range(3):
        hermes.turn(f"question {number}", f"a long answer {number} about reeds and mills", parts=3)
    hermes.exit()
    check(place, hermes)


def test_turns_with_the_same_words_that_start_before_the_last_is_handed_over_are_all_stored(provider, place, batches):
    hermes = Hermes(provider, batches=batches)
    for number in range(1, 4):
        provider.on_turn_start(number, "go on")
    for number in range(1, 4):
        hermes.messages += [{"role": "user", "content": "go on"}, {"role": "assistant", "content": "done"}]
        arguments = {"messages": list(hermes.messages)} if batches else {}
        provider.sync_turn("go on", "done", session_id="s1", **arguments)
        assert stored_texts(place)[: 2 * number] == ["go on", "done"] * number
    assert stored_turns(place) == [("go on", "done")] * 3
