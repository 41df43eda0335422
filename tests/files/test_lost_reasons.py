"""The reason of a supersession, after the database was lost that knew where the superseded memory was."""

from __future__ import annotations

import pytest

import commonbook
from tests.support.lost_databases import lose_database

EVE = "user:eve"


@pytest.mark.promise("access.reasons")
def test_the_reason_about_a_memory_that_nobody_knows_any_more_is_for_those_who_may_read_all(home, book):
    old = book.remember("we fire Carla", space="vault").id
    new = book.remember("Carla stays", space="team").id
    book.supersede(old, new, reason="she knows too much")
    book.delete(old)
    book.close()
    lose_database(home)
    with commonbook.open(home) as again:
        again.grant(EVE, "team", "reader")
        eve = again.acting_as(EVE)
        assert (eve.get(new).supersede_reasons, eve.list().items[0].supersede_reasons) == ((), ())
        assert [reason.why for reason in again.get(new).supersede_reasons] == ["she knows too much"]
