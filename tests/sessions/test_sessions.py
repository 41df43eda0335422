"""Sessions are read, switched, rewound, closed and opened again, and lose nothing by it."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

import commonbook
from commonbook.errors import BadInput, Conflict, NotAllowed, NotFound
from commonbook.subjects.sessions import settle, switch
from commonbook.values.memory import Filter
from commonbook.values.session import NewMessage
from tests.support import hand_edits
from tests.support.capture_child import episodes_of, logs_of, wrong_with


def texts(book, session, **options):
    return [one.text for one in book.messages(session, limit=1000, **options).items]


def found(book, query, **options):
    return [hit.id for hit in book.recall(query, **options).hits]


def session_of(book, name):
    return next(one for one in book.sessions(limit=1000) if one.id == name)


def file_of(book, episode):
    return Path(book.home) / book.get(episode).path


def turns(count, first=1):
    """As many turns, of a question and its answer each."""
    return [
        NewMessage(f"{who} turn{number}", role=role)
        for number in range(first, first + count)
        for who, role in (("question", "user"), ("answer", "assistant"))
    ]


# --- names


@pytest.mark.promise("sessions.names")
@pytest.mark.parametrize(
    "name", ["\u202es", "s\u2066", "s\u200b", "\ufeffs", "s\u2060", "s\u200f", "s\U000e0041", "s\x9c"]
)
def test_no_session_begins_whose_name_hides_or_reorders_characters(book, name):
    book.append("s", ["the walrus sleeps"])
    for begin in (lambda: book.append(name, ["the otter swims"]), lambda: book.switch("s", name)):
        with pytest.raises(BadInput):
            begin()
    assert [(one.id, one.closed) for one in book.sessions()] == [("s", None)]


@pytest.mark.promise("sessions.names")
def test_a_session_may_be_named_in_any_writing(book):
    for name in ("می\u200cشود", "👩\u200d💻", "Schiff\u00adfahrt", "क्\u200dष"):
        assert book.append(name, ["hello"]).session == book.sessions()[0].id == name


# --- reading


def test_the_messages_of_a_session_are_read_page_by_page(book):
    book.append("s", [f"text {number}" for number in range(25)])
    pages, after = [], 0
    while after is not None:
        page = book.messages("s", after=after, limit=10)
        pages.append([one.seq for one in page.items])
        after = page.next
    assert pages == [list(range(1, 11)), list(range(11, 21)), list(range(21, 26))]
    assert book.messages("s", limit=25).next is None
    assert book.messages("s", after=25).items == ()
    assert [one.seq for one in book.messages("s", after=-3, limit=2).items] == [1, 2]
    for limit in (0, 1001):
        with pytest.raises(BadInput):
            book.messages("s", limit=limit)
        with pytest.raises(BadInput):
            book.sessions(limit=limit)
    with pytest.raises(NotFound):
        book.messages("nobody")


def test_sessions_are_listed_newest_first_with_what_is_unsettled(book):
    for name in ("a", "b", "c"):
        book.append(name, ["one", "two"], space="team" if name == "b" else None)
    book.settle("a")
    assert [(one.id, one.last, one.unsettled) for one in book.sessions()] == [("c", 2, 2), ("b", 2, 2), ("a", 2, 0)]
    assert [one.id for one in book.sessions(limit=2)] == ["c", "b"]
    assert [one.id for one in book.sessions(space="team")] == ["b"]


@pytest.mark.promise("sessions.parent")
def test_parent_and_tags_are_fixed_when_a_session_is_made(book):
    book.append("s", ["one"], space="team", parent="before", tags=["x"])
    book.append("s", ["two"], space="team")
    book.append("s", ["three"], space="team", parent="before", tags=["y"])
    with pytest.raises(Conflict):
        book.append("s", ["never"], space="team", parent="other")
    session = session_of(book, "s")
    assert (session.space.name, session.parent, session.tags) == ("team", "before", ("x",))
    assert texts(book, "s") == ["one", "two", "three"]
    assert [one.name for one in book.spaces()] == ["team"]


@pytest.mark.promise("sessions.renamed")
def test_a_former_name_of_a_space_means_no_session_of_it(book):
    book.append("s", ["one", "two"], space="team")
    book.rename_space("team", "crew")
    assert book.append("s", ["three"], space="crew").messages[0].seq == 3
    assert book.switch("s", "t", space="team").space == "team"
    session = book.messages("s", space="crew").session
    assert (session.unsettled, session.closed) == (3, None)
    sent = book.append("s", ["another session"], space="team")
    assert (sent.space, sent.messages[0].seq) == ("team", 1)
    assert texts(book, "s", space="crew") == ["one", "two", "three"]


@pytest.mark.promise("sessions.renamed")
def test_a_former_name_answers_others_as_any_name_that_they_may_not_use(book):
    book.create_space("team")
    book.grant("user:bob", "team", "writer")
    bob = book.acting_as("user:bob")
    bob.append("s", ["one"], space="team")
    book.rename_space("team", "crew")
    for make_another in (lambda: None, lambda: book.create_space("team")):
        make_another()
        for verb in (
            lambda: bob.append("s", ["x"], space="team"),
            lambda: bob.switch("s", "t", space="team"),
            lambda: bob.settle("s", space="team"),
            lambda: bob.rewind("s", 0, space="team"),
            lambda: bob.messages("s", space="team"),
            lambda: bob.close_session("s", space="team"),
        ):
            with pytest.raises(NotAllowed):
                verb()
    assert texts(bob, "s") == ["one"]


@pytest.mark.promise("sessions.renamed")
def test_nobody_catches_messages_for_the_default_space_in_the_one_that_had_its_name(book):
    book.append("s", ["one"])
    book.rename_space("personal", "team")
    book.grant("user:bob", "team", "writer")
    bob = book.acting_as("user:bob")
    bob.append("support-43", ["hi"], space="team")
    for name in ("support-43", "support-44"):
        assert book.append(name, ["SECRET"]).space == "personal"
    assert texts(bob, "support-43") == ["hi"]


# --- switch


@pytest.mark.promise("sessions.switch")
def test_a_switch_settles_three_turns_under_the_old_session_and_begins_an_empty_one(place, open_book):
    book = open_book()
    book.append("old", turns(3), space="team", parent="before", tags=["x"])
    settled = book.switch("old", "new", space="team")
    assert (settled.session, len(settled.episodes), settled.unsettled) == ("old", 1, 0)
    episode = book.get(settled.episodes[0])
    assert (episode.session, episode.tags, episode.space) == ("old", ("x",), "team")
    assert [number for number, _ in episodes_of(book)[episode.id]] == [1, 2, 3, 4, 5, 6]
    old, new = session_of(book, "old"), session_of(book, "new")
    assert (old.parent, old.tags, old.unsettled) == ("before", ("x",), 0)
    assert old.closed is not None
    assert (new.parent, new.last, new.space.name, new.closed) == ("old", 0, "team", None)
    assert texts(book, "new") == []
    book.close()
    assert wrong_with(place) == []


def test_a_switch_with_nothing_unsettled_makes_no_empty_episode(book):
    book.append("old", turns(1))
    book.settle("old")
    assert book.switch("old", "new").episodes == ()
    assert book.switch("new", "third").episodes == ()
    assert book.switch("nobody", "fourth").episodes == ()
    assert len(book.list(Filter(kinds=("episode",))).items) == 1
    assert [session_of(book, name).parent for name in ("new", "third", "fourth")] == ["old", "new", "nobody"]


def test_a_switch_goes_where_it_is_told_and_else_where_the_old_session_is(book):
    book.append("old", ["one"], space="team", tags=["x"])
    book.switch("old", "here", space="team")
    book.switch("here", "there", space="team", to_space="personal", tags=["y"])
    here, there = session_of(book, "here"), session_of(book, "there")
    assert (here.space.name, here.tags, here.parent_space) == ("team", ("x",), "team")
    assert (there.space.name, there.tags, there.parent, there.parent_space) == ("personal", ("y",), "here", "team")


@pytest.mark.parametrize("reason", switch.REASONS)
def test_every_reason_settles_and_only_a_branch_leaves_the_old_session_open(book, reason):
    book.append("old", ["one"])
    assert len(book.switch("old", "new", reason=reason).episodes) == 1
    assert (session_of(book, "old").closed is None) == (reason == "branch")
    assert session_of(book, "new").parent == (None if reason == "resume" else "old")


def test_a_resumed_session_keeps_its_parent_and_goes_on_where_it_was(place, open_book):
    book = open_book()
    book.append("first", ["one"])
    book.switch("first", "second")
    book.append("second", ["two"])
    book.switch("second", "first", reason="resume")
    first = session_of(book, "first")
    assert (first.parent, first.closed) == (None, None)
    assert book.append("first", ["three"]).messages[0].seq == 2
    assert texts(book, "first") == ["one", "three"]
    book.close()
    assert wrong_with(place) == []


def test_a_switch_from_a_session_that_was_never_heard_of_begins_and_closes_it(book):
    assert book.switch("nobody", "new", space="team") == ("nobody", (), 0, "team")
    nobody = session_of(book, "nobody")
    assert (nobody.space.name, nobody.last, nobody.closed is None) == ("team", 0, False)
    book.switch("new", "nobody", space="team")
    assert (session_of(book, "nobody").parent, session_of(book, "nobody").closed) == (None, None)


def test_the_log_tells_when_a_session_begins_ends_and_is_opened_again(book):
    book.append("s", ["one"])
    book.close_session("s")
    book.append("s", ["two"])
    book.switch("s", "t")
    book.switch("t", "s", reason="resume")
    actions = [entry.action for entry in book.log(space="personal") if entry.action.startswith("session.")]
    assert actions == [
        "session.begin",
        "session.close",
        "session.open",
        "session.begin",
        "session.switch",
        "session.open",
        "session.switch",
    ]


def test_no_session_goes_on_from_itself(book):
    with pytest.raises(BadInput, match="cannot go on from"):
        book.append("alone", ["x"], parent="alone")
    book.append("child", ["x"], parent="later")
    book.append("grandchild", ["x"], parent="child")
    for parent in ("child", "grandchild"):
        with pytest.raises(BadInput, match="cannot go on from"):
            book.append("later", ["x"], parent=parent)
    with pytest.raises(BadInput, match="cannot go on from"):
        book.switch("grandchild", "later")
    assert {one.id for one in book.sessions()} == {"child", "grandchild"}
    book.switch("grandchild", "later", reason="resume")
    assert session_of(book, "later").parent is None


def test_a_switch_that_cannot_be_is_refused_and_changes_nothing(book):
    book.append("old", ["one"])
    for old, new, reason in (
        ("old", "old", "new"),
        ("old", "new", "because"),
        ("old", "a b", "new"),
        ("", "new", "new"),
    ):
        with pytest.raises(BadInput):
            book.switch(old, new, reason=reason)
    assert session_of(book, "old").unsettled == 1
    assert [one.id for one in book.sessions()] == ["old"]


def test_a_switch_while_work_is_queued_settles_in_the_order_of_the_messages(place, open_book, monkeypatch):
    """A worker has decided what to settle, and is held up; the switch goes first, and the worker finds nothing left."""
    book, other = open_book(), open_book()
    book.append("old", [f"message {number}" for number in range(70)])
    planned, go_on = threading.Event(), threading.Event()
    plan = settle._plan

    def slow_plan(*args, **named):
        made = plan(*args, **named)
        if threading.current_thread().name == "worker":
            planned.set()
            go_on.wait(60)
        return made

    monkeypatch.setattr(settle, "_plan", slow_plan)
    worker = threading.Thread(target=other.work, name="worker")
    worker.start()
    assert planned.wait(60)
    episodes = book.switch("old", "new").episodes
    go_on.set()
    worker.join()
    assert len(episodes) >= 2
    numbers = [[number for number, _ in episodes_of(book)[episode]] for episode in episodes]
    assert [number for episode in numbers for number in episode] == list(range(1, 71))
    assert set(episodes_of(book)) == set(episodes)
    book.close()
    other.close()
    assert wrong_with(place) == []


@pytest.mark.promise("hermes.once")
def test_end_then_switch_then_shutdown_stores_each_of_23_turns_once(place, open_book):
    book = open_book()
    for number in range(1, 24):
        book.append("old", turns(1, number))
    book.close_session("old")
    book.switch("old", "new")
    book.close()
    book = open_book()
    stored = logs_of(book)["old"].messages
    assert [one.text for one in stored] == [one.text for one in turns(23)]
    assert all(one.episode for one in stored)
    lines = [id_ for episode in episodes_of(book).values() for _, id_ in episode]
    assert sorted(lines) == sorted(one.id for one in stored)
    book.close()
    assert wrong_with(place) == []


def test_a_message_that_comes_while_a_switch_is_decided_is_settled_by_it(open_book, monkeypatch):
    """With nothing unsettled when the switch began, too."""
    book, other = open_book(), open_book()
    book.append("old", ["one"])
    book.settle("old")
    plan, calls = settle._plan, []

    def meanwhile(*args, **named):
        made = plan(*args, **named)
        calls.append(1)
        if len(calls) < 3:
            other.append("old", [f"late {len(calls)}"])
        return made

    monkeypatch.setattr(settle, "_plan", meanwhile)
    settled = book.switch("old", "new")
    assert (settled.unsettled, len(settled.episodes)) == (0, 1)
    assert texts(book, "old") == ["one", "late 1", "late 2"]


def test_a_switch_among_writers_who_never_stop_settles_all_in_episodes_of_bounded_size(place, open_book, monkeypatch):
    book, other = open_book(), open_book()
    book.append("old", [f"message {number}" for number in range(150)])
    plan = settle._plan

    def meanwhile(*args, **named):
        made = plan(*args, **named)
        other.append("old", ["one more"])
        return made

    monkeypatch.setattr(settle, "_plan", meanwhile)
    settled = book.switch("old", "new")
    assert settled.unsettled == 0
    assert max(len(one) for one in episodes_of(book).values()) <= 60
    book.close()
    other.close()
    assert wrong_with(place) == []


# --- close and open again


def test_a_closed_session_opens_again_with_the_next_message(place, open_book):
    book = open_book()
    book.append("s", ["one"])
    assert len(book.close_session("s").episodes) == 1
    assert session_of(book, "s").closed is not None
    assert book.close_session("s").episodes == ()
    assert book.append("s", ["two"]).messages[0].seq == 2
    assert session_of(book, "s").closed is None
    assert len(book.close_session("s").episodes) == 1
    with pytest.raises(NotFound):
        book.close_session("nobody")
    book.close()
    assert wrong_with(place) == []


def test_a_repeat_does_not_open_a_closed_session(book):
    book.append("s", [NewMessage("one", client_id="c")])
    book.close_session("s")
    book.append("s", [NewMessage("one", client_id="c")])
    assert session_of(book, "s").closed is not None


def test_after_a_shutdown_a_new_session_of_the_same_book_stores_or_fails_loudly(place, open_book):
    book = open_book()
    book.append("s", ["one"])
    book.close()
    stored = True
    try:
        book.append("t", ["after the shutdown"])
    except (commonbook.errors.CommonbookError, sqlite3.Error, ValueError):
        stored = False
    with closing(commonbook.open(place, create=True)) as again:
        assert ("t" in logs_of(again)) is stored
        assert again.append("s", ["two"]).messages[0].seq == 2
    assert wrong_with(place) == []


# --- rewind


@pytest.mark.promise("rewind.removes")
def test_what_is_taken_back_leaves_recall_and_episodes_and_the_log_keeps_it(place, open_book):
    book = open_book()
    first = book.append("s", ["the heron nests early", "the heron nests late", "the otter swims"])
    book.settle("s")
    more = book.append("s", ["the heron flies"])
    ids = [one.id for one in (*first.messages, *more.messages)]
    (episode,) = episodes_of(book)
    assert {ids[0], ids[1], ids[3]} <= set(found(book, "heron"))
    taken = book.rewind("s", 1)
    assert [one.id for one in taken] == ids[1:]
    assert list(taken) == list(book.messages("s", after=1).items)
    assert found(book, "heron") == [ids[0]]
    assert found(open_book(), "otter swims") == []
    assert [id_ for _, id_ in episodes_of(book)[episode]] == ids[:1]
    assert len(book.history(episode)) == 2
    stored = book.messages("s").items
    assert [one.id for one in stored] == ids
    assert [one.rewound_at is not None for one in stored] == [False, True, True, True]
    assert book.settle("s").episodes == ()
    book.close()
    assert wrong_with(place) == []


def test_a_session_goes_on_after_a_rewind_with_the_next_number(place, open_book):
    book = open_book()
    batch = [NewMessage(f"text {number}", client_id=f"c{number}") for number in range(1, 5)]
    first = book.append("s", batch[:2])
    book.settle("s")
    book.append("s", batch[2:])
    book.rewind("s", 1)
    again = book.append("s", batch)
    assert [(one.seq, one.new, one.rewound) for one in again.messages] == [
        (1, False, False),
        (2, False, True),
        (3, False, True),
        (4, False, True),
    ]
    assert again.messages[0].id == first.messages[0].id
    assert [one.seq for one in book.append("s", ["said otherwise"]).messages] == [5]
    book.settle("s")
    assert [[number for number, _ in one] for one in episodes_of(book).values()] in ([[1], [5]], [[5], [1]])
    book.close()
    assert wrong_with(place) == []


def test_a_rewind_is_told_by_number_or_by_id_and_twice_changes_nothing_more(place, open_book):
    book = open_book()
    ids = [one.id for one in book.append("s", ["one", "two", "three", "four"]).messages]
    assert [one.seq for one in book.rewind("s", ids[2])] == [4]
    assert [one.seq for one in book.rewind("s", 1)] == [2, 3]
    assert book.rewind("s", 1) == ()
    assert book.rewind("s", ids[3]) == ()
    assert [one.rewound_at is not None for one in book.messages("s").items] == [False, True, True, True]
    book.close()
    assert wrong_with(place) == []


def test_a_rewind_to_nothing_takes_the_episode_with_it(place, open_book, folder):
    book = open_book()
    book.append("s", ["one", "two"])
    (episode,) = book.settle("s").episodes
    path = book.get(episode).path
    assert (folder() / path).exists()
    assert len(book.rewind("s", 0)) == 2
    assert not (folder() / path).exists()
    with pytest.raises(NotFound):
        book.get(episode)
    assert texts(book, "s") == ["one", "two"]
    assert book.append("s", ["three"]).messages[0].seq == 3
    book.close()
    assert wrong_with(place) == []


def test_a_rewind_behind_the_end_or_to_a_strange_message_is_refused(book):
    book.append("s", ["one", "two"])
    other = book.append("t", ["other"]).messages[0].id
    for after in (3, -1):
        with pytest.raises(BadInput):
            book.rewind("s", after)
    for strange in (other, "nothing", "half\ud800", "nul\0", 1.5, "01a1e1db-b8b1-7049-b88f-46b5a3a5dd1f"):
        with pytest.raises(NotFound):
            book.rewind("s", strange)
    with pytest.raises(NotFound):
        book.rewind("nobody", 0)
    assert book.rewind("s", 2) == ()
    assert not any(one.rewound_at for one in book.messages("s").items)


def test_a_rewind_takes_in_what_a_person_has_just_typed(home, open_book):
    book = open_book()
    book.append("s", ["the heron nests", "the otter swims"])
    (episode,) = book.settle("s").episodes
    hand_edits.change(file_of(book, episode), "the heron nests", "the stork nests")
    book.rewind("s", 1)
    text = file_of(book, episode).read_text()
    assert "the stork nests" in text
    assert "otter" not in text
    assert [one.text.count("stork") for one in book.history(episode)] == [0, 1, 1]
    assert found(book, "otter") == []
    assert len(found(book, "stork")) == 1
    book.close()
    assert wrong_with(home) == []


def test_a_rewind_finds_an_episode_that_was_moved_by_hand(home, open_book):
    book = open_book()
    book.append("s", ["the heron nests", "the otter swims"])
    (episode,) = book.settle("s").episodes
    book.create_space("elsewhere")
    file, there = file_of(book, episode), home / "elsewhere" / "moved.md"
    file.rename(there)
    book.rewind("s", 1)
    assert "otter" not in there.read_text()
    assert book.get(episode).space == "elsewhere"
    assert found(book, "otter", spaces="/") == []


def test_a_rewind_of_an_episode_that_was_removed_by_hand_marks_the_messages(home, open_book):
    book = open_book()
    book.append("s", ["one", "two"])
    (episode,) = book.settle("s").episodes
    file_of(book, episode).unlink()
    assert len(book.rewind("s", 1)) == 1
    assert [one.rewound_at is not None for one in book.messages("s").items] == [False, True]


def test_a_rewind_over_several_episodes_leaves_those_before_it_alone(place, open_book, folder):
    book = open_book()
    made = []
    for name in ("one", "two", "three"):
        book.append("s", [f"{name} a", f"{name} b"])
        made += book.settle("s").episodes
    first = book.get(made[0])
    before = (folder() / first.path).read_bytes()
    book.rewind("s", 3)
    assert book.get(first.id) == first
    assert (folder() / first.path).read_bytes() == before
    assert [[number for number, _ in episodes_of(book).get(one, [])] for one in made] == [[1, 2], [3], []]
    book.close()
    assert wrong_with(place) == []


def test_switches_and_rewinds_raise_the_generation(book):
    book.append("s", ["one", "two"])
    before = session_of(book, "s").generation
    book.rewind("s", 1)
    assert session_of(book, "s").generation == before + 1
    book.switch("s", "t")
    assert session_of(book, "s").generation == before + 2
    book.switch("t", "s", reason="resume")
    assert session_of(book, "s").generation == before + 3
    book.append("s", ["three"])
    book.settle("s")
    assert session_of(book, "s").generation == before + 3
