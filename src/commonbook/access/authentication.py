"""API keys: names of principals, and the actor that a key's secret proves."""

from __future__ import annotations

import re
from typing import Final

from commonbook.errors import BadInput, NotAllowed
from commonbook.model.spaces import Actor
from commonbook.ports.engines import Engines
from commonbook.tables import api_keys
from commonbook.text import validation

KEY_PREFIX: Final = "cbk_"
"""How every secret begins, so that masking and scanners know one when they see it."""

_PRINCIPAL: Final = re.compile(r"(?:user|agent):[a-z0-9][a-z0-9._@-]{0,99}")


def principal_name(name: str) -> str:
    """Return the name of a principal, or refuse it."""
    if not _PRINCIPAL.fullmatch(name):
        raise BadInput(
            f"{name!r} is not a principal",
            fix="write user:NAME or agent:NAME, the name of a-z, 0-9, '.', '_', '@' and '-'",
        )
    return name


def with_key(engines: Engines, secret: str) -> Actor:
    """Return who comes with this secret; one answer for all that open nothing."""
    refused = NotAllowed("the key opens nothing here", fix="check it, or ask for a new one: `commonbook key create`")
    if not secret.startswith(KEY_PREFIX) or not validation.is_unicode(secret):
        raise refused
    with engines.db.reading() as tx:
        key = api_keys.find_by_hash(tx, key_hash(engines, secret))
        if key is None or not api_keys.is_valid(key, tx):
            raise refused
    return Actor(key.principal, key.id)


def key_hash(engines: Engines, secret: str) -> str:
    """Return the keyed hash under which a key's secret is stored."""
    return engines.keys.keyed_hash("api key", secret)
