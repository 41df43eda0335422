"""Render messages as the text of an episode, and parse them back without loss.

docs/TRANSCRIPTS.md describes the format. Rendering and then parsing gives the same messages, with any text: a
line that would be mistaken for a heading is escaped with a backslash. A person may edit the text under a heading, or
remove a message with its heading.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from typing import Final, NamedTuple

from commonbook.values.ids import format_time, parse_time

_HEADING: Final = re.compile(
    r"### (?:(?P<author>[^\r\n]*) )?\((?P<role>[^\s()]+)\) \u00b7 (?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z)"
    r" \u00b7 (?P<seq>\d{1,15}) \u00b7 (?P<id>\S+)[ \t]*(?P<cr>\r?)"
)
_ENCODED: Final = re.compile(r"%[0-9A-F]{2,6};")
# Characters that would break the line, be trimmed by an editor, or look like an encoded character.
_TO_ENCODE: Final = re.compile(r"%(?=[0-9A-F]{2,6};)|[\x00-\x1f\x7f-\x9f\u2028\u2029]|^\s|\s$")


class TranscriptMessage(NamedTuple):
    """A message of a transcript."""

    id: str
    seq: int
    author: str
    role: str
    time: datetime
    text: str


class Transcript(NamedTuple):
    """The text above the first message, which a person wrote, and the messages in the order of the text."""

    introduction: str
    messages: tuple[TranscriptMessage, ...]


class Block(NamedTuple):
    """The place of a message, or of the text above the first one: from `start` to `end`, without the heading."""

    message: TranscriptMessage | None
    start: int
    end: int
    text: str


def render(messages: Iterable[TranscriptMessage], *, introduction: str = "") -> str:
    """Return messages as a transcript."""
    rendered = [f"{_heading(message)}\n\n{_escape(message.text)}".rstrip("\n") for message in messages]
    return "\n\n".join([_escape(introduction), *rendered] if introduction else rendered)


def parse(text: str) -> Transcript:
    """Parse a transcript; every line that is not a heading belongs to the message above it."""
    above: list[str] = []
    messages: list[TranscriptMessage] = []
    for heading, lines in _sections(text):
        if heading is None:
            above = lines
        else:
            messages.append(_message(heading, lines))
    return Transcript(_unescape(above), tuple(messages))


def blocks(text: str) -> list[Block]:
    """Return the block above the first heading, and then the block of each message."""
    blocks_ = []
    position = 0
    for heading, lines in _sections(text):
        if heading is not None:
            position += len(heading[0]) + 1
        end = position + sum(len(line) + 1 for line in lines)
        message = _message(heading, lines) if heading is not None else None
        content = message.text if message else _unescape(lines)
        blocks_.append(Block(message, min(position, len(text)), min(end, len(text)), content))
        position = end
    return blocks_


def without(text: str, removed: Collection[str]) -> str | None:
    """Return a transcript without the messages of these ids; None if it had some of them and no others."""
    parsed = parse(text)
    remaining = [message for message in parsed.messages if message.id not in removed]
    if len(remaining) == len(parsed.messages):
        return text
    return render(remaining, introduction=parsed.introduction) if remaining else None


def message_at(text: str, start: int, end: int) -> str:
    """Return the text of the message between these places."""
    content = text[start:end].strip("\n")
    # Mostly nothing is escaped, and no line at the ends is blank: then no line needs a look.
    if (
        "\\" not in content
        and "\r" not in content
        and content
        and not content[0].isspace()
        and not content[-1].isspace()
    ):
        return content
    lines = text[start:end].split("\n")
    if text[max(start - 2, 0) : start] == "\r\n":
        lines = [line.removesuffix("\r") for line in lines]
    return _unescape(lines)


def is_transcript(text: str) -> bool:
    """Return whether a text has at least one message in it."""
    return any(heading for heading, _ in _sections(text))


def _sections(text: str) -> Iterator[tuple[re.Match[str] | None, list[str]]]:
    """Yield each heading with the lines below it; first None with the lines above all headings."""
    heading: re.Match[str] | None = None
    lines: list[str] = []
    for line in text.split("\n"):
        if next_heading := _match_heading(line):
            yield heading, lines
            heading, lines = next_heading, []
        else:
            lines.append(line)
    yield heading, lines


def _match_heading(line: str) -> re.Match[str] | None:
    match = _HEADING.fullmatch(line) if line.startswith("### ") else None
    if match:
        try:
            parse_time(match["time"])
        except ValueError:
            return None
    return match


def _message(heading: re.Match[str], lines: list[str]) -> TranscriptMessage:
    if heading["cr"]:
        # An editor gave the whole file Windows line ends: they do not belong to the message.
        lines = [line.removesuffix("\r") for line in lines]
    return TranscriptMessage(
        id=heading["id"],
        seq=int(heading["seq"]),
        author=_decode(heading["author"] or ""),
        role=heading["role"],
        time=parse_time(heading["time"]),
        text=_unescape(lines),
    )


def _heading(message: TranscriptMessage) -> str:
    author = _TO_ENCODE.sub(lambda match: f"%{ord(match[0]):02X};", message.author)
    speaker = f"{author} ({message.role})" if author else f"({message.role})"
    return f"### {speaker} \u00b7 {format_time(message.time)} \u00b7 {message.seq} \u00b7 {message.id}"


def _decode(author: str) -> str:
    return _ENCODED.sub(_decode_letter, author)


def _decode_letter(match: re.Match[str]) -> str:
    """Return the character of an encoded number; leave any other number as it is."""
    number = int(match[0][1:-1], 16)
    return chr(number) if number <= 0x10FFFF and not 0xD800 <= number <= 0xDFFF else match[0]


def _escape(text: str) -> str:
    """Put a backslash before lines that would be mistaken for a heading, or for the blank lines around a message."""
    if not text:
        return ""
    lines = text.split("\n")
    first, last = _content_range(lines)
    return "\n".join(
        "\\" + line if _needs_escape(line) or (not line.strip() and not first < index < last) else line
        for index, line in enumerate(lines)
    )


def _unescape(lines: list[str]) -> str:
    first, last = _content_range(lines)
    content = lines[first : last + 1]
    return "\n".join(line[1:] if line.startswith("\\") and _needs_escape(line) else line for line in content)


def _content_range(lines: list[str]) -> tuple[int, int]:
    """Return the indexes of the first and the last line that is not blank; an empty range if there is none."""
    first = next((index for index, line in enumerate(lines) if line.strip()), len(lines))
    last = next((index for index in range(len(lines) - 1, -1, -1) if lines[index].strip()), -1)
    return first, last


def _needs_escape(line: str) -> bool:
    """Return whether a line is a heading, a heading behind backslashes, or nothing but backslashes."""
    bare = line.lstrip("\\")
    if bare != line and not bare.strip():
        return True
    return _match_heading(bare) is not None
