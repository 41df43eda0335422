"""Orders the results of a recall without a query: the newest first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from commonbook.ports.index import IS_MESSAGE, IndexResult
from commonbook.recall import scoring


def newest_first(result: IndexResult) -> tuple[Sequence[int], scoring.Scores]:
    """Return messages and first passages of memories, newest first, with a score of zero.

    Of equal times, the later position in its thread comes first.
    """
    pool = result.pool
    listed = pool.eligible & (((pool.flags & IS_MESSAGE) > 0) | (pool.positions == 0))
    last_first = np.lexsort((pool.orders, pool.positions, pool.times))[::-1]
    return last_first[listed[last_first]].tolist(), scoring.Scores(np.zeros(len(listed)), np.zeros((0, len(listed))))
