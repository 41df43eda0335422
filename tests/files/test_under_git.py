"""A home under git: what a step changed is what `git diff` shows, and secrets are never in it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from commonbook.service.book import Book
from tests.conftest import OpenBook
from tests.support.hand_edits import change, texts


class Repository:
    """A git repository in a home."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self("init", "-q", "-b", "main")

    def __call__(self, *words: str) -> str:
        identity = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "core.autocrlf=false")
        return subprocess.run(
            ["git", *identity, *words], cwd=self.home, check=True, capture_output=True, text=True
        ).stdout

    def commit(self, message: str) -> None:
        self("add", "-A")
        self("commit", "-qm", message)

    @property
    def status(self) -> str:
        return self("status", "--porcelain")

    @property
    def changed_lines(self) -> list[str]:
        """The lines that were added and removed in the space `team` since the last commit."""
        lines = self("diff", "--unified=0", "--", "team").splitlines()
        return [line for line in lines if line[:1] in "+-" and not line.startswith(("+++", "---"))]


NOTES = {
    "Oil.md": "---\ntags: [kitchen]\nmood: good # today\n---\nOil costs five.\n",
    "Salt.md": "Salt costs one.\n\nSee [[Oil]].\n",
    "Windows.md": "\ufeff---\r\ntitle: Windows\r\n---\r\nText\r\n",
}


@pytest.fixture
def git(home: Path, open_book: OpenBook) -> Repository:
    """A home with notes of a person and memories of verbs, all committed."""
    with open_book() as book:
        book.remember("milk costs two", title="Milk", space="team", tags=["shop"])
        for name, content in NOTES.items():
            (home / "team" / name).write_bytes(content.encode())
        book.sync()
        oil = next(one.id for one in book.list().items if one.title == "Oil")
        book.share(oil, "shared")
    repository = Repository(home)
    repository.commit("first")
    return repository


def by_title(book: Book, title: str, space: str = "team") -> str:
    (memory,) = [one for one in book.list().items if one.title == title and one.space == space]
    return memory.id


@pytest.mark.promise("git.ignored")
def test_keys_database_and_notices_are_never_in_it(git: Repository, open_book: OpenBook):
    book = open_book()
    ground = book.remember("bread costs one", space="team").id
    book.reflect("bread is cheap", [ground], space="team")
    book.remember("bread costs three", space="team", replaces=ground)
    git.commit("second")
    assert len(book.inbox().items) == 1
    assert (git.home / "team" / "_invalidations").exists()
    tracked = git("ls-files").splitlines()
    assert not [path for path in tracked if ".commonbook" in path or "_invalidations" in path]
    assert git.status == ""
    thought = by_title(book, "bread is cheap")
    book.triage(thought, "keep")
    assert not (git.home / "team" / "_invalidations").exists(), "the folder goes with the last notice"


def test_a_home_that_has_no_ignore_file_yet_gets_one(git: Repository, open_book: OpenBook):
    (git.home / ".commonbook" / ".gitignore").unlink()
    assert git.status != ""
    open_book().close()
    assert git.status == ""


@pytest.mark.promise("git.diff")
def test_the_diff_of_an_edit_by_a_verb_is_the_edit(git: Repository, open_book: OpenBook):
    book = open_book()
    steps = [
        ("Milk", {"text": "milk costs three"}, ["-milk costs two", "+milk costs three"]),
        ("Milk", {"tags": ["shop", "dairy"]}, ["-tags: [shop]", "+tags: [shop, dairy]"]),
        ("Salt", {"text": "Salt costs two."}, ["-Salt costs one.", "-", "-See [[Oil]].", "+Salt costs two."]),
        ("Salt", {"kind": "fact"}, ["+type: fact"]),
        ("Oil", {"importance": 0.5}, ["+importance: 0.5"]),
    ]
    for title, changes, lines in steps:
        book.edit(by_title(book, title), **changes)  # type: ignore[arg-type]
        assert git.changed_lines == lines, title
        git.commit(title)
        book.sync()
        assert git.status == ""


def test_an_edit_by_hand_is_committed_as_it_was_typed(git: Repository, open_book: OpenBook):
    book = open_book()
    for name in NOTES:
        change(git.home / "team" / name, "t", "T")
        lines = git.changed_lines
        book.sync()
        assert git.changed_lines == lines
        git.commit(name)
    assert git.status == ""
    assert book.doctor() == ()


@pytest.mark.promise("git.diff")
def test_after_a_checkout_of_an_older_commit_and_back_nothing_has_changed(git: Repository, open_book: OpenBook):
    book = open_book()
    oil, milk, salt = (by_title(book, title) for title in ("Oil", "Milk", "Salt"))
    copy = by_title(book, "Oil", "shared")
    book.edit(oil, text="Oil costs seven.")
    book.edit(milk, text="milk costs three", kind="fact")
    (git.home / "team" / "Salt.md").rename(git.home / "team" / "Sea salt.md")
    book.sync()
    book.remember("bread", space="team")
    git.commit("second")
    book.close()
    git("checkout", "-q", "HEAD~1")
    with open_book() as older:
        assert git.status == ""
        assert (older.get(oil).text, older.get(milk).kind, older.get(salt).title) == ("Oil costs five.", "note", "Salt")
        assert (older.get(copy).text, older.get(copy).freshness) == ("Oil costs five.", "fresh")
        # The checkout took back what verbs had changed, and nobody has looked at that.
        assert {finding.what for finding in older.doctor()} <= {"reverted save"}
        assert git.status == ""
    git("checkout", "-q", "main")
    with open_book() as newer:
        assert git.status == ""
        assert (newer.get(oil).text, newer.get(milk).kind) == ("Oil costs seven.", "fact")
        assert (newer.get(copy).text, newer.get(copy).freshness) == ("Oil costs seven.", "fresh")
        assert newer.get(salt).title == "Sea salt"
        assert "Oil costs five." in texts(newer, oil)
        assert newer.doctor() == ()


@pytest.mark.promise("git.diff")
def test_a_decision_stays_when_an_older_commit_is_checked_out_and_only_its_lines_differ(
    git: Repository, open_book: OpenBook
):
    book = open_book()
    ground = book.remember("bread costs one", space="team").id
    thought = book.reflect("bread is cheap", [ground], space="team").id
    book.remember("bread costs three", space="team", replaces=ground)
    git.commit("second")
    book.triage(thought, "keep", note="it holds")
    git.commit("third")
    book.close()
    git("checkout", "-q", "HEAD~1")
    again = open_book()
    assert [one.note for one in again.get(thought).decisions] == ["it holds"]
    assert all(line.startswith(("+invalidations_triaged:", '+  - "keep')) for line in git.changed_lines)


def test_a_merge_of_two_branches_shows_what_was_meant(git: Repository, open_book: OpenBook):
    book = open_book()
    oil, milk = by_title(book, "Oil"), by_title(book, "Milk")
    git("checkout", "-qb", "other")
    book.edit(oil, text="Oil costs seven.")
    git.commit("oil")
    git("checkout", "-q", "main")
    book.sync()
    book.edit(milk, text="milk costs three")
    git.commit("milk")
    git("merge", "-q", "--no-edit", "other")
    book.sync()
    assert git.status == ""
    assert (book.get(oil).text, book.get(milk).text) == ("Oil costs seven.", "milk costs three")
    assert book.doctor() == ()


@pytest.mark.promise("git.diff")
def test_the_reason_of_a_supersession_stays_in_its_branch(git: Repository, open_book: OpenBook):
    book = open_book()
    oil, milk, salt = (by_title(book, title) for title in ("Oil", "Milk", "Salt"))
    git("checkout", "-qb", "other")
    book.supersede(oil, milk, reason="it is newer")
    book.supersede(salt, milk, reason="it is sweeter")
    git.commit("superseded")
    for branch, reasons in (("main", []), ("other", ["it is newer", "it is sweeter"])):
        git("checkout", "-q", branch)
        book.sync()
        assert git.status == ""
        assert [reason.why for reason in book.get(milk).supersede_reasons] == reasons


@pytest.mark.parametrize("is_superseded", [True, False])
def test_a_reason_in_a_file_is_that_of_a_link(git: Repository, open_book: OpenBook, is_superseded: bool):
    book = open_book()
    oil, milk = by_title(book, "Oil"), by_title(book, "Milk")
    file = git.home / book.get(milk).path
    book.supersede(oil, milk, reason="it is newer")
    because = file.read_text().partition("superseded_because:")[2].splitlines()[1]
    book.reinstate(oil)
    if is_superseded:
        book.supersede(oil, milk)
    change(file, "\n---\n", f"\nsuperseded_because:\n{because}\n---\n")
    book.sync()
    assert [reason.why for reason in book.get(milk).supersede_reasons] == ["it is newer"] * is_superseded
    assert ("superseded_because" in file.read_text()) == is_superseded


@pytest.mark.promise("git.diff")
def test_notes_from_before_they_had_ids_stay_as_they_were_checked_out(git: Repository, open_book: OpenBook):
    book = open_book()
    for name, content in NOTES.items():
        (git.home / "team" / name).with_stem(f"{name[:-3]} 2").write_bytes(content.encode())
    git.commit("notes of a person")
    book.sync()
    git.commit("with ids")
    ids = {one.path: one.id for one in book.list().items}
    git("checkout", "-q", "HEAD~1")
    book.sync()
    assert git.status == ""
    assert {one.path: one.id for one in book.list().items} == ids
    book.edit(ids["team/Salt 2.md"], importance=0.5)
    assert git.changed_lines == ["+---", f"+id: {ids['team/Salt 2.md']}", "+importance: 0.5", "+---", "+"]
    git("checkout", "-q", ".")
    git("checkout", "-q", "main")
    book.sync()
    assert git.status == ""
    assert {one.path: one.id for one in book.list().items} == ids


@pytest.mark.promise("git.diff")
def test_a_note_from_before_it_had_a_kind_stays_as_it_was_checked_out(git: Repository, open_book: OpenBook):
    book = open_book()
    ids = [by_title(book, title) for title in ("Oil", "Salt", "Windows")]
    for id_ in ids:
        book.edit(id_, kind="fact")
    git.commit("facts")
    for commit in ("HEAD~1", "main"):
        git("checkout", "-q", commit)
        book.sync()
        assert git.status == ""
        assert {book.get(id_).kind for id_ in ids} == {"fact"}
    git("checkout", "-q", "HEAD~1")
    book.edit(ids[0], kind="note")
    assert git.changed_lines == []


@pytest.mark.promise("git.diff")
def test_a_folder_from_before_it_was_a_space_stays_as_it_was_checked_out(git: Repository, open_book: OpenBook):
    (git.home / "crew").mkdir()
    for name, content in NOTES.items():
        (git.home / "crew" / name).write_bytes(content.encode())
    git.commit("notes in a folder")
    book = open_book()
    book.create_space("crew")
    git.commit("a space")
    assert "crew/.space.toml" in git("ls-files")
    spaces = {one.path: one.space for one in book.list().items}
    assert spaces["crew/Salt.md"] == "crew"
    for commit in ("HEAD~1", "main"):
        git("checkout", "-q", commit)
        book.sync()
        assert git.status == ""
        assert {one.path: one.space for one in book.list().items} == spaces
    git("checkout", "-q", "HEAD~1")
    book.sync()
    book.remember("bread", space="crew")
    assert (git.home / "crew" / ".space.toml").exists()
    assert book.doctor() == ()


@pytest.fixture
def vault(home: Path, open_book: OpenBook) -> Repository:
    """A home that was a folder of notes before: with a commit from before `init`, and notes that went or changed since.

    `Gone.md` was removed before the folder became a home, `Left.md` afterwards, and `Salt.md` got tags by a verb.
    """
    home.mkdir(exist_ok=True)
    (home / "Area").mkdir()
    for name, content in {**NOTES, "Gone.md": "gone\n", "Left.md": "left\n", "Area/Deep.md": "deep\n"}.items():
        (home / name).write_bytes(content.encode())
    repository = Repository(home)
    repository.commit("notes of a person")
    (home / "Gone.md").unlink()
    repository.commit("without one")
    with open_book() as book:
        book.sync()
        repository.commit("a home")
        salt = by_title(book, "Salt", "personal")
        book.edit(salt, tags=["white"], kind="fact", title="Sea salt", importance=0.5)
        book.remember("bread", space="team", links=[("related_to", salt)])
        (home / "Left.md").unlink()
        book.sync()
    repository.commit("a day later")
    return repository


def meaning(book: Book) -> dict[str, tuple[object, ...]]:
    return {one.path: (one.id, one.title, one.kind, one.tags, one.text) for one in book.list().items}


@pytest.mark.promise("git.diff")
@pytest.mark.parametrize("branch", [False, True], ids=["a commit", "a branch"])
@pytest.mark.parametrize("back", [1, 2, 3])
def test_a_checkout_of_any_older_commit_and_back_leaves_everything_as_it_was(
    vault: Repository, open_book: OpenBook, back: int, branch: bool
):
    book = open_book()
    before = meaning(book)
    for _ in range(2):
        if branch and back < 3:
            vault("checkout", "-qB", "older", f"main~{back}")
        else:
            vault("checkout", "-q", f"main~{back}")
        book.sync()
        book.sync()
        assert vault.status == ""
        assert "left" in {one.text for one in book.list().items}
        assert book.get(before["Oil.md"][0]).path == "Oil.md"  # type: ignore[arg-type]
        vault("checkout", "-q", "main")
        book.sync()
        assert vault.status == ""
        assert meaning(book) == before
        assert book.doctor() == ()


@pytest.mark.promise("git.detached")
def test_a_note_that_is_new_in_a_commit_gets_its_id_when_a_branch_is_there(vault: Repository, open_book: OpenBook):
    book = open_book()
    vault("checkout", "-q", "main~3")
    book.sync()
    assert vault.status == ""
    assert book.status().pending_files > 0
    vault("checkout", "-qb", "older")
    book.sync()
    id_ = by_title(book, "Gone", "personal")
    assert f"id: {id_}" in (vault.home / "Gone.md").read_text()
    assert book.status().pending_files == 0
    assert book.doctor() == ()


@pytest.mark.promise("git.detached")
def test_a_verb_writes_into_a_commit_that_was_checked_out(vault: Repository, open_book: OpenBook):
    book = open_book()
    vault("checkout", "-q", "main~3")
    book.sync()
    id_ = by_title(book, "Gone", "personal")
    book.edit(id_, text="here again")
    assert f"id: {id_}" in (vault.home / "Gone.md").read_text()
    assert "here again" in (vault.home / "Gone.md").read_text()


@pytest.mark.promise("files.no-id")
def test_a_note_without_an_id_that_is_edited_and_moved_by_hand_stays_the_same_memory(
    vault: Repository, open_book: OpenBook
):
    book = open_book()
    salt, deep = by_title(book, "Sea salt", "personal"), by_title(book, "Deep", "personal")
    vault("checkout", "-q", "main~2")
    book.sync()
    change(vault.home / "Salt.md", "costs one", "costs nine")
    book.sync()
    assert book.get(salt).text.startswith("Salt costs nine.")
    (vault.home / "Salt.md").rename(vault.home / "Area" / "Fleur de sel.md")
    (vault.home / "Area" / "Deep.md").rename(vault.home / "Deeper.md")
    book.sync()
    assert (book.get(salt).path, book.get(deep).path) == ("Area/Fleur de sel.md", "Deeper.md")
    vault("add", "-A")
    vault("stash")
    vault("checkout", "-q", "main")
    book.sync()
    assert (book.get(salt).path, book.get(deep).path) == ("Salt.md", "Area/Deep.md")
    assert book.get(salt).text.startswith("Salt costs one.")
    assert vault.status == ""


@pytest.mark.promise("files.no-id")
def test_two_notes_without_ids_and_of_one_text_are_not_taken_for_each_other(vault: Repository, open_book: OpenBook):
    book = open_book()
    vault("checkout", "-q", "main~3")
    for name in ("One.md", "Two.md"):
        (vault.home / name).write_text("the same\n")
    book.sync()
    ids = {by_title(book, "One", "personal"), by_title(book, "Two", "personal")}
    for name in ("One.md", "Two.md"):
        (vault.home / name).rename(vault.home / "Area" / name)
    book.sync()
    assert not ids & {one.id for one in book.list().items if one.path.startswith("Area/")}


@pytest.mark.promise("files.no-id")
def test_a_database_that_is_lost_in_an_older_commit_gives_new_ids_there_and_the_old_ones_in_the_branch(
    vault: Repository, open_book: OpenBook
):
    with open_book() as book:
        before = meaning(book)
    vault("checkout", "-q", "main~3")
    for file in (vault.home / ".commonbook").glob("state.db*"):
        file.unlink()
    with open_book() as book:
        assert vault.status == ""
        assert by_title(book, "Deep", "personal") != before["Area/Deep.md"][0]
        assert vault.status == ""
    vault("checkout", "-q", "main")
    with open_book() as book:
        assert vault.status == ""
        assert meaning(book) == before
        assert book.status().pending_files == 0
        assert book.doctor() == ()


@pytest.mark.promise("git.ignored")
@pytest.mark.parametrize("removed", [False, True], ids=["tracked", "removed since"])
def test_doctor_finds_keys_and_a_database_that_were_committed(git: Repository, open_book: OpenBook, removed: bool):
    book = open_book()
    assert book.doctor() == ()
    (git.home / ".commonbook/owner.key").write_text("a secret")
    (git.home / ".commonbook/owner.key").chmod(0o600)
    git("add", "-f", ".commonbook/keys", ".commonbook/owner.key", ".commonbook/state.db")
    git("commit", "-qm", "oops")
    if removed:
        git("rm", "-rq", "--cached", ".commonbook")
        git("commit", "-qm", "removed")
    findings = book.doctor()
    assert {finding.where for finding in findings} == {
        ".commonbook/keys", ".commonbook/owner.key", ".commonbook/state.db"
    }  # fmt: skip
    assert all("filter-repo" in finding.fix for finding in findings)
