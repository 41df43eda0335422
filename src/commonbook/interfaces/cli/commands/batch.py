"""`remember --batch`: read JSON lines, store up to 1,000 in one transaction, print their receipts."""

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


_BATCH_LINES: Final = 1000
# JSON can make a text six times as long, if every character is escaped.
_MAX_LINE_BYTES: Final = 6 * MAX_TEXT_BYTES + 1024 * 1024
_CHUNK_BYTES: Final = 2 * _MAX_LINE_BYTES
_TIMES: Final = ("occurred", "valid_from", "valid_until", "expires")
_STRINGS: Final = ("text", "space", "kind", "title", *_TIMES, "replaces", "key")
_FIELDS: Final = (*_STRINGS, "tags", "importance", "links", "metadata")
_NOT_WITH_BATCH: Final = (
    "text",
    "file",
    "title",
    "kind",
    "tag",
    "importance",
    "meta",
    *_TIMES,
    "link",
    "replaces",
    "key",
)


def remember_lines(call: Call) -> int:
    """Remember every line of the file, and print each receipt when its transaction is durable."""
    if excluded := [name for name in _NOT_WITH_BATCH if getattr(call.args, name)]:
        raise BadInput(f"--batch takes no {excluded[0]}", fix="write the fields of each memory into its line")
    path = call.args.batch
    with nullcontext(text.standard_input()) if path == "-" else text.open_file(path) as file:
        total, done, new = _count(file), 0, 0
        for numbers, drafts in _chunks(file):
            for receipt in _remember_batch(call, numbers, drafts):
                _print_receipt(call, receipt)
                new += receipt.new
            call.flush()
            done += len(drafts)
            call.progress("remembering", done, total)
    call.reindex_if_many(new)
    return 0


def _print_receipt(call: Call, receipt: Receipt) -> None:
    verb = "Remembered" if receipt.new else "Remembered before:"
    call.print_answer(json_values.receipt_json(receipt), lambda out: memories.show_receipt(out, verb, receipt))


def _remember_batch(call: Call, numbers: Sequence[int], drafts: Sequence[Draft]) -> list[Receipt]:
    try:
        return call.book.remember_many([draft._replace(mask=call.args.mask) for draft in drafts])
    except CommonbookError as error:
        # The book names the draft that it refused, if it was a single one; else the error concerns all these lines.
        item = getattr(error, "item", None)
        place = f"lines {numbers[0]} to {numbers[-1]}" if item is None else f"line {numbers[item]}"
        error.message = f"{place if len(numbers) > 1 else f'line {numbers[0]}'}: {error.message}"
        error.fix = _fix_with_resume(numbers[0], error.fix)
        raise


def _chunks(file: BinaryIO) -> Iterator[tuple[list[int], list[Draft]]]:
    """Yield batches of drafts with their line numbers, one batch for each transaction."""
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
            error.fix = _fix_with_resume((numbers or [number])[0], error.fix)
            raise
        numbers.append(number)
        size += len(line)
        if len(drafts) == _BATCH_LINES or size > _CHUNK_BYTES:
            yield numbers, drafts
            numbers, drafts, size = [], [], 0
    if drafts:
        yield numbers, drafts


def _line(file: BinaryIO, number: int, waiting: Sequence[int]) -> bytes:
    try:
        line = file.readline(_MAX_LINE_BYTES + 1)
    except OSError as error:
        raise BadInput(f"the lines cannot be read: {error.strerror}", fix="name a file of JSON lines") from error
    if len(line) > _MAX_LINE_BYTES:
        fix = _fix_with_resume((waiting or [number])[0], "split the text into several memories")
        raise TooLarge(f"line {number}: it is longer than any memory in JSON", fix=fix)
    return line


def _fix_with_resume(first_line: int, fix: str) -> str:
    stored = f"lines 1 to {first_line - 1} are stored, " if first_line > 1 else "nothing is stored, "
    return f"{fix}; {stored}so send the file again from line {first_line}"


def _draft(line: bytes) -> Draft:
    """Return the draft in a line of JSON; only types are checked here, the book checks the values."""
    fields = text.json_object(line)
    if unknown := [name for name in fields if name not in _FIELDS]:
        raise BadInput(f"{unknown[0]!r} is not a field of a memory", fix=f"the fields are {', '.join(_FIELDS)}")
    if "text" not in fields:
        raise BadInput("there is no text", fix='write at least {"text": "…"}')
    values = {name: value for name, value in fields.items() if value is not None or name == "text"}
    for name in _STRINGS:
        if not isinstance(values.get(name, ""), str):
            raise BadInput(f"{name} is not a string", fix=f"write {name} as a string")
    if isinstance(values.get("importance", 0.0), bool) or not isinstance(values.get("importance", 0.0), int | float):
        raise BadInput("importance is not a number", fix="write importance as a number from 0 to 1")
    if "tags" in values:
        values["tags"] = _tags(values["tags"])
    if "links" in values:
        values["links"] = _links(values["links"])
    return Draft(**values)


def _tags(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(tag, str) for tag in value):
        raise BadInput("tags is not a list of strings", fix='write it as "tags": ["billing", "people"]')
    return tuple(value)


def _links(value: object) -> tuple[tuple[str, str], ...]:
    """Return links, each written as a pair or as `show --json` prints it."""
    links = []
    for item in value if isinstance(value, list) else [None]:
        pair = [item.get("relation"), item.get("target")] if isinstance(item, dict) else item
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(word, str) for word in pair):
            raise BadInput(
                "links is not a list of links", fix='write it as "links": [["related_to", "the id of a memory"]]'
            )
        links.append((pair[0], pair[1]))
    return tuple(links)


def _count(file: BinaryIO) -> int:
    """Return the number of lines of a regular file, or 0 if it is not known in advance."""
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
