"""Login: exchanges a login code for an API key over HTTP."""

from __future__ import annotations

import secrets
from typing import Final

from commonbook.client.http import Address, HttpCaller, Patience, problem_of
from commonbook.errors import ServerFailed
from commonbook.model.spaces import NewKey
from commonbook.wire.encoding import Malformed, decode
from commonbook.wire.verbs import VERBS, request_of

_SECONDS: Final = 15.0
_ATTEMPT_SECONDS: Final = 5.0


def exchange(address: Address, code: str) -> NewKey:
    """Exchange a login code for a secret of its key; a lost answer is asked for again, with the same nonce.

    An address where no server is, such as a mistyped one, is an error at once: a person waits for the answer.
    """
    http = HttpCaller(address, key=None)
    try:
        request = request_of(VERBS["exchange_login"], {"code": code, "nonce": secrets.token_urlsafe(24)})
        answer = http.send(request, patience=Patience(_SECONDS, _ATTEMPT_SECONDS, connects_once=True))
    finally:
        http.close()
    if answer.status >= 400:
        raise problem_of(answer)
    try:
        key: NewKey = decode(NewKey, answer.json())
    except Malformed as error:
        raise ServerFailed(f"{answer.address} answered a login with something else", fix="update Commonbook") from error
    return key
