"""An embedder on this machine: any model that the package sentence-transformers can load.

The package (and torch with it) is imported when the first vector is asked for, which takes seconds.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from commonbook.errors import EmbedderFailed
from commonbook.ports.embedding import EmbeddingInput

if TYPE_CHECKING:
    from commonbook.ports.arrays import Floats


_ORGANISATION: Final = "sentence-transformers"
_REST: Final = 60.0
_PROBE: Final = "dimensions"
_BATCH: Final = 32
_PIECE: Final = 1 << 16
_PIECES: Final = 16


class SentenceModel:
    """Vectors of unit length from a model by its name on the Hugging Face hub, or in a folder."""

    slow: Final = True

    def __init__(self, model: str) -> None:
        """Use this model; it is loaded when it is first needed."""
        self._name: Final = model
        self._lock: Final = Lock()
        self._model: Any = None
        self._failed: tuple[float, EmbedderFailed] | None = None
        self._mark = ""
        self._dimensions = 0

    def __repr__(self) -> str:
        """Show which model it is."""
        return f"SentenceModel({self._name!r})"

    @property
    def fingerprint(self) -> str:
        """The name under which vectors are kept: the model, its revision or what is in its folder, the dimensions."""
        self._load()
        return f"sentence-transformers/{self._mark}/{self._dimensions}"

    @property
    def dimensions(self) -> int:
        """How many numbers a vector has."""
        self._load()
        return self._dimensions

    def embed(self, texts: Sequence[EmbeddingInput], *, patient: bool = False) -> Floats:  # noqa: ARG002 - it has no choice
        """Return one row for each text; raises EmbedderFailed when it cannot."""
        self._load()
        if not texts:
            return np.zeros((0, self._dimensions), np.float32)
        vectors = self._encode(self._model, [said.text for said in texts])
        if vectors.shape != (len(texts), self._dimensions) or not np.isfinite(vectors).all():
            raise EmbedderFailed(
                f"the model {self._name} gave no {len(texts)} vectors of {self._dimensions} finite numbers",
                fix="choose another model in COMMONBOOK_EMBEDDER",
            )
        return vectors

    def _load(self) -> None:
        with self._lock:
            if self._model is not None:
                return
            # A failure takes seconds, or a minute where the hub does not answer: not again for each text.
            if self._failed is not None and time.monotonic() < self._failed[0]:
                raise EmbedderFailed(self._failed[1].message, fix=self._failed[1].fix)
            try:
                model, self._mark = self._loaded()
                self._dimensions = self._encode(model, [_PROBE]).shape[1]
            except EmbedderFailed as error:
                self._failed = (time.monotonic() + _REST, error)
                raise
            self._model = model

    def _loaded(self) -> tuple[Any, str]:
        """Return the model, and what tells it from every other."""
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError as error:
            raise EmbedderFailed(
                f"sentence-transformers cannot be imported: {error}",
                fix="pip install 'commonbook[sentence-transformers]', or set COMMONBOOK_EMBEDDER to static",
            ) from error
        folder = Path(self._name)
        try:
            # The package's own rule, too: what is a folder here is never looked for on the hub.
            if folder.is_dir():
                return _from_disk(SentenceTransformer, folder), f"{folder.resolve().name}-{_mark_of(folder)}"
            model = _from_disk_or_hub(SentenceTransformer, self._name)
            downloaded = _downloaded(self._name)
        except Exception as error:
            # Hub, network, tokenizer, torch: each has errors of its own, and they have no root in common.
            raise EmbedderFailed(
                f"the model {self._name} cannot be loaded: {_first_line(error)}",
                fix="check the model's name or folder in COMMONBOOK_EMBEDDER; to download it, the network",
            ) from error
        # The hub names the folder of a download by its revision.
        return model, f"{self._name}@{downloaded.name[:12]}" if downloaded else self._name

    def _encode(self, model: Any, texts: list[str]) -> Floats:  # noqa: ANN401 - the package has types only where it is installed
        try:
            made = model.encode(
                texts, batch_size=_BATCH, show_progress_bar=False, convert_to_numpy=True, normalize_embeddings=True
            )
        except Exception as error:
            raise EmbedderFailed(
                f"the model {self._name} failed on {len(texts)} texts: {_first_line(error)}",
                fix="try again with more memory, or choose a smaller model in COMMONBOOK_EMBEDDER",
            ) from error
        vectors: Floats = np.asarray(made, np.float32)
        return vectors


def _from_disk(kind: Callable[..., Any], folder: Path) -> Any:  # noqa: ANN401 - as above
    with _no_progress_bars():
        return kind(str(folder), local_files_only=True)


def _from_disk_or_hub(kind: Callable[..., Any], name: str) -> Any:  # noqa: ANN401 - as above
    """Load a model of the hub: from this disk if it can be, since by its name the hub would be asked for each file."""
    if folder := _downloaded(name):
        # What is missing of an interrupted download is fetched below.
        with suppress(OSError, ValueError):
            return _from_disk(kind, folder)
    return kind(name)


def _downloaded(name: str) -> Path | None:
    """Return the folder of a hub's model on this disk, if it was downloaded before."""
    from huggingface_hub import try_to_load_from_cache

    # The file that says how the vectors of words become one: where it was not downloaded, the package would guess.
    found = try_to_load_from_cache(name if "/" in name else f"{_ORGANISATION}/{name}", "modules.json")
    return Path(found).parent if isinstance(found, str) else None


@contextmanager
def _no_progress_bars() -> Iterator[None]:
    """Load without a progress bar, which is over before anybody could read it; a download keeps its own."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _mark_of(folder: Path) -> str:
    """Return a short hash of a model's files: names, sizes, and what small ones hold and samples of large ones."""
    found = hashlib.sha256()
    try:
        for path in sorted(path for path in folder.rglob("*") if _counts(path, folder)):
            size = path.stat().st_size
            found.update(f"{path.relative_to(folder).as_posix()}\0{size}\0".encode())
            with path.open("rb") as file:
                # A model that was trained further has the same sizes, but hardly a weight is the same.
                for piece in range(_PIECES):
                    file.seek(max(0, size - _PIECE) * piece // (_PIECES - 1))
                    found.update(file.read(_PIECE))
    except OSError as error:
        raise EmbedderFailed(
            f"the model in {folder} cannot be read: {error.strerror}", fix="make its files readable for this user"
        ) from error
    return found.hexdigest()[:12]


def _counts(path: Path, folder: Path) -> bool:
    """Leave out what says nothing about the vectors."""
    inside = path.relative_to(folder)
    return path.is_file() and path.suffix != ".md" and not any(part.startswith(".") for part in inside.parts)


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
