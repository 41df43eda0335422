"""The text of an episode: messages one after the other, as people read them and as they come back whole.

docs/TRANSCRIPTS.md describes the format. Rendering and then parsing gives the same messages, whatever they say; a
person may edit the text under a heading, or take a message out with its heading.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final, NamedTuple

from commonbook.model.ids import format_time, parse_time

_HEADING: Final = re.compile(
    r"### (?:(?P<author>[^\r\n]*) )?\((?P<role>[^\s()]+)\) \u00b7 (?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z)"
    r" \u00b7 (?P<seq>\d{1,15}) \u00b7 (?P<id>\S+)[ \t]*(?P<cr>\r?)"
)
_ENCODED: Final = re.compile(r"%[0-9A-F]{2,6};")
# What would break the line, be trimmed by an editor, or look like an encoded character.
_TO_ENCODE: Final = re.compile(r"%(?=[0-9A-F]{2,6};)|[\x00-\x1f\x7f-\x9f\u2028\u2029]|^\s|\s$")


class TranscriptMessage(NamedTuple):
    """A message as a transcript tells it."""

    id: str
    seq: int
    author: str
    role: str
    time: datetime
    text: str


class Transcript(NamedTuple):
    """What a person wrote above the first message, and the messages in the order in which they stand."""

    introduction: str
    messages: tuple[TranscriptMessage, ...]


class Block(NamedTuple):
    """A message where it stands in a text, or what is above the first one: from `start` to `end`, headings left out."""

    message: TranscriptMessage | None
    start: int
    end: int
    text: str


def render(messages: Iterable[TranscriptMessage], *, introduction: str = "") -> str:
    """Write a transcript."""
    written = [f"{_heading(message)}\n\n{_shielded(message.text)}".rstrip("\n") for message in messages]
    return "\n\n".join([_shielded(introduction), *written] if introduction else written)


def parse(text: str) -> Transcript:
    """Read a transcript; whatever is no heading belongs to the message above it."""
    above: list[str] = []
    messages: list[TranscriptMessage] = []
    for heading, lines in _blocks(text):
        if heading is None:
            above = lines
        else:
            messages.append(_message(heading, lines))
    return Transcript(_unshielded(above), tuple(messages))


def blocks(text: str) -> list[Block]:
    """Return what is above the first heading, and then message by message, each with its place in the text."""
    found = []
    at = 0
    for heading, lines in _blocks(text):
        if heading is not None:
            at += len(heading[0]) + 1
        end = at + sum(len(line) + 1 for line in lines)
        message = _message(heading, lines) if heading is not None else None
        said = message.text if message else _unshielded(lines)
        found.append(Block(message, min(at, len(text)), min(end, len(text)), said))
        at = end
    return found


def message_at(text: str, start: int, end: int) -> str:
    """Return what the message says that stands there."""
    said = text[start:end].strip("\n")
    # Mostly nothing is shielded, and no line at the ends is blank: then there is nothing to take apart.
    if "\\" not in said and "\r" not in said and said and not said[0].isspace() and not said[-1].isspace():
        return said
    lines = text[start:end].split("\n")
    if text[max(start - 2, 0) : start] == "\r\n":
        lines = [line.removesuffix("\r") for line in lines]
    return _unshielded(lines)


def is_transcript(text: str) -> bool:
    """Tell whether a text has at least one message in it."""
    return any(heading for heading, _ in _blocks(text))


def _blocks(text: str) -> Iterator[tuple[re.Match[str] | None, list[str]]]:
    """Yield each heading with the lines below it; first None with the lines above all headings."""
    heading: re.Match[str] | None = None
    lines: list[str] = []
    for line in text.split("\n"):
        if found := _heading_in(line):
            yield heading, lines
            heading, lines = found, []
        else:
            lines.append(line)
    yield heading, lines


def _heading_in(line: str) -> re.Match[str] | None:
    found = _HEADING.fullmatch(line) if line.startswith("### ") else None
    if found:
        try:
            parse_time(found["time"])
        except ValueError:
            return None
    return found


def _message(heading: re.Match[str], lines: list[str]) -> TranscriptMessage:
    if heading["cr"]:
        # An editor gave the whole file Windows line ends: they are the file's, not the message's.
        lines = [line.removesuffix("\r") for line in lines]
    return TranscriptMessage(
        id=heading["id"],
        seq=int(heading["seq"]),
        author=_decoded(heading["author"] or ""),
        role=heading["role"],
        time=parse_time(heading["time"]),
        text=_unshielded(lines),
    )


def _heading(message: TranscriptMessage) -> str:
    author = _TO_ENCODE.sub(lambda found: f"%{ord(found[0]):02X};", message.author)
    who = f"{author} ({message.role})" if author else f"({message.role})"
    return f"### {who} \u00b7 {format_time(message.time)} \u00b7 {message.seq} \u00b7 {message.id}"


def _decoded(author: str) -> str:
    return _ENCODED.sub(_decoded_letter, author)


def _decoded_letter(found: re.Match[str]) -> str:
    """Return the character of a number; what no character has stays as it stands."""
    number = int(found[0][1:-1], 16)
    return chr(number) if number <= 0x10FFFF and not 0xD800 <= number <= 0xDFFF else found[0]


def _shielded(text: str) -> str:
    """Put a backslash before lines that would be taken for a heading, or for the empty lines around a message."""
    if not text:
        return ""
    lines = text.split("\n")
    first, last = _said(lines)
    return "\n".join(
        "\\" + line if _is_shielded(line) or (not line.strip() and not first < at < last) else line
        for at, line in enumerate(lines)
    )


def _unshielded(lines: list[str]) -> str:
    first, last = _said(lines)
    kept = lines[first : last + 1]
    return "\n".join(line[1:] if line.startswith("\\") and _is_shielded(line) else line for line in kept)


def _said(lines: list[str]) -> tuple[int, int]:
    """Return the places of the first and the last line that is not blank; where there is none, nothing lies between."""
    first = next((at for at, line in enumerate(lines) if line.strip()), len(lines))
    last = next((at for at in range(len(lines) - 1, -1, -1) if lines[at].strip()), -1)
    return first, last


def _is_shielded(line: str) -> bool:
    """Tell whether a line is a heading, or one behind backslashes, or nothing but backslashes."""
    bare = line.lstrip("\\")
    if bare != line and not bare.strip():
        return True
    return _heading_in(bare) is not None
