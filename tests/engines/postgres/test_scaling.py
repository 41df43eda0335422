"""Tables can be distributed by space: a list beside this file has all statements that go across spaces."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import commonbook
from commonbook.service.book import Book
from commonbook.service.serving import begin_session, end_session
from commonbook.values.memory import Draft, Filter
from tests.support.statements import recorded

ACROSS = Path(__file__).with_name("statements_across_spaces.txt").read_text(encoding="utf-8")

# Tables that are the same everywhere, or stay on one node: see docs/SCALING.md.
OF_NO_SPACE = {
    "api_key", "browser_session", "committed", "file", "file_journal", "file_left", "home", "kept_vector", "place",
    "rate_count", "rate_limit", "recall_index", "schema_version", "space",
}  # fmt: skip
NAMES_A_SPACE = re.compile(r"\bspace (= %|= ANY\(%|>= %)|INSERT INTO \w+ \([^)]*\bspace\b")
NAMES_TABLES = re.compile(r"\b(?:FROM|JOIN|INTO|UPDATE|TABLE)\s+([a-z_]+)\b")


def goes_across_spaces(statement: str, tables: set[str]) -> bool:
    """Whether a statement asks one of these tables, which have a space in their keys, and names no space."""
    return not tables.isdisjoint(NAMES_TABLES.findall(statement)) and not NAMES_A_SPACE.search(statement)


def documented() -> dict[str, re.Pattern[str]]:
    """The statements of the list, some of which leave out what is in their middle."""
    shown = [line for line in ACROSS.splitlines() if line and not line.startswith("#")]
    return {one: re.compile(".*".join(map(re.escape, one.split(" … ")))) for one in shown}


def spaced(address: str) -> set[str]:
    """The tables that have a space in their keys."""
    with psycopg.connect(address) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
    return {name for (name,) in tables} - OF_NO_SPACE


@pytest.fixture
def server(postgres_book: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Book]:
    """A book on PostgreSQL, with three spaces whose index is written."""
    address, keys = postgres_book
    monkeypatch.setenv("COMMONBOOK_KEYS", keys)
    with commonbook.open(address) as book:
        for space in ("red", "green", "blue"):
            book.remember(f"The {space} ledger is kept in the tower.", space=space)
        book.reindex(anew=True)
        yield book


def everything(book: Book, folder: Path) -> None:
    """Use every verb of the book that reads or writes."""
    book.remember_many([Draft("The moat is deep.", space="red"), Draft("The moat is wide.", space="blue")])
    first = book.remember("Alice keeps the ledger in the tower.", space="red", tags=["keys"], key="k1").id
    second = book.remember("Bob keeps the ledger now.", space="red", replaces=first).id
    third = book.remember("The tower has a bell.", space="green").id
    book.edit(second, text="Bob keeps the ledger in the cellar now.", tags=["keys"])
    book.link(third, "related_to", second)
    book.unlink(third, "related_to", second)
    book.link(third, "derived_from", second)
    book.move(third, "blue")
    assert book.get(third).space == "blue"
    assert book.find_id(third[-12:]) == third
    book.list(Filter(space="red", tags=("keys",)))
    book.list(Filter(kinds=("note",)))
    book.history(second)
    book.links(second)
    _shared(book, second)
    _reasoned(book, second)
    _granted(book)
    _ruled(book)
    _captured(book)
    for query in ("ledger tower", "cellar", ""):
        book.recall(query, spaces="/", tags=["keys"] if query == "cellar" else ())
    book.reindex()
    book.delete(third)
    book.undelete(third)
    book.delete_where(Filter(space="red", tags=("keys",)))
    book.create_space("violet")
    book.rename_space("violet", "purple")
    book.status()
    assert not book.doctor()
    book.log(space="red")
    book.log_size()
    book.changes(after="0")
    book.metrics()
    assert book.verify_log().ok
    book.export(str(folder / "out"))
    book.import_folder(str(folder / "out"))
    # A note of another book: what links to it remember is translated.
    (folder / "note.md").write_text("---\nid: 0191b7c0-11aa-7c3e-8d21-0f5e6a7b8c9d\n---\n\nA note of others.\n")
    book.import_folder(str(folder / "note.md"), space="green")
    book.rebuild()
    book.sync()
    book.accept_deletions()
    book.spaces()
    book.whoami()


def _shared(book: Book, memory: str) -> None:
    copy = book.share(memory, "green", refresh="lazy").id
    snapshot = book.share(memory, "blue", refresh="snapshot").id
    live = book.share_with(memory, "user:bob").id
    book.share(memory, "orange")
    book.edit(memory, text="Carol keeps the ledger in the cellar.")
    book.get(live)
    book.recall("ledger cellar", spaces=["green", "blue"])
    # Both copies are one hit: the lazy one is served, and then refreshed, where it is the only one.
    book.recall("ledger cellar", spaces="green")
    book.work()
    book.refresh(copy)
    book.set_refresh(copy, "live")
    book.lineage(copy)
    book.copies(memory)
    book.detach(snapshot)
    book.adopt_all()
    book.unshare(copy)
    book.share_many([memory], "violet/deep")
    again = book.pull(memory, "yellow").id
    book.edit(again, text="Nobody keeps the ledger.")
    book.adopt(again)


def _reasoned(book: Book, memory: str) -> None:
    book.set_depth("green", 4)
    book.set_review("green", "agents")
    book.set_review("green", None)
    doubtful = book.reflect("The ledger moves about.", [memory], space="green").id
    deeper = book.reflect("Nobody knows where it is.", [doubtful], space="blue").id
    truth = book.remember("The ledger is in the crypt.", space="red").id
    book.supersede(memory, truth, reason="it was found")
    book.dependents(memory)
    for notice in book.inbox().items:
        book.triage(notice.id, "keep")
    book.reinstate(memory)
    book.delete(doubtful)
    book.triage(deeper, "dismiss")


def _granted(book: Book) -> None:
    book.grant("user:bob", "red", "writer")
    key = book.create_key("user:bob", limits=[("red", "reader")])
    book.with_key(key.secret).recall("ledger", spaces="red")
    book.exchange_login(book.create_login(key.key.id).code)
    secret, _ = begin_session(book, book.with_key(key.secret).create_sign_in().code)
    end_session(book, secret)
    book.acting_as("user:bob").list()
    book.grants()
    book.keys()
    book.revoke_key(key.key.id)
    book.revoke("user:bob", "red")


def _ruled(book: Book) -> None:
    book.create_space("giving")
    rule = book.add_rule("taking", "giving", kinds=["note"])
    careful = book.add_rule("careful", "giving", approval=True)
    book.grant("user:bob", "giving", "writer")
    book.acting_as("user:bob").remember("The drawbridge is up.", space="giving")
    book.grant("user:bob", "careful", "reader")
    (request,) = book.pending(space="careful")
    book.approve(request.id)
    second = book.acting_as("user:bob").remember("The drawbridge is down.", space="giving").id
    book.reject(book.pending()[0].id)
    book.acting_as("user:bob").request_share(second, "careful")
    book.request_share(second, "violet/deep")
    book.rules()
    book.work()
    book.remove_rule(rule.id)
    book.remove_rule(careful.id)
    book.set_limit("share", 100, principal="user:bob")
    book.limits()


def _captured(book: Book) -> None:
    book.append("talk", ["The bell rings at noon.", "And at night?"], space="green", tags=["bells"])
    book.append("talk", ["Never at night."], space="green")
    book.messages("talk")
    book.sessions()
    book.recall("bell night", spaces="green")
    memory = book.remember("Bells are of bronze.", space="green").id
    book.record_uses("talk", [commonbook.PromptPassage(memory, "0" * 64)], message=2)
    book.uses(memory)
    book.session_uses("talk")
    book.rewind("talk", 2)
    book.settle("talk")
    book.append("talk", ["It rang last night."], space="green")
    book.switch("talk", "later", space="green")
    book.append("later", ["Somebody rang it."], space="green")
    book.prefetch("later", "bell")
    book.prefetched("later", "bell", wait=10)
    book.close_session("later")
    book.move_session("later", "violet/deep", space="green")
    book.work()


# --- and what they did


def test_statements_that_go_across_spaces_are_the_documented_ones(server, postgres_book, monkeypatch, tmp_path):
    with recorded(monkeypatch) as statements:
        everything(server, tmp_path)
    tables = spaced(postgres_book[0])
    across = {statement for statement in statements if goes_across_spaces(statement, tables)}
    known = documented()
    missing = [one for one in across if not any(shape.fullmatch(one) for shape in known.values())]
    assert missing == [], "\n".join(missing)
    assert [shown for shown, shape in known.items() if not any(map(shape.fullmatch, across))] == []


def test_every_key_of_the_index_has_the_space_in_it(server, postgres_book):
    """The index makes its tables when it is written; `test_database.py` has the keys of the book's own tables."""
    with psycopg.connect(postgres_book[0]) as connection:
        keys = connection.execute(
            "SELECT indrelid::regclass::text, pg_get_indexdef(indexrelid) FROM pg_index"
            " WHERE indisunique AND indrelid::regclass::text LIKE 'recall%%'"
        ).fetchall()
    assert {table for table, _ in keys} == {"recall_index", "recall_space", "recall_passage", "recall_posting"}
    assert {table for table, definition in keys if "(space" not in definition} == {"recall_index"}


def test_every_verb_that_asks_the_database_was_tried():
    tried = set(re.findall(r"\bbook\.(\w+)\(", Path(__file__).read_text(encoding="utf-8")))
    tried |= set(re.findall(r"\.(?:acting_as|with_key)\(.*\)\.(\w+)\(", Path(__file__).read_text(encoding="utf-8")))
    verbs = {name for name in dir(Book) if callable(getattr(Book, name)) and not name.startswith("_")}
    assert verbs - tried == {"close", "working", "watching", "space_for_writing"}


@pytest.mark.parametrize(
    ("statement", "across"),
    [
        ("SELECT id FROM memory WHERE path = %(path)s", True),
        ("SELECT id FROM memory WHERE space = ANY(%(spaces)s) AND path = %(path)s", False),
        ("SELECT * FROM place JOIN memory ON memory.space = place.space WHERE place.id = %(id)s", True),
        ("SELECT id, name FROM space", False),
        ("INSERT INTO memory (space, id) VALUES (%(space)s, %(id)s)", False),
    ],
)
def test_a_statement_goes_across_spaces_unless_a_parameter_says_which(statement, across):
    assert goes_across_spaces(statement, {"memory"}) is across
