"""A person's own front matter is metadata: read, found, and written back line by line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import commonbook
from commonbook import Filter
from commonbook.errors import Conflict
from commonbook.service.book import Book
from commonbook.values.memory import Memory
from tests.conftest import OpenBook
from tests.support.hand_edits import change
from tests.support.lost_databases import lose_database
from tests.support.transfers import write

pytestmark = pytest.mark.promise("files.metadata")

TOM = (
    "---\n# who he is\nbirthday: 1980-03-16   # a Sunday\naliases: [Tommy]\ntags: [people]\n"
    'friends:\n  - "[[Ann]]"\n  # and\n  - Bob\nheight: 1.80\nzip: 01234\nvip: true\ncssclasses: [wide]\n'
    "address:\n  street: Elm\nempty:\nstatus: 'overdue'\n---\nHe likes tea.\n"
)
TOMS = {
    "birthday": "1980-03-16", "friends": ["[[Ann]]", "Bob"], "height": 1.8, "zip": "01234", "vip": True,
    "status": "overdue",
}  # fmt: skip


def the_note(home: Path, book: Book, content: str | bytes, name: str = "People/Tom Berger.md") -> Memory:
    """Return the memory of a note that a person saves."""
    write(home, {name: content})
    book.sync()
    (memory,) = [memory for memory in book.list().items if memory.path == name]
    return memory


def titles(book: Book, **metadata: Any) -> list[str]:
    return [memory.title for memory in book.list(Filter(metadata=metadata)).items]


def test_the_properties_of_a_note_are_shown_found_and_filtered_by(home: Path, book: Book):
    book.remember("Tom asked when the pricing is ready.", title="Tuesday")
    memory = the_note(home, book, TOM)
    assert memory.metadata == TOMS
    for query in ("1980-03-16", "when is the birthday of Tom Berger", "overdue"):
        assert book.recall(query).hits[0].memory == memory.id, query
    assert titles(book, birthday="1980-03-16") == titles(book, friends="Bob") == ["Tom Berger"]
    assert book.recall("tea", metadata={"vip": True}).hits[0].memory == memory.id
    change(home / memory.path, "birthday: 1980-03-16", "birthday: 1980-03-17")
    book.sync()
    assert (titles(book, birthday="1980-03-16"), titles(book, birthday="1980-03-17")) == ([], ["Tom Berger"])
    assert book.get(memory.id).version > memory.version


@pytest.mark.promise("files.bytes")
@pytest.mark.parametrize("eol", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("name", "value", "old", "new"),
    [
        ("birthday", "2000-01-01", "birthday: 1980-03-16   # a Sunday\n", "birthday: 2000-01-01\n"),
        ("birthday", None, "birthday: 1980-03-16   # a Sunday\n", ""),
        ("friends", ["Bob", "[[C]]"], 'friends:\n  - "[[Ann]]"\n  # and\n  - Bob\n', 'friends: [Bob, "[[C]]"]\n'),
        ("height", 2, "height: 1.80\n", "height: 2\n"),
        ("empty", "no: longer", "empty:\n", 'empty: "no: longer"\n'),
        ("status", "", "status: 'overdue'\n", 'status: ""\n'),
        ("mother's name", "Eve", "---\nHe", "mother's name: Eve\n---\nHe"),
    ],
)
def test_an_edit_writes_the_line_of_a_property_and_no_other(
    home: Path, book: Book, eol: str, name: str, value: Any, old: str, new: str
):
    memory = the_note(home, book, TOM.replace("\n", eol).encode())
    path = home / memory.path
    before = path.read_bytes().decode()
    fields = {**memory.metadata, name: value}
    book.edit(memory.id, metadata={each: one for each, one in fields.items() if one is not None})
    after = path.read_bytes().decode()
    if name not in TOM and name != "empty":
        old, new = f"id: {memory.id}\n", f'id: {memory.id}\n"mother\'s name": Eve\n'
    assert old.replace("\n", eol) in before
    assert after == before.replace(old.replace("\n", eol), new.replace("\n", eol))
    assert book.sync().read <= 1
    expected = {**TOMS, name: value} if value is not None else {each: TOMS[each] for each in TOMS if each != name}
    assert book.get(memory.id).metadata == expected
    book.edit(memory.id, importance=0.5)
    assert path.read_bytes().decode().replace(f"importance: 0.5{eol}", "") == after
    book.edit(memory.id, importance=None, metadata=memory.metadata)
    assert book.get(memory.id).metadata == TOMS


def test_what_is_no_metadata_is_not_written_over(home: Path, book: Book):
    memory = the_note(home, book, TOM)
    before = (home / memory.path).read_bytes()
    with pytest.raises(Conflict, match="address") as caught:
        book.edit(memory.id, metadata={"address": "Elm"})
    assert memory.path in caught.value.fix
    assert (home / memory.path).read_bytes() == before
    book.edit(memory.id, metadata=None)
    left = (home / memory.path).read_text()
    assert "aliases: [Tommy]\ntags: [people]\ncssclasses: [wide]\naddress:\n  street: Elm\nempty:\n" in left
    assert book.get(memory.id).metadata == {}


ODD = {
    "a: &x 1\n": None,
    "a: *x\n": None,
    "a: !t 1\n": None,
    "a: 1\na: 2\n": None,
    "a:\t1\n": {"a": 1},
    "a: |\n  one\n\n  two\n": {"a": "one two"},
    "a: >-\n  one\n  two\n": {"a": "one two"},
    "a: one\n  two\n": {"a": "one two"},
    "a:\n  - [1, 2]\n": {},
    "a: [1, ~, two]\n": {"a": [1, "two"]},
    "a: []\n": {},
    "a: {}\n": {},
    "a:\n": {},
    "a: null\nb: ~\nc: ''\n": {"c": ""},
    "a: yes\nb: No\nc: True\nd: true\ne: 'true'\n": {"a": "yes", "b": "No", "c": "True", "d": True, "e": "true"},
    "a: 2026-05-01 12:30:00\nb: 12:30\nc: 2026-05-01T12:30:00Z\n": {
        "a": "2026-05-01 12:30:00", "b": "12:30", "c": "2026-05-01T12:30:00Z",
    },
    "a: 0x1F\nb: 1_000\nc: .5\nd: +49\ne: 1e400\nf: -0\ng: .inf\nh: .nan\n": {
        "a": "0x1F", "b": "1_000", "c": ".5", "d": 49, "e": "1e400", "f": 0, "g": ".inf", "h": ".nan",
    },
    f"a: {'9' * 5000}\nb: {'9' * 100}\n": {"b": "9" * 100},
    f"a: {'x' * 501}\nb: {'x' * 500}\n": {"b": "x" * 500},
    f"a: [{', '.join('1' * 40)}]\n": {},
    f"a: {'[' * 25}{']' * 25}\n": None,
    f"a: {'[' * 6000}\n": None,
    "größe: 5\n語: x\nn\u0308: x\n": {"größe": 5, "語": "x", "n\u0308": "x"},
    "due date: soon\n'a: b': 1\n\"c=d\": 2\n3d: 4\n' e': 5\n": {"due date": "soon"},
    "Title: x\nType: book\ntype: book\nauthor: Jane\nmetadata: {a: 1}\n": {"Title": "x", "Type": "book"},
    "metadata: mine\n": {"metadata": "mine"},
    "a: '[[Note|x]]'\nb: [[Note]]\n": {"a": "[[Note|x]]"},
    'a: "\\u202e"\nb: "x\\ty"\n': {},
    "timestamp: 2026\nupdated: 2026-01-01\nPublish: true\n": {},
}  # fmt: skip


@pytest.mark.promise("files.bytes")
@pytest.mark.parametrize("fields", ODD, ids=lambda fields: fields[:40])
def test_odd_properties_lose_no_byte_and_raise_nothing(home: Path, book: Book, fields: str):
    content = f"---\n# first\n{fields}# last\n---\nText\n"
    write(home, {"Odd.md": content})
    expected = ODD[fields]
    if expected is None:
        assert book.sync().malformed == 1
        assert (home / "Odd.md").read_text() == content
        return
    memory = the_note(home, book, content, "Odd.md")
    assert memory.metadata == expected
    ours = f"{'commonbook_id' if 'id:' in fields else 'id'}: {memory.id}\n"
    assert (home / "Odd.md").read_text() == content.replace("# last\n", f"# last\n{ours}")
    book.edit(memory.id, metadata={**memory.metadata, "zz": 1})
    assert (home / "Odd.md").read_text() == content.replace("# last\n", f"# last\n{ours}zz: 1\n")
    assert book.get(memory.id).metadata == {**expected, "zz": 1}
    assert book.doctor() == ()
    book.edit(memory.id, metadata={})
    book.recall("odd")


def test_of_more_names_than_metadata_may_have_the_first_count_and_all_stay(home: Path, book: Book):
    lines = "".join(f"a{number}: {number}\n" for number in range(40))
    memory = the_note(home, book, f"---\n{lines}---\nText\n")
    assert memory.metadata == {f"a{number}": number for number in range(32)}
    book.edit(memory.id, metadata={**memory.metadata, "a3": "x"})
    assert lines.replace("a3: 3\n", "a3: x\n") in (home / memory.path).read_text()


def test_a_link_in_a_property_counts_in_a_note_and_in_a_file_of_a_verb(home: Path, book: Book):
    ann = book.remember("Ann lives here.", title="Ann").id
    tom = the_note(home, book, TOM).id
    made = book.remember("He lives there.", metadata={"friend": "[[Ann]]", "m": 1}).id
    assert {link.source for link in book.links(ann)} == {tom, made}
    change(home / book.get(made).path, "He lives", "He lived")
    book.sync()
    assert {link.source for link in book.links(ann)} == {tom, made}
    assert 'friend: "[[Ann]]"\nm: 1\n' in (home / book.get(made).path).read_text()


def test_properties_come_back_after_a_delete_a_rebuild_and_a_lost_database(home: Path, book: Book):
    memory = the_note(home, book, TOM)
    book.edit(memory.id, metadata={**memory.metadata, "m": 1})
    content = (home / memory.path).read_bytes()
    book.delete(memory.id)
    book.undelete(memory.id)
    assert (home / memory.path).read_bytes() == content
    book.rebuild()
    book.close()
    for lost in (False, True):
        if lost:
            lose_database(home)
        with commonbook.open(home) as again:
            assert again.get(memory.id).metadata == {**TOMS, "m": 1}
            assert titles(again, m=1) == ["Tom Berger"]
            assert (home / memory.path).read_bytes() == content


@pytest.mark.promise("secrets.masked")
def test_a_secret_in_another_property_stays_as_the_person_wrote_it(home: Path, book: Book):
    memory = the_note(home, book, "---\nm: 1\npassword: 'hunter2x9'\n---\nText\n")
    assert book.edit(memory.id, metadata={**memory.metadata, "m": 2}).masked == 0
    assert "m: 2\npassword: 'hunter2x9'\n" in (home / memory.path).read_text()
    assert book.edit(memory.id, metadata={"m": 2, "password": "hunter2x8"}).masked == 1
    assert 'm: 2\npassword: "[masked: secret]"\n' in (home / memory.path).read_text()


def test_an_import_and_an_export_keep_the_properties_on_every_engine(open_book: OpenBook, tmp_path: Path):
    book = open_book()
    write(tmp_path / "vault", {"Tom Berger.md": TOM})
    book.import_folder(str(tmp_path / "vault"))
    (memory,) = book.list().items
    assert memory.metadata == TOMS
    assert book.recall("when is the birthday of Tom Berger").hits[0].memory == memory.id
    book.edit(memory.id, metadata={**memory.metadata, "birthday": "2000-01-01"})
    book.export(str(tmp_path / "out"))
    (exported,) = (tmp_path / "out").rglob("*.md")
    lines = TOM.replace("birthday: 1980-03-16   # a Sunday\n", "birthday: 2000-01-01\n").splitlines()
    assert set(lines) - set(exported.read_text().splitlines()) == set()
    copy = book.share(memory.id, "team").id
    assert book.get(copy).metadata == {**TOMS, "birthday": "2000-01-01"}
