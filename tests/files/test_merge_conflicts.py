"""A conflict that a merge of two clones left in a file: it is named, and each way to settle it is taken in."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

import commonbook
from commonbook import Book
from tests.conftest import OpenBook
from tests.files.test_under_git import Repository
from tests.support.transfers import write

MARKERS = "<<<<<<< HEAD\nours\n=======\ntheirs\n>>>>>>> theirs\n"


class Clones(NamedTuple):
    """A home and its clone that were both changed, with a merge of the clone into the home that git could not end."""

    git: Repository
    here: Book
    source: str
    copy: str
    thought: str

    def file(self, memory: str) -> Path:
        return self.git.home / self.here.get(memory).path

    def side(self, memory: str, number: int) -> str:
        """Return the file of a memory as one side of the merge has it: 2 is ours, 3 is theirs."""
        return self.git("show", f":{number}:{self.here.get(memory).path}")


@pytest.fixture(params=["same keys", "other keys"])
def clones(request: pytest.FixtureRequest, home: Path, open_book: OpenBook, tmp_path: Path) -> Iterator[Clones]:
    with ExitStack() as opened:
        here = opened.enter_context(open_book())
        source = here.remember("oil costs five", title="Oil", space="team").id
        copy = here.share(source, "shared").id
        ground = here.remember("bread costs one", title="Bread", space="team").id
        thought = here.reflect("bread is cheap", [ground], space="team").id
        here.remember("bread costs three", space="team", replaces=ground)
        git = Repository(home)
        git.commit("first")
        subprocess.run(["git", "clone", "-q", str(home), str(tmp_path / "clone")], check=True)
        clone = Repository(tmp_path / "clone")
        if request.param == "same keys":
            shutil.copytree(home / ".commonbook" / "keys", clone.home / ".commonbook" / "keys")
        there = opened.enter_context(commonbook.open(str(clone.home), create=True))
        there.adopt_all()
        for book, price in ((here, "seven"), (there, "nine")):
            book.edit(source, text=f"oil costs {price}")
            book.triage(thought, "keep", note=f"oil costs {price}")
        git.commit("here")
        clone.commit("there")
        git("remote", "add", "there", str(clone.home))
        git("fetch", "-q", "there")
        with pytest.raises(subprocess.CalledProcessError):
            git("merge", "-q", "there/main")
        yield Clones(git, here, source, copy, thought)


def unmerged(git: Repository) -> set[str]:
    return set(git("diff", "--name-only", "--diff-filter=U").splitlines())


@pytest.mark.promise("git.conflict")
@pytest.mark.parametrize("side", ["ours", "theirs"])
def test_a_conflict_is_named_and_either_side_of_it_is_taken_in(clones: Clones, side: str):
    git, here = clones.git, clones.here
    conflicts = unmerged(git)
    assert conflicts == {here.get(id_).path for id_ in (clones.source, clones.copy, clones.thought)}
    before = {path: (git.home / path).read_bytes() for path in conflicts}
    here.sync()
    findings = here.doctor()
    assert {(finding.what, finding.where) for finding in findings} == {("merge conflict", path) for path in conflicts}
    assert all(f"`git checkout --{side} {finding.where}`" in finding.fix for finding in findings)
    assert {path: (git.home / path).read_bytes() for path in conflicts} == before
    assert here.get(clones.source).text == "oil costs seven"
    assert here.get(clones.source).marks == ("malformed",)
    for path in conflicts:
        git("checkout", f"--{side}", path)
    git("add", "-A")
    here.sync()
    git.commit("merged")
    assert (git.status, here.doctor()) == ("", ())
    price = "seven" if side == "ours" else "nine"
    source, copy = here.get(clones.source), here.get(clones.copy)
    assert (source.text, copy.text, copy.freshness) == (f"oil costs {price}", f"oil costs {price}", "fresh")
    assert len(here.get(clones.thought).decisions) == 1
    assert here.inbox().items == ()
    assert "<<<<<<<" not in "".join(revision.text for revision in here.history(clones.source))


@pytest.mark.promise("git.conflict")
def test_lines_of_both_sides_and_lines_that_do_not_fit_are_put_right(clones: Clones):
    git, here = clones.git, clones.here
    ours, theirs = (clones.side(clones.thought, number) for number in (2, 3))
    decided = re.compile(r"(?m)^invalidations_triaged:\n((?:  - .*\n)+)")
    clones.file(clones.thought).write_text(decided.sub(lambda found: found[0] + decided.findall(theirs)[0], ours))
    # The link of one side and the tie of the other: the MAC is that of neither.
    ours, theirs = (clones.side(clones.copy, number) for number in (2, 3))
    tie = re.compile(r"(?m)^shared: .*\n")
    assert tie.findall(ours) != tie.findall(theirs)
    clones.file(clones.copy).write_text(tie.sub(tie.findall(theirs)[0], ours))
    git("checkout", "--ours", here.get(clones.source).path)
    here.sync()
    copy = here.get(clones.copy)
    assert (copy.text, copy.freshness, copy.shared is not None and copy.shared.mode) == (
        "oil costs seven",
        "fresh",
        "live",
    )
    assert len(here.get(clones.thought).decisions) == 1
    assert here.doctor() == ()
    git.commit("merged")
    here.sync()
    assert git.status == ""


@pytest.mark.promise("git.conflict")
def test_a_verb_leaves_a_file_with_a_conflict_alone(clones: Clones):
    before = clones.file(clones.source).read_bytes()
    with pytest.raises(commonbook.FileInTheWay):
        clones.here.edit(clones.source, text="oil costs eight")
    assert clones.file(clones.source).read_bytes() == before


@pytest.mark.promise("git.conflict")
def test_marks_of_a_conflict_in_code_or_in_a_text_of_a_verb_are_words(home: Path, book: Book):
    write(home, {"Git.md": f"How it looks:\n\n```\n{MARKERS}```\n"})
    stored = book.remember(f"It said\n\n{MARKERS}", title="Said").id
    assert book.sync().new == 1
    file = home / book.get(stored).path
    file.write_text(file.read_text().replace("It said", "It says"))
    book.sync()
    assert book.get(stored).text.startswith("It says")
    assert book.doctor() == ()


def test_a_new_note_with_a_conflict_is_no_memory_until_it_is_settled(home: Path, book: Book):
    write(home, {"Both.md": MARKERS})
    assert book.sync().new == 0
    assert [finding.what for finding in book.doctor()] == ["merge conflict"]
    assert (home / "Both.md").read_text() == MARKERS
    write(home, {"Both.md": "ours\n"})
    assert book.sync().new == 1
    assert book.doctor() == ()
