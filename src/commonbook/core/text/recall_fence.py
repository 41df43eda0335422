"""Recognise recalled text that comes back in a prompt, by the tags around it (`values.prompts`).

The tag of a block has 32 digits: 16 that identify the block, and 16 of a MAC of these under the key of the home. So
nobody else can make a tag that this home takes for its own. `unfence` removes the blocks that this home fenced, from
their opening to their closing tag. It recognises blocks that are quoted, indented, or have other line ends or escaped
angle brackets. Blocks of others, and blocks without a closing tag, are text like any other.

Double quotes in a query: the parts between them must occur.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

KeyedHash: TypeAlias = Callable[..., str]
"""Hashes texts with the secret key of a home, as hexadecimal digits."""

# As `values.prompts` writes them; an append would load that module for these alone.
TAG: Final = "commonbook-recall"
_TAG_DIGITS: Final = 32
_NOTE_BEGINNING: Final = "Recalled"
_NONCE_DIGITS: Final = 16
_OPEN: Final = r"(?:<|&(?:amp;){0,3}(?:lt|LT|#0{0,3}60|#[xX]0{0,3}3[cC]);|\\{1,4}u003[cC])"
_CLOSE: Final = r"(?:>|&(?:amp;){0,3}(?:gt|GT|#0{0,3}62|#[xX]0{0,3}3[eE]);|\\{1,4}u003[eE])"
_FENCE: Final = re.compile(rf"{_OPEN}(\\{{0,4}}/)?{TAG} ([0-9a-f]{{{_TAG_DIGITS}}}){_CLOSE}")
_MAX_PREFIX_CHARS: Final = 80


def new_tag(keyed_hash: KeyedHash, texts: Sequence[str]) -> str:
    """Return the digits of the tag around these texts, which only this home can make."""
    nonce = keyed_hash("fence of", *texts)[:_NONCE_DIGITS]
    return nonce + _mac(keyed_hash, nonce)


def unfence(text: str, keyed_hash: KeyedHash) -> str:
    """Return a text without the blocks that the home of this key fenced, however they were quoted or escaped."""
    return _without_blocks(
        text, lambda tag: hmac.compare_digest(tag[_NONCE_DIGITS:], _mac(keyed_hash, tag[:_NONCE_DIGITS]))
    )


def unfence_any(text: str) -> str:
    """Return a text without the closed blocks of any home: for a caller without a key that put them there itself."""
    return _without_blocks(text, lambda _tag: True)


def _mac(keyed_hash: KeyedHash, nonce: str) -> str:
    return keyed_hash("fence", nonce)[: _TAG_DIGITS - _NONCE_DIGITS]


def _without_blocks(text: str, is_known: Callable[[str], bool]) -> str:
    if TAG not in text:
        return text
    pieces, position = [], 0
    for start, end in _blocks(text, is_known):
        pieces.append(text[position:start])
        position = end
    return "".join([*pieces, text[position:]])


def _blocks(text: str, is_known: Callable[[str], bool]) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each closed block; one that is opened again begins at the last opening."""
    opened: re.Match[str] | None = None
    for tag in _FENCE.finditer(text):
        if not is_known(tag[2]):
            continue
        if not tag[1]:
            opened = tag
        elif opened and opened[2] == tag[2]:
            yield _block_start(text, opened), tag.end()
            opened = None


def _block_start(text: str, opening: re.Match[str]) -> int:
    """Return where a block begins: at its tag, or at the prefix that quotes or indents each of its lines."""
    line = max(text.rfind("\n", max(0, opening.start() - _MAX_PREFIX_CHARS - 1), opening.start()) + 1, 0)
    prefix = text[line : opening.start()]
    following = text[opening.end() : opening.end() + _MAX_PREFIX_CHARS * 2].lstrip("\r").removeprefix("\n")
    quoted = 0 < len(prefix) <= _MAX_PREFIX_CHARS and following.startswith(prefix + _NOTE_BEGINNING)
    return line if quoted else opening.start()


# A straight mark that opens stands before a word and not after one: 5" is a length.
_QUOTED: Final = re.compile(
    '(?<![0-9A-Za-z])["\uff02](?=\\S)([^"\uff02\n]+)(?<=\\S)["\uff02](?![0-9A-Za-z])'
    "|[\u201c\u201d\u201e]([^\u201c\u201d\u201e\n]+)[\u201c\u201d]"
    "|\u00ab([^\u00ab\u00bb\n]+)\u00bb|\u00bb([^\u00ab\u00bb\n]+)\u00ab"
    "|[\u300c\u300e]([^\u300c-\u300f\n]+)[\u300d\u300f]"
)
_MARKS: Final = re.compile('["\uff02\u201c\u201d\u201e\u00ab\u00bb\u300c-\u300f]')


def quoted_parts(text: str) -> list[str]:
    """Return the parts of a text in double quotes, each once; a mark without its pair is ignored."""
    parts = ("".join(filter(None, match.groups())).strip() for match in _QUOTED.finditer(text))
    return [part for part in dict.fromkeys(parts) if part]


def without_quotes(text: str) -> str:
    """Return a text without double quotes, for a query that nobody wrote as one: nothing in it must occur."""
    return _MARKS.sub(" ", text)
