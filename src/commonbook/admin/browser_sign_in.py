"""Sign-in of browsers: a link is exchanged once for a session, which does what the API key of the link does.

A link works for a minute, a session for twelve hours. Both end with the key. Only keyed hashes of them are stored.
"""

from __future__ import annotations

import base64
import os
from datetime import timedelta
from typing import Final

from commonbook.errors import NotAllowed
from commonbook.model.request import RequestContext
from commonbook.model.spaces import Actor, ApiKey, BrowserSession, SignInCode
from commonbook.ports.database import Reading
from commonbook.ports.engines import Engines
from commonbook.tables import api_keys
from commonbook.tables.api_keys import LINK, SESSION
from commonbook.text import validation
from commonbook.write.context import HOME_SPACE, WriteContext
from commonbook.write.foreign_writes import ForeignWrite
from commonbook.write.transaction import write

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
