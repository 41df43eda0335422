"""Generates texts to remember: a paragraph each, no two the same, and the same ones in every run."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count
from typing import Final

_PROSE: Final = (
    "alice billing owns the release on friday because deploy of staging broke when retry limit was lowered and nobody"
    " told team about new region so invoices went out twice please check ledger before month ends customers in berlin"
    " prefer short answers with links to runbook while on-call wants graphs first database moved to another host last"
    " night index rebuild took forty minutes ask bob for key rotation plan"
)


def texts(seed: str) -> Iterator[str]:
    """Yield texts without end, each of a first line and a paragraph: about 400 characters."""
    chance = random.Random(seed)
    words = _PROSE.split()
    for number in count(1):
        head = " ".join(chance.choices(words, k=7))
        body = " ".join(chance.choices(words, k=60))
        yield f"{head.capitalize()} ({seed} {number})\n\n{body.capitalize()}."
