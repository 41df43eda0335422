"""Events of agents in one form: which of them there are, and where each agent has its fields.

Fields are read in both spellings, `session_id` and `sessionId`: VS Code runs the hooks of Claude Code. No field is used
as a path or in a command.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final, Literal, NamedTuple, TypeAlias

Kind: TypeAlias = Literal["start", "prompt", "answer", "tool", "compact", "end"]

CLIENTS_WITH_HOOKS: Final = ("claude-code", "codex", "gemini")

MAX_EVENT_BYTES: Final = 4 << 20

_KINDS: Final[Mapping[str, Kind]] = {
    "sessionstart": "start",
    "userpromptsubmit": "prompt",
    "beforeagent": "prompt",
    "stop": "answer",
    "afteragent": "answer",
    # Agents send the output of tools only if `install` was told so.
    "posttooluse": "tool",
    "aftertool": "tool",
    "precompact": "compact",
    "precompress": "compact",
    "sessionend": "end",
}
"""The kinds of events by their names."""

_TEXTS: Final[Mapping[str, tuple[str, ...]]] = {
    "prompt": ("prompt",),
    "answer": ("last_assistant_message", "prompt_response"),
}
_TURNS: Final = ("prompt_id", "turn_id", "timestamp")
"""The fields that tell one turn of a session from another."""

_TOOL_CALLS: Final = ("tool_use_id", *_TURNS)
"""The fields that tell one call of a tool from another."""

_ONLY_MANUAL: Final = "precompress"
"""Gemini fires it before every request to the model, and only the one that a person asked for does compact."""

_WITH_MESSAGE: Final = ("prompt", "answer", "tool")
_OWN_TOOLS: Final = "commonbook"
_MAX_TOOL_CHARS: Final = 8000

_WRAPPED: Final = re.compile(r"\A(?:\s*<hook_context>.*?</hook_context>)+\s*", re.DOTALL)
"""Gemini puts the context of a session's start before each of its prompts."""

_NO_TEXT: Final = re.compile("[\0\ud800-\udfff]")
"""NUL and half characters, which no file can hold."""

_MAX_SESSION_CHARS: Final = 150
_MAX_TURN_CHARS: Final = 80


class Event(NamedTuple):
    """An event of an agent; `text` is a prompt, an answer, or the call of a tool with its output."""

    kind: Kind
    name: str
    """The name as the agent gave it, which the answer repeats."""
    session: str
    turn: str = ""
    text: str = ""
    source: str = ""
    """Of a start: startup, resume, fork, clear or compact."""

    @property
    def client_id(self) -> str:
        """The id of the message of this event: the same for the same event, however often it comes."""
        return f"{self.turn}:{self.kind}:{_hash(self.text)[:16]}"

    @property
    def has_message(self) -> bool:
        """Whether there is something to store."""
        return self.kind in _WITH_MESSAGE and bool(self.text.strip())


def parse_event(data: bytes) -> Event | None:
    """Return the event in the input of a hook; None if it is none that is known."""
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    name, session = _text(fields, "hook_event_name"), _text(fields, "session_id")
    plain_name = name.replace("_", "").lower()
    kind = _KINDS.get(plain_name)
    if kind is None or not session or (plain_name == _ONLY_MANUAL and _text(fields, "trigger") != "manual"):
        return None
    keys = _TOOL_CALLS if kind == "tool" else _TURNS
    turn = next((found for key in keys if (found := _text(fields, key))), "")
    text = _NO_TEXT.sub("\ufffd", _WRAPPED.sub("", _message_text(kind, fields)))
    return Event(kind, name, _session_name(session), _turn_name(turn), text, _text(fields, "source"))


def _message_text(kind: Kind, fields: Mapping[str, Any]) -> str:
    if kind == "tool":
        return _tool_text(fields)
    return next((found for key in _TEXTS.get(kind, ()) if (found := _text(fields, key))), "")


def _tool_text(fields: Mapping[str, Any]) -> str:
    """Return the call of a tool and the beginning of its output; "" for tools of the book, which repeat what it has."""
    name = _text(fields, "tool_name")
    if not name or _OWN_TOOLS in name:
        return ""
    output = _field(fields, "tool_response")
    text = output if isinstance(output, str) else _json_text(output)
    call = f"{name} {_json_text(_field(fields, 'tool_input'))}\n{text}"
    return call if len(call) <= _MAX_TOOL_CHARS else f"{call[:_MAX_TOOL_CHARS]} […]"


def _json_text(value: object) -> str:
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = _field(fields, name)
    return value if isinstance(value, str) else ""


def _field(fields: Mapping[str, Any], name: str) -> object:
    camel = re.sub("_([a-z])", lambda match: match[1].upper(), name)
    value = fields.get(name)
    return fields.get(camel) if value is None else value


def _session_name(session: str) -> str:
    """Return the id of a session as its name in the book; one that cannot be a name is replaced by its hash."""
    if re.fullmatch(r"[A-Za-z0-9._:-]+", session) and len(session) <= _MAX_SESSION_CHARS:
        return session
    return _hash(session)[:32]


def _turn_name(turn: str) -> str:
    """Return the id of a turn; one that cannot be in a client id is replaced by its hash."""
    return turn if turn.isprintable() and len(turn) <= _MAX_TURN_CHARS else _hash(turn)[:32]


def _hash(text: str) -> str:
    return sha256(text.encode("utf-8", "replace")).hexdigest()
