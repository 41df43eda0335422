"""Proposed memories and their files: a folder beside the space, which people and a lost database can rely on."""

from __future__ import annotations

from pathlib import Path

import pytest

import commonbook
from commonbook.errors import Conflict
from commonbook.service.book import Book
from commonbook.values.memory import Filter
from tests.support.lost_databases import keep_database, lose_database, put_database_back

AGENT = "agent:helper"


@pytest.fixture
def team(home: Path, book: Book) -> Book:
    book.create_space("team")
    book.grant(AGENT, "team", "writer")
    book.set_review("team", "agents")
    return book


def propose(book: Book, *, replaces: str | None = None) -> str:
    return book.acting_as(AGENT).remember("The deploy runs on Mondays", space="team", replaces=replaces).id


def texts(book: Book, space: str) -> list[str]:
    return [memory.text for memory in book.list(Filter(space=space)).items]


def by_hand(home: Path, book: Book, memory: str) -> Path:
    """Move the file of a proposal into the folder of the space, as a person would; return its new place."""
    before = home / book.get(memory).path
    after = home / "team" / before.name
    before.rename(after)
    return after


def test_its_file_lies_beside_the_space_until_it_is_approved(home, team):
    memory = propose(team)
    path = home / team.get(memory).path
    assert path.parent.parent == home / "team/_proposed"
    assert f"author: {AGENT}" in path.read_text()
    team.approve(memory)
    assert not (home / "team/_proposed").exists()
    assert (home / team.get(memory).path).parent.parent == home / "team"


def test_a_person_approves_by_moving_the_file(home, team):
    old = team.remember("The deploy runs on Fridays", space="team").id
    memory = propose(team, replaces=old)
    after = by_hand(home, team, memory)
    team.sync()
    got = team.get(memory)
    assert (got.space, got.marks, got.author) == ("team", (), AGENT)
    assert (team.get(old).superseded_by, team.pending()) == (memory, ())
    assert "would_supersede" not in after.read_text()


@pytest.mark.promise("review.lost")
def test_a_person_approves_by_moving_the_file_while_the_database_is_lost(home, team):
    old = team.remember("The deploy runs on Fridays", space="team").id
    memory = propose(team, replaces=old)
    after = by_hand(home, team, memory)
    team.close()
    lose_database(home)
    with commonbook.open(home) as book:
        assert (book.get(memory).marks, book.get(old).superseded_by, book.pending()) == ((), memory, ())
    assert "would_supersede" not in after.read_text()


def test_an_older_file_of_what_was_approved_supersedes_the_same(home, team):
    old = team.remember("The deploy runs on Fridays", space="team").id
    memory = propose(team, replaces=old)
    proposed = (home / team.get(memory).path).read_text()
    team.approve(memory)
    (home / team.get(memory).path).write_text(proposed)
    team.sync()
    assert team.get(old).superseded_by == memory
    assert "would_supersede" not in (home / team.get(memory).path).read_text()


@pytest.mark.parametrize("decide", ["approve", "reject"])
def test_a_decision_after_a_move_by_hand_is_told_so(home, team, decide):
    memory = propose(team)
    by_hand(home, team, memory)
    with pytest.raises(Conflict, match="approved meanwhile"):
        getattr(team, decide)(memory)
    team.sync()
    assert texts(team, "team") == ["The deploy runs on Mondays"]


def test_an_edit_by_hand_stays_a_proposal_and_is_what_is_approved(home, team):
    memory = propose(team)
    path = home / team.get(memory).path
    path.write_text(path.read_text().replace("Mondays", "Tuesdays"))
    team.approve(memory)
    assert texts(team, "team") == ["The deploy runs on Tuesdays"]


def test_a_removed_file_withdraws_it(home, team):
    memory = propose(team)
    (home / team.get(memory).path).unlink()
    team.sync()
    assert team.pending() == ()
    with pytest.raises(commonbook.NotFound):
        team.get(memory)


@pytest.mark.promise("review.lost")
def test_a_lost_database_brings_the_review_and_the_proposals_back(home, team):
    old = team.remember("The deploy runs on Fridays", space="team").id
    memory = propose(team, replaces=old)
    team.close()
    lose_database(home)
    with commonbook.open(home) as book:
        book.grant(AGENT, "team", "admin")
        agent = book.acting_as(AGENT)
        assert {space.name: space.review for space in book.spaces()}["team"] == "agents"
        assert ([one.id for one in book.pending()], book.get(memory).marks) == ([memory], ("proposed",))
        assert memory not in {hit.id for hit in book.recall("deploy Mondays", spaces=["/"]).hits}
        assert agent.remember("More", space="team").proposed
        with pytest.raises(commonbook.NotAllowed):
            agent.approve(memory)
        book.approve(memory)
        assert book.get(old).superseded_by == memory


def without_review(file: Path) -> str:
    return "".join(line for line in file.read_text().splitlines(keepends=True) if not line.startswith("review"))


@pytest.mark.promise("review.lost")
def test_a_space_file_does_not_end_a_review(home, team):
    file = home / "team/.space.toml"
    file.write_text(without_review(file))
    team.sync()
    assert team.acting_as(AGENT).remember("x", space="team").proposed
    (finding,) = [one for one in team.doctor() if ".space.toml" in one.where]
    assert "space review" in finding.why


@pytest.mark.promise("review.lost")
def test_a_space_file_begins_a_review_until_a_person_ends_it(home, team):
    team.set_review("team", None)
    file = home / "team/.space.toml"
    file.write_text(without_review(file) + 'review = "agents"\n')
    team.sync()
    assert (team.acting_as(AGENT).remember("x", space="team").proposed, team.doctor()) == (True, ())
    assert [one.actor for one in team.log(space="team") if one.action == "space.review"][-1] == "user:filesystem"
    team.set_review("team", None)
    team.sync()
    assert "review" not in file.read_text()
    assert not team.acting_as(AGENT).remember("x", space="team").proposed


@pytest.mark.promise("review.lost")
def test_an_older_database_loses_no_review(home, team, tmp_path):
    team.set_review("team", None)
    team.close()
    keep_database(home, tmp_path / "older")
    with commonbook.open(home) as book:
        book.set_review("team", "agents")
    put_database_back(home, tmp_path / "older")
    with commonbook.open(home) as book:
        assert book.acting_as(AGENT).remember("x", space="team").proposed
        assert {space.name: space.review for space in book.spaces()}["team"] == "agents"


@pytest.mark.promise("review.lost")
def test_an_export_and_import_keep_them_apart(home, team, tmp_path):
    memory = propose(team)
    team.export(str(tmp_path / "out"), space="team/")
    assert team.export(str(tmp_path / "okf"), okf=True).ids == ()
    with commonbook.open(tmp_path / "other", create=True) as book:
        book.import_folder(str(tmp_path / "out"))
        assert (texts(book, "team"), [one.id for one in book.pending()]) == ([], [memory])
        assert {space.name: space.review for space in book.spaces()}["team"] == "agents"


def test_a_rebuild_keeps_them(home, team):
    memory = propose(team)
    team.rebuild()
    assert [one.id for one in team.pending()] == [memory]
    assert team.doctor() == ()


@pytest.mark.promise("review.supersedes")
@pytest.mark.parametrize("is_lost", [True, False])
def test_a_file_of_a_person_that_would_supersede_supersedes_nothing(home, team, is_lost):
    truth = team.remember("The truth", space="team").id
    path = home / team.get(team.acting_as("user:local").remember("A lie", space="notes").id).path
    path.write_text(path.read_text().replace("---\n\n", f"links:\n  - would_supersede {truth}\n---\n\n"))
    if is_lost:
        team.close()
        lose_database(home)
    with commonbook.open(home) as book:
        book.sync()
        assert "would_supersede" in path.read_text()
        assert book.get(truth).superseded_by is None


@pytest.mark.promise("review.supersedes")
def test_a_line_that_supersedes_in_the_file_of_a_proposal_waits_for_the_approval(home, team):
    old = team.remember("The deploy runs on Fridays", space="team").id
    memory = propose(team)
    path = home / team.get(memory).path
    path.write_text(path.read_text().replace("---\n\n", f"links:\n  - supersedes {old}\n---\n\n"))
    team.sync()
    assert (team.get(old).marks, [link.relation for link in team.get(memory).links]) == ((), ["would_supersede"])
    team.approve(memory)
    assert team.get(old).superseded_by == memory


def test_an_import_takes_a_file_that_a_person_moved_out_of_the_proposals_as_approved(home, team, tmp_path):
    old = team.remember("The deploy runs on Fridays", space="team").id
    memory = propose(team, replaces=old)
    team.export(str(tmp_path / "out"), space="team/")
    (proposed,) = (tmp_path / "out/team/_proposed").rglob("*.md")
    proposed.rename(tmp_path / "out/team" / proposed.name)
    with commonbook.open(tmp_path / "other", create=True) as book:
        book.import_folder(str(tmp_path / "out"))
        assert (book.get(old).superseded_by, book.pending()) == (memory, ())
