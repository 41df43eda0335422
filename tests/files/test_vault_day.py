"""A day in a vault of 300 notes under git, with two clones: each diff shows what was meant, and nothing is lost."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import commonbook
from commonbook import Book
from tests.files.test_under_git import Repository

pytestmark = pytest.mark.slow

NOTES = 300


def make_vault(folder: Path) -> None:
    """Write notes as people keep them: folders in any letters, front matter of many sorts, links, tags and pictures."""
    chosen = random.Random(7)
    for number in range(NOTES):
        name = f"{('Projects', 'People', 'Daily notes', 'Areas/Health', '')[number % 5]}/Note {number}.md".lstrip("/")
        links = " ".join(f"[[Note {chosen.randrange(NOTES)}]]" for _ in range(number % 4))
        front = (
            "",
            "---\ntags: [a, b]\n---\n",
            f"---\nid: {number}\ncreated: 2024-05-{number % 28 + 1:02}\n---\n",
            f"---\ntitle: 'Named: {number}'\naliases: [Alias {number}] # mine\n---\n",
            f"---\r\ntype: book\r\nrating: {number % 6}\r\n---\r\n",
            "---\ndate: 2023-01-02\nkind: recipe\nstatus: open\n---\n",
        )[number % 6]
        eol = "\r\n" if "\r" in front else "\n"
        text = f"The note {number} says {chosen.choice(('heron', 'otter', 'walrus'))} {links} #tag{number % 9}"
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(f"{front}{text}{eol}{eol}More of {number}.{eol}".encode())
    (folder / "picture.png").write_bytes(b"\x89PNG")
    (folder / ".obsidian").mkdir()
    (folder / ".obsidian" / "app.json").write_text("{}")


def command(home: Path, *words: str) -> str:
    """Run a command as a person does."""
    env = {**os.environ, "COMMONBOOK_HOME": str(home), "HOME": str(home.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "commonbook", *words], env=env, cwd=home, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def changed(git: Repository) -> dict[str, list[str]]:
    """Return the lines that were added and removed since the last commit, by file; a new file has all its lines."""
    git("add", "-A")
    lines: dict[str, list[str]] = {}
    path = ""
    for line in git("diff", "--cached", "--unified=0", "--no-renames").replace("\r", "").splitlines():
        if line.startswith(("+++ b/", "--- a/")):
            path = line[6:].strip('"\t')
        elif line[:1] in "+-" and not line.startswith(("+++", "---")):
            lines.setdefault(path, []).append(line)
    return lines


def only(lines: dict[str, list[str]], prefix: str) -> bool:
    """Tell whether every changed line is an added one that begins so; a block that was made for it counts too."""
    return all(line.startswith((prefix, "+---")) or line == "+" for each in lines.values() for line in each)


def state(book: Book) -> dict[str, tuple[Any, ...]]:
    """Return what a lost database must bring back of each memory."""
    found: dict[str, tuple[Any, ...]] = {}
    page = book.list(limit=500)
    for memory in page.items:
        links = sorted((link.relation, link.source, link.target) for link in book.links(memory.id))
        decided = sorted((one.verdict, one.note) for one in memory.decisions)
        tie = (memory.shared.mode, memory.shared.root, memory.freshness) if memory.shared else None
        found[memory.id] = (memory.space, memory.path, memory.title, memory.tags, links, decided, tie)
    assert page.next is None
    return found


def green(home: Path) -> None:
    assert "nothing is wrong" in command(home, "doctor")


@pytest.fixture
def git(tmp_path: Path) -> Repository:
    folder = tmp_path / "vault"
    folder.mkdir()
    make_vault(folder)
    repository = Repository(folder)
    repository.commit("my notes")
    return repository


def test_a_day_in_a_vault_under_git(git: Repository, tmp_path: Path):
    home = git.home
    before = git("ls-files").splitlines()

    # Reading commands write nothing.
    for words in (("status",), ("recall", "heron"), ("list",), ("doctor",)):
        done = subprocess.run(
            [sys.executable, "-m", "commonbook", "--home", str(home), *words],
            capture_output=True,
            check=False,
            cwd=home,
        )
        assert done.returncode != 0
    assert git.status == ""
    assert not (home / ".commonbook").exists()

    # `init` adds an id to each note, and nothing else.
    command(home, "init", str(home), "--yes")
    lines = changed(git)
    assert len([path for path in lines if path.endswith(".md")]) == NOTES
    notes = {path: each for path, each in lines.items() if path.endswith(".md")}
    ids = [line for each in notes.values() for line in each if "id: " in line]
    assert len(ids) == NOTES
    assert all(line.startswith(("+id: ", "+commonbook_id: ")) for line in ids)
    others = [line for each in notes.values() for line in each if "id: " not in line]
    assert set(others) <= {"+---", "+"}
    assert not [path for path in git("ls-files").splitlines() if ".commonbook" in path]
    git.commit("commonbook")
    green(home)

    # A day: by hand, and by verbs.
    with commonbook.open(home) as book:
        by_title = {memory.title: memory for memory in book.list(limit=500).items}
        assert len(by_title) == NOTES
        one, two = by_title["Note 0"], by_title["Named: 3"]
        assert [book.get(link.target).title for link in book.links(two.id) if link.source == two.id]
        assert two.created is not None
        (home / one.path).write_text((home / one.path).read_text().replace("says", "tells"))
        book.sync()
        assert changed(git).keys() == {one.path}
        assert [line[0] for line in changed(git)[one.path]] == ["-", "+"]
        git.commit("by hand")

        book.edit(two.id, tags=["new"])
        added = changed(git)
        assert added == {two.path: ["+tags: [new]"]}
        git.commit("a tag")

        edited = by_title["Note 6"]
        book.edit(edited.id, text=edited.text + "\n\nAnother line.")
        assert changed(git) == {edited.path: ["+", "+Another line."]}
        git.commit("a line")

        moved = home / "Areas" / "Health" / "Moved.md"
        (home / by_title["Note 12"].path).rename(moved)
        book.sync()
        assert book.get(by_title["Note 12"].id).path == "Areas/Health/Moved.md"
        git.commit("moved")
        assert git.status == ""

        made = book.remember("Alice owns billing", space="team", tags=["people"])
        copy = book.share(made.id, "everybody")
        thought = book.reflect("So ask Alice", [made.id], space="team")
        newer = book.remember("Bob owns billing", space="team", replaces=made.id)
        book.triage(thought.id, "keep", note="she still knows")
        assert not [path for path in changed(git) if not path.startswith(("team/", "everybody/"))]
        git.commit("memories")
        saved = state(book)
    green(home)

    # An older commit, and back.
    for commit in ("HEAD~3", "main"):
        git("checkout", "-q", commit)
        with commonbook.open(home) as book:
            book.sync()
            book.sync()
            if len(book.status().findings):
                book.accept_deletions()
        assert git.status == ""
    with commonbook.open(home) as book:
        assert book.get(newer.id).text == "Bob owns billing"
        assert {id_: each[:4] for id_, each in state(book).items()} == {id_: each[:4] for id_, each in saved.items()}

    # The commit from before `init`, and back.
    first = git("rev-list", "--max-parents=0", "HEAD").strip()
    for commit in (first, "main"):
        git("checkout", "-q", commit)
        with commonbook.open(home) as book:
            book.sync()
            if len(book.status().findings):
                book.accept_deletions()
            known = {memory.id for memory in book.list(limit=500).items}
            assert {memory.id for memory in by_title.values()} - known <= {by_title["Note 12"].id}
        assert git.status == ""
    with commonbook.open(home) as book:
        assert {id_: each[:4] for id_, each in state(book).items()} == {id_: each[:4] for id_, each in saved.items()}

    # The database is lost.
    for name in os.listdir(home / ".commonbook"):
        if name.startswith("state.db"):
            (home / ".commonbook" / name).unlink()
    with commonbook.open(home) as book:
        again = state(book)
        assert again == saved
        assert book.get(copy.id).freshness == "source_superseded"
    assert git.status == ""
    green(home)

    # Two clones push to each other.
    shutil.copytree(home / ".git", tmp_path / "hub.git")
    hub = tmp_path / "hub.git"
    subprocess.run(["git", "config", "core.bare", "true"], cwd=hub, check=True)
    git("remote", "add", "hub", str(hub))
    subprocess.run(["git", "clone", "-q", str(hub), str(tmp_path / "clone")], check=True)
    clone = Repository(tmp_path / "clone")
    command(clone.home, "init", str(clone.home), "--yes")
    assert clone.status == ""
    with commonbook.open(clone.home) as there, commonbook.open(home) as here:
        assert {id_: each[:4] for id_, each in state(there).items()} == {id_: each[:4] for id_, each in saved.items()}
        assert {one.name: one.id for one in there.spaces() if one.name in ("team", "everybody")} == {
            one.name: one.id for one in here.spaces() if one.name in ("team", "everybody")
        }
        there.edit(by_title["Note 18"].id, title="Renamed there")
        here.edit(by_title["Note 24"].id, tags=["here"])
    clone.commit("there")
    clone("push", "-q", "origin", "main")
    git.commit("here")
    git("pull", "-q", "--no-rebase", "--no-edit", "hub", "main")
    git("push", "-q", "hub", "main")
    clone("pull", "-q", "--no-edit", "origin", "main")
    for repository in (git, clone):
        with commonbook.open(repository.home) as book:
            assert book.get(by_title["Note 18"].id).title == "Renamed there"
            assert "here" in book.get(by_title["Note 24"].id).tags
        assert repository.status == ""
        green(repository.home)
    tracked = git("ls-files").splitlines()
    assert set(before) - {by_title["Note 12"].path} <= set(tracked)
    assert not [path for path in tracked if "state.db" in path or "keys" in path.split("/")]
