"""Settling: messages become episodes, and recall tells them the same before and after."""

from __future__ import annotations

import shutil
import threading
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import commonbook
from commonbook.compose.book import open_book as compose_book
from commonbook.service.book import Book
from commonbook.subjects.sessions import settle
from commonbook.values.memory import Filter
from commonbook.values.session import NewMessage
from tests.support import capture_child, hand_edits
from tests.support.capture_child import logs_of, wrong_with

NOON = datetime(2026, 3, 5, 12, tzinfo=UTC)
CHAT = [
    NewMessage("Where does the heron nest this year?", author="user:ada", time=NOON),
    NewMessage("In the old mill, above the water wheel.", role="assistant", time=NOON + timedelta(minutes=1)),
    NewMessage("And when do the young ones fly?", author="user:ada", time=NOON + timedelta(minutes=2)),
    NewMessage("Early in June, after about fifty days.", role="assistant", time=NOON + timedelta(days=1)),
    NewMessage("Good, then we paint the mill in July.", author="user:ada", time=NOON + timedelta(days=2)),
]
QUERIES = ("where does the heron nest", "old mill", "when do the young fly", "June", "paint in July", "ada", "water")


class Clock:
    """A clock that a test sets forward."""

    def __init__(self) -> None:
        self.time = datetime.now(UTC)

    def now(self) -> datetime:
        return self.time

    def forward(self, **by: float) -> None:
        self.time += timedelta(**by)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def timed(chosen, clock):
    """A book whose time is the test's."""
    with closing(compose_book(chosen, clock=clock, create=True)) as book:
        yield book


def recalled_hits(book, **options):
    """Return all fields of the recalled messages but where they are kept."""
    fields = ("id", "type", "session", "seq", "kind", "space", "text", "passage", "before", "after", "author")
    values = (*fields, "score", "parts", "occurred", "matched")
    hits = {query: book.recall(query, explain=True, **options).hits for query in QUERIES}
    return {query: [[getattr(hit, name) for name in values] for hit in found] for query, found in hits.items()}


def found(book, query, **options):
    return [hit.id for hit in book.recall(query, **options).hits]


def file_of(book, episode):
    return Path(book.home) / book.get(episode).path


def lose_the_database(home):
    for name in ("state.db", "state.db-wal", "state.db-shm"):
        (home / ".commonbook" / name).unlink(missing_ok=True)


# --- recall, before and after


@pytest.mark.promise("sessions.found")
def test_recall_tells_the_same_before_and_after_settling_to_the_last_digit(open_book):
    book, other = open_book(), open_book()
    book.remember("A note about another mill and its wheel.", space="personal")
    book.append("s", CHAT)
    before = recalled_hits(book)
    assert all(before.values())
    assert recalled_hits(other) == before
    book.settle("s")
    assert recalled_hits(book) == before
    assert recalled_hits(other) == before
    assert recalled_hits(open_book()) == before
    book.reindex(anew=True)
    assert recalled_hits(book) == before


@pytest.mark.promise("sessions.found")
def test_a_message_is_found_at_once_from_another_process(place, open_book):
    book = open_book()
    child = capture_child.start("serve", place)
    try:
        assert capture_child.answer(child) == "ready"
        for number in range(3):
            id_ = book.append("s", [f"the heron number{number} nests"]).messages[0].id
            capture_child.ask(child, {"verb": "recall", "query": f"heron number{number}"})
            assert capture_child.answer(child)[0] == id_
        book.settle("s")
        capture_child.ask(child, {"verb": "recall", "query": "heron number2"})
        assert capture_child.answer(child)[0] == id_
        book.rewind("s", 2)
        capture_child.ask(child, {"verb": "recall", "query": "number2"})
        assert id_ not in capture_child.answer(child)
    finally:
        child.kill()
        child.communicate()


@pytest.mark.parametrize("settled", [False, True], ids=["unsettled", "settled"])
def test_every_filter_holds_for_messages(book, settled):
    ids = [one.id for one in book.append("s", CHAT, space="team", tags=["birds"]).messages]
    other = book.append("t", ["The heron nests elsewhere."], space="team", tags=["other"]).messages[0].id
    note = book.remember("The heron nests, says a note.", space="team", tags=["birds"]).id
    if settled:
        book.settle("s")
        book.settle("t")
    both = found(book, "heron nest", spaces="team")
    assert {ids[0], other, note} <= set(both)
    assert set(found(book, "heron nest", spaces="team", kinds=["episode"])) <= {*ids, other}
    assert found(book, "heron nest", spaces="team", kinds=["note"]) == [note]
    assert set(found(book, "heron nest", spaces="team", tags=["birds"])) <= {*ids, note}
    assert found(book, "heron nest", spaces="team", tags=["other"]) == [other]
    assert found(book, "heron nest", spaces="personal") == []
    assert note not in found(book, "heron nest", spaces="team", until="2026-03-05")
    assert set(found(book, "nest mill June", spaces="team", until="2026-03-05")) <= set(ids[:3])
    assert ids[3] in found(book, "June", spaces="team", since="2026-03-06", until="2026-03-06")
    assert set(found(book, "mill", spaces="team", since="2026-03-07", until="2026-03-07")) == {ids[4]}


def test_neighbours_are_seen_across_the_border_of_an_episode(book):
    ids = [one.id for one in book.append("s", ["the first word", "the heron nests"]).messages]
    book.settle("s")
    ids += [one.id for one in book.append("s", ["the otter swims", "the last word"]).messages]
    hits = {hit.id: hit for hit in book.recall("heron otter").hits}
    assert hits[ids[1]].after == "user:local: the otter swims"
    assert hits[ids[1]].before == "user:local: the first word"
    assert hits[ids[2]].before == "user:local: the heron nests"
    assert hits[ids[2]].after == "user:local: the last word"
    book.settle("s")
    again = {hit.id: hit for hit in book.recall("heron otter").hits}
    assert (again[ids[2]].before, again[ids[2]].after) == (hits[ids[2]].before, hits[ids[2]].after)


def test_an_episode_is_not_found_a_second_time_beside_its_messages(book):
    book.append("s", CHAT[:3])
    (episode,) = book.settle("s").episodes
    hits = book.recall("heron mill young", k=50).hits
    assert len(hits) == len({hit.id for hit in hits})
    assert {hit.type for hit in hits} == {"message"}
    assert episode not in {hit.id for hit in hits}
    assert {hit.memory for hit in hits} == {episode}


# --- what people do to episodes


def test_a_line_edited_by_hand_changes_recall_and_the_log_keeps_what_was_said(home, open_book):
    book = open_book()
    ids = [one.id for one in book.append("s", ["the heron nests", "the otter swims"]).messages]
    (episode,) = book.settle("s").episodes
    hand_edits.change(file_of(book, episode), "the heron nests", "the pelican nests")
    book.sync()
    assert found(book, "pelican")[0] == ids[0]
    assert "heron" not in "".join(hit.text for hit in book.recall("heron").hits)
    assert [one.text for one in book.messages("s").items] == ["the heron nests", "the otter swims"]
    book.close()
    assert wrong_with(home) == []


def test_a_line_removed_by_hand_is_withdrawn_and_the_log_keeps_it(home, book):
    ids = [one.id for one in book.append("s", ["the heron nests", "the otter swims"]).messages]
    (episode,) = book.settle("s").episodes
    file = file_of(book, episode)
    text = file.read_text()
    start, end = text.index("### "), text.index("### ", text.index("### ") + 1)
    file.write_text(text[:start] + text[end:])
    book.sync()
    assert ids[0] not in found(book, "heron nests otter")
    assert ids[1] in found(book, "otter")
    assert [(one.text, one.episode) for one in book.messages("s").items] == [
        ("the heron nests", episode),
        ("the otter swims", episode),
    ]
    assert book.settle("s").episodes == ()


def by_hand(book, episode):
    file_of(book, episode).unlink()
    assert book.sync().deleted == 1


def test_an_episode_removed_by_hand_is_withdrawn_and_the_log_keeps_it(home, book):
    _remove_an_episode(book, by_hand)


def test_a_deleted_episode_is_withdrawn_and_the_log_keeps_it(book):
    _remove_an_episode(book, Book.delete)


def _remove_an_episode(book, removing):
    book.remember("something else", space="personal")
    ids = [one.id for one in book.append("s", ["the heron nests", "the otter swims"]).messages]
    (episode,) = book.settle("s").episodes
    removing(book, episode)
    assert found(book, "heron otter") == []
    assert [one.id for one in book.messages("s").items] == ids
    assert book.settle("s").episodes == ()
    assert book.append("s", ["the next"]).messages[0].seq == 3
    assert len(book.settle("s").episodes) == 1


def test_an_episode_copied_by_hand_is_a_memory_of_its_own(home, open_book):
    book = open_book()
    ids = [one.id for one in book.append("s", ["the heron nests", "the otter swims"]).messages]
    (episode,) = book.settle("s").episodes
    file = file_of(book, episode)
    book.create_space("copies")
    shutil.copy(file, home / "copies" / "copy.md")
    assert book.sync().new == 1
    copy = next(one for one in book.list().items if one.id != episode)
    assert (copy.kind, copy.space) == ("episode", "copies")
    own = book.recall("heron", spaces="personal").hits
    others = book.recall("heron", spaces="copies").hits
    assert own[0].id == ids[0]
    assert others[0].memory == copy.id
    assert others[0].id not in ids
    hand_edits.change(home / "copies" / "copy.md", "the heron nests", "the pelican nests")
    book.sync()
    assert found(book, "pelican", spaces="personal") == []
    assert book.recall("heron", spaces="personal").hits[0].text == "the heron nests"
    book.rewind("s", 1)
    assert "otter" in (home / "copies" / "copy.md").read_text()
    assert [one.seq for one in book.messages("s").items] == [1, 2]


def test_an_episode_moved_to_another_space_is_read_there_alone(place, open_book):
    book = open_book()
    ids = [one.id for one in book.append("s", ["the heron nests", "the otter swims"]).messages]
    (episode,) = book.settle("s").episodes
    ids += [one.id for one in book.append("s", ["the badger digs"]).messages]
    book.move(episode, "elsewhere")
    # There it is a memory of its own: what happens in the session does not reach it any more.
    (otter,) = (hit for hit in book.recall("otter", spaces="elsewhere").hits if "otter" in hit.text)
    assert (otter.memory, otter.session, otter.before.endswith("heron nests"), otter.after) == (episode, None, True, "")
    assert not any("otter" in hit.text for hit in book.recall("otter", spaces="personal").hits)
    (badger,) = (hit for hit in book.recall("badger digs", spaces="personal").hits if hit.id == ids[2])
    assert badger.before == "", "a neighbour in a space that was not asked is told"
    assert [one.text for one in book.messages("s").items] == ["the heron nests", "the otter swims", "the badger digs"]
    book.settle("s")
    book.close()
    assert wrong_with(place) == []


# --- rebuilt, and the database lost


def test_after_a_rebuild_every_message_is_as_it_was(place, chosen, open_book):
    book = open_book()
    _a_full_book(book)
    before, recalled = logs_of(book), recalled_hits(book)
    shutil.rmtree(Path(chosen.home) / ".commonbook" / "index", ignore_errors=True)
    book.rebuild()
    assert logs_of(book) == before
    assert recalled_hits(book) == recalled
    book.close()
    assert logs_of(open_book()) == before
    assert wrong_with(place) == []


def _a_full_book(book):
    book.remember("A note about another mill and its wheel.", space="personal")
    book.append("s", CHAT[:3], tags=["birds"])
    book.settle("s")
    book.append("s", CHAT[3:])
    book.settle("s")
    book.append("t", ["the otter swims in the mill", "taken back"], space="team")
    book.settle("t")
    book.rewind("t", 1)


@pytest.mark.promise("lost.files")
def test_with_the_database_lost_every_settled_message_comes_back_from_its_file(home, open_book):
    book = open_book()
    _a_full_book(book)
    before, recalled, there = logs_of(book), recalled_hits(book), recalled_hits(book, spaces="team")
    book.close()
    lose_the_database(home)
    book = open_book()
    after = logs_of(book)
    for name, log in before.items():
        kept = [one._replace(client_id=None, masked=0) for one in log.live]
        assert list(after[name].messages) == kept
        assert after[name].session.space.name == log.session.space.name
        assert after[name].session.tags == log.session.tags
        assert after[name].session.unsettled == 0
    assert recalled_hits(book) == recalled
    assert recalled_hits(book, spaces="team") == there
    assert book.append("s", ["and on it goes"]).messages[0].seq == 6
    assert book.doctor() == ()
    assert book.verify_log().ok


def test_an_exported_folder_brings_its_messages_into_another_home(place, tmp_path):
    with closing(commonbook.open(place, create=True)) as book:
        _a_full_book(book)
        before, recalled = logs_of(book), recalled_hits(book)
        book.export(str(tmp_path / "exported"))
    with closing(commonbook.open(tmp_path / "other", create=True)) as other:
        for _ in range(2):
            other.import_folder(str(tmp_path / "exported"))
            after = logs_of(other)
            assert {
                name: [(one.id, one.seq, one.text, one.author, one.time) for one in log.messages]
                for name, log in after.items()
            } == {
                name: [(one.id, one.seq, one.text, one.author, one.time) for one in log.messages]
                for name, log in before.items()
            }
        assert recalled_hits(other) == recalled
    assert wrong_with(tmp_path / "other") == []


# --- nobody waits for anybody


@pytest.mark.promise("sessions.failures")
def test_a_session_whose_settling_is_blocked_does_not_delay_another(open_book, monkeypatch):
    book, other = open_book(), open_book()
    for name in ("blocked", "free"):
        book.append(name, [f"message {number}" for number in range(60)])
    begun, go_on = threading.Event(), threading.Event()
    plan = settle._plan

    def blocking(parts, actor, locate, *args, **named):
        if locate({})[1] == "blocked":
            begun.set()
            assert go_on.wait(60)
        return plan(parts, actor, locate, *args, **named)

    monkeypatch.setattr(settle, "_plan", blocking)
    stuck = threading.Thread(target=book.settle, args=("blocked",))
    stuck.start()
    try:
        assert begun.wait(60)
        walrus = other.append("blocked", ["the walrus is still taken"]).messages[0].id
        other.append("free", ["one more"])
        assert other.settle("free").unsettled == 0
        assert found(other, "walrus")[0] == walrus
        assert stuck.is_alive()
    finally:
        go_on.set()
        stuck.join()
    assert logs_of(other)["blocked"].session.unsettled == 0


def test_a_worker_that_is_stuck_with_one_session_leaves_the_others_to_another_worker(open_book, monkeypatch):
    book, other = open_book(), open_book()
    for name in ("blocked", "free"):
        book.append(name, [f"message {number}" for number in range(100)])
    begun, go_on = threading.Event(), threading.Event()
    plan = settle._plan

    def blocking(parts, actor, locate, *args, **named):
        if locate({})[1] == "blocked":
            begun.set()
            assert go_on.wait(60)
        return plan(parts, actor, locate, *args, **named)

    monkeypatch.setattr(settle, "_plan", blocking)
    stuck = threading.Thread(target=book.work)
    stuck.start()
    try:
        assert begun.wait(60)
        assert other.work() == 1
        logs = logs_of(other)
        assert logs["free"].session.unsettled < 100
        assert logs["blocked"].session.unsettled == 100
    finally:
        go_on.set()
        stuck.join()
    assert logs_of(other)["blocked"].session.unsettled < 100


@pytest.mark.promise("sessions.failures")
def test_a_session_whose_settling_fails_blocks_neither_its_messages_nor_others(timed, clock, monkeypatch):
    episode = settle._episode

    def failing(ctx, session, messages, reason):
        if session.id == "bad":
            raise RuntimeError("the model answers nonsense")
        return episode(ctx, session, messages, reason)

    monkeypatch.setattr(settle, "_episode", failing)
    for name in ("bad", "good"):
        timed.append(name, [NewMessage("the heron nests", role="assistant")])
    clock.forward(hours=2)
    assert timed.work() == 2
    assert logs_of(timed)["good"].session.unsettled == 0
    assert timed.append("bad", [NewMessage("the otter swims", role="assistant")]).messages[0].seq == 2
    assert len(found(timed, "otter")) >= 1
    for _ in range(20):
        clock.forward(hours=1)
        timed.work()
    assert timed.status().failed_jobs == 1
    (finding,) = timed.status().findings
    assert "bad" in finding.where
    assert "nonsense" in finding.why
    assert logs_of(timed)["bad"].session.unsettled == 2
    assert timed.append("good", [NewMessage("more", role="assistant")]).messages[0].seq == 2
    monkeypatch.undo()
    assert timed.work(retry=True) >= 1
    assert logs_of(timed)["bad"].session.unsettled == 0
    assert timed.status().failed_jobs == 0
    assert timed.status().findings == ()


@pytest.mark.promise("writes.offline")
def test_no_model_and_no_network_are_needed_to_append_recall_and_settle(book, monkeypatch):
    def nowhere(*_args, **_named):
        raise AssertionError("somebody wants the network")

    monkeypatch.setattr("socket.socket.connect", nowhere)
    monkeypatch.setattr("socket.create_connection", nowhere)
    monkeypatch.setattr("urllib.request.urlopen", nowhere)
    ids = [one.id for one in book.append("s", CHAT).messages]
    assert found(book, "heron")[0] == ids[0]
    assert book.settle("s").unsettled == 0
    assert found(book, "heron")[0] == ids[0]


@pytest.mark.promise("sessions.failures")
def test_settling_goes_on_and_nothing_is_lost_when_topics_cannot_be_compared(timed, clock, monkeypatch):
    def nonsense(_some, _others):
        raise RuntimeError("no vectors today")

    monkeypatch.setattr(timed, "_similarity", nonsense)
    ids = [one.id for one in timed.append("s", [f"message {number}" for number in range(50)]).messages]
    clock.forward(hours=13)
    timed.work()
    assert [one.id for one in timed.messages("s", limit=100).items] == ids
    assert timed.append("s", ["more"]).messages[0].seq == 51
    assert found(timed, "message 7")
    monkeypatch.undo()
    clock.forward(hours=13)
    timed.work()
    assert logs_of(timed)["s"].session.unsettled == 0


# --- by itself


def test_a_session_that_fell_silent_is_settled_when_it_is_due_and_not_before(timed, clock):
    timed.append("s", [NewMessage("said", role="assistant")])
    assert timed.work() == 0
    clock.forward(minutes=59)
    assert timed.work() == 0
    clock.forward(minutes=2)
    assert timed.work() == 1
    assert logs_of(timed)["s"].session.unsettled == 0
    clock.forward(days=1)
    assert timed.work() == 0


@pytest.mark.promise("sessions.episodes")
@pytest.mark.slow
def test_what_is_said_while_the_rest_is_settled_is_settled_later(chosen, timed, clock, monkeypatch):
    with closing(compose_book(chosen, clock=clock, create=True)) as other:
        timed.append("s", [NewMessage("said", role="assistant"), NewMessage("said again", role="assistant")])
        clock.forward(hours=2)
        begun, make_episodes = threading.Event(), settle.make_episodes

        def slowly(*given):
            begun.set()
            # Who appends now waits for the session.
            threading.Event().wait(0.5)
            return make_episodes(*given)

        monkeypatch.setattr(settle, "make_episodes", slowly)
        worker = threading.Thread(target=timed.work)
        worker.start()
        assert begun.wait(60)
        other.append("s", [NewMessage("and once more", role="assistant")])
        worker.join()
    clock.forward(hours=2)
    timed.work()
    assert logs_of(timed)["s"].session.unsettled == 0


@pytest.mark.promise("sessions.silence")
@pytest.mark.parametrize("role", ["user", "assistant", "tool_call"])
def test_a_session_settles_after_an_hour_of_silence_regardless_of_who_spoke_last(timed, clock, role):
    timed.append("s", [NewMessage("Who paints the mill?", role=role)])
    clock.forward(minutes=59)
    timed.work()
    assert logs_of(timed)["s"].session.unsettled == 1
    clock.forward(minutes=2)
    timed.work()
    assert logs_of(timed)["s"].session.unsettled == 0


def test_a_long_session_is_settled_at_once_up_to_its_open_run(book):
    book.append("s", [f"message {number} about herons" for number in range(130)])
    assert book.work() == 1
    log = logs_of(book)["s"]
    settled = [one.seq for one in log.messages if one.episode]
    assert settled == list(range(1, len(settled) + 1))
    assert 60 <= len(settled) < 130


def test_a_book_that_works_settles_by_itself(timed, clock):
    with timed.working(every=0.02):
        timed.append("s", [NewMessage("said", role="assistant")])
        clock.forward(hours=2)
        for _ in range(3000):
            if not logs_of(timed)["s"].session.unsettled:
                break
            threading.Event().wait(0.02)
    assert logs_of(timed)["s"].session.unsettled == 0
    assert not [one for one in threading.enumerate() if one.name == "commonbook-worker"]


def test_another_process_that_works_settles_what_we_append(place, book):
    worker = capture_child.start("worker", place)
    try:
        assert capture_child.answer(worker) == "ready"
        book.append("s", [f"message {number}" for number in range(130)])
        for _ in range(3000):
            if logs_of(book)["s"].session.unsettled < 70:
                break
            threading.Event().wait(0.02)
        assert logs_of(book)["s"].session.unsettled < 70
        assert worker.stdin
        worker.stdin.close()
        worker.stdin = None
        assert worker.wait(60) == 0
    finally:
        worker.kill()
        worker.communicate()


def test_an_episode_is_a_memory_with_the_sessions_tags_and_the_time_of_what_was_said(book):
    book.append("s", CHAT[:3], tags=["birds"], space="team")
    (id_,) = book.settle("s").episodes
    episode = book.get(id_)
    assert (episode.kind, episode.session, episode.tags) == ("episode", "s", ("birds",))
    assert episode.occurred == NOON
    assert episode.title.startswith("Where does the heron nest")
    assert [one.id for one in book.list(Filter(kinds=("episode",))).items] == [id_]
    assert [entry.action for entry in book.log(space="team")][-1] == "settle"
