"""A person's note gets an id and nothing else; what a verb sets is all that a verb writes."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

import commonbook
from commonbook.service.book import Book
from commonbook.values.memory import Memory
from tests.conftest import OpenBook
from tests.support.hand_edits import change
from tests.support.lost_databases import lose_database

NOTES = {
    "Plain.md": "Buy oil\n",
    "Windows.md": "\ufeff---\r\nmood: good\r\n---\r\nText\r\n",
    "Fields.md": (
        "---\n# mine\ntitle: 'Odd'   # why\naliases: [a, b]\ntags: [x, '#y']\ndate: 2024-05-01\n"
        "updated: 2024-06-01\nversion: 1.0\nrevision: draft\n---\n\nText\n"
    ),
    "Taken.md": (
        "---\nid: 202301011200\ntype: book\nauthor: Jane Doe\nlinks:\n- '[[Plain]]'\nimportance: high\n"
        "shared: true\nexpires: never\n---\nText"
    ),
    "Empty block.md": "---\n---\nText\n",
    "Rule.md": "---\n\nA rule above.\n",
}


def write_notes(home: Path) -> None:
    for name, content in NOTES.items():
        path = home / "team" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode())
        os.utime(path, (1_600_000_000, 1_600_000_000))


def notes_of(book: Book) -> dict[str, Memory]:
    return {Path(memory.path).name: memory for memory in book.list(limit=100).items}


def lines_added(before: bytes, after: bytes) -> list[str]:
    """Return the lines that were added to a file; every line of before must still be there, in order."""
    old, new = before.decode().splitlines(keepends=True), after.decode().splitlines(keepends=True)
    added = []
    for line in new:
        if old and line == old[0]:
            old.pop(0)
        else:
            added.append(line.strip("\ufeff\r\n"))
    assert old == [], f"{old} is not there any more"
    return added


@pytest.fixture
def vault(home: Path, open_book: OpenBook) -> Path:
    open_book().close()
    write_notes(home)
    return home / "team"


@pytest.mark.promise("files.fields")
@pytest.mark.parametrize(
    "fields",
    ["tags: [a]\n", "title: Mine\ntype: fact\n", "id:\nmood: x\n", "created: 2024-05-01\n", "mood: x\n# the end\n", ""],
)
def test_our_fields_stand_together_at_the_end_of_the_block(home: Path, book: Book, fields: str):
    (home / "Note.md").write_text(f"---\n{fields}---\nText\n")
    book.sync()
    (memory,) = book.list().items

    def block() -> str:
        return (home / "Note.md").read_text().partition("---\n")[2].partition("---\n")[0]

    id_line = f"{'commonbook_id' if fields.startswith('id:') else 'id'}: {memory.id}\n"
    assert block() == fields + id_line
    book.edit(memory.id, importance=0.5)
    book.edit(memory.id, valid_from="2020-01-01")
    assert block() == fields + id_line + "valid_from: 2020-01-01T00:00:00.000000Z\nimportance: 0.5\n"
    book.edit(memory.id, tags=["b"])
    assert book.get(memory.id).tags == ("b",)
    assert block().partition(id_line)[0] == fields.replace("[a]", "[b]")
    assert book.sync().read <= 1
    assert book.doctor() == ()


@pytest.mark.promise("files.fields")
def test_a_note_of_a_person_gets_an_id_and_nothing_else(vault: Path, open_book: OpenBook):
    book = open_book()
    for name, memory in notes_of(book).items():
        added = [line for line in lines_added(NOTES[name].encode(), (vault / name).read_bytes()) if line]
        field = "commonbook_id" if name == "Taken.md" else "id"
        has_front = name not in {"Plain.md", "Rule.md"}
        assert sorted(added) == [*(() if has_front else ("---", "---")), f"{field}: {memory.id}"], name
    after = {path: path.read_bytes() for path in vault.iterdir()}
    assert book.sync().read == 0
    assert book.doctor() == ()
    book.close()
    open_book().close()
    assert {path: path.read_bytes() for path in vault.iterdir()} == after


@pytest.mark.promise("files.own-fields")
def test_what_a_person_wrote_into_a_note_is_understood(vault: Path, open_book: OpenBook):
    notes = notes_of(open_book())
    mtime = datetime.fromtimestamp(1_600_000_000, UTC)
    fields = notes["Fields.md"]
    assert (fields.title, fields.tags, fields.kind) == ("Odd", ("x", "y"), "note")
    assert fields.created == datetime(2024, 5, 1, tzinfo=UTC)
    taken = notes["Taken.md"]
    assert (taken.title, taken.kind, taken.author) == ("Taken", "note", "user:filesystem")
    assert (taken.links, taken.importance, taken.expires, taken.created) == ((), None, None, mtime)
    assert (notes["Plain.md"].title, notes["Plain.md"].created) == ("Plain", mtime)


@pytest.mark.promise("files.fields")
def test_a_verb_writes_the_field_that_it_sets_and_no_other(vault: Path, open_book: OpenBook):
    book = open_book()
    notes = notes_of(book)
    changes = [
        ("Plain.md", {"kind": "fact"}, ["type: fact"]),
        ("Plain.md", {"tags": ["one"]}, ["tags: [one]"]),
        ("Fields.md", {"importance": 0.5}, ["importance: 0.5"]),
        ("Taken.md", {"kind": "fact"}, ["commonbook_type: fact"]),
        ("Taken.md", {"importance": 0.5}, ["commonbook_importance: 0.5"]),
        ("Empty block.md", {"title": "Mine"}, ["title: Mine"]),
        ("Windows.md", {"occurred": "2024-05-01"}, ["occurred: 2024-05-01T00:00:00.000000Z"]),
    ]
    for name, fields, lines in changes:
        before = (vault / name).read_bytes()
        book.edit(notes[name].id, **fields)  # type: ignore[arg-type]
        assert lines_added(before, (vault / name).read_bytes()) == lines, name
    # Our fields stand together, behind the id.
    assert (vault / "Plain.md").read_text() == (
        f"---\nid: {notes['Plain.md'].id}\ntype: fact\ntags: [one]\n---\n\nBuy oil\n"
    )
    book.link(notes["Taken.md"].id, "related_to", notes["Plain.md"].id)
    assert "\nlinks:\n- '[[Plain]]'\n" in (vault / "Taken.md").read_text()
    assert [link.target for link in book.get(notes["Taken.md"].id).links] == [notes["Plain.md"].id]
    assert book.doctor() == ()


def test_an_edit_of_the_text_by_a_verb_changes_the_text_alone(vault: Path, open_book: OpenBook):
    book = open_book()
    for name, memory in notes_of(book).items():
        before = (vault / name).read_bytes()
        book.edit(memory.id, text="Another text")
        front = before[: before.rindex(b"---")]
        assert (vault / name).read_bytes().startswith(front), name
        assert (vault / name).read_bytes().rstrip().endswith(b"Another text")
        assert book.get(memory.id).title == memory.title


@pytest.mark.promise("files.fields")
def test_a_note_that_a_person_saves_is_left_as_it_is(vault: Path, open_book: OpenBook):
    book = open_book()
    for name, memory in notes_of(book).items():
        change(vault / name, memory.text, memory.text + " and more")
        saved = (vault / name).read_bytes()
        book.sync()
        assert (vault / name).read_bytes() == saved, name
        assert book.get(memory.id).text == memory.text + " and more"
        assert book.edit(memory.id, importance=0.5).version > memory.version
    assert book.doctor() == ()


def test_fields_that_a_person_removes_are_cleared(vault: Path, open_book: OpenBook):
    book = open_book()
    memory = notes_of(book)["Fields.md"]
    change(vault / "Fields.md", "title: 'Odd'   # why\n", "")
    change(vault / "Fields.md", "tags: [x, '#y']\n", "")
    saved = (vault / "Fields.md").read_bytes()
    book.sync()
    after = book.get(memory.id)
    assert (after.title, after.tags, after.created) == ("Fields", (), memory.created)
    assert (vault / "Fields.md").read_bytes() == saved


def test_a_note_that_a_person_renames_gets_another_title_and_stays_the_same_memory(vault: Path, open_book: OpenBook):
    book = open_book()
    memory = notes_of(book)["Plain.md"]
    content = (vault / "Plain.md").read_bytes()
    (vault / "Plain.md").rename(vault / "Shopping.md")
    book.sync()
    assert (book.get(memory.id).title, book.get(memory.id).path) == ("Shopping", "team/Shopping.md")
    (vault / "lists").mkdir()
    version = book.get(memory.id).version
    (vault / "Shopping.md").rename(vault / "lists" / "Shopping.md")
    book.sync()
    assert book.get(memory.id).title == "Shopping"
    assert (vault / "lists" / "Shopping.md").read_bytes() == content
    assert book.get(memory.id).version >= version


def test_with_the_database_lost_notes_come_back_and_stay_as_they_are(vault: Path, open_book: OpenBook):
    book = open_book()
    book.edit(notes_of(book)["Plain.md"].id, kind="fact", tags=["one"])
    before, files = notes_of(book), {path: path.read_bytes() for path in vault.iterdir()}
    book.close()
    lose_database(vault.parent)
    after = notes_of(open_book())
    for name, memory in before.items():
        for field in ("id", "title", "text", "kind", "tags", "author"):
            assert getattr(after[name], field) == getattr(memory, field), (name, field)
        assert (after[name].revision, after[name].version > 10**12) == (1, True)
    assert after["Fields.md"].created == before["Fields.md"].created
    assert {path: path.read_bytes() for path in vault.iterdir()} == files


def test_what_verbs_make_carries_what_a_lost_database_must_bring_back(home: Path, book: Book):
    first = book.remember("one", title="First", kind="fact", tags=["t"], importance=0.5, occurred="2024-05-01")
    lines = (home / first.path).read_text().partition("\n---\n")[0].splitlines()
    assert [line.partition(":")[0] for line in lines[1:]] == [
        "id", "title", "type", "tags", "created", "occurred", "importance", "author",
    ]  # fmt: skip
    before = (home / first.path).read_text()
    book.edit(first.id, text="two")
    assert (home / first.path).read_text() == before.replace("\n\none\n", "\n\ntwo\n")


# --- slips


@pytest.mark.promise("files.own-fields")
def test_a_slip_in_a_field_that_a_verb_wrote_is_named_and_one_of_a_person_is_not(vault: Path, open_book: OpenBook):
    book = open_book()
    made = book.remember("one", kind="fact", space="team")
    note = notes_of(book)["Plain.md"]
    book.edit(note.id, expires="2050-01-01")
    expires = book.get(note.id).expires
    change(vault / "Plain.md", "expires: 2050", "expires: 20500")
    change(vault / "Fields.md", "tags: [x, '#y']", "tags: {x: y}")
    change(vault.parent / made.path, "type: fact", "type: fcat")
    book.sync()
    assert {finding.where for finding in book.doctor()} == {"team/Plain.md", made.path}
    assert (book.get(note.id).expires, book.get(made.id).kind) == (expires, "fact")
    assert book.get(note.id).marks == ("malformed",)
    assert book.get(notes_of(book)["Fields.md"].id).tags == ()
    change(vault / "Plain.md", "expires: 20500", "expires: 2051")
    change(vault.parent / made.path, "type: fcat", "type: decision")
    book.sync()
    assert book.doctor() == ()
    assert book.get(made.id).kind == "decision"


# --- opening


@pytest.mark.promise("files.opening")
@pytest.mark.parametrize("fault", [None, "touched", "lost"])
def test_a_home_opens_without_a_file_being_written(home: Path, fault: str | None):
    with commonbook.open(home, create=True) as book:
        source = book.remember("one", kind="fact", tags=["t"], title="First")
        book.remember("two", links=[("related_to", source.id)])
        book.share(source.id, "team")
        before = notes_of(book)
    files = {path: path.read_bytes() for path in home.rglob("*.md")}
    if fault == "lost":
        lose_database(home)
    for path in files if fault == "touched" else ():
        os.utime(path, (1_600_000_000, 1_600_000_000))
    with commonbook.open(home) as book:
        for name, memory in notes_of(book).items():
            for field in ("id", "title", "text", "kind", "tags", "created", "author", "freshness"):
                assert getattr(memory, field) == getattr(before[name], field), field
        assert {path: path.read_bytes() for path in home.rglob("*.md")} == files
        assert book.doctor() == ()
