"""The documents say what the program does."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from commonbook.settings import CONFIG_KEYS, PROJECT_KEYS, Settings

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "commonbook"
SETTINGS = (ROOT / "docs" / "SETTINGS.md").read_text(encoding="utf-8")


class Recorder(Mapping[str, str]):
    """An empty environment that remembers what it was asked for."""

    def __init__(self) -> None:
        self.asked: set[str] = set()

    def __getitem__(self, name: str) -> str:
        self.asked.add(name)
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("settings are asked for by name")

    def __len__(self) -> int:
        return 0


def documented(heading: str) -> set[str]:
    """The names in the first column of the table below a heading."""
    section = SETTINGS.split(f"## {heading}\n")[1].split("\n## ")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return set(re.findall(r"`([^`]+)`", " ".join(cells)))


def test_every_environment_variable_is_documented_and_nothing_else(tmp_path):
    environ = Recorder()
    Settings.load(environ=environ, cwd=tmp_path)
    assert documented("Environment") == environ.asked


def test_every_key_of_the_homes_configuration_is_documented():
    assert documented("The home: `.commonbook/config.toml`") == set(CONFIG_KEYS)


def test_every_key_of_a_project_file_is_documented():
    assert documented("A project: `.commonbook.toml`") == set(PROJECT_KEYS)


def test_nothing_but_settings_reads_the_environment():
    readers = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if re.search(r"\b(os\.environ\b|os\.getenv\b|environb\b|import environ\b)", path.read_text(encoding="utf-8"))
    }
    assert readers == {"settings.py"}


def test_the_python_of_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("COMMONBOOK_HOME", str(tmp_path / "home"))
    for block in (ROOT / "README.md").read_text().split("```python\n")[1:]:
        exec(compile(block.split("```")[0], "README.md", "exec"), {})
