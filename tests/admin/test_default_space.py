"""The default space of writes that name none: by the repository of the owner, and by the API key of others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from commonbook.errors import BadInput, NotAllowed
from commonbook.service.book import Book
from tests.conftest import OpenBook
from tests.support.repositories import repository, worktree

At = Callable[[Path], Book]


@pytest.fixture
def at(open_book: OpenBook, monkeypatch: pytest.MonkeyPatch) -> At:
    """Open the book in a working directory."""

    def opening(folder: Path) -> Book:
        monkeypatch.chdir(folder)
        return open_book()

    return opening


def written(book: Book, text: str = "a line") -> str:
    """Write to the default space, and return its name."""
    return book.get(book.remember(text).id).space


# --- repositories


@pytest.mark.promise("access.repositories")
def test_two_origins_of_one_name_are_two_spaces(at: At, tmp_path: Path):
    corp = repository(tmp_path / "a" / "backend", "git@host.example:corp/backend.git")
    evil = repository(tmp_path / "b" / "backend", "https://host.example/evil/backend")
    assert written(at(corp), "the walrus sleeps") == "projects/backend"
    assert written(at(evil), "the walrus swims") == "projects/evil-backend"
    assert [hit.text for hit in at(evil).recall("walrus").hits] == ["the walrus swims"]
    assert (at(corp).default_space, at(evil).default_space) == ("projects/backend", "projects/evil-backend")


@pytest.mark.promise("access.repositories")
def test_all_clones_and_worktrees_of_a_repository_share_its_space(at: At, tmp_path: Path):
    repository(tmp_path / "x" / "backend", "https://host.example/evil/backend")
    forms = (
        "git@host.example:corp/backend.git",
        "https://user:secret@HOST.example/corp/backend.git/",
        "ssh://git@host.example:2222/corp/backend",
    )
    clones = [repository(tmp_path / str(n) / "backend", form) for n, form in enumerate(forms)]
    assert written(at(tmp_path / "x" / "backend")) == "projects/backend"
    names = {written(at(clone)) for clone in (*clones, worktree(clones[0], tmp_path / "elsewhere" / "topic"))}
    assert names == {"projects/corp-backend"}


def test_reading_records_nothing(at: At, tmp_path: Path):
    corp = repository(tmp_path / "a" / "backend", "git@host.example:corp/backend.git")
    evil = repository(tmp_path / "b" / "backend", "https://host.example/evil/backend")
    book = at(evil)
    book.recall("anything")
    assert book.default_space == "projects/backend"
    assert written(at(corp)) == "projects/backend"
    assert book.default_space == "projects/evil-backend"


@pytest.mark.promise("access.repositories")
def test_a_longer_name_is_never_the_space_of_something_else(at: At, tmp_path: Path):
    corp = repository(tmp_path / "a" / "backend", "git@host.example:corp/backend.git")
    evil = repository(tmp_path / "b" / "backend", "https://host.example/evil/backend")
    other = repository(tmp_path / "c" / "backend", "https://other.example/evil/backend")
    at(corp).remember("a line")
    at(corp).create_space("projects/evil-backend")
    names = [written(at(folder)) for folder in (evil, other, evil)]
    assert names[0] == names[2]
    assert len({*names, "projects/backend", "projects/evil-backend"}) == 4
    assert all(name.startswith("projects/evil-backend-") for name in names)


def test_a_repository_that_gets_an_origin_keeps_its_space(at: At, tmp_path: Path):
    mine = repository(tmp_path / "a" / "backend")
    assert written(at(mine)) == "projects/backend"
    assert written(at(repository(tmp_path / "b" / "backend"))) == "projects/b-backend"
    repository(mine, "git@host.example:me/backend.git")
    assert written(at(mine)) == "projects/backend"
    assert written(at(repository(tmp_path / "c" / "backend", "https://host.example/me/backend"))) == "projects/backend"


# --- principals


@pytest.mark.promise("access.principals")
def test_a_key_has_a_default_space_of_its_own(book: Book):
    book.grant("agent:helper", "team", "writer")
    book.grant("agent:helper", "other", "writer")
    helper = book.with_key(book.create_key("agent:helper", space="team").secret)
    assert helper.default_space == "team"
    assert written(helper) == "team"
    assert helper.append("s", ["hello"]).messages
    assert [session.space.name for session in helper.sessions()] == ["team"]
    book.rename_space("team", "crew")
    assert written(helper, "another line") == "crew"


@pytest.mark.promise("access.principals")
def test_without_a_default_space_a_write_is_refused_with_the_spaces_that_there_are(book: Book):
    book.grant("agent:helper", "team", "writer")
    book.grant("agent:helper", "library", "reader")
    book.remember("not for the helper", space="secret")
    helper = book.with_key(book.create_key("agent:helper").secret)
    for write in (
        lambda: helper.remember("a line"),
        lambda: helper.append("s", ["hello"]),
        lambda: helper.reflect("a thought", []),
    ):
        with pytest.raises(NotAllowed) as refused:
            write()
        assert refused.value.fix == "name one of those that it may write to: team"
    assert helper.remember("a line", space="team").new
    stranger = book.with_key(book.create_key("agent:stranger").secret)
    with pytest.raises(NotAllowed, match="no default space") as refused:
        stranger.remember("a line")
    assert "secret" not in refused.value.fix


@pytest.mark.promise("access.principals")
def test_where_the_server_runs_says_nothing_about_a_principal(at: At, tmp_path: Path):
    book = at(repository(tmp_path / "backend", "git@host.example:corp/backend.git"))
    book.grant("agent:helper", "projects", "admin")
    with pytest.raises(NotAllowed, match="no default space"):
        book.acting_as("agent:helper").remember("a line")


def test_a_default_space_gives_no_right(book: Book):
    book.create_space("secret")
    helper = book.with_key(book.create_key("agent:helper", space="secret").secret)
    with pytest.raises(NotAllowed):
        helper.remember("a line")
    with pytest.raises(BadInput, match="limits"):
        book.create_key("agent:helper", space="secret", limits=[("secret", "reader")])
