"""The log of a memory's space tells who superseded it from elsewhere, and who tried without the right."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from commonbook import Book, NotAllowed, NotFound

AGENT, BOB, CAROL = "agent:x", "user:bob", "user:carol"


def by_supersede(book: Book, old: str) -> str:
    new = book.remember("oil costs seven", space="mine").id
    book.supersede(old, new)
    return new


def by_replaces(book: Book, old: str) -> str:
    return book.remember("oil costs seven", space="mine", replaces=old).id


def by_link(book: Book, old: str) -> str:
    new = book.remember("oil costs seven", space="mine").id
    book.link(new, "supersedes", old)
    return new


def by_triage(book: Book, old: str) -> str:
    new = book.remember("oil costs seven", space="mine").id
    book.triage(old, "supersede", by=new)
    return new


def by_approval(book: Book, old: str) -> str:
    book.set_review("mine", "agents")
    proposed = book.acting_as(AGENT).remember("oil costs seven", space="mine", replaces=old).id
    assert superseded(book) == []
    book.approve(proposed)
    return proposed


def by_undelete(book: Book, old: str) -> str:
    new = book.remember("oil costs seven", space="team", replaces=old).id
    book.move(new, "mine")
    book.delete(new)
    book.undelete(new)
    return new


def superseded(book: Book) -> list[tuple[object, ...]]:
    entries = [one for one in book.log(space="team") if one.action == "superseded"]
    return [(one.actor, *json.loads(one.subjects), json.loads(one.payload)["by"]) for one in entries]


def refused(book: Book, space: str = "team") -> list[tuple[str, object, object]]:
    entries = [one for one in book.log(space=space) if one.action == "refused"]
    payloads = [json.loads(one.payload) for one in entries]
    return [(one.actor, payload["verb"], payload["memory"]) for one, payload in zip(entries, payloads, strict=True)]


@pytest.fixture
def doubtful(book: Book) -> str:
    """A memory of `team` that is in doubt; an agent may write to `mine` and to `team`."""
    for space in ("team", "mine"):
        book.create_space(space)
        book.grant(AGENT, space, "writer")
    ground = book.remember("a litre costs five", space="team").id
    thought = book.reflect("oil costs five", [ground], space="team").id
    book.remember("a litre costs seven", space="team", replaces=ground)
    return thought


@pytest.mark.promise("supersede.logged")
@pytest.mark.parametrize("way", [by_supersede, by_replaces, by_link, by_triage, by_approval, by_undelete])
def test_whatever_supersedes_a_memory_from_another_space_is_in_the_log_of_its_space(
    book: Book, doubtful: str, way: Callable[[Book, str], str]
):
    new = way(book, doubtful)
    assert superseded(book) == [("user:local", doubtful, new)]
    book.edit(new, text="oil costs eight")
    book.supersede(doubtful, new)
    assert len(superseded(book)) == 1, "nothing is superseded a second time"


@pytest.mark.promise("supersede.logged")
def test_an_import_that_supersedes_a_memory_of_another_space_is_in_the_log_of_its_space(book, doubtful, tmp_path):
    (tmp_path / "new.md").write_text(f"---\nlinks:\n- supersedes {doubtful}\n---\noil costs seven\n")
    book.import_folder(str(tmp_path / "new.md"), space="mine")
    assert [subject for _, subject, _ in superseded(book)] == [doubtful]


@pytest.mark.promise("supersede.logged")
@pytest.mark.parametrize("by_notice", [False, True])
def test_a_refused_triage_that_would_supersede_is_logged(book: Book, doubtful: str, by_notice: bool):
    book.grant(BOB, "team", "reader")
    book.grant(BOB, "mine", "writer")
    bob = book.acting_as(BOB)
    mine = bob.remember("oil is free", space="mine").id
    about = bob.inbox().items[0].id if by_notice else doubtful
    with pytest.raises(NotAllowed):
        bob.triage(about, "supersede", by=mine)
    assert refused(book) == [(BOB, "supersede", doubtful)]


@pytest.mark.promise("supersede.logged")
@pytest.mark.parametrize("is_reader", [False, True])
@pytest.mark.parametrize("verb", ["approve", "move"])
def test_a_refused_approval_of_what_would_supersede_is_logged(book: Book, doubtful: str, verb: str, is_reader: bool):
    book.grant(CAROL, "mine", "writer")
    if is_reader:
        book.grant(CAROL, "team", "reader")
    book.set_review("mine", "agents")
    proposed = book.acting_as(AGENT).remember("oil costs seven", space="mine", replaces=doubtful).id
    carol = book.acting_as(CAROL)
    with pytest.raises((NotAllowed, NotFound)):
        carol.approve(proposed) if verb == "approve" else carol.move(proposed, "mine")
    assert refused(book) == [(CAROL, "supersede", doubtful)]
    assert "superseded" not in book.get(doubtful).marks
