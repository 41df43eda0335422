"""Sign-in by codes that are exchanged once; the database has only keyed hashes of codes, sessions and secrets.

The link of a browser is exchanged for a session, which does what the API key of the link does. A link works for a
minute, a session for twelve hours, and both end with the key. A login code carries an API key to another machine: it is
exchanged, within minutes, for a second secret of its key.
"""

from __future__ import annotations

import base64
import os
from datetime import timedelta
from typing import Final

from commonbook.core.access.authentication import key_hash
from commonbook.core.tables import api_keys
from commonbook.core.tables.api_keys import LINK, SESSION
from commonbook.core.text import validation
from commonbook.core.write.context import HOME_SPACE, ForeignWrite, WriteContext
from commonbook.core.write.transaction import write
from commonbook.errors import BadInput, NotAllowed
from commonbook.ports.database import Reading
from commonbook.ports.engines import Engines
from commonbook.subjects.admin.api_keys import encode_secret, new_secret, require_key, require_may_create
from commonbook.values.request import RequestContext
from commonbook.values.spaces import Actor, ApiKey, BrowserSession, LoginCode, NewKey, SignInCode

_LINK_LIFETIME: Final = timedelta(seconds=60)
_SESSION_LIFETIME: Final = timedelta(hours=12)
_SECRET_BYTES: Final = 32


def create_sign_in(engines: Engines, caller: RequestContext) -> SignInCode:
    """Make a code that signs a browser in by the key of the actor."""
    if caller.actor.key_id is None:
        raise NotAllowed(
            "a browser signs in by an API key, and this book was opened without one",
            fix="open it with a key; `commonbook sign-in` uses the key of the owner",
        )
    key_id, code = caller.actor.key_id, _new_secret()

    def operation(ctx: WriteContext) -> SignInCode:
        key = _require_valid(ctx.tx, key_id)
        expires = ctx.tx.now + _LINK_LIFETIME
        hash_ = _hash(engines, LINK, code)
        api_keys.add_browser_session(ctx.tx, kind=LINK, hash_=hash_, key_id=key.id, expires=expires)
        _log(ctx, "key.sign_in_code", key)
        return SignInCode(code, expires)

    return write(engines, caller, operation)


def exchange(engines: Engines, code: str) -> tuple[str, BrowserSession]:
    """Exchange a sign-in code for the secret of a new session; unknown, used and expired ones get one refusal."""
    refused = NotAllowed(
        "the link opens nothing here", fix="a link works once, within a minute: `commonbook sign-in` makes another one"
    )
    if not validation.is_unicode(code):
        raise refused
    code_hash, secret = _hash(engines, LINK, code.strip()), _new_secret()

    def find(tx: Reading) -> ApiKey:
        link = api_keys.find_browser_session(tx, kind=LINK, hash_=code_hash)
        key = api_keys.find(tx, link[0]) if link else None
        if key is None or not api_keys.is_valid(key, tx):
            raise refused
        return key

    with engines.db.reading() as tx:
        caller = RequestContext(Actor(find(tx).principal))

    def operation(ctx: WriteContext) -> tuple[str, BrowserSession]:
        key = find(ctx.tx)
        if not api_keys.remove_browser_session(ctx.tx, kind=LINK, hash_=code_hash):
            raise refused
        expires, hash_ = ctx.tx.now + _SESSION_LIFETIME, _hash(engines, SESSION, secret)
        api_keys.add_browser_session(ctx.tx, kind=SESSION, hash_=hash_, key_id=key.id, expires=expires)
        _log(ctx, "key.sign_in", key)
        return secret, BrowserSession(key, _csrf_token(engines, secret), expires)

    return write(engines, caller, operation)


def find_session(engines: Engines, secret: str) -> BrowserSession:
    """Return the session of a secret; NotAllowed if it has ended, or its key has."""
    refused = NotAllowed("the browser is not signed in", fix="`commonbook sign-in` prints a link that signs it in")
    if not validation.is_unicode(secret):
        raise refused
    with engines.db.reading() as tx:
        found = api_keys.find_browser_session(tx, kind=SESSION, hash_=_hash(engines, SESSION, secret))
        key = api_keys.find(tx, found[0]) if found else None
        if found is None or key is None or not api_keys.is_valid(key, tx):
            raise refused
    return BrowserSession(key, _csrf_token(engines, secret), found[1])


def end_session(engines: Engines, secret: str) -> None:
    """End the session of a secret."""
    session, hash_ = find_session(engines, secret), _hash(engines, SESSION, secret)

    def operation(ctx: WriteContext) -> None:
        if api_keys.remove_browser_session(ctx.tx, kind=SESSION, hash_=hash_):
            _log(ctx, "key.sign_out", session.key)

    write(engines, RequestContext(Actor(session.key.principal)), operation)


def _new_secret() -> str:
    return base64.urlsafe_b64encode(os.urandom(_SECRET_BYTES)).decode().rstrip("=")


def _hash(engines: Engines, kind: str, secret: str) -> str:
    return engines.keys.keyed_hash("browser", kind, secret)


def _csrf_token(engines: Engines, secret: str) -> str:
    """Return the token that a page of the session has, and that no other site can know."""
    return engines.keys.keyed_hash("csrf token", secret)


def _require_valid(tx: Reading, key_id: str) -> ApiKey:
    key = api_keys.find(tx, key_id)
    if key is None or not api_keys.is_valid(key, tx):
        raise NotAllowed("the key opens nothing here", fix="check it, or ask for a new one: `commonbook key create`")
    return key


def _log(ctx: WriteContext, action: str, key: ApiKey) -> None:
    logging = ctx.because(ForeignWrite.OWN_KEY)
    logging.log(ctx.system_space(HOME_SPACE), action, (), key=key.id, principal=key.principal)


_CODE_LIFETIME: Final = timedelta(minutes=10)
_CODE_BYTES: Final = 15
"""These random bytes are 24 characters; nobody guesses them in ten minutes."""

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
