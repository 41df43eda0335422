"""Login: exchanges a login code for an API key over HTTP."""

from __future__ import annotations

from typing import Final

from commonbook.client.addresses import Address
from commonbook.client.http import HttpCaller, Patience, problem_of
from commonbook.errors import ServerFailed
from commonbook.model.spaces import NewKey
from commonbook.wire.encoding import Malformed, decode
from commonbook.wire.requests import request_of
from commonbook.wire.verbs import VERBS

_SECONDS: Final = 15.0


def exchange(addresses: tuple[Address, ...], code: str) -> NewKey:
    """Exchange a login code for a secret of its key.

    It is sent once: if the answer is lost, the code is used up, and nobody has the secret.
    """
    http = HttpCaller(addresses, key=None)
    try:
        patience = Patience(_SECONDS, _SECONDS, once=True, repeatable=False)
        answer = http.send(request_of(VERBS["exchange_login"], {"code": code}), patience=patience)
    finally:
        http.close()
    if answer.status >= 400:
        raise problem_of(answer)
    try:
        key: NewKey = decode(NewKey, answer.json())
    except Malformed as error:
        raise ServerFailed(f"{answer.address} answered a login with something else", fix="update Commonbook") from error
    return key
