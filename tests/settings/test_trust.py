"""Trust in project files: one that came with a repository may switch capture off, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from commonbook.compose.book import open_book
from commonbook.core.settings.project_files import capture_allowed, default_space, trust, untrusted_file
from commonbook.core.settings.settings import Settings
from commonbook.errors import BadInput, NotFound
from tests.support.repositories import repository

NAMES_A_SPACE = 'space = "team/secret"\n'


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone of a repository, with a project file."""
    folder = repository(tmp_path / "user" / "code" / "birds", "https://host.example/eve/birds.git")
    (folder / ".commonbook.toml").write_text(NAMES_A_SPACE)
    return folder


def settings_at(cwd: Path) -> Settings:
    user = next(folder for folder in (cwd, *cwd.parents) if folder.name == "user")
    return Settings.load(environ={"HOME": str(user)}, cwd=cwd)


@pytest.mark.promise("access.projects")
def test_a_project_file_of_a_repository_names_no_space_until_it_is_trusted(clone: Path):
    assert default_space(settings_at(clone)) == "projects/birds"
    untrusted = untrusted_file(settings_at(clone))
    assert untrusted is not None
    assert (untrusted.path, untrusted.space) == (str(clone / ".commonbook.toml"), "team/secret")
    assert trust(settings_at(clone)).trusted
    assert default_space(settings_at(clone)) == "team/secret"
    assert untrusted_file(settings_at(clone)) is None


def test_a_file_in_no_repository_is_the_persons_own(clone: Path):
    (clone.parent / ".commonbook.toml").write_text('space = "work"\n')
    assert default_space(settings_at(clone.parent)) == "work"
    # The nearer one is not trusted, so it hides nothing.
    assert default_space(settings_at(clone)) == "work"


@pytest.mark.promise("access.projects")
def test_trust_is_for_one_path_and_one_content(clone: Path, tmp_path: Path):
    trust(settings_at(clone))
    (clone / ".commonbook.toml").write_text('space = "team/other"\n')
    assert default_space(settings_at(clone)) == "projects/birds"
    (clone / ".commonbook.toml").write_text(NAMES_A_SPACE)
    assert default_space(settings_at(clone)) == "team/secret"
    other = repository(tmp_path / "user" / "other" / "birds", "https://host.example/eve/birds.git")
    (other / ".commonbook.toml").write_text(NAMES_A_SPACE)
    assert default_space(settings_at(other)) == "projects/birds"
    assert not trust(settings_at(clone), trusted=False).trusted
    assert default_space(settings_at(clone)) == "projects/birds"


def test_nothing_in_a_repository_says_that_it_is_trusted(clone: Path):
    trust(settings_at(clone))
    assert {path.name for path in clone.iterdir()} == {".git", ".commonbook.toml"}


@pytest.mark.promise("access.projects")
def test_an_untrusted_file_switches_capture_off_and_never_on(clone: Path):
    (clone / ".commonbook.toml").write_text('capture = "off"\n')
    assert not capture_allowed(settings_at(clone))
    (clone / ".commonbook.toml").write_text('capture = "on"\n')
    (clone.parent / ".commonbook.toml").write_text('capture = "off"\n')
    assert not capture_allowed(settings_at(clone))
    trust(settings_at(clone))
    assert capture_allowed(settings_at(clone))


@pytest.mark.promise("access.projects")
@pytest.mark.parametrize("text", ["x = [", "nonsense", "space = 5", 'space = "../up"', "capture = 0", "\x00"])
def test_an_untrusted_file_that_cannot_be_obeyed_is_ignored(clone: Path, text: str):
    (clone / ".commonbook.toml").write_text(text)
    assert default_space(settings_at(clone)) == "projects/birds"
    assert capture_allowed(settings_at(clone))
    assert untrusted_file(settings_at(clone)) is None


def test_a_broken_untrusted_file_keeps_no_verb_from_its_work(clone: Path):
    (clone / ".commonbook.toml").write_text("x = [")
    with open_book(settings_at(clone), create=True) as book:
        memory_id = book.remember("the otter").id
        assert book.get(memory_id).space == "projects/birds"
        assert [hit.memory for hit in book.recall("otter").hits] == [memory_id]


def test_an_untrusted_file_that_cannot_be_read_is_ignored(clone: Path):
    (clone / ".commonbook.toml").unlink()
    (clone / ".commonbook.toml").mkdir()
    assert default_space(settings_at(clone)) == "projects/birds"
    with pytest.raises(BadInput):
        trust(settings_at(clone))


def test_an_untrusted_file_switches_capture_off_whatever_else_it_says(clone: Path):
    (clone / ".commonbook.toml").write_text('capture = "off"\nunknown = 1\n')
    assert default_space(settings_at(clone)) == "projects/birds"
    assert not capture_allowed(settings_at(clone))


@pytest.mark.parametrize(("value", "allowed"), [("true", True), ("false", False)])
def test_capture_may_be_a_boolean(clone: Path, value: str, allowed: bool):
    (clone / ".commonbook.toml").write_text(f"capture = {value}\n")
    assert capture_allowed(settings_at(clone)) is allowed
    trust(settings_at(clone))
    assert capture_allowed(settings_at(clone)) is allowed


def test_a_file_below_the_top_of_a_repository_needs_trust_too(clone: Path):
    (clone / "deep" / "er").mkdir(parents=True)
    (clone / "deep" / ".commonbook.toml").write_text('space = "team/deep"\n')
    assert default_space(settings_at(clone / "deep" / "er")) == "projects/birds"
    trust(settings_at(clone), "deep")
    assert default_space(settings_at(clone / "deep" / "er")) == "team/deep"


def test_trust_needs_a_file_that_can_be_obeyed(clone: Path):
    with pytest.raises(NotFound):
        trust(settings_at(clone), "nowhere")
    (clone / ".commonbook.toml").write_text("nonsense")
    with pytest.raises(BadInput):
        trust(settings_at(clone))
