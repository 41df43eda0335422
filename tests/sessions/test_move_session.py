"""`move_session` takes a session with all of it into another space, and calls that name the old space follow."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest

import commonbook
from commonbook.errors import BadInput, CommonbookError, Conflict, NotAllowed, NotFound
from commonbook.values.memory import Filter
from commonbook.values.session import NewMessage, PromptPassage

BOB = "user:bob"


def message(client_id, text):
    return NewMessage(text, role="user", client_id=client_id)


@pytest.fixture
def talk(book):
    """A session in `old` with an episode, a rewound message and an unsettled one."""
    book.append("talk", [message("a", "the heron nests by the mill"), message("b", "it feeds at noon")], space="old")
    book.settle("talk", space="old")
    book.append("talk", [message("c", "this was a mistake")], space="old")
    book.rewind("talk", 2, space="old")
    book.append("talk", [message("d", "it eats fish")], space="old")
    return book


def texts(book, space):
    return [(one.seq, one.text, one.client_id) for one in book.messages("talk", space=space).items]


def found_in(book, space):
    return sorted(hit.passage for hit in book.recall("heron fish noon", spaces=[space], min_confidence=0).hits)


@pytest.mark.promise("sessions.move", "sessions.former-space")
def test_messages_episodes_and_uses_move_with_their_numbers_and_ids(talk, folder):
    before = talk.messages("talk", space="old")
    (episode,) = talk.list(Filter(space="old", kinds=("episode",))).items
    talk.record_uses("talk", [PromptPassage(episode.id, "0" * 64)], message=4, space="old")
    moved = talk.move_session("talk", "new/home", space="old")
    assert (moved.id, moved.space.name, moved.last, moved.unsettled) == ("talk", "new/home", 4, 1)
    after = talk.messages("talk", space="new/home")
    assert [one.id for one in after.items] == [one.id for one in before.items]
    assert [one.rewound_at for one in after.items] == [one.rewound_at for one in before.items]
    assert talk.get(episode.id).space == "new/home"
    assert (talk.get(episode.id).session, talk.get(episode.id).session_space) == ("talk", None)
    assert [one.space for one in talk.session_uses("talk", space="new/home")] == ["new/home"]
    assert not talk.sessions(space="old")
    assert not talk.list(Filter(space="old", kinds=("episode",))).items
    assert [one.space.name for one in talk.sessions()] == ["new/home"]
    assert found_in(talk, "old") == []
    assert len(found_in(talk, "new/home")) == 3
    assert talk.recall("fish", session="talk", spaces=["new/home"], min_confidence=0).hits
    files = [path for path in folder().rglob("*.md") if "heron nests" in path.read_text(encoding="utf-8")]
    assert [path.relative_to(folder()).parts[:2] for path in files] == [("new", "home")]
    actions = [[entry.action for entry in talk.log(space=name)] for name in ("old", "new/home")]
    assert "session.move.out" in actions[0]
    assert "session.move.in" in actions[1]
    assert talk.verify_log().ok
    assert talk.status().sessions == 1


def test_the_session_goes_on_in_its_new_space(talk):
    talk.move_session("talk", "new", space="old")
    talk.append("talk", ["and frogs"], space="new")
    talk.rewind("talk", 4, space="new")
    report = talk.close_session("talk", space="new")
    assert (report.space, report.unsettled, len(report.episodes)) == ("new", 0, 1)
    assert {one.space for one in talk.list(Filter(kinds=("episode",))).items} == {"new"}


@pytest.mark.promise("sessions.move", "sessions.former-space")
def test_calls_that_name_the_old_space_reach_the_session(talk):
    talk.move_session("talk", "middle", space="old")
    talk.move_session("talk", "new", space="middle")
    repeat = talk.append("talk", [message("a", "the heron nests by the mill")], space="old")
    assert ([one.new for one in repeat.messages], repeat.space) == ([False], "new")
    receipt = talk.append("talk", [message("e", "and frogs")], space="old")
    assert (receipt.messages[0].seq, receipt.space) == (5, "new")
    talk.append("talk", [message("f", "and eels")], space="old")
    assert talk.messages("talk", space="middle").session.space.name == "new"
    assert talk.rewind("talk", 5, space="old")[0].text == "and eels"
    assert talk.settle("talk", space="old").space == "new"
    talk.switch("talk", "next", space="old")
    assert talk.messages("talk", space="new").session.closed is not None
    following = talk.messages("next").session
    assert (following.id, following.parent, following.parent_space) == ("next", "talk", "new")


def test_it_can_move_back_and_on(talk):
    before = texts(talk, "old")
    talk.move_session("talk", "new", space="old")
    talk.move_session("talk", "old", space="new")
    assert texts(talk, "old") == before
    assert talk.append("talk", ["more"], space="new").space == "old"
    talk.move_session("talk", "third")
    assert [one.space.name for one in talk.sessions()] == ["third"]
    assert {talk.messages("talk", space=name).session.space.name for name in ("old", "new", "third")} == {"third"}


def test_a_space_that_has_or_had_such_a_session_is_refused(talk):
    talk.append("talk", ["another talk"], space="taken")
    talk.append("talk", ["a third talk"], space="left")
    talk.move_session("talk", "elsewhere", space="left")
    before = texts(talk, "old")
    for space in ("taken", "left"):
        with pytest.raises(Conflict):
            talk.move_session("talk", space, space="old")
    with pytest.raises(BadInput):
        talk.move_session("talk", "No Name", space="old")
    with pytest.raises(NotFound):
        talk.move_session("nobody", "new", space="old")
    assert texts(talk, "old") == before
    assert talk.move_session("talk", "old", space="old").space.name == "old"


def test_a_parent_that_would_go_on_from_its_own_child_is_refused(book):
    book.append("child", ["first"], space="new", parent="talk")
    book.switch("child", "talk", space="new", to_space="old")
    book.append("talk", ["second"], space="old")
    with pytest.raises(Conflict):
        book.move_session("talk", "new", space="old")


@pytest.mark.promise("sessions.move", "sessions.former-space")
@pytest.mark.parametrize(
    ("old", "new"), [("reader", "writer"), ("writer", "reader"), ("writer", None), (None, "writer")]
)
def test_both_spaces_must_be_writable(talk, old, new):
    talk.create_space("new")
    for space, role in (("old", old), ("new", new)):
        if role:
            talk.grant(BOB, space, role)
    with pytest.raises((NotAllowed, NotFound)):
        talk.acting_as(BOB).move_session("talk", "new", space="old")
    assert len(texts(talk, "old")) == 4


@pytest.mark.promise("sessions.move", "sessions.former-space")
def test_those_who_may_not_read_the_new_space_learn_nothing_of_it(talk):
    talk.grant(BOB, "old", "writer")
    bob = talk.acting_as(BOB)
    bob.append("talk", ["of bob"], space="old")
    talk.move_session("talk", "secret", space="old")
    with pytest.raises(Conflict) as caught:
        bob.append("talk", ["more"], space="old")
    assert "secret" not in str(caught.value)
    for call in (bob.settle, bob.messages, bob.close_session):
        with pytest.raises(NotFound):
            call("talk", space="old")
    assert "secret" not in str([entry.payload for entry in bob.log(space="old")])
    assert len(texts(talk, "secret")) == 5


@pytest.mark.promise("sessions.move", "sessions.former-space")
@pytest.mark.parametrize("first", ["append", "switch"])
def test_who_may_no_longer_write_to_the_old_space_leads_no_messages_away(book, first):
    """A name that somebody used and moved away must not take the words of others along for ever."""
    book.grant(BOB, "team", "writer")
    book.grant(BOB, "of-bob", "writer")
    bob = book.acting_as(BOB)
    bob.append("support-43", ["hi"], space="team")
    bob.move_session("support-43", "of-bob", space="team")
    assert book.append("support-43", ["still led"], space="team").space == "of-bob"
    book.revoke(BOB, "team")
    if first == "switch":
        book.switch("support-42", "support-43", space="team")
    receipt = book.append("support-43", ["secret"], space="team")
    assert (receipt.space, receipt.messages[0].seq) == ("team", 1)
    assert [one.text for one in bob.messages("support-43", space="of-bob").items] == ["hi", "still led"]
    book.grant(BOB, "team", "writer")
    assert book.append("support-43", ["more"], space="team").space == "team"
    with pytest.raises(Conflict):
        bob.move_session("support-43", "of-bob", space="team")


@pytest.mark.promise("sessions.former-space")
def test_a_repeat_after_the_revocation_is_stored_in_the_space_that_it_names(book):
    for space in ("team", "of-bob"):
        book.grant(BOB, space, "writer")
    bob = book.acting_as(BOB)
    book.append("talk", [message("a", "the heron nests")], space="team")
    bob.move_session("talk", "of-bob", space="team")
    assert not book.append("talk", [message("a", "the heron nests")], space="team").messages[0].new
    book.revoke(BOB, "team")
    receipt = book.append("talk", [message("a", "the heron nests")], space="team")
    assert (receipt.space, receipt.messages[0].new) == ("team", True)


def test_a_session_that_two_have_moved_is_followed_as_long_as_both_may_write(book):
    for space in ("team", "middle"):
        book.grant(BOB, space, "writer")
    bob = book.acting_as(BOB)
    book.append("talk", ["one"], space="team")
    bob.move_session("talk", "middle", space="team")
    book.move_session("talk", "last", space="middle")
    assert book.append("talk", ["two"], space="team").space == "last"
    book.revoke(BOB, "team")
    assert book.append("talk", ["three"], space="middle").space == "last", "the owner moved it out of there"
    assert book.append("talk", ["four"], space="team").space == "team"


def test_episodes_that_are_elsewhere_stay_or_join_again(talk):
    (episode,) = talk.list(Filter(space="old", kinds=("episode",))).items
    talk.move(episode.id, "third")
    talk.move_session("talk", "new", space="old")
    assert talk.get(episode.id).space == "third"
    talk.move_session("talk", "third", space="new")
    assert (talk.get(episode.id).space, talk.get(episode.id).session_space) == ("third", None)


@pytest.mark.promise("rewind.foreign")
@pytest.mark.parametrize("mode", ["live", "lazy"])
def test_an_episode_that_joins_its_session_again_loses_what_was_rewound_meanwhile(talk, mode):
    talk.grant(BOB, "old", "writer")
    (episode,) = talk.list(Filter(space="old", kinds=("episode",))).items
    talk.move(episode.id, "third")
    copy = talk.share(episode.id, "readers", refresh=mode)
    talk.acting_as(BOB).rewind("talk", 1, space="old")
    assert "it feeds at noon" in talk.get(episode.id).text, "bob may not write there"
    talk.move_session("talk", "third", space="old")
    for memory in (talk.get(episode.id), talk.get(copy.id)):
        assert "heron nests" in memory.text
        assert "noon" not in memory.text
    assert talk.get(copy.id).freshness == "fresh"
    assert talk.get(episode.id).session_space is None


@pytest.mark.promise("rewind.foreign")
def test_an_episode_that_was_rewound_as_a_whole_is_deleted_when_its_session_comes_to_it(talk):
    talk.grant(BOB, "old", "writer")
    (episode,) = talk.list(Filter(space="old", kinds=("episode",))).items
    talk.move(episode.id, "third")
    copy = talk.share(episode.id, "readers")
    talk.acting_as(BOB).rewind("talk", 0, space="old")
    assert talk.get(episode.id).text == episode.text
    talk.move_session("talk", "third", space="old")
    for gone in (episode.id, copy.id):
        with pytest.raises(NotFound):
            talk.get(gone)
    with pytest.raises(Conflict):
        talk.undelete(episode.id)
    assert len(talk.messages("talk", space="third").items) == 4


def test_an_episode_whose_file_was_put_back_after_a_rewind_is_deleted_when_its_session_moves(home):
    with commonbook.open(home, create=True) as book:
        book.append("talk", ["the heron nests by the mill"], space="old")
        (episode,) = book.close_session("talk", space="old").episodes
        copy = book.share(episode, "readers")
        book.move(episode, "third")
        book.grant(BOB, "old", "writer")
        book.acting_as(BOB).rewind("talk", 0, space="old")
        (path,) = (home / "third").rglob("*.md")
        path.rename(home / "old" / path.name)
        book.sync()
        assert book.get(episode).space == "old"
        assert book.move_session("talk", "new", space="old").space.name == "new"
        for gone in (episode, copy.id):
            with pytest.raises(NotFound):
                book.get(gone)
        with pytest.raises(Conflict):
            book.undelete(episode)
        assert list(home.rglob("old/*.md")) == list(home.rglob("new/*.md")) == []


def test_a_session_whose_episode_was_rewound_as_a_whole_moves_too(talk):
    (episode,) = talk.list(Filter(space="old", kinds=("episode",))).items
    talk.rewind("talk", 0, space="old")
    assert talk.move_session("talk", "new", space="old").space.name == "new"
    assert all(one.rewound_at for one in talk.messages("talk", space="new").items)
    with pytest.raises(Conflict):
        talk.undelete(episode.id)
    assert found_in(talk, "new") == []


@pytest.mark.promise("sessions.move")
def test_readers_of_the_new_space_read_rewound_messages_in_the_log_and_nowhere_else(talk):
    (episode,) = talk.list(Filter(space="old", kinds=("episode",))).items
    talk.rewind("talk", 1, space="old")
    talk.rewind("talk", 0, space="old")
    talk.move_session("talk", "new", space="old")
    talk.grant(BOB, "new", "reader")
    bob = talk.acting_as(BOB)
    rewound = [one.text for one in bob.messages("talk", space="new").items]
    assert rewound == ["the heron nests by the mill", "it feeds at noon", "this was a mistake", "it eats fish"]
    first, last = bob.history(episode.id)
    # The revision with both messages was written in a space that bob may not read.
    assert (first.readable, first.text) == (False, "")
    assert "heron" in last.text
    assert "noon" not in last.text
    assert found_in(bob, "new") == []
    with pytest.raises(NotFound):
        bob.get(episode.id)


@pytest.mark.promise("sessions.move", "sessions.former-space")
def test_an_episode_that_was_elsewhere_is_of_its_session_wherever_that_has_gone(talk):
    (episode,) = talk.list(Filter(space="old", kinds=("episode",))).items
    talk.move(episode.id, "third")
    talk.move_session("talk", "new", space="old")
    talk.move(episode.id, "old")
    assert talk.get(episode.id).session_space == "new", "the session has left this space"
    talk.move(episode.id, "new")
    assert talk.get(episode.id).session_space is None
    found = talk.recall("heron", spaces="new", session="talk").hits
    assert episode.id in {hit.memory for hit in found}


@pytest.mark.promise("sessions.move", "sessions.former-space")
@pytest.mark.parametrize("last", ["the episode", "the session"])
def test_a_lost_database_gets_an_episode_back_that_followed_its_session_later(home, last):
    space = "new" if last == "the episode" else "third"
    with commonbook.open(home, create=True) as book:
        book.append("talk", [message("a", "the heron nests by the mill")], space="old")
        (episode,) = book.close_session("talk", space="old").episodes
        book.move(episode, "third")
        book.move_session("talk", "new", space="old")
        if last == "the episode":
            book.move(episode, "fourth")
            book.move(episode, "new")
        else:
            book.move_session("talk", "third", space="new")
    for path in (home / ".commonbook").glob("state.db*"):
        path.unlink()
    with commonbook.open(home) as book:
        assert [(one.space.name, one.last) for one in book.sessions()] == [(space, 1)]
        (repeat,) = book.append("talk", [message("a", "the heron nests by the mill")], space=space).messages
        assert not repeat.new


def test_a_lost_database_gets_the_moved_session_back_from_its_files(home):
    with commonbook.open(home, create=True) as book:
        book.append("talk", [message("a", "the heron nests by the mill")], space="old")
        book.close_session("talk", space="old")
        book.append("talk", [message("b", "it feeds at noon")], space="old")
        book.move_session("talk", "new", space="old")
        book.close_session("talk", space="new")
    for path in (home / ".commonbook").glob("state.db*"):
        path.unlink()
    with commonbook.open(home) as book:
        assert [(one.space.name, one.last) for one in book.sessions()] == [("new", 2)]
        again = [message("a", "the heron nests by the mill"), message("b", "it feeds at noon")]
        assert [one.new for one in book.append("talk", again, space="new").messages] == [False, False]


@pytest.mark.promise("sessions.move", "sessions.former-space")
def test_concurrent_appends_land_in_one_place_and_nothing_is_lost(open_book):
    with open_book() as book, open_book() as other:
        book.append("talk", ["first"], space="a")
        errors: list[CommonbookError] = []

        def append(hand, name):
            for number in range(15):
                try:
                    hand.append("talk", [message(f"{name}{number}", f"{name} {number}")], space="a")
                except CommonbookError as error:
                    errors.append(error)

        writers = [threading.Thread(target=append, args=(hand, name)) for hand, name in ((book, "x"), (other, "y"))]
        for writer in writers:
            writer.start()
        for to in ("b", "c", "a", "d"):
            book.move_session("talk", to)
        for writer in writers:
            writer.join(60)
        assert not errors
        assert [one.space.name for one in book.sessions()] == ["d"]
        stored = [one.text for one in book.messages("talk", space="d").items]
        for name in "xy":
            assert [text for text in stored if text.startswith(name)] == [f"{name} {number}" for number in range(15)]
        assert len(stored) == 31
        assert book.verify_log().ok


MOVING = """
import sys, commonbook
book = commonbook.open(sys.argv[1])
print("ready", flush=True)
while True:
    for to in ("b", "a"):
        book.move_session("talk", to)
"""


@pytest.mark.promise("sessions.move", "sessions.former-space")
@pytest.mark.slow
def test_a_process_that_is_killed_has_moved_all_of_it_or_nothing(place, open_book):
    book = open_book()
    for number in range(12):
        book.append("talk", [message(f"c{number}", f"heron number {number}")], space="a")
        if number % 3 == 2:
            book.settle("talk", space="a")
    book.append("talk", ["unsettled heron"], space="a")
    book.close()
    for seconds in (0.005, 0.013, 0.031):
        child = subprocess.Popen([sys.executable, "-c", MOVING, str(place)], stdout=subprocess.PIPE)
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        # The moment itself is what differs from run to run.
        time.sleep(seconds)
        child.kill()
        child.communicate()
        with open_book() as book:
            (session,) = book.sessions()
            assert [one.seq for one in book.messages("talk", space=session.space.name).items] == list(range(1, 14))
            episodes = book.list(Filter(kinds=("episode",))).items
            assert [one.space for one in episodes] == [session.space.name] * 4
            hits = book.recall("heron", spaces=["a", "b"], k=20, min_confidence=0).hits
            assert {hit.space for hit in hits} == {session.space.name}
            assert book.doctor() == ()
            assert book.verify_log().ok
