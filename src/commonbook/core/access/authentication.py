"""Authentication by API key: validates names of principals, and finds the actor that a secret belongs to."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from commonbook.core.tables import api_keys
from commonbook.core.text import validation
from commonbook.errors import BadInput, NotAllowed
from commonbook.values.spaces import Actor

if TYPE_CHECKING:
    from commonbook.ports.engines import Engines

KEY_PREFIX: Final = "cbk_"
"""The prefix of every secret, by which masking and secret scanners recognise one."""

_PRINCIPAL: Final = re.compile(r"(?:user|agent):[a-z0-9][a-z0-9._@-]{0,99}")


def principal_name(name: str) -> str:
    """Return the name if it is a valid name of a principal, else raise BadInput."""
    if not _PRINCIPAL.fullmatch(name):
        raise BadInput(
            f"{name!r} is not a principal",
            fix="write user:NAME or agent:NAME, the name of a-z, 0-9, '.', '_', '@' and '-'",
        )
    return name


def actor_of_key(engines: Engines, secret: str) -> Actor:
    """Return the actor of this secret; unknown, expired and revoked keys get one and the same refusal."""
    refused = NotAllowed("the key opens nothing here", fix="check it, or ask for a new one: `commonbook key create`")
    if not secret.startswith(KEY_PREFIX) or not validation.is_unicode(secret):
        raise refused
    with engines.db.reading() as tx:
        key = api_keys.find_by_hash(tx, key_hash(engines, secret))
        if key is None or not api_keys.is_valid(key, tx):
            raise refused
    return Actor(key.principal, key.id, has_limits=key.limits is not None)


def key_hash(engines: Engines, secret: str) -> str:
    """Return the keyed hash under which the secret of a key is stored."""
    return engines.keys.keyed_hash("api key", secret)
