"""Memories of one root that say the same are one hit, which names the other searched spaces that have it."""

from __future__ import annotations

import pytest

from commonbook.values.memory import Draft
from commonbook.values.session import NewMessage
from tests.interfaces.cli.test_cli import cli
from tests.support.running_threads import wait_for_threads

__all__ = ["cli"]

ALICE = "user:alice"
COPIES = [f"team/{number:02}" for number in range(12)]
OTHERS = ["brass", "copper", "silver", "golden", "wooden", "broken", "ancient", "polished", "borrowed"]


def share_twelve_times(book, memory, **options):
    return [book.share(memory, space, **options).id for space in COPIES]


def add_others(book, space="team/00"):
    return [book.remember(f"the {word} telescope is in the {word} box", space=space).id for word in OTHERS]


def places(hit):
    return [(place.space, place.id) for place in hit.also_in]


@pytest.mark.promise("recall.copies")
@pytest.mark.parametrize("query", ["telescope", ""])
@pytest.mark.parametrize("indexed", [False, True])
def test_twelve_copies_take_one_place_of_ten(book, query, indexed):
    others = add_others(book)
    root = book.remember("the telescope of the keeper", space="team").id
    copies = share_twelve_times(book, root)
    if indexed:
        book.reindex()
    hits = book.recall(query, spaces=["team/"], k=10).hits
    assert len(hits) == 10
    (hit,) = [hit for hit in hits if hit.id not in others]
    family = dict(zip([root, *copies], ["team", *COPIES], strict=True))
    assert {hit.space: hit.id, **dict(places(hit))} == {space: id_ for id_, space in family.items()}
    assert places(hit) == sorted(places(hit))
    assert book.recall(query, spaces=["team/"], k=10).hits == hits


@pytest.mark.promise("recall.copies")
def test_a_root_beside_its_copy_is_not_in_another_space(book):
    root = book.remember("the telescope of the keeper", space="attic").id
    copy = book.share(root, "team").id
    far = book.share(root, "far").id
    book.move(root, "team")
    (hit,) = book.recall("telescope", spaces=["/"]).hits
    assert places(hit) == [("far", far)]
    assert hit.id in (root, copy)


@pytest.mark.parametrize("indexed", [False, True])
def test_more_copies_than_candidates_leave_room_for_all_others(book, indexed):
    others = add_others(book)
    root = book.remember("the telescope, the telescope", space="team").id
    for number in range(70):
        book.share(root, f"many/{number}")
    if indexed:
        book.reindex()
    for query in ("telescope", "the telescope of whom", ""):
        hits = book.recall(query, spaces=["/"], k=10, min_confidence=0.0).hits
        assert {hit.memory for hit in hits} > set(others)
        assert len(hits) == 10


def test_the_root_is_the_hit_among_equals_and_a_copy_where_the_root_is_not_searched(book):
    root = book.remember("the telescope of the keeper", space="secret").id
    copies = share_twelve_times(book, root)
    for _ in range(2):
        (hit,) = book.recall("telescope", spaces=["/"]).hits
        assert hit.id == root
        (hit,) = book.recall("telescope", spaces=["team/"]).hits
        assert hit.id in copies
        assert (hit.space, hit.id) not in places(hit)
        assert len(hit.also_in) == len(copies) - 1
        (hit,) = book.recall("telescope", spaces=["team/03"]).hits
        assert (hit.id, hit.also_in) == (copies[3], ())
        book.reindex()


def test_only_places_are_named_that_the_caller_may_read(book):
    root = book.remember("the telescope of the keeper", space="secret").id
    copies = share_twelve_times(book, root)
    book.grant(ALICE, "team/01", "reader")
    book.grant(ALICE, "team/02", "reader")
    (hit,) = book.acting_as(ALICE).recall("telescope", spaces=["/"]).hits
    assert {(hit.space, hit.id), *places(hit)} == {("team/01", copies[1]), ("team/02", copies[2])}


@pytest.mark.promise("recall.copies")
def test_a_copy_that_says_something_else_is_a_hit_of_its_own(book):
    root = book.remember("the telescope of the keeper", space="team").id
    copies = share_twelve_times(book, root)
    book.edit(copies[0], text="the telescope of the mayor")
    book.detach(copies[1])
    hits = book.recall("telescope", spaces=["/"]).hits
    assert {hit.id for hit in hits} == {root, copies[0], copies[1]}
    by_id = {hit.id: hit for hit in hits}
    assert {place.id for place in by_id[root].also_in} == set(copies[2:])
    assert by_id[copies[0]].also_in == by_id[copies[1]].also_in == ()
    assert by_id[copies[0]].freshness == "diverged"


@pytest.mark.promise("recall.copies")
@pytest.mark.parametrize("query", ["who owns the billing service", "billing", ""])
@pytest.mark.parametrize("indexed", [False, True])
def test_an_older_version_never_stands_for_the_present_one(book, query, indexed):
    root = book.remember("Alice owns the billing service", space="vault").id
    copies = share_twelve_times(book, root, refresh="snapshot")
    book.edit(root, text="Since March, billing belongs to Carla, after the reorganisation of the payments department")
    if indexed:
        book.reindex()
    hits = {hit.freshness: hit for hit in book.recall(query, spaces=["/"]).hits}
    assert hits.keys() == {None, "stale"}
    assert (hits[None].id, hits[None].also_in) == (root, ())
    old = hits["stale"]
    assert sorted([(old.space, old.id), *places(old)]) == sorted(zip(COPIES, copies, strict=True))


@pytest.mark.promise("recall.copies")
def test_a_revoked_copy_never_stands_for_the_present_words(book):
    root = book.remember("Alice owns the billing service", space="vault").id
    book.grant(ALICE, "vault", "reader")
    book.grant(ALICE, "team", "writer")
    copy = book.acting_as(ALICE).share(root, "team").id
    book.revoke(ALICE, "vault")
    book.edit(root, text="Since March, billing belongs to Carla, after the reorganisation of the payments department")
    hits = book.recall("who owns the billing service", spaces=["/"]).hits
    assert {(hit.id, hit.freshness, hit.also_in) for hit in hits} == {(root, None, ()), (copy, "revoked", ())}


@pytest.mark.promise("recall.copies")
def test_a_hit_names_each_space_that_says_the_same_once(book):
    root = book.remember("the telescope of the keeper", space="vault").id
    copies = share_twelve_times(book, root, refresh="snapshot")
    book.edit(root, text="the telescope of the mayor")
    book.refresh(copies[0])
    for memory in copies[1:5]:
        book.edit(memory, text="the telescope of the sailor")
    hits = book.recall("telescope", spaces=["/"]).hits
    groups = [sorted([(hit.space, hit.id), *places(hit)]) for hit in hits]
    family = list(zip(COPIES, copies, strict=True))
    assert sorted(groups) == sorted([[family[0], ("vault", root)], family[1:5], family[5:]])


@pytest.mark.promise("recall.k")
@pytest.mark.parametrize("indexed", [False, True])
def test_fewer_hits_are_the_first_of_more(book, indexed):
    """Penalties of stale and suspect memories do not let better ones fall out, however few are asked for."""
    ground = book.remember("the tide comes twice a day", space="vault").id
    for number in range(6):
        text = f"fact {number} about otters and rivers"
        root = book.remember(text, space="vault").id
        book.share(root, "team", refresh="snapshot")
        book.edit(root, text=f"{text} corrected")
        book.reflect(f"thought {number} about otters and rivers", on=[ground], space="vault")
    book.edit(ground, text="the tide comes once a day")
    if indexed:
        book.reindex()

    def recall(k):
        return book.recall("otters and rivers", spaces=["/"], k=k).hits

    most = recall(50)
    # The ground is a weak hit too.
    assert len(most) == 19
    assert [hit.score for hit in most] == sorted((hit.score for hit in most), reverse=True)
    assert [recall(k) for k in range(1, 19)] == [most[:k] for k in range(1, 19)]


@pytest.mark.promise("recall.k")
@pytest.mark.parametrize("indexed", [False, True])
def test_a_hit_that_takes_the_place_of_a_suspect_memory_is_as_complete_as_any(book, indexed):
    """Beyond the first k, only the marks that count for the score are read before a hit is chosen."""
    ground, other = (book.remember(text, space="vault").id for text in ("the tide is high", "the tide is low"))
    for number in range(8):
        book.reflect(f"otters and rivers, thought {number}", on=[ground], space="vault")
    book.remember("one source of otters and rivers", title="source", space="team")
    messages = ["what lives here?", "otters and rivers, said the keeper", "thank you"]
    book.append("s1", [NewMessage(text, author="guest") for text in messages], space="team")
    superseded = book.remember("otters and rivers, as it was thought once", space="team").id
    book.remember("as it is thought now", space="team", replaces=superseded)
    book.supersede(ground, other)
    if indexed:
        book.reindex()

    def recall(k):
        return book.recall("otters and rivers", spaces=["/"], include=["superseded"], k=k).hits

    most = recall(50)
    assert [recall(k) for k in range(1, len(most) + 1)] == [most[:k] for k in range(1, len(most) + 1)]
    (message,) = [hit for hit in most[:3] if hit.type == "message"]
    assert (message.before, message.after) == ("guest: what lives here?", "guest: thank you")
    assert [hit.marks for hit in most[:3] if hit.memory == superseded] == [("superseded",)]
    assert sum(hit.suspect for hit in most) == 8


def test_the_copies_of_an_episode_are_no_hits_beside_its_messages(book):
    book.append("talk", [NewMessage("where is the brass telescope"), NewMessage("the keeper hid it below the stair")])
    (episode,) = book.settle("talk").episodes
    copies = share_twelve_times(book, episode)
    for query in ("telescope", "who hid it below the stair"):
        hits = book.recall(query, spaces=["/"], k=20).hits
        assert len({hit.memory for hit in hits}) == 1
        assert {hits[0].memory, *(place.id for place in hits[0].also_in)} == {episode, *copies}
    (hit,) = book.recall("telescope", spaces=["team/"]).hits
    assert hit.type == "memory"


def test_a_deleted_or_expired_copy_is_not_named(book):
    root = book.remember("the telescope of the keeper", space="team").id
    copies = share_twelve_times(book, root)
    book.delete(copies[0])
    book.edit(copies[1], expires="2020-01-01")
    (hit,) = book.recall("telescope", spaces=["/"]).hits
    assert {place.id for place in hit.also_in} == set(copies[2:])


def test_a_long_memory_and_its_copies_are_one_hit(book):
    text = "\n\n".join(f"Paragraph {number} on the telescope. " + "It has many words. " * 40 for number in range(9))
    root = book.remember(text, space="team").id
    share_twelve_times(book, root)
    others = add_others(book)
    hits = book.recall("telescope", spaces=["/"], k=10).hits
    assert sorted(hit.id for hit in hits) == sorted([root, *others])
    budget = book.recall("telescope", spaces=["/"], k=10, budget_tokens=200).hits
    assert len(budget) > 1


def test_without_copies_a_hit_names_no_other_place(book):
    book.remember_many([Draft(f"the telescope {number}", space="team") for number in range(3)])
    assert {hit.also_in for hit in book.recall("telescope", spaces=["/"]).hits} == {()}


def test_a_prefetched_hit_is_not_handed_out_when_a_named_place_is_no_longer_readable(book):
    root = book.remember("the telescope of the keeper", space="team").id
    book.share(root, "open")
    book.grant(ALICE, "team", "writer")
    book.grant(ALICE, "open", "reader")
    alice = book.acting_as(ALICE)
    alice.append("s", ["hello"], space="team")
    assert alice.prefetch("s", "telescope", spaces=["team", "open"])
    fetched = alice.prefetched("s", "telescope", wait=30)
    assert fetched is not None
    assert [len(hit.also_in) for hit in fetched.hits] == [1]
    assert alice.prefetch("s", "telescope", spaces=["team", "open"])
    wait_for_threads()
    book.revoke(ALICE, "open")
    assert alice.prefetched("s", "telescope", wait=30) is None


def test_the_command_line_names_the_other_places(cli):
    root = cli("remember", "the telescope of the keeper", "--space", "team", "--json").json["id"]
    (shared,) = cli("share", root, "--to", "open", "--json").json
    copy = shared["id"]
    (hit,) = cli("recall", "telescope", "--space", "/", "--json").json["hits"]
    assert hit["id"] == root
    assert hit["also_in"] == [{"space": "open", "id": copy}]
    assert f"also in open {copy}" in cli("recall", "telescope", "--space", "/").out
