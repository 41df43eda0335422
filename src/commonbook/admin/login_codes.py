"""Login codes: a code carries an API key to another machine.

It is exchanged once, within minutes, for a second secret of its key. The database has keyed hashes of both.
"""

from __future__ import annotations

import base64
import os
from datetime import timedelta
from typing import Final

from commonbook.access.authentication import key_hash
from commonbook.admin.api_keys import encode_secret, new_secret, require_key, require_may_create
from commonbook.errors import BadInput, NotAllowed
from commonbook.model.request import RequestContext
from commonbook.model.spaces import Actor, LoginCode, NewKey
from commonbook.ports.engines import Engines
from commonbook.tables import api_keys
from commonbook.text import validation
from commonbook.write.context import HOME_SPACE, WriteContext
from commonbook.write.foreign_writes import ForeignWrite
from commonbook.write.transaction import write

_CODE_LIFETIME: Final = timedelta(minutes=10)
_CODE_BYTES: Final = 15
"""So many random bytes are 24 characters; nobody guesses them in ten minutes."""

_MIN_NONCE_CHARS: Final = 16
_MAX_NONCE_CHARS: Final = 200


def create_login(engines: Engines, caller: RequestContext, key_id: str) -> LoginCode:
    """Make a login code of a key, in place of an earlier one; those may who may create the key."""
    digits = base64.b32encode(os.urandom(_CODE_BYTES)).decode()
    code = "-".join(digits[start : start + 6] for start in range(0, len(digits), 6))

    def operation(ctx: WriteContext) -> LoginCode:
        key = require_key(ctx.tx, caller.actor, key_id)
        require_may_create(caller.actor, key.principal)
        if not api_keys.is_valid(key, ctx.tx):
            raise BadInput(f"the key {key_id} was revoked or has expired", fix="create a new one")
        expires = ctx.tx.now + _CODE_LIFETIME
        api_keys.set_login_code(ctx.tx, key.id, _code_hash(engines, code), until=expires)
        logging = ctx.because(ForeignWrite.OWN_KEY)
        logging.log(ctx.system_space(HOME_SPACE), "key.login_code", (), key=key.id, principal=key.principal)
        return LoginCode(key, code, expires)

    return write(engines, caller, operation)


def exchange_login(engines: Engines, code: str, *, nonce: str | None = None) -> NewKey:
    """Exchange a login code for a secret of its key; unknown, used and expired codes get one and the same refusal.

    The secret replaces the one of an earlier login with this key. The one that the key was created with stays. It is
    derived from the code and the nonce: who repeats the exchange with the same nonce gets the same secret.
    """
    refused = NotAllowed(
        "the code opens nothing here",
        fix="a code works once, within ten minutes: ask for a new `commonbook key create`",
    )
    if not validation.is_unicode(code):
        raise refused
    nonce = _require_nonce(nonce) if nonce is not None else new_secret()
    code = code.strip().upper()
    hash_, nonce_hash = _code_hash(engines, code), engines.keys.keyed_hash("login nonce", nonce)
    secret = encode_secret(bytes.fromhex(engines.keys.keyed_hash("login secret", code, nonce)))
    with engines.db.reading() as tx:
        known = api_keys.find_by_login_code(tx, hash_, nonce_hash)
        if known is None or not api_keys.is_valid(known[0], tx):
            raise refused

    def operation(ctx: WriteContext) -> NewKey:
        found = api_keys.find_by_login_code(ctx.tx, hash_, nonce_hash)
        if found is None or not api_keys.is_valid(found[0], ctx.tx):
            raise refused
        key, is_repeated = found
        if is_repeated:
            return NewKey(key, secret)
        if not api_keys.use_login_code(ctx.tx, key.id, hash_, nonce_hash, key_hash(engines, secret)):
            raise refused
        logging = ctx.because(ForeignWrite.OWN_KEY)
        logging.log(ctx.system_space(HOME_SPACE), "key.login", (), key=key.id, principal=key.principal)
        return NewKey(key, secret)

    key, is_repeated = known
    return NewKey(key, secret) if is_repeated else write(engines, RequestContext(Actor(key.principal)), operation)


def _require_nonce(nonce: str) -> str:
    """Return a nonce that nobody guesses, and that can be hashed."""
    if not _MIN_NONCE_CHARS <= len(nonce) <= _MAX_NONCE_CHARS or not validation.is_unicode(nonce):
        raise BadInput(
            f"a nonce has {_MIN_NONCE_CHARS} to {_MAX_NONCE_CHARS} characters", fix="make a random one for each login"
        )
    return nonce


def _code_hash(engines: Engines, code: str) -> str:
    return engines.keys.keyed_hash("login code", code)
