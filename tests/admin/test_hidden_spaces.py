"""Neither logs nor fields of a memory tell of a space that may not be read."""

from __future__ import annotations

import pytest

from commonbook import Book, Filter

EVE = "user:eve"


def space_id(book: Book, name: str) -> str:
    return next(space.id for space in book.spaces() if space.name == name)


@pytest.mark.promise("access.log")
def test_the_log_does_not_tell_where_a_memory_was_moved(book: Book):
    book.create_space("vault")
    ground = book.remember("oil costs five", space="team").id
    thought = book.reflect("oil is cheap", [ground], space="team").id
    book.supersede(ground, by=book.remember("oil costs nine", space="team").id)
    book.grant(EVE, "team", "reader")
    book.move(thought, "vault")
    logs = [*book.acting_as(EVE).log(space="team"), *book.acting_as(EVE).log(space="team/_invalidations")]
    assert [entry.action for entry in logs].count("move.out") == 2
    for name in ("vault", "vault/_invalidations"):
        assert space_id(book, name) not in repr(logs)
    assert book.verify_log().ok


@pytest.mark.promise("access.log")
def test_the_log_does_not_tell_from_where_a_rule_shares(book: Book):
    book.create_space("vault")
    book.create_space("team")
    book.grant(EVE, "team", "reader")
    book.add_rule("team", "vault")
    log = book.acting_as(EVE).log(space="team")
    assert "rule.add" in [entry.action for entry in log]
    assert space_id(book, "vault") not in repr(log)


@pytest.mark.promise("access.reasons")
def test_the_reason_of_a_supersession_is_for_those_who_may_read_both(book: Book):
    old = book.remember("we fire Carla", space="vault").id
    new = book.remember("Carla stays", space="team").id
    book.supersede(old, new, reason="she knows too much")
    book.grant(EVE, "team", "writer")
    eve = book.acting_as(EVE)
    for shown in (eve.get(new), eve.list(Filter(space="team")).items[0]):
        assert shown.id == new
        assert shown.supersede_reasons == ()
    assert [reason.why for reason in book.get(new).supersede_reasons] == ["she knows too much"]
    eve.edit(new, tags=["x"])
    assert [reason.why for reason in book.get(new).supersede_reasons] == ["she knows too much"]
    book.grant(EVE, "vault", "reader")
    assert [reason.why for reason in eve.get(new).supersede_reasons] == ["she knows too much"]
