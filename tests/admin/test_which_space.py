"""Which space a verb means: the one that is named, with a final `/` those below it too, or the default."""

from __future__ import annotations

import pytest

from commonbook import BadInput, Book, Filter, NotAllowed


@pytest.fixture
def team(book: Book) -> Book:
    for space in ("team", "team/core", "other"):
        book.remember(f"an otter in {space}", space=space)
        book.append("talk", [f"a seal in {space}"], space=space)
    return book


@pytest.mark.parametrize(
    ("name", "expected"), [("team", {"team"}), ("team/", {"team", "team/core"}), ("/", {"team", "team/core", "other"})]
)
def test_lists_and_searches_take_a_space_or_all_below_it(team: Book, tmp_path, name, expected):
    assert {memory.space for memory in team.list(Filter(space=name)).items} == expected
    assert {session.space.name for session in team.sessions(space=name)} == expected
    assert {hit.space for hit in team.recall("otter seal", spaces=name, k=50).hits} == expected
    assert {hit.space for hit in team.recall("otter seal", spaces=[name], k=50).hits} == expected
    team.export(str(tmp_path / "out"), space=name)
    written = {path.read_text().rpartition(" in ")[2].strip() for path in (tmp_path / "out").rglob("*otter*.md")}
    assert written == expected


@pytest.mark.parametrize(
    ("name", "expected"), [("team", {"team"}), ("team/", {"team", "team/core"}), ("/", {"team", "team/core", "other"})]
)
def test_lists_of_rights_rules_and_requests_take_all_below_a_space_too(team: Book, name, expected):
    note = team.remember("to share", space="notes").id
    for space in ("team", "team/core", "other"):
        team.grant("user:bob", space, "reader")
        team.add_rule(space, "notes")
        team.request_share(note, space)
    assert {grant.space.name for grant in team.grants(space=name)} == expected
    assert {rule.space.name for rule in team.rules(space=name)} == expected
    assert {request.space for request in team.pending(space=name)} == expected
    stranger = team.acting_as("user:eve")
    for listing in (stranger.grants, stranger.rules, stranger.pending):
        with pytest.raises(NotAllowed):
            listing(space=name)


def test_a_write_has_one_place(team: Book):
    for act in (
        lambda: team.remember("never", space="team/"),
        lambda: team.append("talk", ["never"], space="team/"),
        lambda: team.reflect("never", [team.list().items[0].id], space="team/"),
    ):
        with pytest.raises(BadInput):
            act()
    assert len(team.list().items) == 3
