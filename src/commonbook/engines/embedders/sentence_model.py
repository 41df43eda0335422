"""The Embedder port on local models: any that the package sentence-transformers can load.

The package (and torch with it) is imported at the first use, which takes seconds.
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
    from commonbook.ports.embedding import Floats


_ORGANISATION: Final = "sentence-transformers"
_RETRY_AFTER_SECONDS: Final = 60.0
_PROBE: Final = "dimensions"
_BATCH: Final = 32
_SAMPLE_BYTES: Final = 1 << 16
_SAMPLES: Final = 16


class SentenceModel:
    """Vectors of unit length from a model, given by its name on the Hugging Face hub or by a folder."""

    slow: Final = True

    def __init__(self, model: str) -> None:
        """Use this model; it is loaded at the first use."""
        self._name: Final = model
        self._lock: Final = Lock()
        self._model: Any = None
        self._failed: tuple[float, EmbedderFailed] | None = None
        self._model_id = ""
        self._dimensions = 0

    def __repr__(self) -> str:
        """Show the name of the model."""
        return f"SentenceModel({self._name!r})"

    @property
    def fingerprint(self) -> str:
        """The name under which vectors are stored: model, revision or hash of its folder, and dimensions."""
        self._ensure_loaded()
        return f"sentence-transformers/{self._model_id}/{self._dimensions}"

    @property
    def dimensions(self) -> int:
        """The length of a vector."""
        self._ensure_loaded()
        return self._dimensions

    def embed(self, texts: Sequence[EmbeddingInput], *, patient: bool = False) -> Floats:  # noqa: ARG002 - it has no choice
        """Return one row for each text; raises EmbedderFailed when it cannot."""
        self._ensure_loaded()
        if not texts:
            return np.zeros((0, self._dimensions), np.float32)
        vectors = self._encode(self._model, [text.text for text in texts])
        if vectors.shape != (len(texts), self._dimensions) or not np.isfinite(vectors).all():
            raise EmbedderFailed(
                f"the model {self._name} gave no {len(texts)} vectors of {self._dimensions} finite numbers",
                fix="choose another model in COMMONBOOK_EMBEDDER",
            )
        return vectors

    def _ensure_loaded(self) -> None:
        with self._lock:
            if self._model is not None:
                return
            # A failed attempt takes seconds, or a minute if the hub does not answer: it is not repeated for each text.
            if self._failed is not None and time.monotonic() < self._failed[0]:
                raise EmbedderFailed(self._failed[1].message, fix=self._failed[1].fix)
            try:
                model, self._model_id = self._load_model()
                self._dimensions = self._encode(model, [_PROBE]).shape[1]
            except EmbedderFailed as error:
                self._failed = (time.monotonic() + _RETRY_AFTER_SECONDS, error)
                raise
            self._model = model

    def _load_model(self) -> tuple[Any, str]:
        """Load the model; return it and the text that identifies it in the fingerprint."""
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError as error:
            raise EmbedderFailed(
                f"sentence-transformers cannot be imported: {error}",
                fix="pip install 'commonbook[sentence-transformers]', or set COMMONBOOK_EMBEDDER to static",
            ) from error
        folder = Path(self._name)
        try:
            # As in the package itself: a name that is a folder is never looked up on the hub.
            if folder.is_dir():
                return _load_from_disk(SentenceTransformer, folder), f"{folder.resolve().name}-{_hash_folder(folder)}"
            model = _load_from_disk_or_hub(SentenceTransformer, self._name)
            downloaded = _downloaded_folder(self._name)
        except Exception as error:
            # Hub, network, tokenizer and torch have errors of their own, without a common base class.
            raise EmbedderFailed(
                f"the model {self._name} cannot be loaded: {_first_line(error)}",
                fix="check the model's name or folder in COMMONBOOK_EMBEDDER; to download it, the network",
            ) from error
        # The folder of a downloaded model is named by its revision.
        return model, f"{self._name}@{downloaded.name[:12]}" if downloaded else self._name

    def _encode(self, model: Any, texts: list[str]) -> Floats:  # noqa: ANN401 - the package has types only where it is installed
        try:
            encoded = model.encode(
                texts,
                batch_size=_BATCH,
                show_progress_bar=False,
                convert_to_numpy=True,
                normalize_embeddings=True,
            )
        except Exception as error:
            raise EmbedderFailed(
                f"the model {self._name} failed on {len(texts)} texts: {_first_line(error)}",
                fix="try again with more memory, or choose a smaller model in COMMONBOOK_EMBEDDER",
            ) from error
        vectors: Floats = np.asarray(encoded, np.float32)
        return vectors


def _load_from_disk(kind: Callable[..., Any], folder: Path) -> Any:  # noqa: ANN401 - as above
    with _no_progress_bars():
        return kind(str(folder), local_files_only=True)


def _load_from_disk_or_hub(kind: Callable[..., Any], name: str) -> Any:  # noqa: ANN401 - as above
    """Load a model of the hub, from its cache if possible: by name, the package would check each file on the hub."""
    if folder := _downloaded_folder(name):
        # An interrupted download is completed below.
        with suppress(OSError, ValueError):
            return _load_from_disk(kind, folder)
    return kind(name)


def _downloaded_folder(name: str) -> Path | None:
    """Return the folder of a downloaded model of the hub, or None."""
    from huggingface_hub import try_to_load_from_cache

    # This file defines how word vectors are pooled: without it, the package would guess.
    cached = try_to_load_from_cache(name if "/" in name else f"{_ORGANISATION}/{name}", "modules.json")
    return Path(cached).parent if isinstance(cached, str) else None


@contextmanager
def _no_progress_bars() -> Iterator[None]:
    """Suppress progress bars while a model is loaded from the disk; a download keeps its own."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _hash_folder(folder: Path) -> str:
    """Return a short hash of a model's files: names, sizes, the content of small ones and samples of large ones."""
    digest = hashlib.sha256()
    try:
        for path in sorted(path for path in folder.rglob("*") if _is_model_file(path, folder)):
            size = path.stat().st_size
            digest.update(f"{path.relative_to(folder).as_posix()}\0{size}\0".encode())
            with path.open("rb") as file:
                # A model that was trained further has files of the same sizes, but hardly an equal weight.
                for piece in range(_SAMPLES):
                    file.seek(max(0, size - _SAMPLE_BYTES) * piece // (_SAMPLES - 1))
                    digest.update(file.read(_SAMPLE_BYTES))
    except OSError as error:
        raise EmbedderFailed(
            f"the model in {folder} cannot be read: {error.strerror}", fix="make its files readable for this user"
        ) from error
    return digest.hexdigest()[:12]


def _is_model_file(path: Path, folder: Path) -> bool:
    """Exclude files without influence on the vectors."""
    inside = path.relative_to(folder)
    return path.is_file() and path.suffix != ".md" and not any(part.startswith(".") for part in inside.parts)


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
