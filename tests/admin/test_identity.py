"""The identity of a caller: whom it acts for, and the spaces that it reaches."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from commonbook import Identity, SpaceRole
from commonbook.errors import NotAllowed

ALICE = "user:alice"


@pytest.fixture
def team(book):
    for name in ("team/backend", "team/lunch", "secret"):
        book.create_space(name)
    book.grant(ALICE, "team/backend", "admin")
    book.grant(ALICE, "team/lunch", "reader")
    return book


def names(identity: Identity) -> dict[str, str]:
    return {role.space: role.role for role in identity.spaces if "_" not in role.space}


def test_the_owner_administers_every_space(team):
    identity = team.whoami()
    assert identity[:2] == ("user:local", "personal")
    assert names(identity) == dict.fromkeys(("team/backend", "team/lunch", "secret"), "admin")
    assert (identity.key_id, identity.limits, identity.expires) == (None, None, None)


def test_another_principal_sees_the_spaces_that_are_granted_to_it(team):
    identity = team.acting_as(ALICE).whoami()
    assert identity.principal == ALICE
    assert identity.spaces == (SpaceRole("team/backend", "admin"), SpaceRole("team/lunch", "reader"))
    assert [role.space for role in identity.spaces] == [space.name for space in team.acting_as(ALICE).spaces()]


def test_a_key_tells_its_limits_and_its_default_space(team):
    end = datetime.now(UTC) + timedelta(days=1)
    limits = [("team/backend", "writer"), ("secret", "reader")]
    made = team.create_key(ALICE, limits=limits, expires=end, space="team/backend")
    identity = team.with_key(made.secret).whoami()
    writer = (SpaceRole("team/backend", "writer"),)
    assert identity == Identity(ALICE, "team/backend", writer, made.key.id, limits=writer, expires=end)


def test_a_revoked_key_has_no_identity(team):
    made = team.create_key(ALICE)
    view = team.with_key(made.secret)
    team.revoke_key(made.key.id)
    with pytest.raises(NotAllowed, match="revoked"):
        view.whoami()


def test_a_confined_view_tells_the_spaces_that_it_is_confined_to(team):
    view = team.acting_as(ALICE, within=["team/lunch"])
    assert names(view.whoami()) == {"team/lunch": "reader"}
