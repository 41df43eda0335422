"""The pages match the program: settings and links."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from commonbook.core.settings.remote import RemoteSettings
from commonbook.core.settings.settings import CONFIG_KEYS, PROJECT_KEYS, Settings
from commonbook.errors import BadInput
from commonbook.interfaces.cli.commands import make_parser
from commonbook.verbs import declared_verbs

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "commonbook"
PAGES = [
    page.relative_to(ROOT)
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), SOURCE / "adapters" / "hermes" / "README.md")
]
SETTINGS = (ROOT / "docs" / "SETTINGS.md").read_text(encoding="utf-8")


class Recorder(Mapping[str, str]):
    """An empty environment that records the names it is asked for."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> str:
        self.names.add(name)
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
    assert documented("Environment") == environ.names


def test_every_variable_of_a_remote_client_is_documented_and_nothing_else():
    environ = Recorder()
    RemoteSettings.load(environ)
    assert documented("Remote clients") == environ.names


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
    assert readers == {"core/settings/remote.py", "core/settings/settings.py"}


def blocks(page: str, language: str) -> list[str]:
    """The code blocks of a page in one language."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [block.split("```")[0] for block in text.split(f"```{language}\n")[1:]]


@pytest.mark.parametrize("page", ["README.md", "docs/GUIDE.md"])
def test_the_python_of_a_page_runs(page, tmp_path, monkeypatch):
    found = blocks(page, "python")
    assert found
    for number, block in enumerate(found):
        monkeypatch.setenv("HOME", str(tmp_path / f"user{number}"))
        exec(compile(block, page, "exec"), {})


def type_check(folder: Path, files: Mapping[str, str]) -> str:
    """Return the findings of `mypy --strict` in files of a user's project, which has no settings of its own."""
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={folder / 'cache'}", *files]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240, check=False).stdout


def test_the_python_of_the_pages_passes_a_strict_type_checker(tmp_path):
    files = {
        f"{Path(page).stem.lower()}{number}.py": block
        for page in ("README.md", "docs/GUIDE.md")
        for number, block in enumerate(blocks(page, "python"))
    }
    readme = files["readme0.py"]
    assert "hit.path" in readme
    wrong = {"name.py": readme.replace("hit.path", "hit.pfad"), "word.py": readme.replace("k=5", 'kinds=["facts"]')}
    found = type_check(tmp_path, {**files, **wrong}).splitlines()
    assert {line.partition(":")[0] for line in found if ": error:" in line} == set(wrong), found


def test_the_shell_commands_of_the_readme_run(tmp_path):
    (block,) = blocks("README.md", "sh")
    environ = {"HOME": str(tmp_path), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "TZ": "UTC"}
    done = subprocess.run(
        ["sh", "-eu", "-c", block], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "+Ask her before you change an invoice." in done.stdout, "the edit by hand is in the history"
    assert "the log is intact" in done.stdout


def commands_of(page: Path) -> Iterator[list[str]]:
    """The commands of a page, in its examples and between its words, without the name of the program."""
    text = (ROOT / page).read_text(encoding="utf-8")
    prose = re.sub(r"```.*?```|^    .*?$", "", text, flags=re.DOTALL | re.MULTILINE)
    between_words = re.findall(r"`commonbook\s([^`]+)`", prose)
    for command in between_words + re.findall(r"^\s*(?:\$ )?(?:\w+=\S+ )*commonbook (.+)$", text, re.MULTILINE):
        first, *words = shlex.split(re.sub(r"\$\(.*?\)", "ID", command.split(" | ")[0]), comments=True)
        for name in first.split("|"):
            yield [name, *words]


def refusal_of(words: list[str]) -> str:
    """Return why a command does not parse, or nothing; that an argument is missing is left out."""
    try:
        make_parser(words).parse_args(words)
    except SystemExit as answered:  # of `--help`
        return "" if answered.code == 0 else f"{words}: exit code {answered.code}"
    except BadInput as refused:
        return "" if refused.message.startswith("the following arguments are required") else f"{words}: {refused}"
    return ""


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_command_that_a_page_shows_exists_with_its_options(page):
    assert [refusal for words in commands_of(page) if (refusal := refusal_of(words))] == []


def test_a_command_that_is_gone_would_be_found():
    assert ["recall", "who is responsible for payments"] in list(commands_of(Path("docs/GUIDE.md")))
    assert "no option '--fast'" in refusal_of(["recall", "x", "--fast"])
    assert "no command 'remind'" in refusal_of(["remind", "x"])


def without_names(path: str) -> str:
    """A path over HTTP, with every argument in it as `{}`."""
    return re.sub(r"\{[^}]*\}", "{}", path)


def test_every_path_over_http_that_a_page_shows_is_declared():
    declared = {without_names(path) for verb in declared_verbs() for path in (verb.path, verb.several) if path}
    pages = [page for page in PAGES if page.parent.name != "decisions"]
    text = "".join((ROOT / page).read_text(encoding="utf-8") for page in pages)
    shown = {without_names(path) for path in re.findall(r"/v1/[\w/{}]+", text)}
    assert "/v1/memories/{}" in shown
    assert shown - declared == set()


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_link_to_a_file_or_heading_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", (ROOT / page).read_text(encoding="utf-8")):
        path, _, anchor = target.partition("#")
        if "://" in path:
            continue
        there = (ROOT / page).parent / path if path else ROOT / page
        assert there.exists(), target
        assert not anchor or anchor in anchors(there), target


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "ARCHITECTURE.md"], ids=str)
def test_the_lines_of_a_page_have_at_most_120_characters(page):
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    assert not [line for line in lines if len(line) > 120 and not line.lstrip().startswith("|")]
