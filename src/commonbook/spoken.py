"""What can be said in a session: its ids, roles, authors and texts; the same for a book and for its remote clients."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from commonbook.errors import BadInput, BadText, TooLarge
from commonbook.model import MAX_MESSAGE_BYTES

_SESSION: Final = re.compile(r"[^\s\x00-\x1f\x7f-\x9f\ud800-\udfff]{1,200}")
_ROLE: Final = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_AUTHOR: Final = re.compile(r"[^\x00-\x1f\x7f-\x9f\ud800-\udfff]{1,200}")


def session_name(value: object) -> str:
    """Return a session's id, if it can be one."""
    if not isinstance(value, str) or not _SESSION.fullmatch(value):
        raise BadInput(
            "a session's id is empty, too long, or has blanks in it", fix="use 1 to 200 characters without blanks"
        )
    return value


def require_list(messages: object) -> None:
    """Refuse what is one message, or nothing that could be several: a text would become as many as it has letters."""
    one = isinstance(messages, str | bytes | Mapping) or hasattr(messages, "_fields")
    if one or not isinstance(messages, Iterable):
        raise BadInput("the messages are no list", fix="put them into a list, also if there is only one")


def require_sayable(text: object, *, role: object, author: object, client_id: object) -> None:
    """Refuse a message that no session can hold."""
    if not isinstance(text, str) or not isinstance(role, str):
        raise BadText("a message's text or role is not a text", fix="send strings")
    if not isinstance(author, str | None) or not isinstance(client_id, str | None):
        raise BadText("a message's author or client id is not a text", fix="send strings, or nothing")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        size = -1
    if size < 0 or "\0" in text:
        raise BadText(
            "a message has NUL bytes or half characters, which no file can hold", fix="send valid UTF-8 without NUL"
        )
    if size > MAX_MESSAGE_BYTES:
        raise TooLarge("a message is larger than 1 MiB", fix="send it in parts, or store it as a memory")
    if not _ROLE.fullmatch(role):
        raise BadInput(f"{role!r} is not a role", fix="use user, assistant, system, tool or another plain word")
    if author is not None and not _AUTHOR.fullmatch(author):
        raise BadInput("an author has characters that no name has, or too many", fix="give a name on one line")
