"""Reads messages in the shapes of OpenAI's and Anthropic's interfaces: a role, and a text or a list of parts.

Texts are kept as they are. Any other part, such as an image or a call of a tool, becomes a short marker in brackets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from commonbook.core.text import validation
from commonbook.errors import BadInput, BadText
from commonbook.values.session import NewMessage

OWN_FIELDS: Final = ("text", "role", "author", "time", "client_id", "masked")
"""The fields of a message of our own shape, which has a `text`."""

_MAX_NAME_CHARS: Final = 80
_PART_TYPE: Final = re.compile(r"[a-z][a-z0-9_.-]{0,39}")
_TEXT_PARTS: Final = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
"""The parts that are a text, and the field that holds it."""

_MARKERS: Final = {
    "image": "image",
    "image_url": "image",
    "input_image": "image",
    "input_audio": "audio",
    "audio": "audio",
    "file": "file",
    "input_file": "file",
    "document": "file",
    "tool_use": "tool call",
    "server_tool_use": "tool call",
    "function_call": "tool call",
    "function": "tool call",
    "custom": "tool call",
    "redacted_thinking": "thinking",
    "reasoning": "thinking",
}
"""The words that stand for parts which are no text; a part of any other type is named by its type."""

_RESULTS: Final = {"tool_result": "content", "function_call_output": "output"}
"""The parts that hold the result of a tool, and the field with its text or its own parts."""


def parse_message(value: object) -> NewMessage:
    """Return a message that a caller gave as a mapping, or as an object of a client library.

    Raises BadInput for a shape that is not known.
    """
    fields = _fields_of(value, "a message")
    if "text" in fields:
        return _own_shape(fields)
    if fields.get("type") in ("function_call", *_RESULTS):
        is_call = fields["type"] == "function_call"
        return NewMessage("\n".join(_part(fields)), role="assistant" if is_call else "tool")
    role = fields.get("role")
    if not isinstance(role, str):
        raise BadInput("a message has no role", fix='send {"role": "user", "content": "…"}, or {"text": "…"}')
    texts = [*_content(fields.get("content")), *_extra_parts(fields)]
    if not texts and fields.get("content") in (None, []):
        raise BadInput("there is no text and no content", fix="send a text, or a list of parts, as its content")
    return NewMessage(
        "\n".join(texts),
        role="tool" if _has_only_results(fields.get("content")) else role,
        author=_author(fields, role),
        time=fields.get("time"),
        client_id=fields.get("client_id"),
    )


def _fields_of(value: object, what: str) -> Mapping[str, Any]:
    """Return the fields of a mapping, or of an object with the method `model_dump`, as client libraries have."""
    dump = getattr(value, "model_dump", None)
    fields = dump() if callable(dump) else value
    if not isinstance(fields, Mapping) or not all(isinstance(name, str) for name in fields):
        raise BadText(
            f"{what} has the type {type(value).__name__}", fix="send texts, NewMessage, or mappings with a role"
        )
    return fields


def _own_shape(fields: Mapping[str, Any]) -> NewMessage:
    if unknown := [name for name in fields if name not in OWN_FIELDS]:
        raise BadInput(f"{unknown[0]!r} is not a field of a message", fix=f"the fields are {', '.join(OWN_FIELDS)}")
    return NewMessage(**{name: value for name, value in fields.items() if value is not None or name == "text"})


def _author(fields: Mapping[str, Any], role: str) -> Any:  # noqa: ANN401 - validated with the other fields
    """Return the author: as given, or the name of a participant, in the form of a principal."""
    name = fields.get("name")
    if fields.get("author") is not None or not isinstance(name, str) or role not in ("user", "assistant"):
        return fields.get("author")
    return f"{'user' if role == 'user' else 'agent'}:{name}"


def _content(content: object, *, in_result: bool = False) -> Iterator[str]:
    """Yield the texts and markers of a content: a text, a list of parts, or nothing.

    The parts of a result have no results in them, so that no depth of parts can exceed the stack.
    """
    if content is None:
        return
    if isinstance(content, str):
        yield content
        return
    if not isinstance(content, list | tuple):
        raise BadInput("the content is neither a text nor a list of parts", fix="send a string, or a list of parts")
    for part in content:
        if isinstance(part, str):
            yield part
        else:
            yield from _part(_fields_of(part, "a part of a message"), in_result=in_result)


def _part(part: Mapping[str, Any], *, in_result: bool = False) -> Iterator[str]:
    type_ = part.get("type")
    if not isinstance(type_, str) or not _PART_TYPE.fullmatch(type_):
        raise BadInput("a part of a message has no type", fix='send {"type": "text", "text": "…"}')
    if type_ in _TEXT_PARTS:
        text = part.get(_TEXT_PARTS[type_])
        if not isinstance(text, str):
            raise BadInput(f"a part of the type {type_!r} has no text", fix='send {"type": "text", "text": "…"}')
        yield text
    elif type_ in _RESULTS:
        yield "[tool result]"
        if not in_result:
            yield from _content(part.get(_RESULTS[type_]), in_result=True)
    else:
        yield _marker(_MARKERS.get(type_, type_.replace("_", " ")), _name(part))


def _extra_parts(fields: Mapping[str, Any]) -> Iterator[str]:
    """Yield what OpenAI has beside the content: a refusal, and calls of tools."""
    if isinstance(fields.get("refusal"), str):
        yield fields["refusal"]
    calls = fields.get("tool_calls") or ()
    if not isinstance(calls, list | tuple):
        raise BadInput("the tool calls are no list", fix="send them as a list")
    for call in (*calls, *filter(None, (fields.get("function_call"),))):
        yield _marker("tool call", _name(_fields_of(call, "a tool call")))


def _name(part: Mapping[str, Any]) -> str:
    """Return the name of a tool or a file, if the part has one."""
    nested = [part[name] for name in ("function", "custom", "file") if isinstance(part.get(name), Mapping)]
    for fields in (part, *nested):
        for key in ("name", "filename", "title"):
            if isinstance(fields.get(key), str):
                return str(fields[key])
    return ""


def _marker(word: str, name: str) -> str:
    line = " ".join(name.split())[:_MAX_NAME_CHARS]
    return f"[{word}: {line}]" if line and validation.is_plain_line(line) else f"[{word}]"


def _has_only_results(content: object) -> bool:
    """Return whether a content consists of the results of tools: nobody said it, even if its role says so."""
    if not isinstance(content, list | tuple) or not content:
        return False
    return all(
        not isinstance(part, str) and _fields_of(part, "a part of a message").get("type") in _RESULTS
        for part in content
    )
