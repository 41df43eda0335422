"""Edits of episode files by hand, and their effect on the sessions of the episodes."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from commonbook.core.markdown import transcript
from commonbook.errors import Conflict, KeyConflict
from commonbook.values.memory import Filter
from commonbook.values.session import NewMessage
from tests.support import hand_edits
from tests.support.hand_edits import space_folder

pytestmark = pytest.mark.usefixtures("home")


def found(book, query, **options):
    return [hit.id for hit in book.recall(query, k=50, **options).hits]


def file_of(book, episode):
    return Path(book.home) / book.get(episode).path


def settled(book, *texts, session="s", **options):
    """Append messages and settle them into one episode; return their ids, and the id of the episode."""
    ids = [message.id for message in book.append(session, list(texts), **options).messages]
    (episode,) = book.settle(session).episodes
    return ids, episode


# --- taken back


@pytest.mark.promise("rewind.old-saves")
@pytest.mark.parametrize("introduction", ["", "A talk about animals.\n\n"], ids=["bare", "introduced"])
def test_a_stale_save_does_not_bring_back_into_recall_what_was_taken_back(book, open_book, introduction):
    (walrus, otter), episode = settled(book, "the walrus sleeps", "the otter swims")
    path = file_of(book, episode)
    stale = path.read_text().replace("### ", introduction + "### ", 1)
    book.rewind("s", walrus)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(stale)
    assert book.sync().edited == 1
    assert "otter" in book.get(episode).text
    for look in (book, open_book(), open_book()):
        assert otter not in found(look, "the otter swims")
        assert walrus in found(look, "the walrus sleeps")
        assert not any("otter" in text_of(hit) for query in ("", "animals otter") for hit in look.recall(query).hits)
        book.rebuild()


def text_of(hit):
    return " ".join((hit.text, hit.passage, hit.before, hit.after))


def test_an_episode_that_a_rewind_emptied_may_come_back_as_a_file_but_not_into_recall(book, open_book):
    _, episode = settled(book, "the walrus sleeps")
    path = file_of(book, episode)
    stale = path.read_text()
    book.rewind("s", 0)
    assert not path.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(stale)
    assert book.sync().restored == 1
    assert book.get(episode).deleted is None
    for look in (book, open_book()):
        assert found(look, "walrus") == found(look, "") == []
        book.rebuild()
    assert [one.rewound_at is not None for one in book.messages("s").items] == [True]
    assert book.append("s", ["the walrus is back"]).messages[0].id in found(book, "walrus")


@pytest.mark.promise("rewind.old-saves")
def test_a_file_that_does_not_parse_does_not_hold_up_a_rewind(book, open_book):
    (walrus, otter), episode = settled(book, "the walrus sleeps", "the otter swims")
    path = file_of(book, episode)
    assert otter in found(book, "otter")
    whole = path.read_text()
    broken = whole.replace("type: episode", "type: [")
    path.write_text(broken)
    assert [one.id for one in book.rewind("s", walrus)] == [otter]
    assert path.read_text() == broken
    for look in (book, open_book()):
        assert found(look, "walrus otter") == found(look, "") == [walrus]
    path.write_text(whole)
    book.sync()
    for look in (book, open_book()):
        assert found(look, "walrus otter") == found(look, "") == [walrus]
        book.rebuild()


@pytest.mark.promise("rewind.old-saves")
@pytest.mark.parametrize("by_hand", [False, True], ids=["by a verb", "by hand"])
def test_an_episode_that_is_moved_away_loses_what_a_stale_save_has_brought_back(book, by_hand):
    (walrus, _), episode = settled(book, "the walrus sleeps", "the otter swims")
    path = file_of(book, episode)
    whole = path.read_text()
    book.rewind("s", walrus)
    path.write_text(whole)
    book.sync()
    assert "otter" in book.get(episode).text
    if by_hand:
        book.create_space("vault")
        (Path(book.home) / "vault").mkdir(exist_ok=True)
        path.rename(Path(book.home) / "vault" / path.name)
        book.sync()
    else:
        book.move(episode, "vault")
    assert book.get(episode).space == "vault"
    assert "otter" not in book.get(episode).text
    assert "otter" not in file_of(book, episode).read_text()
    assert "otter" not in book.get(book.share(episode, "team").id).text
    assert not [hit for hit in book.recall("otter", spaces="/").hits if "otter" in hit.text]


def test_a_wholly_rewound_episode_that_a_stale_save_has_brought_back_is_not_moved_away(book):
    _, episode = settled(book, "the walrus sleeps")
    path = file_of(book, episode)
    whole = path.read_text()
    book.rewind("s", 0)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(whole)
    book.sync()
    with pytest.raises(Conflict, match="was rewound"):
        book.move(episode, "vault")


def test_an_episode_whose_file_is_moved_back_loses_what_was_rewound_meanwhile(book):
    _, episode = settled(book, "the walrus sleeps", "the otter swims", space="team")
    book.grant("user:bob", "team", "writer")
    home, here = Path(book.home), file_of(book, episode)
    book.move(episode, "vault")
    book.acting_as("user:bob").rewind("s", 1)
    assert "otter" in file_of(book, episode).read_text()
    here.parent.mkdir(parents=True, exist_ok=True)
    file_of(book, episode).rename(here)
    book.sync()
    assert book.get(episode).path == here.relative_to(home).as_posix()
    for text in (book.get(episode).text, here.read_text()):
        assert ("walrus" in text, "otter" in text) == (True, False)
    assert book.doctor() == ()


# --- which session


@pytest.mark.promise("files.ids")
@pytest.mark.parametrize(
    "wanted", ["session_id: other\n", "session_id: unheard-of\n", ""], ids=["known", "new", "none"]
)
def test_an_edited_session_id_is_put_back(book, wanted):
    ids, episode = settled(book, "the walrus sleeps", "the otter swims")
    theirs, _ = settled(book, "the heron nests", session="other")
    hand_edits.change(file_of(book, episode), "session_id: s\n", wanted)
    hand_edits.change(file_of(book, episode), "the otter swims", "the otter dives")
    book.sync()
    assert book.get(episode).session == "s"
    assert "session_id: s\n" in file_of(book, episode).read_text()
    assert {one.id: one.last for one in book.sessions()} == {"s": 2, "other": 1}
    for look in range(2):
        assert {hit.id: hit.session for hit in book.recall("").hits} == {**dict.fromkeys(ids, "s"), theirs[0]: "other"}
        assert found(book, "the otter dives")[0] == ids[1]
        assert look or book.rebuild()


def test_a_note_does_not_become_part_of_a_session_by_hand(book):
    settled(book, "the walrus sleeps")
    note = book.remember("the otter swims").id
    hand_edits.change(file_of(book, note), "type: note\n", "type: episode\nsession_id: s\n")
    book.sync()
    assert (book.get(note).kind, book.get(note).session) == ("episode", None)
    assert "session_id" not in file_of(book, note).read_text()


def test_a_copied_file_takes_no_message_into_another_session(book, open_book):
    (walrus,), episode = settled(book, "the walrus sleeps")
    path = file_of(book, episode)
    path.with_name("copy.md").write_text(path.read_text().replace("session_id: s\n", "session_id: other\n"))
    assert book.sync().new == 1
    assert [one.id for one in book.sessions()] == ["s"]
    # They say the same: one is found, and the other is counted.
    assert [hit.repeats for hit in book.recall("walrus").hits] == [1]
    assert [hit.id for hit in book.recall("walrus", session="s").hits] == [walrus]
    assert len(book.list(Filter(kinds=("episode",))).items) == 2


def test_a_message_keeps_its_number_whatever_its_heading_says(book):
    (walrus, otter, heron), episode = settled(book, "the walrus sleeps", "the otter swims", "the heron nests")
    hand_edits.change(file_of(book, episode), f"\u00b7 2 \u00b7 {otter}", f"\u00b7 77 \u00b7 {otter}")
    hand_edits.change(file_of(book, episode), "the otter swims", "the otter dives")
    book.sync()
    for look in range(2):
        assert {hit.id: hit.seq for hit in book.recall("").hits} == {walrus: 1, otter: 2, heron: 3}
        hit = book.recall("the otter dives").hits[0]
        assert (hit.id, hit.before, hit.after) == (
            otter,
            "user:local: the walrus sleeps",
            "user:local: the heron nests",
        )
        assert look or book.rebuild()


# --- the database is lost


def lose(book):
    book.close()
    for path in (Path(book.home) / ".commonbook").iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


ODD = [
    "123",
    "1e5",
    "null",
    "true",
    "~",
    "2026-11-15",
    "a:b",
    "it's",
    '"',
    "#1",
    "*x",
    "&y",
    "!t",
    "%",
    "@",
    "[a]",
    "é\u00ad",
]


@pytest.mark.promise("lost.sessions")
def test_every_session_id_comes_back_from_a_file(book, open_book):
    ids = {session: settled(book, "the walrus sleeps", session=session)[0] for session in ODD}
    lose(book)
    again = open_book()
    assert {one.id for one in again.sessions()} == set(ODD)
    assert {session: [one.id for one in again.messages(session).items] for session in ODD} == ids


@pytest.mark.promise("sessions.names")
def test_a_session_whose_id_is_refused_today_keeps_it(book, open_book):
    """An earlier version took marks that reorder text: the session is read from its file, and goes on."""
    _, episode = settled(book, "the walrus sleeps")
    path = file_of(book, episode)
    lose(book)
    hand_edits.change(path, "session_id: s\n", 'session_id: "s\u202e"\n')
    again = open_book()
    assert again.append("s\u202e", ["the otter swims"]).messages[0].seq == 2
    assert [one.text for one in again.messages("s\u202e").items] == ["the walrus sleeps", "the otter swims"]


def test_a_slip_of_the_hand_in_a_transcript_keeps_no_home_from_opening(book, open_book):
    (walrus, otter), episode = settled(book, "the walrus sleeps", "the otter swims")
    path = file_of(book, episode)
    lose(book)
    # The second message now has the id of the first.
    hand_edits.change(path, otter, walrus)
    again = open_book()
    assert [(one.id, one.text) for one in again.messages("s").items] == [(walrus, "the walrus sleeps")]
    assert found(again, "otter")[0] == f"{episode}#2"
    assert again.append("s", ["on we go"]).messages[0].new


def test_a_number_that_nobody_counted_to_does_not_spoil_the_session(book, open_book):
    (_, otter), episode = settled(book, "the walrus sleeps", "the otter swims")
    path = file_of(book, episode)
    lose(book)
    hand_edits.change(path, f"\u00b7 2 \u00b7 {otter}", f"\u00b7 999999999999999 \u00b7 {otter}")
    again = open_book()
    message = again.append("s", ["the heron nests"]).messages[0]
    assert message.seq == 2
    (after,) = again.settle("s").episodes
    assert message.id in again.get(after).text
    assert found(again, "the heron nests")[0] == message.id
    assert any("otter" in hit.text for hit in again.recall("otter").hits)


@pytest.mark.promise("lost.messages")
def test_of_a_lost_database_the_numbers_behind_the_last_settled_message_are_given_again(book, open_book):
    settled(book, "the walrus sleeps", "the otter swims")
    book.append("s", ["never settled"])
    book.rewind("s", 1)
    lose(book)
    again = open_book()
    assert [(one.seq, one.text) for one in again.messages("s").items] == [(1, "the walrus sleeps")]
    assert again.append("s", ["the heron nests"]).messages[0].seq == 2


@pytest.mark.promise("lost.sessions")
@pytest.mark.parametrize("to", ["archive", "zoo"])
def test_after_a_lost_database_a_session_is_in_its_space_although_an_episode_was_moved(book, open_book, to):
    _, first = settled(book, "the walrus sleeps", space="team")
    book.append("s", ["the otter swims"], space="team")
    (second,) = book.settle("s").episodes
    book.move(first, to)
    assert b"session_space: team\n" in (Path(book.home) / book.get(first).path).read_bytes()
    lose(book)
    again = open_book()
    assert [one.space.name for one in again.sessions()] == ["team"]
    assert {again.get(one).space for one in (first, second)} == {"team", to}
    assert (again.get(first).session_space, again.get(second).session_space) == ("team", None)
    # What the moved episode says may have been written elsewhere: it is no message of the session any more.
    assert [(one.seq, one.text) for one in again.messages("s").items] == [(2, "the otter swims")]
    assert "the walrus sleeps" in again.get(first).text
    assert again.append("s", ["the heron nests"], space="team").messages[0].seq == 3


@pytest.mark.promise("lost.foreign-episodes")
def test_words_written_in_another_space_do_not_reach_a_session_when_the_database_is_lost(book, open_book):
    _, episode = settled(book, "the walrus sleeps", "the otter swims", space="hr")
    book.move(episode, "vault")
    book.edit(episode, text=book.get(episode).text.replace("the otter swims", "the heron is secret"), tags=["secret"])
    lose(book)
    again = open_book()
    again.grant("user:bob", "hr", "writer")
    bob = again.acting_as("user:bob")
    assert list(bob.sessions()) == []
    assert "secret" not in str(bob.log(space="hr"))
    assert found(bob, "the heron is secret", spaces=["hr"]) == []
    assert "the heron is secret" in again.get(episode).text
    assert bob.append("s", ["the walrus wakes"], space="hr").messages[0].seq == 1
    again.move(episode, "hr")
    assert [one.text for one in bob.messages("s", space="hr").items] == ["the walrus wakes"]


# --- files that somebody made


def forge(book, name, text, *, seq, fields="", message=None):
    """Put an episode with one message into the folder of the space `team`."""
    id_ = message or f"forged-{name}"
    heading = f"### user:eve (user) \u00b7 2026-11-17T07:18:34.556326Z \u00b7 {seq} \u00b7 {id_}"
    path = space_folder(Path(book.home), "team") / f"{name}.md"
    path.write_text(f"---\ntitle: {name}\nkind: episode\nsession_id: s\n{fields}---\n\n{heading}\n\n{text}\n")
    assert book.sync().new == 1


@pytest.mark.promise("lost.forged-messages")
@pytest.mark.parametrize("seq", [2, 9])
@pytest.mark.parametrize("there", [True, False], ids=["existing", "new"])
def test_a_file_adds_no_message_to_a_session_of_another_space(book, seq, there):
    if there:
        book.append("s", ["the walrus sleeps"], space="vault")
    forge(book, "eve", "the otter swims", seq=seq, fields="session_space: vault\n")
    texts = [one.text for session in book.sessions() for one in book.messages(session.id).items]
    assert texts == (["the walrus sleeps"] if there else [])
    assert there or "vault" not in {space.name for space in book.spaces()}
    assert book.append("s", ["the heron nests"], space="vault").messages[0].seq == (2 if there else 1)


@pytest.mark.promise("lost.forged-messages")
@pytest.mark.parametrize("seq", [1, 2, 7])
@pytest.mark.parametrize("is_settled", [False, True])
def test_a_file_adds_no_message_to_a_session_that_exists(book, seq, is_settled):
    book.append("s", ["the walrus sleeps"], space="team")
    if is_settled:
        book.settle("s")
    before = book.messages("s").items
    forge(book, "eve", "the otter swims", seq=seq)
    assert book.messages("s").items == before
    assert "session.adopt" not in [entry.action for entry in book.log(space="team")]
    assert [hit.session for hit in book.recall("otter", spaces=["team"]).hits if "otter" in hit.text] == [None]
    assert book.append("s", ["the heron nests"], space="team").messages[0].seq == 2


@pytest.mark.promise("lost.forged-messages")
@pytest.mark.parametrize("change", ["append", "rewind", "switch", "switch to"])
def test_a_session_that_files_restored_takes_no_more_from_them_once_it_is_used(book, open_book, change):
    settled(book, "the walrus sleeps", space="team")
    lose(book)
    again = open_book()
    forge(again, "one", "the heron nests", seq=2)
    assert [one.text for one in again.messages("s").items] == ["the walrus sleeps", "the heron nests"]
    {
        "append": lambda: again.append("s", ["the crane calls"], space="team"),
        "rewind": lambda: again.rewind("s", 2),
        "switch": lambda: again.switch("s", "t", space="team"),
        "switch to": lambda: again.switch("t", "s", space="team"),
    }[change]()
    before = again.messages("s").items
    forge(again, "two", "the otter swims", seq=9)
    assert again.messages("s").items == before


@pytest.mark.promise("lost.forged-messages")
@pytest.mark.parametrize("there", [True, False], ids=["existing", "new"])
def test_a_number_far_away_from_the_last_one_does_not_come_into_the_log(book, there):
    if there:
        book.append("s", ["the walrus sleeps"], space="team")
    forge(book, "eve", "the otter swims", seq=10**12)
    assert book.append("s", ["the heron nests"], space="team").messages[0].seq == (2 if there else 1)
    assert any("otter" in hit.text for hit in book.recall("otter", spaces=["team"]).hits)


# --- a database that is older than the files


def keep_database(book, folder):
    """Close a book and copy its database away, as a back-up does."""
    book.close()
    shutil.copytree(Path(book.home) / ".commonbook", folder)


def lose_database(book):
    """Close a book and remove its database; the keys of the home stay."""
    book.close()
    for file in Path(book.home).glob(".commonbook/state.db*"):
        file.unlink()


def put_back(book, folder):
    """Close a book and put an older copy of its database in the place of the present one."""
    lose_database(book)
    shutil.copy2(folder / "state.db", Path(book.home) / ".commonbook" / "state.db")


@pytest.mark.promise("sessions.episodes")
@pytest.mark.parametrize("to", [None, "zoo", "archive"])
def test_no_message_is_in_two_episodes_when_the_database_is_older_than_the_files(book, open_book, tmp_path, to):
    texts = ["the walrus sleeps", "the otter swims"]
    ids = [message.id for message in book.append("s", texts, space="team").messages]
    keep_database(book, tmp_path / "kept")
    later = open_book()
    (episode,) = later.settle("s").episodes
    if to:
        later.move(episode, to)
    put_back(later, tmp_path / "kept")
    again = open_book()
    assert [(one.id, one.episode) for one in again.messages("s").items] == [(id_, episode) for id_ in ids]
    assert again.settle("s").episodes == ()
    assert [one.id for one in again.list(Filter(kinds=("episode",))).items] == [episode]
    assert len(again.recall("walrus otter", spaces="/").hits) == 2
    assert again.append("s", ["the heron nests"], space="team").messages[0].seq == 3
    assert len(again.settle("s").episodes) == 1
    assert again.doctor() == ()


@pytest.mark.promise("lost.moved-sessions")
@pytest.mark.parametrize("to", [None, "zoo", "archive", "team"])
@pytest.mark.parametrize("lost", [False, True], ids=["older", "lost meanwhile"])
def test_no_message_is_in_two_episodes_when_its_session_was_moved_after_the_back_up(
    book, open_book, tmp_path, to, lost
):
    before = [message.id for message in book.append("s", ["the walrus", "the otter"], space="team").messages]
    keep_database(book, tmp_path / "kept")
    later = open_book()
    later.append("s", ["the heron"], space="team")
    (episode,) = later.settle("s").episodes
    later.move_session("s", "vault", space="team")
    if to:
        later.move(episode, to)
    if lost:
        lose_database(later)
        later = open_book()
    put_back(later, tmp_path / "kept")
    again = open_book()
    assert [(one.id, one.episode) for one in again.messages("s", space="team").items] == [
        (id_, episode) for id_ in before
    ]
    assert again.settle("s", space="team").episodes == ()
    assert texts_in_episodes(again) == ["the heron", "the otter", "the walrus"]
    hits = again.recall("walrus otter heron", k=50, spaces="/").hits
    assert [sum(word in hit.passage for hit in hits) for word in ("walrus", "otter", "heron")] == [1, 1, 1]
    assert again.doctor() == ()


SENT = [NewMessage(f"the {animal}", client_id=f"turn {number}") for number, animal in enumerate(("otter", "heron"), 2)]


def later_episode(book, open_book, folder, sent=tuple(SENT)):
    """Settle messages after a back-up, put the back-up back, and return the episode and the first receipt."""
    book.append("s", [NewMessage("the walrus", client_id="turn 1")])
    book.settle("s")
    keep_database(book, folder)
    later = open_book()
    receipt = later.append("s", list(sent))
    (episode,) = later.settle("s").episodes
    path = file_of(later, episode)
    put_back(later, folder)
    return path, episode, receipt


def texts_in_episodes(book):
    episodes = book.list(Filter(kinds=("episode",)), limit=100).items
    return sorted(message.text for one in episodes for message in transcript.parse(one.text).messages)


def times_recalled(book, word):
    return sum(word in hit.passage for hit in book.recall(word, k=50).hits)


@pytest.mark.promise("lost.sessions")
def test_messages_from_after_the_back_up_come_back_with_numbers_and_client_ids(book, open_book, tmp_path):
    _, episode, receipt = later_episode(book, open_book, tmp_path / "kept")
    again = open_book()
    items = again.messages("s").items
    assert [(one.seq, one.text, one.client_id) for one in items] == [
        (1, "the walrus", "turn 1"), (2, "the otter", "turn 2"), (3, "the heron", "turn 3"),
    ]  # fmt: skip
    assert [(one.id, one.episode) for one in items[1:]] == [(one.id, episode) for one in receipt.messages]
    repeat = again.append("s", SENT)
    assert [(one.id, one.seq, one.new) for one in repeat.messages] == [
        (one.id, one.seq, False) for one in receipt.messages
    ]
    with pytest.raises(KeyConflict):
        again.append("s", [NewMessage("the crane", client_id="turn 2")])
    assert again.append("s", ["the crane"]).messages[0].seq == 4
    again.settle("s")
    assert texts_in_episodes(again) == ["the crane", "the heron", "the otter", "the walrus"]
    assert times_recalled(again, "otter") == 1
    assert again.doctor() == ()
    again.rewind("s", 2)
    assert "heron" not in again.get(episode).text


@pytest.mark.promise("lost.messages")
def test_a_lost_database_brings_client_ids_of_settled_messages_back(book, open_book):
    receipt = book.append("s", SENT)
    book.settle("s")
    book.close()
    for file in Path(book.home).glob(".commonbook/state.db*"):
        file.unlink()
    again = open_book()
    assert [(one.id, one.new) for one in again.append("s", SENT).messages] == [
        (one.id, False) for one in receipt.messages
    ]
    assert len(again.messages("s").items) == 2


def test_a_repeat_is_known_though_its_words_were_edited_in_the_file(book, open_book, tmp_path):
    path, _, receipt = later_episode(book, open_book, tmp_path / "kept")
    path.write_text(path.read_text().replace("the otter", "the small otter"))
    again = open_book()
    assert [one.text for one in again.messages("s").items] == ["the walrus", "the small otter", "the heron"]
    assert [one.new for one in again.append("s", SENT).messages] == [False, False]
    assert len(receipt.messages) == 2


@pytest.mark.promise("lost.messages")
@pytest.mark.parametrize("then", ["unsettled", "settled", "rewound"])
def test_a_client_that_sends_again_before_the_file_arrives_stores_nothing_twice(book, open_book, tmp_path, then):
    path, episode, _ = later_episode(book, open_book, tmp_path / "kept")
    away = tmp_path / "away.md"
    path.rename(away)
    again = open_book()
    first = again.append("s", SENT)
    assert [(one.seq, one.new) for one in first.messages] == [(2, True), (3, True)]
    if then == "settled":
        again.settle("s")
    if then == "rewound":
        again.rewind("s", 2)
    away.rename(path)
    again.sync()
    assert [one.id for one in again.messages("s").items[1:]] == [one.id for one in first.messages]
    again.settle("s")
    animals = ["the otter", "the walrus"] if then == "rewound" else ["the heron", "the otter", "the walrus"]
    assert texts_in_episodes(again) == animals
    assert {one.id: one.new for one in again.append("s", SENT).messages} == {one.id: False for one in first.messages}
    for word in ("otter", "heron"):
        assert times_recalled(again, word) == (word in " ".join(animals))
    if then == "unsettled":
        assert {one.episode for one in again.messages("s").items[1:]} == {episode}
        again.rewind("s", 2)
        assert "heron" not in again.get(episode).text
    if then == "settled":
        assert [finding.where for finding in again.doctor()] == [str(path.relative_to(book.home))]
        path.unlink()
        again.sync()
    assert again.doctor() == ()


@pytest.mark.promise("lost.sessions")
def test_a_number_that_was_given_to_another_message_meanwhile_stays_its_own(book, open_book, tmp_path):
    path, _, receipt = later_episode(book, open_book, tmp_path / "kept")
    away = tmp_path / "away.md"
    path.rename(away)
    again = open_book()
    again.append("s", ["the crane"])
    away.rename(path)
    again.sync()
    assert [(one.seq, one.text) for one in again.messages("s").items] == [
        (1, "the walrus"), (2, "the crane"), (3, "the heron"), (4, "the otter"),
    ]  # fmt: skip
    assert {one.id for one in again.append("s", SENT).messages} == {one.id for one in receipt.messages}
    again.settle("s")
    assert texts_in_episodes(again) == ["the crane", "the heron", "the otter", "the walrus"]


@pytest.mark.promise("lost.forged-messages")
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("mac:", "mac:0000"),
        ("(user)", "(assistant)"),
        ("user:local", "user:boss"),
        ("turn%20;2", "turn%20;9"),
        (" 2 ", " 7 "),
    ],
)
def test_a_line_or_heading_that_was_edited_proves_nothing(book, open_book, tmp_path, old, new):
    path, episode, _ = later_episode(book, open_book, tmp_path / "kept", SENT[:1])
    text = path.read_text()
    text = re.sub(r"mac:[0-9a-f]{4}", new, text) if old == "mac:" else text.replace(old, new)
    assert text != path.read_text()
    path.write_text(text)
    again = open_book()
    assert [one.text for one in again.messages("s").items] == ["the walrus"]
    assert "the otter" in again.get(episode).text


def test_lines_of_messages_are_ours_and_are_shown_to_nobody(book, open_book):
    book.append("s", SENT)
    (episode,) = book.settle("s").episodes
    path = file_of(book, episode)
    before = path.read_text()
    assert before.count("mac:") == 2
    path.write_text(re.sub(r"messages:\n(  - .*\n)+", "", before))
    book.sync()
    assert path.read_text().count("mac:") == 2
    copy = book.share(episode, "team").id
    assert "turn" not in file_of(book, copy).read_text()


KILLED_CHILD = """
import os, signal, sys
import commonbook
from commonbook.core.tables import file_journal, sessions

def die(*args, **options):
    os.kill(os.getpid(), signal.SIGKILL)

home, module, name = sys.argv[1:]
if name:
    setattr({"sessions": sessions, "file_journal": file_journal}[module], name, die)
commonbook.open(home)
die()
"""


@pytest.mark.promise("lost.messages")
@pytest.mark.parametrize("at", ["sessions.restore", "file_journal.set_synced", "."], ids=["restore", "sync", "opened"])
def test_a_kill_while_messages_come_back_leaves_each_once(book, open_book, tmp_path, at):
    _, episode, receipt = later_episode(book, open_book, tmp_path / "kept")
    child = subprocess.run([sys.executable, "-c", KILLED_CHILD, book.home, *at.split(".")], check=False)
    assert child.returncode == -signal.SIGKILL
    again = open_book()
    assert [(one.seq, one.text) for one in again.messages("s").items] == [
        (1, "the walrus"), (2, "the otter"), (3, "the heron"),
    ]  # fmt: skip
    assert [(one.id, one.new) for one in again.append("s", SENT).messages] == [
        (one.id, False) for one in receipt.messages
    ]
    assert {one.episode for one in again.messages("s").items[1:]} == {episode}
    assert texts_in_episodes(again) == ["the heron", "the otter", "the walrus"]


@pytest.mark.promise("lost.sessions")
def test_a_session_that_the_back_up_does_not_know_comes_back_from_files(book, open_book, tmp_path):
    keep_database(book, tmp_path / "kept")
    later = open_book()
    texts = ["the walrus sleeps", "the otter swims", "the heron nests"]
    for text in texts:
        settled(later, text)
    put_back(later, tmp_path / "kept")
    assert [(one.seq, one.text) for one in open_book().messages("s").items] == list(enumerate(texts, 1))


def test_a_file_of_another_space_settles_no_message(book, open_book, tmp_path):
    """A file that only names a session settles nothing in the session of that name in another space."""
    _, episode = settled(book, "the walrus sleeps")
    path = file_of(book, episode)
    other = path.read_text()
    book.append("s", ["the otter swims"], space="team")
    (otter,) = book.messages("s", space="team").items
    book.close()
    forged = path.parents[1] / "team" / "forged.md"
    lines = [line for line in other.splitlines() if not line.startswith(("id:", "version:", "revision:"))]
    forged.parent.mkdir(exist_ok=True)
    forged.write_text("\n".join(lines) + "\n")
    again = open_book()
    assert [(one.id, one.episode) for one in again.messages("s", space="team").items] == [(otter.id, None)]
    assert [one.episode for one in again.messages("s", space="personal").items] == [episode]


@pytest.mark.promise("lost.moved-sessions")
def test_a_file_without_a_mac_settles_no_message_of_a_session_in_another_space(book):
    (message,) = book.append("s", ["the walrus sleeps"], space="vault").messages
    forge(book, "eve", "the otter swims", seq=1, message=message.id)
    assert [(one.id, one.episode) for one in book.messages("s", space="vault").items] == [(message.id, None)]
