"""Metadata: fields of a user's own on a memory, a small mapping of names to scalars, and the labels to find them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Final

from commonbook.values.memory import NO_METADATA, Metadata, Scalar

_INTEGER: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_FLOAT: Final = re.compile(r"[-+]?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")


def parse_word(word: str) -> Scalar:
    """Return the value of a word without quotes, as YAML and JSON read it: a truth value, a number or a text."""
    if word in ("true", "false"):
        return word == "true"
    if _INTEGER.fullmatch(word):
        return int(word)
    return float(word) if _FLOAT.fullmatch(word) else word


def dump(metadata: Metadata) -> str | None:
    """Return metadata as JSON for its row; None if there is none, as for most memories."""
    return None if metadata is NO_METADATA or not metadata else json.dumps(dict(metadata), ensure_ascii=False)


def load(text: str | None) -> Metadata:
    """Return what `dump` returned as metadata."""
    return Metadata(json.loads(text)) if text else NO_METADATA


def labels_of(metadata: Mapping[str, Scalar]) -> Iterable[str]:
    """Return a label for each field, by which memories are found; it begins with a character that no tag has.

    A whole number has one label, however it is written.
    """
    return [] if metadata is NO_METADATA else [_label(name, value) for name, value in metadata.items()]


def _label(name: str, value: Scalar) -> str:
    is_whole = isinstance(value, float) and value.is_integer()
    return f"\x01metadata {name} {json.dumps(int(value) if is_whole else value, ensure_ascii=False)}"
