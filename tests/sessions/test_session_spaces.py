"""A session belongs to its space: the same name in two spaces is two sessions, and no name tells of a hidden one."""

import json

import pytest

from commonbook import (
    Ambiguous,
    BadInput,
    CommonbookError,
    Conflict,
    Filter,
    NewMessage,
    NotAllowed,
    NotFound,
    WorkReport,
)

BOB, EVE = "user:bob", "user:eve"


@pytest.fixture
def bob(book):
    """A writer of `hr` alone, whose default space he may not use."""
    book.create_space("hr")
    book.grant(BOB, "hr", "writer")
    return book.acting_as(BOB)


def texts(book, session, **options):
    return [message.text for message in book.messages(session, **options).items]


def outcome(call):
    """Return the type and the words of an error."""
    with pytest.raises(CommonbookError) as raised:
        call()
    return type(raised.value), raised.value.message, raised.value.fix


# --- names


@pytest.mark.promise("sessions.spaces")
def test_the_same_name_in_two_spaces_is_two_sessions(book):
    for space in ("team", "personal"):
        receipt = book.append("s", [f"the {space} text"], space=space)
        assert (receipt.space, receipt.messages[0].seq, receipt.messages[0].new) == (space, 1, True)
    assert [texts(book, "s", space=space) for space in ("team", "personal")] == [
        ["the team text"],
        ["the personal text"],
    ]
    assert {(one.id, one.space.name) for one in book.sessions()} == {("s", "team"), ("s", "personal")}
    book.append("s", ["more"], space="team", tags=["x"])
    assert book.messages("s", space="personal").session.last == 1


@pytest.mark.promise("sessions.spaces")
def test_nobody_can_squat_a_name_in_another_space(book, bob):
    bob.append("support-43", ["hi"], space="hr")
    assert book.append("support-43", ["SECRET"]).space == "personal"
    assert texts(bob, "support-43") == ["hi"]
    assert texts(book, "support-43", space="personal") == ["SECRET"]
    assert bob.recall("SECRET", spaces="hr").hits == ()


@pytest.mark.promise("sessions.spaces")
def test_a_session_that_may_not_be_read_answers_as_one_that_does_not_exist(book, bob):
    book.append("taken", ["SECRET"], space="vault")
    for verb in (
        lambda name: bob.messages(name),
        lambda name: bob.messages(name, space="vault"),
        lambda name: bob.messages(name, space="hr"),
        lambda name: bob.settle(name),
        lambda name: bob.settle(name, space="vault"),
        lambda name: bob.rewind(name, 0),
        lambda name: bob.rewind(name, 0, space="vault"),
        lambda name: bob.close_session(name),
        lambda name: bob.close_session(name, space="vault"),
        lambda name: bob.append(name, ["x"]),
        lambda name: bob.append(name, ["x"], space="vault"),
        lambda name: bob.switch(name, "another", space="vault"),
        lambda name: bob.switch("another", name, space="hr", to_space="vault"),
    ):
        taken, free = outcome(lambda verb=verb: verb("taken")), outcome(lambda verb=verb: verb("free"))
        assert [part.replace("taken", "free") if isinstance(part, str) else part for part in taken] == list(free)
    assert bob.append("taken", ["mine"], space="hr").messages[0].seq == 1
    assert bob.append("child", ["mine"], space="hr", parent="taken").space == "hr"
    assert bob.switch("taken", "next", space="hr").space == "hr"
    assert bob.prefetched("taken", "SECRET", space="hr") is None
    assert texts(book, "taken", space="vault") == ["SECRET"]
    assert book.messages("taken", space="vault").session.generation == 1


def test_a_client_id_means_a_message_of_one_session(book):
    for space in ("team", "personal"):
        assert book.append("s", [NewMessage("hello", client_id="a")], space=space).messages[0].new
        assert not book.append("s", [NewMessage("hello", client_id="a")], space=space).messages[0].new
    assert book.append("s", [NewMessage("other", client_id="b")], space="team").messages[0].seq == 2


# --- calls without a space


@pytest.mark.promise("sessions.default")
def test_a_write_without_a_space_means_the_default_space(book):
    book.append("s", ["in team"], space="team")
    assert book.append("s", ["in personal"]).space == "personal"
    book.append("t", ["in team"], space="team")
    assert book.switch("t", "u").space == "personal"
    assert book.messages("t", space="team").session.closed is None
    assert book.messages("u").session.space.name == "personal"


@pytest.mark.promise("sessions.default")
def test_a_read_without_a_space_takes_the_only_readable_session_and_else_asks(book, bob):
    book.append("s", ["in hr"], space="hr")
    book.append("s", ["in vault"], space="vault")
    assert texts(bob, "s") == ["in hr"]
    for read in (lambda: book.messages("s"), lambda: book.prefetch("s", "x"), lambda: book.prefetched("s", "x")):
        error, message, fix = outcome(read)
        assert (error, "hr, vault" in message, "name the space" in fix) == (Ambiguous, True, True)
    assert issubclass(Ambiguous, BadInput)
    with pytest.raises(NotFound):
        book.messages("nothing")


@pytest.mark.promise("sessions.default")
def test_a_verb_for_an_existing_session_takes_the_default_space_first_and_then_the_only_one(book, bob):
    book.append("s", ["elsewhere"], space="hr")
    assert book.settle("s").space == "hr"
    assert len(bob.rewind("s", 0)) == 1
    book.append("s", ["here"])
    assert book.settle("s").space == "personal"
    assert book.close_session("s", space="hr").space == "hr"
    assert book.messages("s", space="personal").session.closed is None
    for space in ("a", "b"):
        book.append("twice", ["x"], space=space)
    for verb in (book.settle, book.close_session, lambda name: book.rewind(name, 0)):
        with pytest.raises(Ambiguous, match="a, b"):
            verb("twice")


def test_a_reader_may_not_rewind_settle_or_close(book):
    book.append("s", ["x"], space="team")
    book.grant(EVE, "team", "reader")
    eve = book.acting_as(EVE)
    for verb in (eve.settle, eve.close_session, lambda name: eve.rewind(name, 0)):
        with pytest.raises(NotAllowed):
            verb("s")
    assert texts(eve, "s") == ["x"]


# --- everything that is keyed by a session


def test_a_parent_is_a_session_of_the_same_space(book, bob):
    book.append("before", ["x"], space="vault")
    book.append("s", ["x"], space="hr", parent="before")
    assert (book.messages("s").session.parent, book.messages("s").session.parent_space) == ("before", "hr")
    book.append("before", ["x"], space="vault")
    # In another space the same names may follow each other the other way round.
    book.append("before", ["x"], space="team", parent="s")
    with pytest.raises(BadInput, match="cannot go on from"):
        book.append("before", ["x"], space="hr", parent="s")


@pytest.mark.promise("sessions.hidden")
def test_a_parent_in_a_space_that_may_not_be_read_is_not_shown(book, bob):
    book.append("secret-plan", ["x"], space="vault")
    book.switch("secret-plan", "s", space="vault", to_space="hr")
    assert (book.messages("s").session.parent, book.messages("s").session.parent_space) == ("secret-plan", "vault")
    assert (bob.messages("s").session.parent, bob.messages("s").session.parent_space) == (None, None)


@pytest.mark.promise("sessions.parent")
def test_an_append_may_name_the_parent_that_its_session_has_in_another_space(book):
    book.append("parent", ["x"], space="vault")
    book.switch("parent", "s", space="vault", to_space="hr")
    for number in (1, 2):
        sent = book.append("s", [NewMessage(f"m{number}", client_id=f"{number}")], space="hr", parent="parent")
        assert (sent.space, sent.messages[0].seq, sent.messages[0].new) == ("hr", number, True)
    with pytest.raises(Conflict):
        book.append("s", ["never"], space="hr", parent="another")
    assert book.messages("s").session.parent_space == "vault"
    assert texts(book, "s") == ["m1", "m2"]


@pytest.mark.promise("sessions.once")
def test_a_repeat_is_recognized_whatever_parent_it_names(book):
    first, other = NewMessage("one", client_id="1"), NewMessage("two", client_id="2")
    book.append("s", [first], space="hr", parent="before")
    for parent in (None, "before", "another"):
        assert not book.append("s", [first], space="hr", parent=parent).messages[0].new
        assert not book.append("s", [first, first], space="hr", parent=parent).messages[1].new
    with pytest.raises(Conflict):
        book.append("s", [first, other], space="hr", parent="another")
    assert texts(book, "s") == ["one"]
    assert book.messages("s").session.parent == "before"


@pytest.mark.promise("sessions.hidden")
def test_neither_the_log_nor_a_refusal_names_a_session_of_another_space(book, bob):
    book.append("secret-plan", ["x"], space="vault")
    book.switch("secret-plan", "s", space="vault", to_space="hr")
    book.switch("s", "hidden-plan", space="hr", to_space="vault")
    book.switch("s", "t", space="hr")
    error, message, fix = outcome(lambda: bob.append("s", ["x"], space="hr", parent="guess"))
    assert (error, "plan" in message + fix) == (Conflict, False)
    logged = {entry.action: json.loads(entry.payload) for entry in bob.log(space="hr")}
    assert "plan" not in str([entry.payload for entry in bob.log(space="hr")])
    assert (logged["session.switch"]["to"], logged["session.begin"]["parent"]) == ("t", "s")


def test_a_prefetched_result_belongs_to_the_session_of_one_space(book):
    for space in ("team", "personal"):
        book.append("s", [f"a heron in {space}"], space=space)
    book.prefetch("s", "heron", space="team", spaces="team")
    assert book.prefetched("s", "heron", space="personal", wait=5) is None
    assert [hit.space for hit in book.prefetched("s", "heron", space="team", wait=5).hits] == ["team"]
    book.prefetch("s", "heron", space="team")
    book.rewind("s", 1, space="team")
    assert book.prefetched("s", "heron", space="team", wait=5) is None


def test_messages_of_two_sessions_of_one_name_are_no_neighbours_in_recall(book):
    book.append("s", ["team before", "a heron on the weir", "team after"], space="team")
    book.append("s", ["personal before", "an otter in the pond", "personal after"])
    for space, query in (("team", "heron"), ("personal", "otter")):
        hit = book.recall(query, spaces=["team", "personal"]).hits[0]
        assert (hit.space, hit.before.endswith(f"{space} before"), hit.after.endswith(f"{space} after")) == (
            space,
            True,
            True,
        )
    assert len(book.recall("", spaces=["team", "personal"]).hits) == 6


def test_a_worker_settles_each_session_in_its_own_space(book):
    for space in ("team", "personal"):
        book.append("s", [f"{space} {number}" for number in range(70)], space=space)
    reports: list[WorkReport] = []
    book.work(noticed=reports.append)
    assert {(report.settled.session, report.settled.space) for report in reports} == {("s", "team"), ("s", "personal")}
    for space in ("team", "personal"):
        episodes = book.list(Filter(space=space, kinds=("episode",))).items
        assert episodes
        assert all(f"{space} " in memory.text for memory in episodes)


# --- an episode that was moved away from its session


@pytest.mark.promise("rewind.foreign")
def test_a_rewind_does_not_reach_an_episode_that_was_moved_into_a_foreign_space(book, bob):
    bob.append("s", ["the heron", "the otter"], space="hr")
    (episode,) = book.settle("s", space="hr").episodes
    book.move(episode, "vault")
    log, before = book.log(space="vault"), book.get(episode)
    rewound = bob.rewind("s", 0)
    assert [(message.seq, message.episode) for message in rewound] == [(1, None), (2, None)]
    assert all(message.rewound_at for message in book.messages("s", space="hr").items)
    assert book.get(episode) == before
    assert book.log(space="vault") == log
    assert {hit.memory for hit in book.recall("otter", spaces="vault").hits} == {episode}
    assert book.recall("otter", spaces="hr").hits == ()


@pytest.mark.promise("rewind.foreign")
def test_an_episode_that_comes_back_to_its_session_loses_what_was_rewound_meanwhile(book, bob):
    bob.append("s", ["the heron", "the otter"], space="hr")
    (episode,) = book.settle("s", space="hr").episodes
    book.move(episode, "vault")
    bob.rewind("s", 1)
    book.move(episode, "hr")
    shown = bob.get(episode)
    assert ("the heron" in shown.text, "the otter" in shown.text) == (True, False)
    assert [("the otter" in one.text, one.current) for one in book.history(episode)] == [(True, False), (False, True)]
    assert "the otter" not in str(bob.history(episode))
    bob.rewind("s", 0)
    with pytest.raises(NotFound):
        bob.get(episode)


def test_an_episode_whose_messages_were_all_rewound_does_not_come_back(book, bob):
    bob.append("s", ["the heron", "the otter"], space="hr")
    (episode,) = book.settle("s", space="hr").episodes
    book.move(episode, "vault")
    bob.rewind("s", 0)
    before = book.get(episode)
    with pytest.raises(Conflict, match="rewound"):
        book.move(episode, "hr")
    assert book.get(episode) == before
    assert book.move(episode, "team").space == "team"


def test_a_rewind_reaches_an_episode_in_another_space_that_the_actor_may_write_to(book):
    book.append("s", ["the heron", "the otter"], space="hr")
    (episode,) = book.settle("s", space="hr").episodes
    book.move(episode, "vault")
    book.rewind("s", 1, space="hr")
    assert "otter" not in book.get(episode).text
    assert "heron" in book.get(episode).text


def test_an_episode_that_is_moved_carries_the_space_of_its_session(book):
    book.append("s", ["the heron", "the otter"], space="hr")
    (episode,) = book.settle("s", space="hr").episodes
    book.move(episode, "vault")
    assert (book.get(episode).session, book.get(episode).session_space) == ("s", "hr")
    hit = book.recall("otter", spaces="vault").hits[0]
    assert (hit.memory, hit.session, hit.space) == (episode, None, "vault")
    book.rename_space("hr", "people")
    assert book.get(episode).session_space == "people"
    book.move(episode, "people")
    assert (book.get(episode).session, book.get(episode).session_space) == ("s", None)
    assert book.recall("otter", spaces="people").hits[0].session == "s"


@pytest.mark.promise("sessions.hidden")
def test_an_episode_names_its_session_only_to_those_who_may_read_that_space(book, bob):
    book.append("merger", ["the heron", "the otter"], space="vault")
    (episode,) = book.settle("merger", space="vault").episodes
    book.move(episode, "hr")
    book.create_space("pub")
    book.grant(BOB, "pub", "reader")
    copy = book.share(episode, "pub").id
    listed = bob.list(Filter(kinds=("episode",))).items
    assert {one.id for one in listed} == {episode, copy}
    for one in (*listed, bob.get(episode), bob.get(copy)):
        assert (one.session, one.session_space) == (None, None)
    assert (book.get(episode).session, book.get(episode).session_space) == ("merger", "vault")
    book.grant(BOB, "vault", "reader")
    assert (bob.get(episode).session, bob.get(episode).session_space) == ("merger", "vault")
