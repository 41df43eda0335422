"""User spaces: each person who talks with a profile of Hermes has a space, `hermes/<profile>/<user>`.

The mapping is injective: two people never share a name. An id of lower-case letters, digits, `-` and `_` stands as it
is; any other one, such as `Bob` or `a@b`, is followed by `__` and 128 bits of its SHA-256 hash.

| who | part of the name |
| --- | --- |
| the person at this machine | `local` |
| a user of a platform | `telegram.4711`: platform and user |
| a client of the API that names itself by `X-Hermes-Session-Key` | `api_server.<key>` |
| all who talk in one chat with one session | `telegram.<chat>.chat` |
| callers of a platform that do not say who they are | `api_server` |

What Hermes itself keeps for all of a profile, its MEMORY.md and USER.md, is in `hermes/<profile>`.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from commonbook.core.text import masking, space_names

if TYPE_CHECKING:
    from commonbook.service.book import Book

TOP: Final = "hermes"
LOCAL: Final = "local"
DEFAULT_PROFILE: Final = "default"
_LOCAL_PLATFORMS: Final = frozenset({"", "cli", "tui", "acp", "desktop", LOCAL})
_PLAIN: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]|_(?!_)){0,39}(?<!_)")
API_PLATFORM: Final = "api_server"
_MAX_SHOWN: Final = 16


class UserSpaces(NamedTuple):
    """The spaces of a provider: for its conversations, for what Hermes keeps for the profile, and for recall."""

    own: str
    profile: str
    also: tuple[str, ...] = ()
    """Other spaces to recall from."""
    is_local: bool = True
    """Whether the person at this machine talks, who is also given the project's space and `personal`."""

    def recalled(self, book: Book) -> tuple[str, ...]:
        """Return the spaces to recall from."""
        local = (book.default_space, space_names.PERSONAL) if self.is_local else ()
        return tuple(dict.fromkeys((self.own, self.profile, *self.also, *local)))


def user_spaces(session_info: Mapping[str, Any], *, shared: str = "", also: str = "") -> UserSpaces:
    """Return the spaces of a provider by the arguments of `initialize`; with `shared`, one for all people."""
    others = tuple(name.strip() for name in also.split(",") if name.strip())
    user = user_name(session_info)
    if shared:
        return UserSpaces(shared, shared, others, is_local=user == LOCAL)
    profile = profile_space(str(session_info.get("agent_identity") or ""))
    return UserSpaces(f"{profile}/{user}", profile, others, is_local=user == LOCAL)


def profile_space(profile: str) -> str:
    """Return the space of a profile, above those of its users."""
    return f"{TOP}/{part(profile or DEFAULT_PROFILE)}"


def user_name(session_info: Mapping[str, Any]) -> str:
    """Return the last part of the name of a user's space."""
    platform, user, chat, chat_type, key = (
        str(session_info.get(name) or "")
        for name in ("platform", "user_id", "chat_id", "chat_type", "gateway_session_key")
    )
    if chat and chat_type not in {"", "dm"} and key and not _is_of_user(key, user, session_info):
        return _joined(platform, chat, "chat")
    if not user and platform == API_PLATFORM:
        user = key
    if user:
        return _joined(platform or LOCAL, user)
    return LOCAL if is_local(platform) else part(platform)


def is_local(platform: str) -> bool:
    """Return whether a platform is one of the person at this machine."""
    return platform in _LOCAL_PLATFORMS


def _joined(platform: str, whose: str, *kind: str) -> str:
    """Join parts by dots, which no part has in itself; a name that would be too long is hashed as a whole."""
    name = ".".join((part(platform), part(whose), *kind))
    return name if space_names.is_legal(name) else part("\n".join((platform, whose, *kind)))


def _is_of_user(key: str, user: str, session_info: Mapping[str, Any]) -> bool:
    """Return whether a session of a group belongs to one of its members: Hermes puts the member's id last."""
    ids = (user, str(session_info.get("user_id_alt") or ""))
    return any(one and key.endswith(f":{one}") for one in ids)


def part(text: str) -> str:
    """Return a part of a space's name for any text, another one for each text."""
    is_secret = masking.tells_secret(text)
    if _PLAIN.fullmatch(text) and space_names.is_legal(text) and not is_secret:
        return text
    shown = re.sub(r"[^a-z0-9]+", "-", text.lower()[: 4 * _MAX_SHOWN])[:_MAX_SHOWN].strip("-")
    shown = "x" if is_secret or not shown or masking.tells_secret(shown) else shown
    digest = base64.b32encode(sha256(text.encode("utf-8", "surrogatepass")).digest()[:16]).decode().rstrip("=").lower()
    return f"{shown}__{digest}"
