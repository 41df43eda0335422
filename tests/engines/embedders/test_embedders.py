"""Which embedder is chosen, and our part of the one on sentence-transformers.

Real here: entry points of installed packages (one is installed for the test), and the files of a model's folder.
Not real: sentence-transformers and the two packages below it. What stands in for them only counts letters, so these
tests show what we ask of the package and what we make of its answers and errors, and nothing about models. The package
itself, with torch and the weights of all-MiniLM-L6-v2, is tested in tests_models/ (`make check-models`).
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from commonbook.engines.embedders import registry
from commonbook.engines.embedders.http import HttpEmbedder
from commonbook.engines.embedders.registry import embedder_for
from commonbook.engines.embedders.sentence_model import SentenceModel
from commonbook.engines.embedders.static_table import StaticTable
from commonbook.errors import BadInput, EmbedderFailed
from commonbook.ports.embedding import Embedder, EmbedderChoice, EmbeddingInput

ROOT = Path(__file__).parents[3]


def inputs(*texts: str) -> list[EmbeddingInput]:
    return [EmbeddingInput(text, {}) for text in texts]


# Which one


def test_the_default_is_the_static_table_and_gives_its_vectors():
    found = embedder_for(EmbedderChoice())
    assert isinstance(found, StaticTable)
    assert not found.slow
    vectors = found.embed([EmbeddingInput("a house", {"house": 1.0})])
    assert vectors.shape == (1, found.dimensions)
    assert vectors.any()


def test_a_model_on_this_machine_is_named_with_its_embedder():
    found = embedder_for(EmbedderChoice("sentence-transformers", "mini"))
    assert isinstance(found, SentenceModel)
    assert repr(found) == "SentenceModel('mini')"


def test_an_openai_embedder_goes_to_the_address_that_was_set_or_else_to_openai():
    own = embedder_for(EmbedderChoice("openai", "small", "http://localhost:1/v1"))
    assert isinstance(own, HttpEmbedder)
    assert repr(own) == "HttpEmbedder('http://localhost:1/v1/embeddings', 'small')"
    assert "'https://api.openai.com/v1/embeddings'" in repr(embedder_for(EmbedderChoice("openai", "small", None, "k")))


@pytest.mark.parametrize(
    ("choice", "fix"),
    [
        (EmbedderChoice("static", "some"), "COMMONBOOK_EMBEDDER to static"),
        (EmbedderChoice("openai", None, None, "k"), "openai:text-embedding-3-small"),
        (EmbedderChoice("openai", "small"), "COMMONBOOK_EMBEDDER_KEY"),
        (EmbedderChoice("sentence-transformers"), "sentence-transformers:all-MiniLM-L6-v2"),
    ],
)
def test_a_choice_that_says_too_little_or_too_much_is_bad_input_with_a_fix(choice, fix):
    with pytest.raises(BadInput) as caught:
        embedder_for(choice)
    assert fix in caught.value.fix


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package of somebody else, with embedders of its own."""
    info = tmp_path / "site" / "acme_embed-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-embed\nVersion: 1.0\n")
    offers = {
        "acme": "acme_embed:make",
        "broken": "acme_embed:no",
        "gone": "acme_gone:make",
        "static": "acme_embed:make",
    }
    lines = [f"{name} = {target}\n" for name, target in offers.items()]
    (info / "entry_points.txt").write_text("[commonbook.embedders]\n" + "".join(lines))
    (info.parent / "acme_embed.py").write_text("def make(choice):\n    return ('made by acme', choice)\n")
    monkeypatch.syspath_prepend(str(info.parent))


def test_another_package_can_bring_an_embedder(installed):
    choice = EmbedderChoice("acme", "large", "https://acme.example", "k")
    found: object = embedder_for(choice)
    assert found == ("made by acme", choice)


def test_no_package_can_take_the_place_of_ours(installed):
    assert isinstance(embedder_for(EmbedderChoice("static")), StaticTable)


@pytest.mark.parametrize("name", ["broken", "gone"])
def test_an_embedder_that_cannot_be_imported_has_failed(installed, name):
    with pytest.raises(EmbedderFailed, match=name) as caught:
        embedder_for(EmbedderChoice(name))
    assert caught.value.fix


def test_an_unknown_name_is_bad_input_that_lists_the_known_ones(installed):
    with pytest.raises(BadInput, match="'fancy'") as caught:
        embedder_for(EmbedderChoice("fancy"))
    assert "acme, broken, gone, openai, sentence-transformers, static" in caught.value.fix


def test_the_package_offers_the_same_three_by_entry_point():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    offered = project["project"]["entry-points"][registry.GROUP]
    found = {}
    for name, target in offered.items():
        module, _, attribute = target.partition(":")
        found[name] = getattr(importlib.import_module(module), attribute)
    assert found == registry._BUILT_IN


def test_ours_are_found_without_a_look_at_the_installed_packages():
    program = (
        "import sys\n"
        "from commonbook.engines.embedders.registry import embedder_for\n"
        "from commonbook.ports.embedding import EmbedderChoice\n"
        "early = {'numpy', 'urllib.request'} & set(sys.modules)\n"
        "embedder_for(EmbedderChoice('openai', 'small', 'http://localhost:1'))\n"
        "embedder_for(EmbedderChoice('sentence-transformers', 'mini'))\n"
        "slow = {'importlib.metadata', 'sentence_transformers', 'torch'} & set(sys.modules)\n"
        "sys.exit(f'{early} {slow}' if early | slow else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# A model on this machine, as far as it is ours


class Library:
    """A fake of the package sentence-transformers: it counts letters, and fails on command."""

    def __init__(self) -> None:
        self.made: list[tuple[str, bool]] = []
        self.encoded: list[tuple[list[str], dict[str, Any]]] = []
        self.on_disk: dict[str, str] = {}
        self.bars = True
        self.bars_while_loading: list[bool] = []
        self.error: Exception | None = None
        self.error_on_disk: Exception | None = None
        self.answer: np.ndarray | None = None

    def SentenceTransformer(self, name: str, *, local_files_only: bool = False) -> Library:  # noqa: N802
        self.made.append((name, local_files_only))
        self.bars_while_loading.append(self.bars)
        time.sleep(0.01)
        if error := self.error or (self.error_on_disk if local_files_only else None):
            raise error
        return self

    def encode(self, texts: Sequence[str], **options: object) -> np.ndarray:
        self.encoded.append((list(texts), options))
        if self.answer is not None and texts != ["dimensions"]:
            return self.answer
        return np.array([[len(text), text.count("e"), 1.0] for text in texts])

    def try_to_load_from_cache(self, repo: str, file: str) -> str | None:
        revision = self.on_disk.get(repo)
        return revision and f"/cache/{repo}/{revision}/{file}"

    def is_progress_bar_enabled(self) -> bool:
        return self.bars

    def disable_progress_bar(self) -> None:
        self.bars = False

    def enable_progress_bar(self) -> None:
        self.bars = True


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    standing_in = Library()
    for name in ("sentence_transformers", "huggingface_hub", "transformers", "transformers.utils"):
        module = ModuleType(name)
        vars(module).update(
            SentenceTransformer=standing_in.SentenceTransformer,
            try_to_load_from_cache=standing_in.try_to_load_from_cache,
            logging=standing_in,
        )
        monkeypatch.setitem(sys.modules, name, module)
    return standing_in


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder as a model has it."""
    made = tmp_path / "mini"
    (made / "1_Pooling").mkdir(parents=True)
    (made / "config.json").write_text('{"hidden_size": 384}')
    (made / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    (made / "model.safetensors").write_bytes(bytes(5_000_000))
    (made / "README.md").write_text("A model.")
    return made


def test_texts_go_to_the_model_as_they_stand_in_one_call_that_batches(library):
    model: Embedder = SentenceModel("mini")
    found = model.embed(inputs("one", "three", ""))
    assert found.tolist() == [[3, 1, 1], [5, 2, 1], [0, 0, 1]]
    assert found.dtype == np.float32
    texts, options = library.encoded[-1]
    assert texts == ["one", "three", ""]
    assert options["batch_size"] > 1
    assert options["normalize_embeddings"] is True
    assert options["show_progress_bar"] is False
    assert (model.slow, model.dimensions, len(library.made)) == (True, 3, 1)


def test_no_texts_are_no_vectors_and_no_work(library):
    model = SentenceModel("mini")
    assert model.embed([]).shape == (0, 3)
    assert [texts for texts, _ in library.encoded] == [["dimensions"]]


def test_a_model_is_loaded_when_it_is_first_needed_and_once_however_many_threads_need_it(library):
    model = SentenceModel("mini")
    assert library.made == []
    threads = [threading.Thread(target=lambda: model.fingerprint) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(library.made) == 1


def test_two_models_have_two_fingerprints(library):
    prints = {SentenceModel(name).fingerprint for name in ("mini", "maxi", "org/mini")}
    assert prints == {f"sentence-transformers/{name}/3" for name in ("mini", "maxi", "org/mini")}


def test_a_model_of_the_hub_that_was_downloaded_before_is_loaded_without_the_hub(library):
    library.on_disk = {"sentence-transformers/mini": "c9745ed1d9f207416be6d2e6", "org/maxi": "1110a243fdf4"}
    assert SentenceModel("mini").fingerprint == "sentence-transformers/mini@c9745ed1d9f2/3"
    assert SentenceModel("org/maxi").fingerprint == "sentence-transformers/org/maxi@1110a243fdf4/3"
    folders = ["/cache/sentence-transformers/mini/c9745ed1d9f207416be6d2e6", "/cache/org/maxi/1110a243fdf4"]
    assert library.made == [(folder, True) for folder in folders]


def test_another_revision_of_a_model_has_another_fingerprint(library):
    library.on_disk = {"org/mini": "aaaaaaaaaaaa"}
    before = SentenceModel("org/mini").fingerprint
    library.on_disk = {"org/mini": "bbbbbbbbbbbb"}
    assert SentenceModel("org/mini").fingerprint != before


@pytest.mark.parametrize("error", [OSError("no such file"), ValueError("unrecognised model")])
def test_what_an_interrupted_download_left_out_is_fetched(library, error):
    library.on_disk = {"sentence-transformers/mini": "c9745ed1d9f2"}
    library.error_on_disk = error
    assert SentenceModel("mini").dimensions == 3
    assert library.made == [("/cache/sentence-transformers/mini/c9745ed1d9f2", True), ("mini", False)]


def test_the_name_of_a_folder_and_what_is_in_it_make_the_fingerprint(library, folder):
    before = SentenceModel(str(folder)).fingerprint
    assert before.startswith("sentence-transformers/mini-")
    assert before.endswith("/3")
    assert library.made == [(str(folder), True)]
    assert SentenceModel(str(folder) + "/").fingerprint == before


def test_a_folder_that_was_moved_is_the_same_model(library, folder, tmp_path):
    before = SentenceModel(str(folder)).fingerprint
    (tmp_path / "elsewhere").mkdir()
    folder.rename(tmp_path / "elsewhere" / "mini")
    assert SentenceModel(str(tmp_path / "elsewhere" / "mini")).fingerprint == before


def change_some_weights(folder: Path) -> None:
    """As further training does, which may leave the first layers alone: the file keeps its size and its beginning."""
    with (folder / "model.safetensors").open("r+b") as file:
        for at in range(2_500_000, 5_000_000, 10_000):
            file.seek(at)
            file.write(b"\1")


CHANGES = {
    "another configuration": lambda folder: (folder / "config.json").write_text('{"hidden_size": 385}'),
    "another pooling": lambda folder: (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls": 1}'),
    "weights of another size": lambda folder: (folder / "model.safetensors").write_bytes(bytes(5_000_001)),
    "weights that were trained further": change_some_weights,
    "a file more": lambda folder: (folder / "2_Dense.json").write_text("{}"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_another_model_in_the_same_folder_has_another_fingerprint(library, folder, what):
    before = SentenceModel(str(folder)).fingerprint
    CHANGES[what](folder)
    assert SentenceModel(str(folder)).fingerprint != before


def test_what_says_nothing_about_the_vectors_leaves_the_fingerprint_alone(library, folder):
    before = SentenceModel(str(folder)).fingerprint
    (folder / "README.md").write_text("The same model, described better.")
    (folder / ".cache").mkdir()
    (folder / ".cache" / "lock").write_text("")
    os.utime(folder / "config.json", (1, 1))
    assert SentenceModel(str(folder)).fingerprint == before


def test_progress_bars_are_off_only_while_a_model_is_loaded_from_the_disk(library, folder):
    assert SentenceModel(str(folder)).dimensions == 3
    assert (library.bars_while_loading, library.bars) == ([False], True)
    assert SentenceModel("to-download").dimensions == 3
    assert (library.bars_while_loading, library.bars) == ([False, True], True)
    library.bars = False
    assert SentenceModel(str(folder)).dimensions == 3
    assert not library.bars


@pytest.mark.parametrize("ask", [lambda model: model.fingerprint, lambda model: model.embed(inputs("one"))])
def test_without_the_package_the_embedder_has_failed_and_the_fix_says_what_to_install(monkeypatch, ask):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(EmbedderFailed) as caught:
        ask(SentenceModel("mini"))
    assert "commonbook[sentence-transformers]" in caught.value.fix


@pytest.mark.parametrize("error", [OSError("not found\nand much more"), RuntimeError("size mismatch"), KeyError("x")])
def test_a_model_that_cannot_be_loaded_is_a_failure_in_one_line_that_names_it(library, error):
    library.error = error
    with pytest.raises(EmbedderFailed, match="model mini cannot be loaded") as caught:
        SentenceModel("mini").embed(inputs("one"))
    assert "\n" not in caught.value.message
    assert caught.value.fix


def test_a_model_that_could_not_be_loaded_is_left_alone_for_a_while(library, monkeypatch):
    model = SentenceModel("mini")
    library.error = OSError("the hub does not answer")
    for _ in range(3):
        with pytest.raises(EmbedderFailed, match="the hub does not answer"):
            model.embed(inputs("one"))
    assert len(library.made) == 1
    library.error = None
    later = time.monotonic() + 61
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert model.dimensions == 3


WRONG = {
    "too few": np.ones((1, 3)),
    "too short": np.ones((2, 2)),
    "flat": np.ones(6),
    "not a number": np.array([[1.0, 2.0, 3.0], [1.0, np.nan, 3.0]]),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_vectors_that_are_none_are_a_failure(library, wrong):
    library.answer = WRONG[wrong]
    with pytest.raises(EmbedderFailed, match="2 vectors of 3"):
        SentenceModel("mini").embed(inputs("one", "two"))


def test_a_model_that_breaks_down_while_it_encodes_is_a_failure(library, monkeypatch):
    model = SentenceModel("mini")
    assert model.dimensions == 3

    def out_of_memory(*args: object, **options: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(library, "encode", out_of_memory)
    with pytest.raises(EmbedderFailed, match="out of memory"):
        model.embed(inputs("one"))
