"""Types of the numeric arrays that embedders and indexes exchange."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float32]
    Ints = npt.NDArray[np.int64]
    Flags = npt.NDArray[np.bool_]
