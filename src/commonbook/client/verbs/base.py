"""The base of the verbs of a remote book: each verb is a call with its arguments by name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any


class VerbCaller(ABC):
    """Calls verbs of a remote book."""

    @abstractmethod
    def _call(self, verb: str, arguments: Mapping[str, object]) -> Any:  # noqa: ANN401 - as the verb's annotation says
        """Send a call to the server, and return its result; the error of the server is raised here."""
