"""One marked block in a text file: added at the end, replaced in its place, and removed to the byte."""

from __future__ import annotations

import re
from typing import Final, NamedTuple


class Marks(NamedTuple):
    """The lines around a block, as comments of the file's language."""

    begin: str
    end: str


TOML: Final = Marks("# commonbook: begin", "# commonbook: end")
MARKDOWN: Final = Marks("<!-- commonbook: begin -->", "<!-- commonbook: end -->")


def with_block(text: str, marks: Marks, body: str) -> str:
    """Return the text with the block; a block that is there is replaced in its place."""
    block = f"{marks.begin}\n{body.rstrip()}\n{marks.end}"
    found = _pattern(marks).search(text)
    if found:
        return text[: found.start("block")] + block + text[found.end("block") :]
    # A file whose last line has no end is told apart by the missing empty line.
    return f"{text}\n{block}\n" if text else f"{block}\n"


def without_block(text: str, marks: Marks) -> str:
    """Return the text without the block."""
    found = _pattern(marks).search(text)
    return text if found is None else text[: found.start()] + text[found.end() :]


def _pattern(marks: Marks) -> re.Pattern[str]:
    begin, end = map(re.escape, marks)
    return re.compile(rf"\n?(?P<block>^{begin}$.*?^{end})$\n?", re.DOTALL | re.MULTILINE)
