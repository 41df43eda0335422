"""Measures superseding a memory with many dependents, and recall and writes where many are suspect or in a chain."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from itertools import count, islice
from typing import Final

import commonbook
from benchmarks.bare import BareLoop
from benchmarks.bench import Bench
from benchmarks.figures import AT_MOST, Bar, Figure, in_turns
from benchmarks.library import shelves
from benchmarks.recalling import recall_times
from commonbook.core.text.space_names import PERSONAL
from commonbook.service.book import Book
from commonbook.values.memory import Draft

_BAR: Final = Bar(AT_MOST, 1.2)
_CHAIN_RECALL_BAR: Final = Bar(AT_MOST, 1.3)
_CHAIN_WRITE_BAR: Final = Bar(AT_MOST, 3)
_SUSPECT_SHARE: Final = 0.1
_SPACES: Final = 10
_ELSEWHERE: Final = "elsewhere"


def supersede(bench: Bench) -> Iterator[Figure]:
    """Measure superseding a memory with n dependents, beside as many rows in one commit and their files."""
    for n in bench.scale.dependents:
        with (
            commonbook.open(bench.fresh("reasoned"), create=True) as book,
            closing(BareLoop(bench.fresh("bare"))) as loop,
        ):
            old = book.remember("it was so", space=PERSONAL).id
            links = (("reflects_on", old),)
            book.remember_many([Draft(f"thought {at}", space=f"s{at % _SPACES}", links=links) for at in range(n)])
            new_texts = (f"text {number}" for number in count())
            ours, reference = in_turns(
                bench.scale.start_rounds if n < 1_000 else bench.scale.batch_rounds,
                partial(_supersede, book, old, n),
                partial(_write, loop, new_texts, n + 1),
            )
        yield Figure(
            benchmark="supersede",
            what="supersede a memory with n dependents",
            n=n,
            unit="ms",
            ours_rounds=ours,
            reference_rounds=reference,
        )


def _supersede(book: Book, old: str, n: int) -> float:
    # Superseded by a new memory each time: with the same one, a withdrawn notice would only be reopened.
    new = book.remember("it is so", space=PERSONAL).id
    begun = time.perf_counter()
    receipt = book.supersede(old, new, reason="it was measured again")
    took = (time.perf_counter() - begun) * 1_000
    assert receipt.notified == n
    book.reinstate(old)
    return took


def _write(loop: BareLoop, new_texts: Iterator[str], rows: int) -> float:
    begun = time.perf_counter()
    loop.add_many([next(new_texts) for _ in range(rows)])
    return (time.perf_counter() - begun) * 1_000


def recall_suspect(bench: Bench) -> Iterator[Figure]:
    """Measure recall in a space with a tenth of suspect memories, beside the same texts without any."""
    n = bench.scale.shared
    notes = list(islice((shelf.draft.text for shelf in shelves(2 * n) if len(shelf.passages) == 1), n))
    suspect = round(n * _SUSPECT_SHARE)
    with (
        commonbook.open(bench.fresh("doubtful"), create=True) as book,
        commonbook.open(bench.fresh("sure"), create=True) as plain,
    ):
        for target in (book, plain):
            old, new = target.remember_many([Draft("it was so", space=_ELSEWHERE), Draft("it is so", space=_ELSEWHERE)])
            links = (("reflects_on", old.id),) if target is book else ()
            target.remember_many([Draft(text, space=PERSONAL, links=links) for text in notes[:suspect]])
            target.remember_many([Draft(text, space=PERSONAL) for text in notes[suspect:]])
            if target is book:
                assert target.supersede(old.id, new.id).notified == suspect
            target.reindex(anew=True)
        ours, reference = recall_times(bench, book, plain)
    yield Figure(
        benchmark="recall_suspect",
        what="recall among n, a tenth suspect",
        n=n,
        unit="ms",
        ours_rounds=ours,
        reference_rounds=reference,
        bar=_BAR,
    )


def suspect_chain(bench: Bench) -> Iterator[Figure]:
    """Measure writes at the end of a chain of n, and recall when all of it is suspect, beside the same without it."""
    n = bench.scale.middle
    notes = list(islice((shelf.draft.text for shelf in shelves(2 * n) if len(shelf.passages) == 1), n))
    with (
        commonbook.open(bench.fresh("chained"), create=True) as book,
        commonbook.open(bench.fresh("loose"), create=True) as plain,
    ):
        old, new = (book.remember(text, space=_ELSEWHERE).id for text in ("it was so", "it is so"))
        last = old
        for text in notes:
            last = book.remember(text, space=PERSONAL, links=[("derived_from", last)]).id
        alone = plain.remember_many([Draft(text, space=PERSONAL) for text in notes])[-1].id
        numbers = count()
        without = partial(_remember, plain, numbers, ())
        writes = {
            "write": (partial(_remember, book, numbers, (("derived_from", last),)), without),
            "reflect": (partial(_reflect, book, numbers, last), without),
            "link": (partial(_link, book, numbers, last), partial(_link, plain, numbers, alone)),
        }
        written = {verb: in_turns(bench.scale.start_rounds, *pair) for verb, pair in writes.items()}
        assert book.supersede(old, new).notified >= n
        for target in (book, plain):
            target.reindex(anew=True)
        recalled, reference = recall_times(bench, book, plain)
    for verb, (ours, others) in written.items():
        yield Figure(
            benchmark="suspect_chain",
            what=f"{verb} at the end of a chain of n",
            n=n,
            unit="ms",
            ours_rounds=ours,
            reference_rounds=others,
            bar=_CHAIN_WRITE_BAR,
        )
    yield Figure(
        benchmark="suspect_chain",
        what="recall among n, a chain of suspects",
        n=n,
        unit="ms",
        ours_rounds=recalled,
        reference_rounds=reference,
        bar=_CHAIN_RECALL_BAR,
    )


def _remember(book: Book, numbers: Iterator[int], links: tuple[tuple[str, str], ...]) -> float:
    text = f"a further thought {next(numbers)}"
    begun = time.perf_counter()
    book.remember(text, space=_ELSEWHERE, links=links)
    return (time.perf_counter() - begun) * 1_000


def _reflect(book: Book, numbers: Iterator[int], on: str) -> float:
    text = f"a further thought {next(numbers)}"
    begun = time.perf_counter()
    book.reflect(text, [on], space=_ELSEWHERE)
    return (time.perf_counter() - begun) * 1_000


def _link(book: Book, numbers: Iterator[int], target: str) -> float:
    source = book.remember(f"a further thought {next(numbers)}", space=_ELSEWHERE).id
    begun = time.perf_counter()
    book.link(source, "derived_from", target)
    return (time.perf_counter() - begun) * 1_000
