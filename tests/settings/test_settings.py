"""Settings: the home, the space, the zone and the time to wait, from arguments, environment and files."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonbook.core.settings import git_repository
from commonbook.core.settings.project_files import default_space
from commonbook.core.settings.settings import Settings
from commonbook.core.text import space_names
from commonbook.errors import BadInput, BadSpaceName
from commonbook.ports.embedding import EmbedderChoice
from tests.support.repositories import repository


@pytest.fixture
def user(tmp_path: Path) -> Path:
    """A user's folder, with nothing in it."""
    folder = tmp_path / "user"
    folder.mkdir()
    return folder


def load(user: Path, cwd: Path | None = None, **variables: str) -> Settings:
    return Settings.load(environ={"HOME": str(user), **variables}, cwd=cwd or user)


def space_at(user: Path, cwd: Path, **variables: str) -> str:
    return default_space(load(user, cwd, **variables))


def configure(home: Path, text: str) -> None:
    (home / ".commonbook").mkdir(parents=True, exist_ok=True)
    (home / ".commonbook" / "config.toml").write_text(text)


# The home


def test_the_home_is_a_folder_of_the_user_when_nothing_else_is_said(user):
    assert load(user).home == str(user / "commonbook")


def test_an_argument_wins_over_the_environment(user, tmp_path):
    environ = {"HOME": str(user), "COMMONBOOK_HOME": "/elsewhere", "COMMONBOOK_SPACE": "work"}
    found = Settings.load(tmp_path / "mine", space="asked", environ=environ, cwd=user)
    assert (found.home, found.space) == (str(tmp_path / "mine"), "asked")


def test_a_variable_that_is_empty_counts_as_not_set(user):
    found = load(user, COMMONBOOK_HOME="", COMMONBOOK_SPACE="", COMMONBOOK_ZONE="", COMMONBOOK_BUSY_SECONDS="")
    assert found == load(user)
    assert load(user, COMMONBOOK_EMBEDDER="", COMMONBOOK_EMBEDDER_URL="", COMMONBOOK_EMBEDDER_KEY="") == load(user)


@pytest.mark.parametrize("value", ["notes", "./notes", "~/project/notes"])
def test_the_home_may_be_relative_or_begin_with_a_tilde(user, value):
    assert load(user, user / "project", COMMONBOOK_HOME=value).home == str(user / "project" / "notes")


def test_the_home_is_the_same_by_whichever_link_it_is_reached(user, tmp_path):
    (tmp_path / "link").symlink_to(user)
    assert load(user, COMMONBOOK_HOME=str(tmp_path / "link" / "notes")).home == str(user / "notes")


@pytest.mark.parametrize("home", ["", "  ", "a\0b", "~\0x", "\ud800"])
def test_a_home_that_cannot_be_a_folder_is_bad_input(user, home):
    with pytest.raises(BadInput) as caught:
        Settings.load(home, environ={}, cwd=user)
    assert caught.value.fix


def test_an_empty_space_is_bad_input_and_not_the_default(user):
    with pytest.raises(BadInput, match="space is empty"):
        Settings.load(space="", environ={}, cwd=user)


def test_a_working_directory_that_was_removed_is_no_obstacle_to_an_absolute_home(user, monkeypatch):
    gone = user / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    found = Settings.load(user / "notes", environ={})
    assert (found.home, default_space(found)) == (str(user / "notes"), "personal")
    with pytest.raises(BadInput, match="relative"):
        Settings.load("notes", environ={})


# The zone, the patience, and the rest


def test_the_home_can_have_a_zone_and_a_patience_of_its_own(user):
    configure(user / "commonbook", 'zone = "Europe/Berlin"\nbusy_seconds = 5\n')
    assert (load(user).zone, load(user).busy_seconds) == ("Europe/Berlin", 5.0)


def test_the_environment_wins_over_the_homes_configuration(user):
    configure(user / "commonbook", 'zone = "Europe/Berlin"\nbusy_seconds = 5\n')
    found = load(user, COMMONBOOK_ZONE="Asia/Tokyo", COMMONBOOK_BUSY_SECONDS="0.5")
    assert (found.zone, found.busy_seconds) == ("Asia/Tokyo", 0.5)


def test_the_systems_zone_never_passes_for_the_homes(user):
    found = load(user, TZ="Asia/Tokyo")
    assert (found.zone, found.system_zone) == (None, "Asia/Tokyo")


@pytest.mark.parametrize("value", ["soon", "-1", "nan", "inf", "1 minute"])
def test_a_patience_that_is_no_number_of_seconds_is_bad_input(user, value):
    with pytest.raises(BadInput, match="COMMONBOOK_BUSY_SECONDS"):
        load(user, COMMONBOOK_BUSY_SECONDS=value)


@pytest.mark.parametrize(
    "text",
    [
        "zone = 5",
        'zone = ""',
        "busy_seconds = true",
        'busy_seconds = "5"',
        "busy_seconds = -1",
        "busy_seconds = nan",
        "zone",
        "embedder = 5",
        'embedder = ""',
        'embedder = "openai:"',
        'embedder = "openai:a\\u0000b"',
        'embedder_url = "host.example"',
        "embedder_url = []",
        "outbox = 5",
        'outbox = ""',
        'outbox = "a\\u0000b"',
    ],
)
def test_a_configuration_that_makes_no_sense_is_bad_input_that_names_the_file(user, text):
    configure(user / "commonbook", text)
    with pytest.raises(BadInput, match=r"config\.toml") as caught:
        load(user)
    assert caught.value.fix


def test_an_unknown_key_is_bad_input_with_a_fix_that_names_the_known_ones(user):
    configure(user / "commonbook", 'timezone = "Europe/Berlin"')
    with pytest.raises(BadInput, match="timezone") as caught:
        load(user)
    assert "busy_seconds, embedder, embedder_url, outbox, zone" in caught.value.fix


def test_a_configuration_that_is_not_utf_8_or_not_a_file_is_bad_input(user):
    configure(user / "commonbook", "")
    config = user / "commonbook" / ".commonbook" / "config.toml"
    config.write_bytes(b'zone = "\xff"')
    with pytest.raises(BadInput, match="not TOML"):
        load(user)
    config.unlink()
    config.mkdir()
    with pytest.raises(BadInput, match="cannot be read"):
        load(user)


def test_the_editor_is_visual_or_else_editor(user):
    assert load(user).editor is None
    assert load(user, EDITOR="vi").editor == "vi"
    assert load(user, EDITOR="vi", VISUAL="code --wait").editor == "code --wait"


def test_colour_is_welcome_unless_the_environment_says_otherwise(user):
    assert load(user).colour
    assert not load(user, NO_COLOR="1").colour
    assert not load(user, TERM="dumb").colour


# The embedder


def test_the_embedder_is_the_static_one_when_nothing_is_said(user):
    assert load(user).embedder == EmbedderChoice("static", None, None, None)


@pytest.mark.parametrize(
    ("value", "name", "model"),
    [
        ("static", "static", None),
        ("openai:text-embedding-3-small", "openai", "text-embedding-3-small"),
        ("sentence-transformers:BAAI/bge-small-en", "sentence-transformers", "BAAI/bge-small-en"),
        ("sentence-transformers:/models/my own: mini", "sentence-transformers", "/models/my own: mini"),
        ("acme.embed_2:x", "acme.embed_2", "x"),
    ],
)
def test_an_embedder_is_a_name_and_maybe_a_model(user, value, name, model):
    found = load(user, COMMONBOOK_EMBEDDER=value).embedder
    assert (found.name, found.model) == (name, model)


def test_the_outbox_is_in_the_home_unless_the_environment_or_the_home_says_otherwise(user):
    home = user / "commonbook"
    assert load(user).outbox == str(home / ".commonbook" / "outbox.db")
    configure(home, 'outbox = "elsewhere/box.db"')
    assert load(user).outbox == str(home / "elsewhere" / "box.db")
    configure(home, 'outbox = "~/box.db"')
    assert load(user).outbox == str(user / "box.db")
    assert load(user, COMMONBOOK_OUTBOX="/var/box.db").outbox == "/var/box.db"
    assert load(user, COMMONBOOK_OUTBOX="box.db", cwd=user / "work").outbox == str(user / "work" / "box.db")


def test_the_folder_of_a_model_may_begin_with_a_tilde(user):
    found = load(user, COMMONBOOK_EMBEDDER="sentence-transformers:~/models/mini").embedder
    assert found.model == str(user / "models" / "mini")


def test_the_home_can_have_an_embedder_of_its_own_and_the_environment_wins_over_each_part(user):
    configure(user / "commonbook", 'embedder = "openai:small"\nembedder_url = "http://localhost:11434/v1"\n')
    assert load(user).embedder == EmbedderChoice("openai", "small", "http://localhost:11434/v1", None)
    found = load(user, COMMONBOOK_EMBEDDER="openai:large", COMMONBOOK_EMBEDDER_KEY="sk-1").embedder
    assert found == EmbedderChoice("openai", "large", "http://localhost:11434/v1", "sk-1")
    assert load(user, COMMONBOOK_EMBEDDER_URL="https://[::1]:8443").embedder.url == "https://[::1]:8443"


def test_a_key_is_never_read_from_a_file(user):
    configure(user / "commonbook", 'embedder_key = "sk-1"')
    with pytest.raises(BadInput, match="embedder_key"):
        load(user)


def test_settings_do_not_show_the_key(user):
    found = load(user, COMMONBOOK_EMBEDDER_KEY="sk-secret")
    assert found.embedder.key == "sk-secret"
    assert "sk-secret" not in f"{found} {found!r} {found.embedder} {found.embedder!r}"
    assert "key='...'" in repr(found)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("EMBEDDER", "OpenAI"),
        ("EMBEDDER", ":model"),
        ("EMBEDDER", "openai:"),
        ("EMBEDDER", "openai: small"),
        ("EMBEDDER", "../openai"),
        ("EMBEDDER", "openai:a\nb"),
        ("EMBEDDER_URL", "host.example/v1"),
        ("EMBEDDER_URL", "ftp://host.example"),
        ("EMBEDDER_URL", "file:///etc/passwd"),
        ("EMBEDDER_URL", "https://"),
        ("EMBEDDER_URL", "https://user:pass@host.example/v1"),
        ("EMBEDDER_URL", "https://host.example/v1?key=pass"),
        ("EMBEDDER_URL", "https://host.example/v1#pass"),
        ("EMBEDDER_URL", "https://host.example/a b"),
        ("EMBEDDER_URL", "https://host.example/v1\n"),
        ("EMBEDDER_KEY", "sk-pass\nX: y"),
        ("EMBEDDER_KEY", "sk pass"),
        ("EMBEDDER_KEY", "pass\u20ac"),
    ],
)
def test_a_bad_embedder_is_bad_input_that_names_the_variable_and_tells_no_secret(user, variable, value):
    with pytest.raises(BadInput, match=f"COMMONBOOK_{variable} ") as caught:
        load(user, **{f"COMMONBOOK_{variable}": value})
    assert caught.value.fix
    assert "pass" not in str(caught.value) + caught.value.fix


# Which space


def test_outside_of_any_project_the_space_is_personal(user):
    assert space_at(user, user) == "personal"


def test_a_space_in_the_environment_wins_over_every_project(user):
    repository(user / "code")
    (user / "code" / ".commonbook.toml").write_text('space = "team/backend"')
    assert space_at(user, user / "code", COMMONBOOK_SPACE="work") == "work"


def test_the_nearest_project_file_names_the_space_for_everything_below_it(user):
    inner = user / "code" / "inner" / "deep"
    inner.mkdir(parents=True)
    (user / ".commonbook.toml").write_text('space = "outer"')
    (user / "code" / "inner" / ".commonbook.toml").write_text('space = "team/backend"\ncapture = "off"\n')
    assert space_at(user, inner) == "team/backend"
    assert space_at(user, user / "code") == "outer"


def test_a_project_file_wins_over_the_repository_it_is_in(user):
    repository(user / "code")
    (user / ".commonbook.toml").write_text('space = "outer"')
    assert space_at(user, user / "code") == "outer"


def test_a_project_file_without_a_space_leaves_it_to_the_repository(user):
    repository(user / "code")
    (user / "code" / ".commonbook.toml").write_text('capture = "off"')
    assert space_at(user, user / "code") == "projects/code"


@pytest.mark.parametrize(
    "text", ['capture = "maybe"', "capture = 1", "space = 5", 'spaces = "a"', "space", 'space = "x"\nspace = "y"']
)
def test_a_bad_project_file_is_bad_input_that_names_the_file(user, text):
    (user / ".commonbook.toml").write_text(text)
    with pytest.raises(BadInput, match=r"\.commonbook\.toml"):
        space_at(user, user)


@pytest.mark.parametrize("space", ["", "Team", "../up", "a//b", "/a", "a/", "a/2026-05", "_system", "é", "a\\n"])
def test_a_project_file_can_only_name_a_space_that_can_be(user, space):
    (user / ".commonbook.toml").write_text(f'space = "{space}"')
    with pytest.raises(BadSpaceName, match=r"\.commonbook\.toml"):
        space_at(user, user)


@pytest.mark.parametrize(
    ("origin", "name"),
    [
        ("https://host.example/alice/Widgets.git", "widgets"),
        ("https://host.example/alice/widgets", "widgets"),
        ("https://host.example/alice/widgets.git/", "widgets"),
        ("https://user:secret@host.example:8443/alice/widgets//", "widgets"),
        ("ssh://git@host.example:22/alice/widgets.git", "widgets"),
        ("git@host.example:alice/widgets.git", "widgets"),
        ("git@host.example:widgets.git", "widgets"),
        ("host:widgets/", "widgets"),
        ("/srv/git/widgets.git", "widgets"),
        ("/home/alice/widgets/.git", "widgets"),
        ("C:\\\\repos\\\\widgets.git", "widgets"),
        ('"https://host.example/alice/widgets.git" # ours', "widgets"),
        ("https://host.example/alice/My Great_App!.git", "my-great_app"),
        ("https://host.example/alice/.github", "github"),
        ("https://host.example/alice/2026-05.git", "repo-2026-05"),
    ],
)
def test_a_repository_is_named_by_its_origin_however_that_is_written(user, origin, name):
    repository(user / "folder" / "checkout", origin)
    (user / "folder" / "checkout" / "src").mkdir()
    assert space_at(user, user / "folder" / "checkout" / "src") == f"projects/{name}"


def test_what_git_says_is_read_once_and_again_when_it_has_changed(user, monkeypatch):
    there = repository(user / "work", "git@host.example:birds/heron.git")
    config = there / ".git" / "config"
    os.utime(config, (1_000_000_000, 1_000_000_000))
    assert space_at(user, there) == "projects/heron"
    with monkeypatch.context() as patched:
        patched.setattr(git_repository, "open", None, raising=False)
        assert space_at(user, there) == "projects/heron"
    # Twice of the same length within one tick of the clock, which nothing tells.
    now = time.time_ns()
    for before, after in (("heron", "otter"), ("otter", "stork")):
        config.write_text(config.read_text().replace(before, after))
        os.utime(config, ns=(now, now))
        assert space_at(user, there) == f"projects/{after}"


@pytest.mark.parametrize(("folder", "name"), [("Widgets", "widgets"), ("My App (2)", "my-app-2"), ("_x", "x")])
def test_a_repository_without_origin_is_named_by_its_folder(user, folder, name):
    assert space_at(user, repository(user / folder)) == f"projects/{name}"


def test_names_in_other_scripts_come_out_legal_stable_and_different(user):
    one, other = space_at(user, repository(user / "日記")), space_at(user, repository(user / "料理"))
    assert one.startswith("projects/repo-")
    assert one != other
    assert one == space_at(user, user / "日記")


@given(st.text(min_size=1, max_size=300))
def test_any_repository_name_comes_out_as_a_legal_space_name(name):
    made = f"projects/{git_repository.as_space_name(name)}"
    assert space_names.require_space_name(made) == made


@pytest.mark.parametrize(("folder", "name"), [("foo..bar", "foo.bar"), ("notes.md", "notes-md"), ("x" * 64, "x" * 64)])
def test_a_repository_whose_name_no_space_may_have_gets_a_name_beside_it(user, folder, name):
    assert space_at(user, repository(user / folder)) == f"projects/{name}"


def test_two_long_names_that_begin_alike_are_two_spaces(user):
    spaces = {space_at(user, repository(user / ("x" * 70 + end))) for end in ("", "y")}
    assert len(spaces) == 2
    assert all(space_names.require_space_name(space) for space in spaces)


@pytest.mark.parametrize("space", ["a..b", "notes.md", "x" * 65, "a/b/c/d/e/f/g/h"])
def test_a_project_file_cannot_name_a_space_that_nobody_could_make(user, space):
    (user / ".commonbook.toml").write_text(f'space = "{space}"\n')
    with pytest.raises(BadSpaceName):
        space_at(user, user)


def test_a_folder_of_the_user_under_git_counts_as_a_project(user):
    repository(user, "git@host:alice/dotfiles.git")
    assert space_at(user, user) == "projects/dotfiles"


def test_inside_the_home_the_space_is_personal_even_when_the_home_is_under_git(user):
    home = repository(user / "commonbook")
    (home / "team" / "backend").mkdir(parents=True)
    assert space_at(user, home) == "personal"
    assert space_at(user, home / "team" / "backend") == "personal"
    assert space_at(user, repository(user / "commonbook-tools")) == "projects/commonbook-tools"


def test_what_only_looks_like_a_repository_is_passed_over(user):
    outer = repository(user / "outer")
    (outer / "empty" / ".git").mkdir(parents=True)
    (outer / "garbage").mkdir()
    (outer / "garbage" / ".git").write_bytes(b"\xff\x00nonsense")
    (outer / "dangling").mkdir()
    (outer / "dangling" / ".git").write_text("gitdir: /no/such/folder\n")
    assert {space_at(user, outer / name) for name in ("empty", "garbage", "dangling")} == {"projects/outer"}


def git(*args: str | Path, cwd: Path) -> None:
    environ = {
        "PATH": os.environ["PATH"],
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        **{f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    }
    command = ["git", "-c", "protocol.file.allow=always", *args]
    subprocess.run(command, cwd=cwd, env=environ, check=True, capture_output=True)


def test_all_worktrees_of_a_repository_share_its_space(user):
    main = user / "Widgets"
    main.mkdir()
    git("init", cwd=main)
    git("commit", "--allow-empty", "-m", "first", cwd=main)
    git("worktree", "add", user / "elsewhere" / "feature", cwd=main)
    assert space_at(user, user / "elsewhere" / "feature") == space_at(user, main) == "projects/widgets"
    git("remote", "add", "origin", "git@host:alice/gadgets.git", cwd=main)
    assert space_at(user, user / "elsewhere" / "feature") == space_at(user, main) == "projects/gadgets"


@pytest.mark.parametrize(("bare", "name"), [("widgets.git", "widgets"), ("widgets/.bare", "widgets")])
def test_worktrees_of_a_bare_repository_are_named_by_it(user, bare, name):
    (user / "seed").mkdir()
    git("init", cwd=user / "seed")
    git("commit", "--allow-empty", "-m", "first", cwd=user / "seed")
    git("clone", "--bare", user / "seed", user / bare, cwd=user)
    git("remote", "remove", "origin", cwd=user / bare)
    git("worktree", "add", "-b", "topic", user / "somewhere" / "topic", cwd=user / bare)
    assert space_at(user, user / "somewhere" / "topic") == f"projects/{name}"


def test_a_submodule_is_a_project_of_its_own(user):
    for name in ("library", "widgets"):
        (user / name).mkdir()
        git("init", cwd=user / name)
        git("commit", "--allow-empty", "-m", "first", cwd=user / name)
    git("submodule", "add", user / "library", "vendored", cwd=user / "widgets")
    assert space_at(user, user / "widgets" / "vendored") == "projects/library"
    git("remote", "remove", "origin", cwd=user / "widgets" / "vendored")
    assert space_at(user, user / "widgets" / "vendored") == "projects/vendored"


# --- a book on a server


def test_the_address_of_a_server_is_never_shown_with_its_secrets(user):
    found = load(
        user,
        COMMONBOOK_DATABASE="postgresql://alice:s3cret@one,two:5433/book?sslmode=require&password=s3cret2",
        COMMONBOOK_KEYS="~/keys",
    )
    assert found.database is not None
    assert found.database.place == "postgresql://one,two:5433/book"
    assert found.database[1:] == (str(user / "keys"), 20, 128)
    assert "s3cret" not in repr(found)
    assert "alice" not in repr(found)


def test_a_home_or_a_server_that_is_named_wins_over_the_environment(user):
    environ = {
        "HOME": str(user),
        "COMMONBOOK_DATABASE": "postgresql://one/book",
        "COMMONBOOK_CONNECTIONS": "5",
        "COMMONBOOK_RECALL_MB": "0",
    }
    assert Settings.load(user / "notes", environ=environ, cwd=user).database is None
    named = Settings.load("postgresql://two/other", environ=environ, cwd=user).database
    assert named is not None
    assert (named.place, named.connections, named.recall_mb) == ("postgresql://two/other", 5, 0)
