"""Metadata: fields of a user's own on a memory, a small mapping of names to values, and the labels to find them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from commonbook.values.memory import MAX_NUMBER, NO_METADATA, Metadata, MetadataValue, Scalar

_INTEGER: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,15})")
_FLOAT: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")


def parse_word(word: str) -> Scalar:
    """Return the value of a word without quotes, as YAML and JSON read it: a truth value, a number or a text.

    Digits that are an identifier, such as `01234` or more than a number can have, are a text.
    """
    if word in ("true", "false"):
        return word == "true"
    if not _FLOAT.fullmatch(word):
        return word
    number = int(word) if _INTEGER.fullmatch(word) else float(word)
    return number if abs(number) <= MAX_NUMBER else word


def dump(metadata: Metadata) -> str | None:
    """Return metadata as JSON for its row; None if there is none, as for most memories."""
    return None if metadata is NO_METADATA or not metadata else json.dumps(dict(metadata), ensure_ascii=False)


def load(text: str | None) -> Metadata:
    """Return what `dump` returned as metadata."""
    return Metadata(json.loads(text)) if text else NO_METADATA


def scalars_of(value: MetadataValue) -> Sequence[Scalar]:
    """Return the values in a list, or the one value."""
    return (value,) if isinstance(value, str | int | float) else value


def words_of(value: MetadataValue) -> str:
    """Return a value as a person writes it."""
    return ", ".join(each if isinstance(each, str) else json.dumps(each) for each in scalars_of(value))


def labels_of(metadata: Mapping[str, MetadataValue]) -> Iterable[str]:
    """Return a label for each value of each field, to find memories by; it begins with a character that no tag has.

    A whole number has one label, however it is written.
    """
    return [_label(name, each) for name, value in metadata.items() for each in scalars_of(value)]


def _label(name: str, value: Scalar) -> str:
    is_whole = isinstance(value, float) and value.is_integer()
    return f"\x01metadata {name} {json.dumps(int(value) if is_whole else value, ensure_ascii=False)}"
