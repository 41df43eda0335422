"""`remember --batch`: JSON lines in, receipts out, a thousand in one transaction."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, BinaryIO, Final

from commonbook.errors import BadInput, CommonbookError, TooLarge
from commonbook.interfaces import json_values
from commonbook.interfaces.cli.input import text
from commonbook.interfaces.cli.output import memories
from commonbook.model.memory import MAX_TEXT_BYTES, Draft, Receipt

if TYPE_CHECKING:
    from commonbook.interfaces.cli.call import Call


_LINES: Final = 1000
# A text in JSON can be six times as long as it is: every character an escape.
_LONGEST_LINE: Final = 6 * MAX_TEXT_BYTES + 1024 * 1024
_CHUNK_BYTES: Final = 2 * _LONGEST_LINE
_TIMES: Final = ("occurred", "valid_from", "valid_until", "expires")
_STRINGS: Final = ("text", "space", "kind", "title", *_TIMES, "replaces", "key")
_FIELDS: Final = (*_STRINGS, "tags", "importance", "links")
_NOT_WITH_BATCH: Final = ("text", "file", "title", "kind", "tag", "importance", *_TIMES, "link", "replaces", "key")


def remember_lines(call: Call) -> int:
    """Remember every line of the file, telling each receipt when its transaction is durable."""
    if given := [name for name in _NOT_WITH_BATCH if getattr(call.args, name)]:
        raise BadInput(f"--batch takes no {given[0]}", fix="write the fields of each memory into its line")
    path = call.args.batch
    with nullcontext(text.standard_input()) if path == "-" else text.open_file(path) as file:
        total, done, new = _count(file), 0, 0
        for numbers, drafts in _chunks(file):
            for said in _remembered(call, numbers, drafts):
                _tell(call, said)
                new += said.new
            call.flush()
            done += len(drafts)
            call.progress("remembering", done, total)
    call.index(new)
    return 0


def _tell(call: Call, said: Receipt) -> None:
    did = "Remembered" if said.new else "Remembered before:"
    call.tell(json_values.receipt(said), lambda out: memories.receipt(out, did, said))


def _remembered(call: Call, numbers: Sequence[int], drafts: Sequence[Draft]) -> list[Receipt]:
    try:
        return call.book.remember_many(drafts)
    except CommonbookError as error:
        # The book says which draft it refused, where it was one; else it can only be one of these lines.
        item = getattr(error, "item", None)
        where = f"lines {numbers[0]} to {numbers[-1]}" if item is None else f"line {numbers[item]}"
        error.message = f"{where if len(numbers) > 1 else f'line {numbers[0]}'}: {error.message}"
        error.fix = _from(numbers[0], error.fix)
        raise


def _chunks(file: BinaryIO) -> Iterator[tuple[list[int], list[Draft]]]:
    """Yield the drafts of some lines, with the lines' numbers: as many as go into one transaction."""
    numbers: list[int] = []
    drafts: list[Draft] = []
    size = number = 0
    while line := _line(file, number + 1, numbers):
        number += 1
        if line.isspace():
            continue
        try:
            drafts.append(_draft(line))
        except CommonbookError as error:
            error.message = f"line {number}: {error.message}"
            error.fix = _from((numbers or [number])[0], error.fix)
            raise
        numbers.append(number)
        size += len(line)
        if len(drafts) == _LINES or size > _CHUNK_BYTES:
            yield numbers, drafts
            numbers, drafts, size = [], [], 0
    if drafts:
        yield numbers, drafts


def _line(file: BinaryIO, number: int, waiting: Sequence[int]) -> bytes:
    try:
        line = file.readline(_LONGEST_LINE + 1)
    except OSError as error:
        raise BadInput(f"the lines cannot be read: {error.strerror}", fix="name a file of JSON lines") from error
    if len(line) > _LONGEST_LINE:
        fix = _from((waiting or [number])[0], "split the text into several memories")
        raise TooLarge(f"line {number}: it is longer than any memory in JSON", fix=fix)
    return line


def _from(first: int, fix: str) -> str:
    stored = f"lines 1 to {first - 1} are stored, " if first > 1 else "nothing is stored, "
    return f"{fix}; {stored}so send the file again from line {first}"


def _draft(line: bytes) -> Draft:
    """Return what a line asks to be remembered; what its values may be is for the book to say."""
    said = text.json_object(line)
    if unknown := [name for name in said if name not in _FIELDS]:
        raise BadInput(f"{unknown[0]!r} is not a field of a memory", fix=f"the fields are {', '.join(_FIELDS)}")
    if "text" not in said:
        raise BadInput("there is no text", fix='write at least {"text": "…"}')
    given = {name: value for name, value in said.items() if value is not None or name == "text"}
    for name in _STRINGS:
        if not isinstance(given.get(name, ""), str):
            raise BadInput(f"{name} is not a string", fix=f"write {name} as a string")
    if isinstance(given.get("importance", 0.0), bool) or not isinstance(given.get("importance", 0.0), int | float):
        raise BadInput("importance is not a number", fix="write importance as a number from 0 to 1")
    if "tags" in given:
        given["tags"] = _tags(given["tags"])
    if "links" in given:
        given["links"] = _links(given["links"])
    return Draft(**given)


def _tags(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(tag, str) for tag in value):
        raise BadInput("tags is not a list of strings", fix='write it as "tags": ["billing", "people"]')
    return tuple(value)


def _links(value: object) -> tuple[tuple[str, str], ...]:
    """Return links, each written as a pair or as `show` prints it."""
    links = []
    for one in value if isinstance(value, list) else [None]:
        pair = [one.get("relation"), one.get("target")] if isinstance(one, dict) else one
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(word, str) for word in pair):
            raise BadInput(
                "links is not a list of links", fix='write it as "links": [["related_to", "the id of a memory"]]'
            )
        links.append((pair[0], pair[1]))
    return tuple(links)


def _count(file: BinaryIO) -> int:
    """Return how many lines there are, or 0 where only reading them would tell."""
    try:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode) or file.tell():
            return 0
    except (OSError, ValueError):
        return 0
    count = 0
    while block := file.read(1 << 20):
        count += block.count(b"\n")
    file.seek(0)
    return count
