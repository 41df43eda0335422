"""A copy follows only while its sharer may read the source and write to the space that the copy is in now."""

from __future__ import annotations

import pytest

from commonbook import BadInput, Book, NotAllowed, NotFound

BOB, CAROL, AGENT = "user:bob", "user:carol", "agent:x"


@pytest.fixture
def bob(book: Book) -> Book:
    """Bob writes to `team` and to `bobs`."""
    for space in ("team", "bobs"):
        book.create_space(space)
        book.grant(BOB, space, "writer")
    return book.acting_as(BOB, space="bobs")


def after_revocation(book: Book, space: str = "team") -> list[tuple[str, str]]:
    """Return the entries of a space's log since the last revocation."""
    entries = [(entry.actor, entry.action) for entry in book.log(space=space)]
    return entries[max(at for at, (_, action) in enumerate(entries) if action == "revoke") + 1 :]


@pytest.mark.promise("access.races", "copies.sharer")
@pytest.mark.parametrize("refresh", ["live", "lazy"])
def test_a_copy_follows_no_more_when_its_sharer_may_not_write_to_its_space(book: Book, bob: Book, refresh):
    source = bob.remember("deploy with make").id
    copy = bob.share(source, to="team", refresh=refresh).id
    book.revoke(BOB, "team")
    bob.edit(source, text="deploy with force")
    book.work()
    assert (book.get(copy).text, book.get(copy).freshness) == ("deploy with make", "revoked")
    assert after_revocation(book) == []
    book.grant(BOB, "team", "reader")
    assert book.get(copy).freshness == "revoked"
    book.grant(BOB, "team", "writer")
    bob.refresh(copy)
    assert (book.get(copy).text, book.get(copy).freshness) == ("deploy with force", "fresh")


@pytest.mark.promise("copies.sharer")
def test_a_copy_follows_no_more_when_its_sharer_may_not_write_to_the_space_that_it_was_moved_to(book: Book, bob: Book):
    book.create_space("board")
    source = bob.remember("deploy with make").id
    copy = bob.share(source, to="team").id
    book.move(copy, "board")
    bob.edit(source, text="deploy with force")
    assert (book.get(copy).text, book.get(copy).freshness) == ("deploy with make", "revoked")


@pytest.mark.promise("copies.sharer")
@pytest.mark.parametrize("after", [0, 1])
def test_a_rewind_reaches_no_copy_whose_sharer_may_not_write_to_its_space(book: Book, bob: Book, after: int):
    bob.append("s", ["keep the zebra", "sell the yak"])
    (episode,) = bob.settle("s").episodes
    copy = bob.share(episode, to="team").id
    text = book.get(copy).text
    book.revoke(BOB, "team")
    bob.rewind("s", after)
    assert (book.get(copy).text, book.get(copy).freshness) == (text, "revoked")
    assert after_revocation(book) == []


@pytest.mark.promise("copies.retied")
@pytest.mark.parametrize("way", ["share", "adopt"])
def test_somebody_who_may_write_to_the_space_ties_such_a_copy_again(book: Book, bob: Book, way: str):
    source = bob.remember("deploy with make").id
    copy = bob.share(source, to="team").id
    book.revoke(BOB, "team")
    bob.edit(source, text="deploy with force")
    with pytest.raises(NotAllowed):
        book.refresh(copy)
    if way == "share":
        assert book.share(source, to="team").retied
    else:
        book.adopt(copy)
    memory = book.get(copy)
    assert (memory.text, memory.freshness) == ("deploy with force", "fresh")
    assert memory.shared is not None
    assert memory.shared.by == "user:local"


def test_a_copy_for_one_principal_alone_follows(book: Book, bob: Book):
    source = bob.remember("deploy with make").id
    copy = bob.share_with(source, CAROL).id
    bob.edit(source, text="deploy with care")
    carol = book.acting_as(CAROL)
    assert (carol.get(copy).text, carol.get(copy).freshness) == ("deploy with care", "fresh")


# --- approved requests


@pytest.mark.promise("copies.sharer")
def test_an_approved_copy_follows_in_the_name_of_the_one_who_approved_it(book: Book, bob: Book):
    book.grant(BOB, "team", "reader")
    book.grant(CAROL, "team", "admin")
    source = bob.remember("deploy with make").id
    request = bob.request_share(source, to="team")
    book.revoke(BOB, "team")
    copy = book.acting_as(CAROL).approve(request.id).copy
    assert copy is not None
    bob.edit(source, text="deploy with care")
    memory = book.get(copy)
    assert (memory.text, memory.freshness) == ("deploy with care", "fresh")
    assert memory.shared is not None
    assert (memory.shared.by, memory.shared.approved_by) == (BOB, CAROL)
    assert after_revocation(book) == [(CAROL, "share"), (CAROL, "share.approve"), (CAROL, "refresh")]
    book.revoke(CAROL, "team")
    bob.edit(source, text="deploy with force")
    assert (book.get(copy).text, book.get(copy).freshness) == ("deploy with care", "revoked")
    assert after_revocation(book) == []


@pytest.mark.promise("copies.sharer")
def test_an_approved_copy_follows_no_more_when_its_requester_may_not_read_the_source(book: Book, bob: Book):
    book.grant(CAROL, "team", "admin")
    source = bob.remember("deploy with make").id
    copy = book.acting_as(CAROL).approve(bob.request_share(source, to="team").id).copy
    assert copy is not None
    book.revoke(BOB, "bobs")
    book.edit(source, text="deploy with force")
    assert (book.get(copy).text, book.get(copy).freshness) == ("deploy with make", "revoked")


@pytest.mark.promise("copies.sharer")
def test_what_an_agent_requested_for_a_space_under_review_follows_once_a_person_approved_it(book: Book):
    for space in ("team", "scratch"):
        book.create_space(space)
        book.grant(AGENT, space, "writer")
    book.grant(CAROL, "team", "admin")
    book.set_review("team", "agents")
    agent = book.acting_as(AGENT)
    source = agent.remember("tests take a minute", space="scratch").id
    copy = book.acting_as(CAROL).approve(agent.request_share(source, to="team").id).copy
    assert copy is not None
    assert book.get(copy).freshness == "fresh"
    agent.edit(source, text="tests take two minutes")
    assert (book.get(copy).text, book.get(copy).freshness) == ("tests take two minutes", "fresh")


def test_an_approved_copy_follows_on_after_its_file_was_rendered_again(book: Book, bob: Book):
    book.grant(CAROL, "team", "admin")
    source = bob.remember("deploy with make").id
    copy = book.acting_as(CAROL).approve(bob.request_share(source, to="team").id).copy
    assert copy is not None
    book.rebuild()
    bob.edit(source, text="deploy with care")
    memory = book.get(copy)
    assert (memory.text, memory.freshness) == ("deploy with care", "fresh")
    assert memory.shared is not None
    assert memory.shared.approved_by == CAROL


# --- spaces that two share


@pytest.mark.promise("access.owner")
def test_the_owner_revokes_a_grant_on_a_space_that_two_share(book: Book, bob: Book):
    source = bob.remember("deploy with make").id
    copy = bob.share_with(source, CAROL)
    assert (CAROL, copy.space) in {(grant.principal, grant.space.name) for grant in book.grants()}
    for principal in (bob, book.acting_as(CAROL)):
        for space in (copy.space, "_between/0123456789abcdef"):
            with pytest.raises(NotAllowed):
                principal.revoke(CAROL, space)
    book.revoke(CAROL, copy.space)
    with pytest.raises(NotFound):
        book.acting_as(CAROL).get(copy.id)
    with pytest.raises(NotFound):
        book.revoke(CAROL, copy.space)
    with pytest.raises(NotFound):
        book.revoke(CAROL, "_between/0123456789abcdef")
    book.revoke(BOB, copy.space)
    bob.edit(source, text="deploy with care")
    assert (book.get(copy.id).text, book.get(copy.id).freshness) == ("deploy with make", "revoked")
    assert book.verify_log().findings == ()


@pytest.mark.promise("access.owner")
def test_a_grant_on_a_space_that_two_share_can_be_given_back_to_them_alone(book: Book, bob: Book):
    first, second = (bob.remember(text).id for text in ("deploy with make", "deploy with care"))
    space = bob.share_with(first, CAROL).space
    book.revoke(CAROL, space)
    with pytest.raises(NotAllowed, match=f"{CAROL} has lost the right"):
        bob.share_with(second, CAROL)
    with pytest.raises(BadInput, match="none of the two"):
        book.grant("user:dave", space, "reader")
    with pytest.raises(NotAllowed):
        bob.grant(CAROL, space, "writer")
    book.grant(CAROL, space, "writer")
    copy = bob.share_with(second, CAROL).id
    assert book.acting_as(CAROL).get(copy).text == "deploy with care"
    book.revoke(BOB, space)
    with pytest.raises(NotAllowed, match=f"{BOB} has lost the right"):
        bob.share_with(first, CAROL)
