"""Opening never rewrites: a folder becomes a home by `init` alone, which shows what it changes, and asks."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import psycopg
import pytest

import commonbook
from commonbook.values.ids import UUID_PATTERN
from tests.interfaces.cli.test_cli import cli_without_book as cli
from tests.interfaces.cli.test_terminal import COLOUR, terminal

__all__ = ["cli", "terminal"]

NOTES = 300


def git(folder: Path, *args: str) -> str:
    identity = ("-c", "user.name=somebody", "-c", "user.email=somebody@example.com", "-c", "core.autocrlf=false")
    done = subprocess.run(["git", *identity, *args], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


def note(number: int) -> str:
    """Return a note as people write them: with and without front matter, in several forms."""
    text = f"Note {number} tells of river {number} and of [[Note {number - 1}]]. #travel\n"
    fronts = (
        "",
        "",
        "---\n---\n",
        "---\ntitle: A title\n---\n\n",
        "---\naliases: [one, two]\ntags:\n  - travel\n  - water\ncssclass: wide\n---\n",
        "---\n# a comment\ncreated: 2024-05-06\nrating:   5\n---\n\n\n",
        "---\nid: 42\ncreated: in spring\nkind: [recipe]\nauthor: me\nversion: draft\n---\n",
    )
    return fronts[number % len(fronts)] + (f"# Note {number}\n\n" if number % 3 else "") + text


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    """A vault of notes under git, as a person keeps them."""
    folder = tmp_path / "vault"
    for number in range(NOTES):
        place = folder / ("", "projects", "Daily Notes", "Übersicht/Flüsse")[number % 4] / f"Note {number}.md"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(note(number).replace("\n", "\r\n" if number % 50 == 49 else "\n").encode())
    (folder / "picture.png").write_bytes(b"not really a picture")
    (folder / ".obsidian").mkdir()
    (folder / ".obsidian" / "app.json").write_text("{}")
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "my notes")
    return folder


def untouched(vault: Path) -> bool:
    return git(vault, "status", "--porcelain", "--ignored") == "" and not (vault / ".commonbook").exists()


def everything_below(folder: Path) -> dict[str, bytes | None]:
    paths = sorted(folder.rglob("*"))
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in paths}


# --- what is no home stays as it is


READING = (
    ("status",), ("list",), ("recall", "river"), ("show", "x"), ("doctor",), ("space", "list"), ("session", "list"),
    ("audit", "verify"), ("reindex",), ("rebuild",), ("worker", "--once"), ("inbox",), ("export", "{tmp}/out"),
    ("backup", "{tmp}/out.tar"),
)  # fmt: skip
WRITING = (
    ("remember", "tea"), ("session", "append", "s", "tea"), ("import", "{tmp}/other"), ("space", "create", "team"),
    ("import", "{tmp}/other", "--dry-run"), ("delete", "x", "--dry-run"), ("edit", "x", "tea"), ("init", "--dry-run"),
    ("init",), ("migrate", "{tmp}/moved"),
)  # fmt: skip


@pytest.mark.promise("home.init")
@pytest.mark.parametrize("args", [*READING, *WRITING], ids=" ".join)
def test_no_command_but_a_confirmed_init_changes_a_folder_of_notes(cli, vault, tmp_path, args, home):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.md").write_text("a note")
    result = cli("--home", str(vault), "--json", *(arg.replace("{tmp}", str(tmp_path)) for arg in args))
    if args[0] == "init":
        assert result.code == (0 if "--dry-run" in args else 2)
    else:
        assert (result.code, result.out, result.error["type"]) == (1, "", "no_home")
        way = "commonbook --home FOLDER migrate TO" if args[0] == "migrate" else f"commonbook init {vault}"
        assert way in result.error["fix"]
    assert untouched(vault)
    assert {path.name for path in tmp_path.iterdir()} == {"other", "vault", "work"}


@pytest.mark.promise("home.init")
@pytest.mark.parametrize("how", ["option", "variable"])
@pytest.mark.parametrize("args", [("status",), ("remember", "tea"), ("import", ".", "--dry-run")], ids=" ".join)
def test_a_slip_in_the_name_of_the_home_makes_no_folder(cli, tmp_path, args, how, home, monkeypatch):
    if how == "variable":
        monkeypatch.setenv("COMMONBOOK_HOME", str(tmp_path / "hoem"))
    named = () if how == "variable" else ("--home", str(tmp_path / "hoem"))
    result = cli(*named, *args, "--json")
    assert (result.code, result.error["type"]) == (1, "no_home")
    assert f"commonbook init {tmp_path / 'hoem'}" in result.error["fix"]
    assert {path.name for path in tmp_path.iterdir()} == {"work"}


def test_the_error_names_the_folder_as_a_shell_needs_it(cli, tmp_path, home):
    (tmp_path / "my notes").mkdir()
    result = cli("--home", "my notes", "status")
    assert result.code == 1
    assert f"`commonbook init '{tmp_path / 'my notes'}'`" in result.err


# --- the default home


@pytest.fixture
def default_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.delenv("COMMONBOOK_HOME")
    (tmp_path / "user").mkdir()
    return tmp_path / "user" / "commonbook"


@pytest.mark.promise("home.default")
def test_the_default_home_is_made_by_the_first_write(cli, default_home, home):
    for args in (("status",), ("list",), ("recall", "tea"), ("edit", "x", "y"), ("import", ".", "--dry-run")):
        result = cli(*args, "--json")
        assert (result.code, result.error["type"]) == (1, "no_home")
        assert "commonbook remember" in result.error["fix"]
        assert list(default_home.parent.iterdir()) == []
    cli.remember("tea")
    assert cli("status", "--json").json["memories"] == 1
    assert (default_home / ".commonbook" / "state.db").exists()


@pytest.mark.promise("home.default")
def test_files_that_lie_in_the_default_home_become_no_memories_unasked(cli, default_home, home):
    default_home.mkdir()
    (default_home / "README.md").write_text("the source of a program of this name")
    before = everything_below(default_home)
    assert cli("remember", "tea", "--json").error["type"] == "no_home"
    with pytest.raises(commonbook.NoHome):
        commonbook.open()
    assert everything_below(default_home) == before
    assert cli("init", "--yes").code == 0
    cli.remember("tea")
    assert cli("status", "--json").json["memories"] == 2


# --- init


def changed_lines(vault: Path) -> tuple[list[str], list[str]]:
    """Return the lines that git sees as added, and those that it sees as removed."""
    diff = re.sub(r"(?m)^(---|\+\+\+) .*$", "", git(vault, "diff", "--unified=0"))
    return re.findall(r"(?m)^\+(.*)$", diff), re.findall(r"(?m)^-(.*)$", diff)


@pytest.mark.promise("home.plan")
def test_init_does_exactly_what_it_has_shown(cli, vault, home):
    plan = cli("init", str(vault), "--dry-run", "--json").json
    assert (plan["home"], plan["made"], plan["notes"], plan["skipped"]) == (str(vault), False, NOTES, [])
    assert plan["spaces"] == {"personal": NOTES}
    assert (plan["changed_files"], plan["new_files"]) == (NOTES, [".space.toml"])
    assert plan["added"].keys() == {"id", "commonbook_id"}
    assert sum(plan["added"].values()) == NOTES
    assert untouched(vault)
    done = cli("init", str(vault), "--yes", "--json").json
    assert {**done, "made": False} == plan
    status = cli("--home", str(vault), "status", "--json").json
    assert (status["memories"], status["findings"]) == (NOTES, [])
    listed = cli("--home", str(vault), "space", "list", "--json").json
    assert {space["name"] for space in listed} >= plan["spaces"].keys()
    assert len(git(vault, "diff", "--name-only").splitlines()) == plan["changed_files"]
    assert git(vault, "ls-files", "--others", "--exclude-standard").splitlines() == plan["new_files"]


@pytest.mark.promise("home.plan")
def test_init_shows_the_spaces_that_space_files_make(cli, vault, home):
    id_ = "01a1e8ff-b9b9-7484-8097-96f195bf7782"
    (vault / "Daily Notes" / ".space.toml").write_text(f'name = "diary"\nid = "{id_}"\n')
    plan = cli("init", str(vault), "--yes", "--json").json
    in_diary = len(list((vault / "Daily Notes").glob("*.md")))
    assert plan["spaces"] == {"diary": in_diary, "personal": NOTES - in_diary}
    assert plan["new_files"] == [".space.toml"]
    listed = cli("--home", str(vault), "space", "list", "--json").json
    assert {space["name"]: space["own_folder"] for space in listed if space["name"] in {"diary", "personal"}} == {
        "diary": "Daily Notes",
        "personal": None,
    }
    assert {"diary": id_}.items() <= {space["name"]: space["id"] for space in listed}.items()


@pytest.mark.promise("home.space")
def test_init_makes_the_folder_a_space_of_the_name_that_is_given(cli, vault, tmp_path, home):
    plan = cli("init", str(vault), "--space", "work", "--dry-run", "--json").json
    assert (plan["spaces"], plan["new_files"]) == ({"work": NOTES}, [".space.toml"])
    assert untouched(vault)
    done = cli("init", str(vault), "--space", "work", "--yes", "--json").json
    assert {**done, "made": False} == plan
    assert git(vault, "ls-files", "--others", "--exclude-standard").splitlines() == plan["new_files"]
    assert 'name = "work"' in (vault / ".space.toml").read_text()
    with commonbook.open(vault) as book:
        assert {memory.space for memory in book.list().items} == {"work"}
        assert book.doctor() == ()
        mine, ours = book.remember("mine", space="personal"), book.remember("ours", space="work")
        assert (mine.path.split("/")[0], ours.path.split("/")[0]) == ("personal", "work")
        (vault / "Later.md").write_text("a note of today")
        (vault / "personal" / "Private.md").write_text("a private note")
        book.sync()
        assert {book.get(book.find_id(name)).space for name in ("Later.md", "Private.md")} == {"work", "personal"}
        book.delete(mine.id, ours.id)
        spaces = {space.name: (space.id, space.folder) for space in book.spaces()}
    shutil.rmtree(vault / ".commonbook")
    assert cli("init", str(vault), "--space", "other", "--yes").code == 5
    again = cli("init", str(vault), "--yes", "--json").json
    assert again["spaces"] == {"personal": 1, "work": NOTES + 1}
    with commonbook.open(vault) as book:
        assert {space.name: (space.id, space.folder) for space in book.spaces()} == spaces
        assert book.doctor() == ()
        book.export(str(tmp_path / "out"))
        with commonbook.open(tmp_path / "other", create=True) as other:
            other.import_folder(str(tmp_path / "out"))
            assert {space.name: space.id for space in other.spaces()}.items() >= {
                (name, id_) for name, (id_, _) in spaces.items()
            }
            assert other.get(other.find_id("Later.md")).space == "work"
        book.rename_space("work", "job")
        assert (vault / "Later.md").exists()
        assert book.get(book.find_id("Later.md")).space == "job"
        assert 'name = "job"' in (vault / ".space.toml").read_text()
        assert book.doctor() == ()


def test_init_of_a_new_folder_makes_it_a_space(cli, tmp_path, home):
    assert cli("init", str(tmp_path / "new"), "--space", "work", "--yes", "--json").json["new_files"] == [".space.toml"]
    with commonbook.open(tmp_path / "new") as book:
        assert book.remember("x", space="work").path.startswith("work/")
        (tmp_path / "new" / "Note.md").write_text("a note")
        book.sync()
        assert book.get(book.find_id("Note.md")).space == "work"
    for refused in (
        cli("init", str(tmp_path / "new"), "--space", "other", "--yes"),
        cli("init", str(tmp_path / "third"), "--space", "No Name", "--yes"),
    ):
        assert refused.code in (2, 5)
    assert not (tmp_path / "third").exists()


@pytest.mark.promise("home.plan")
def test_init_adds_lines_to_the_front_matter_and_changes_no_other_line(cli, vault, home):
    before = {path: path.read_bytes() for path in vault.rglob("*.md")}
    plan = cli("init", str(vault), "--yes", "--json").json
    added, removed = changed_lines(vault)
    assert removed == []
    assert plan["replaced_lines"] == 0
    named = [re.fullmatch(rf"(id|commonbook_id): {UUID_PATTERN}\r?", line) for line in added]
    names = [match[1] for match in named if match]
    assert {name: names.count(name) for name in names} == plan["added"]
    assert names.count("id") + names.count("commonbook_id") == NOTES
    assert {line.strip("\r") for line, match in zip(added, named, strict=True) if not match} <= {"---", ""}
    for path, data in before.items():
        after = path.read_bytes()
        body = re.sub(rb"(?s)\A---\r?\n.*?^---\r?\n", b"", data, flags=re.MULTILINE).lstrip()
        assert after.endswith(body), path
    assert cli("--home", str(vault), "doctor").code == 0
    diff = git(vault, "diff")
    cli("--home", str(vault), "list")
    assert git(vault, "diff") == diff, "a later opening writes nothing"


def test_init_counts_the_secrets_in_the_notes_and_leaves_them_there(cli, tmp_path, home):
    (tmp_path / "notes").mkdir()
    note = tmp_path / "notes" / "wifi.md"
    note.write_text("The router: password=correct-h0rse-battery\n")
    assert "secrets: 1 in the texts, which stay as they are" in cli("init", str(note.parent), "--dry-run").out
    assert cli("init", str(note.parent), "--yes", "--json").json["secrets"] == 1
    assert "password=correct-h0rse-battery" in note.read_text()
    assert "secrets:" not in cli("init", str(tmp_path / "new"), "--dry-run").out


def test_a_file_that_does_not_parse_is_named_and_left_alone(cli, vault, home):
    (vault / "broken.md").write_bytes(b"---\ntitle: [\n---\ntext\n")
    plan = cli("init", str(vault), "--yes", "--json").json
    assert [finding["where"] for finding in plan["skipped"]] == ["broken.md"]
    assert plan["notes"] == NOTES
    assert (vault / "broken.md").read_bytes() == b"---\ntitle: [\n---\ntext\n"
    shown = cli("init", str(vault), "--dry-run")
    assert shown.out == f"{vault} is a home already\n"


def test_init_of_a_home_changes_nothing(cli, vault, home):
    cli("init", str(vault), "--yes")
    before = {path: data for path, data in everything_below(vault).items() if ".commonbook" not in path}
    result = cli("init", str(vault), "--json")
    assert (result.code, result.json) == (0, {"home": str(vault), "made": False})
    after = {path: data for path, data in everything_below(vault).items() if ".commonbook" not in path}
    assert after == before


@pytest.mark.promise("home.refusals")
def test_a_folder_inside_a_home_is_not_made_another_home(cli, vault, home):
    cli("init", str(vault), "--yes")
    result = cli("init", str(vault / "projects"), "--yes", "--json")
    assert (result.code, result.error["type"]) == (5, "conflict")
    assert str(vault) in result.error["fix"]
    assert not (vault / "projects" / ".commonbook").exists()


def test_a_file_in_place_of_a_folder_is_called_one(cli, vault, home):
    before = {path: path.read_bytes() for path in vault.rglob("*") if path.is_file()}
    note = next(path for path in before if path.suffix == ".md")
    for args in (
        ["init", str(note), "--yes"],
        ["init", str(note / "below"), "--yes"],
        ["status", "--home", str(note)],
        ["remember", "x", "--home", str(note)],
    ):
        refused = cli(*args)
        assert refused.code == 1
        assert f"{note} is a file" in refused.err
        assert ".commonbook" not in refused.err
    with pytest.raises(commonbook.NoHome, match="is a file"):
        commonbook.open(note, create=True)
    assert {path: path.read_bytes() for path in vault.rglob("*") if path.is_file()} == before


def test_init_makes_a_folder_that_does_not_exist(cli, tmp_path, home):
    made = cli("init", str(tmp_path / "new" / "home"), "--yes", "--json").json
    assert (made["made"], made["notes"], made["spaces"]) == (True, 0, {})
    assert cli("--home", str(tmp_path / "new" / "home"), "remember", "tea").code == 0
    assert cli("init", "x", "--home", "y", "--yes").code == 2


@pytest.mark.promise("home.plan")
@pytest.mark.parametrize(("typed", "made"), [("n\n", False), ("\n", False), ("y\n", True)])
def test_init_shows_the_plan_and_asks_on_a_terminal(terminal, vault, typed, made):
    seen = terminal("init", str(vault), typed=typed)
    plain = COLOUR.sub("", seen.plain)
    assert seen.code == 0
    assert re.search(rf"(?m)^notes +{NOTES}\s*$", plain)
    assert re.search(r"(?m)^spaces +.*personal \(\d+\)", plain)
    assert re.search(r"(?m)^added fields +id \(\d+\), commonbook_id \(\d+\)", plain)
    assert "a home? [y/N]" in plain
    assert ("is a home now" in plain) is made
    assert untouched(vault) is not made


# --- a folder that brings a `.commonbook/`


@pytest.fixture
def brought(cli, vault: Path, tmp_path: Path) -> Path:
    """A clone of a vault that brings the `.commonbook/` of another machine."""
    cli("init", str(vault), "--yes")
    memory = cli("--home", str(vault), "remember", "The river is high", "--space", "team", "--json").json
    assert memory["new"]
    clone = tmp_path / "clone"
    shutil.copytree(vault, clone)
    (clone / ".commonbook" / "machine").write_text("f" * 64 + "\n")
    return clone


@pytest.mark.promise("home.refusals")
def test_init_refuses_the_hidden_folder_of_another_machine_unless_it_is_trusted(cli, brought, home):
    before = everything_below(brought)
    for args in ((), ("--yes",), ("--dry-run",)):
        result = cli("init", str(brought), *args, "--json")
        assert (result.code, result.error["type"]) == (1, "foreign_home")
        assert "--trust" in result.error["fix"]
    assert everything_below(brought) == before
    plan = cli("init", str(brought), "--trust", "--dry-run", "--json").json
    assert (plan["notes"], plan["changed_files"], plan["trusts"]) == (NOTES + 1, 0, True)
    assert everything_below(brought) == before
    assert cli("init", str(brought), "--trust", "--yes").code == 0
    assert cli("--home", str(brought), "audit", "verify").code == 0, "the keys that came with it are its keys"
    assert cli("init", str(brought), "--json").json["made"] is False, "it is trusted from now on"


@pytest.mark.parametrize("left", ["state.db", "keys", "config.toml"])
def test_any_part_of_a_foreign_hidden_folder_is_refused(cli, vault, left, home):
    hidden = vault / ".commonbook"
    hidden.mkdir()
    if left == "keys":
        (hidden / left).mkdir()
        (hidden / left / "signing.key").write_text("somebody else knows it")
    else:
        (hidden / left).write_text("")
    assert cli("init", str(vault), "--yes", "--json").error["type"] == "foreign_home"


def test_the_marker_of_a_home_is_for_its_owner_alone_and_tells_no_id_of_the_machine(cli, tmp_path, home):
    cli("init", str(tmp_path / "new"), "--yes")
    marker = tmp_path / "new" / ".commonbook" / "machine"
    assert marker.stat().st_mode & 0o077 == 0
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        if os.path.exists(path):
            assert Path(path).read_text().strip() not in marker.read_text()


# --- a database


@pytest.fixture
def empty_database(postgres, postgres_keys, tmp_path, monkeypatch):
    """The address of a database that has no tables."""
    from tests.support.postgres_server import TEMPLATE

    address = postgres.make_database("no_book", template=TEMPLATE)
    monkeypatch.setenv("COMMONBOOK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COMMONBOOK_DATABASE", address)
    monkeypatch.setenv("COMMONBOOK_KEYS", postgres_keys)
    yield address
    postgres.drop_database("no_book")


def tables(address: str) -> int:
    with psycopg.connect(address) as connection:
        query = "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'public'"
        (count,) = connection.execute(query).fetchone() or (0,)
    return int(count)


@pytest.mark.promise("home.reading")
@pytest.mark.parametrize("making", [("remember", "tea"), ("init", "--yes")], ids=" ".join)
def test_a_reading_command_makes_no_tables_in_a_database_and_the_first_write_does(cli, empty_database, making, home):
    for args in (("status",), ("list",), ("import", ".", "--dry-run"), ("worker", "--once"), ("init", "--dry-run")):
        result = cli(*args, "--json")
        assert result.code == (0 if args[0] == "init" else 1)
        if args[0] != "init":
            assert result.error["type"] == "no_home"
            assert "commonbook init" in result.error["fix"]
    assert tables(empty_database) == 0
    assert cli(*making).code == 0
    assert cli("status", "--json").json["memories"] == (1 if making[0] == "remember" else 0)
