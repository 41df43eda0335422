"""Writes beyond the space that a call names: every one asks for the right on the space that the row is in now."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import commonbook
from commonbook.core.write.context import ForeignWrite, WriteContext
from commonbook.core.write.transaction import write
from commonbook.errors import CommonbookError, NotAllowed
from commonbook.service.book import Book
from commonbook.values.memory import Draft, Filter, Kind
from commonbook.values.request import RequestContext
from commonbook.values.session import PromptPassage
from commonbook.values.spaces import Actor
from tests.admin.test_grants import HARMLESS, OWNERS
from tests.support.stored import stored

pytestmark = pytest.mark.promise("access.current-space")

ANA, BOB = "user:ana", "user:bob"
SECRET = "salary"
UNKNOWN = "0192f3a1-5c2e-7b1d-9a3f-4e6d7f3a9c2e"


def reasons_in_use() -> set[str]:
    """Return the names of the reasons that the code of the package uses."""
    used: set[str] = set()
    for path in Path(commonbook.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "ForeignWrite":
                used.add(node.attr)
    return used


def test_the_list_of_reasons_to_write_elsewhere_is_whole_and_each_says_why():
    assert reasons_in_use() == {reason.name for reason in ForeignWrite}
    assert all(reason.value.endswith(".") and " " in reason.value for reason in ForeignWrite)


def test_a_change_in_a_space_without_the_right_needs_a_reason(book: Book):
    book.grant(BOB, "hr", "writer")
    memory = stored(book, book.remember("the vault is full", space="vault").id)

    def change(ctx: WriteContext) -> None:
        ctx.log_memory(memory, "edit")

    with pytest.raises(NotAllowed) as refused:
        write(book._engines, RequestContext(Actor(BOB)), change)
    assert "vault" not in str(refused.value)
    before = len(book.log(space="vault"))
    write(book._engines, RequestContext(Actor(BOB)), lambda ctx: change(ctx.because(ForeignWrite.REFUSAL)))
    assert len(book.log(space="vault")) == before + 1


# --- a walk through every verb


@pytest.fixture
def ids(book: Book) -> list[str]:
    """Rows of every kind that were in `hr`, where Bob writes, and are in `vault` now, which he may not read.

    Rows of `hr` are tied to them by links, copies and the session.
    """
    book.grant(BOB, "hr", "writer")
    bob = book.acting_as(BOB)
    memory, source, old, new = (bob.remember(f"{SECRET} {text}", space="hr").id for text in ("a", "b", "c", "d"))
    bob.link(bob.remember("it is linked", space="hr").id, "related_to", memory)
    book.share(book.remember(f"{SECRET} boat", space="vault").id, "hr", refresh="lazy")
    copy = book.share(bob.remember("the rota is mine", space="hr").id, "vault", refresh="snapshot").id
    book.share(source, "hr/copies")
    suspect = bob.reflect(f"{SECRET} thought", [old], space="hr").id
    bob.supersede(old, new)
    bob.append("talk", [f"{SECRET} one", f"{SECRET} two"], space="hr")
    (episode,) = book.settle("talk").episodes
    moved = [memory, source, old, new, suspect, episode]
    for memory_id in moved:
        book.move(memory_id, "vault")
    (notice,) = [item.id for item in book.inbox().items if item.dependent.id == suspect]
    book.grant(ANA, "vault", "admin")
    book.grant(ANA, "elsewhere", "reader")
    request = book.acting_as(ANA).request_share(memory, "elsewhere").id
    rule = book.add_rule("vault", "elsewhere").id
    return [*moved, copy, notice, request, rule]


CALLS: dict[str, Callable[[Book, str], Any]] = {
    "append": lambda bob, id_: bob.append("talk", [id_], space="vault"),
    "add_rule": lambda bob, id_: bob.add_rule("vault", "hr"),
    "acting_as": lambda bob, id_: bob.acting_as("user:local"),
    "adopt": lambda bob, id_: bob.adopt(id_),
    "adopt_all": lambda bob, _: bob.adopt_all(),
    "approve": lambda bob, id_: bob.approve(id_),
    "close_session": lambda bob, id_: bob.close_session("talk", space="hr"),
    "move_session": lambda bob, id_: bob.move_session("talk", "vault", space="hr"),
    "copies": lambda bob, id_: bob.copies(id_),
    "create_key": lambda bob, id_: bob.create_key("user:local"),
    "create_sign_in": lambda bob, id_: bob.create_sign_in(),
    "create_login": lambda bob, id_: bob.create_login(id_),
    "exchange_login": lambda bob, id_: bob.exchange_login(id_),
    "create_space": lambda bob, id_: bob.create_space("vault/new"),
    "delete": lambda bob, id_: bob.delete(id_),
    "undelete": lambda bob, id_: bob.undelete(id_),
    "dependents": lambda bob, id_: bob.dependents(id_),
    "detach": lambda bob, id_: bob.detach(id_),
    "edit": lambda bob, id_: bob.edit(id_, text="changed"),
    "export": lambda bob, id_: bob.export("exported", space="hr"),
    "get": lambda bob, id_: bob.get(id_),
    "grant": lambda bob, id_: bob.grant(BOB, "vault", "admin"),
    "history": lambda bob, id_: bob.history(id_),
    "lineage": lambda bob, id_: bob.lineage(id_),
    "link": lambda bob, id_: bob.link(id_, "related_to", id_),
    "links": lambda bob, id_: bob.links(id_),
    "log": lambda bob, id_: bob.log(space="vault"),
    "messages": lambda bob, id_: bob.messages("talk", space="hr"),
    "move": lambda bob, id_: bob.move(id_, "hr"),
    "pull": lambda bob, id_: bob.pull(id_, "hr"),
    "record_uses": lambda bob, id_: bob.record_uses("talk", [PromptPassage(id_, "0" * 64)], space="hr"),
    "session_uses": lambda bob, id_: bob.session_uses("talk", space="hr"),
    "uses": lambda bob, id_: bob.uses(id_),
    "recall": lambda bob, id_: bob.recall("salary oil boat", spaces=["hr"]),
    "reflect": lambda bob, id_: bob.reflect("so it is", [id_], space="hr"),
    "refresh": lambda bob, id_: bob.refresh(id_),
    "set_refresh": lambda bob, id_: bob.set_refresh(id_, "lazy"),
    "reinstate": lambda bob, id_: bob.reinstate(id_),
    "reject": lambda bob, id_: bob.reject(id_),
    "remember": lambda bob, id_: bob.remember("so it is", space="hr", replaces=id_),
    "remember_many": lambda bob, id_: bob.remember_many([Draft("so", space="hr", links=(("supersedes", id_),))]),
    "remove_rule": lambda bob, id_: bob.remove_rule(id_),
    "rename_space": lambda bob, id_: bob.rename_space("vault", "hr/vault"),
    "request_share": lambda bob, id_: bob.request_share(id_, "hr"),
    "revoke": lambda bob, id_: bob.revoke("user:ana", "vault"),
    "revoke_key": lambda bob, id_: bob.revoke_key(id_),
    "set_depth": lambda bob, id_: bob.set_depth("vault", 3),
    "set_review": lambda bob, id_: bob.set_review("vault", "agents"),
    "settle": lambda bob, id_: bob.settle("talk", space="hr"),
    "share": lambda bob, id_: bob.share(id_, "hr"),
    "share_many": lambda bob, id_: bob.share_many([id_], "hr"),
    "share_with": lambda bob, id_: bob.share_with(id_, "user:ana"),
    "supersede": lambda bob, id_: bob.supersede(id_, id_),
    "switch": lambda bob, id_: bob.switch("talk", "talk/2", space="hr"),
    "triage": lambda bob, id_: bob.triage(id_, "dismiss"),
    "unlink": lambda bob, id_: bob.unlink(id_, "related_to", id_),
    "unshare": lambda bob, id_: bob.unshare(id_),
    "work": lambda bob, id_: bob.work(),
    # These two change what Bob has in `hr`, so they come last. The titles are those of copies in `hr`.
    "rewind": lambda bob, id_: bob.rewind("talk", 0, space="hr"),
    "delete_where": lambda bob, id_: bob.delete_where(Filter(kinds=("note", "reflection", "episode"))).ids,
}


# Verbs that name a row: for one in `vault` they answer as for one that is not there.
BY_ID = {
    name
    for name, call in CALLS.items()
    if "id_" in inspect.getsource(call).partition("lambda bob, id_:")[2] and name not in {"append"}
}
# Bob reads his own messages in `hr`, whatever became of their episode.
SESSIONS = {"messages", "rewind", "recall", "settle", "close_session", "switch", "append"}


def vault(book: Book) -> tuple[object, ...]:
    """Return everything that is in `vault` and below, but for the refusals in its log."""
    names = sorted(space.name for space in book.spaces() if space.name.split("/")[0] == "vault")
    kinds: tuple[Kind, ...] = ("note", "reflection", "episode", "notice")
    pages = [book.list(Filter(space="vault/", kinds=kinds, deleted=deleted), limit=200) for deleted in (False, True)]
    # Freshness and marks are derived: they may follow what Bob does with the other end of a tie.
    stored = [
        (one.id, one.space, one.version, one.title, one.text, one.tags, one.links, one.deleted)
        for page in pages
        for one in page.items
    ]
    logged = [entry for name in names for entry in book.log(space=name, limit=1000)]
    assert {entry.actor for entry in logged if entry.action.startswith("refused")} <= {BOB}
    return names, stored, [entry._replace(previous="", hash="", seq=0) for entry in logged if not _refusal(entry)]


def _refusal(entry: commonbook.LogEntry) -> bool:
    return entry.action.startswith("refused")


def answer(call: Callable[[Book, str], Any], bob: Book, id_: str) -> str:
    """Return what a call answers or raises, without the id that it was given."""
    try:
        result = call(bob, id_)
    except CommonbookError as error:
        return f"{type(error).__name__}: {error}".replace(id_, "ID")
    return repr(result).replace(id_, "ID")


def test_the_walk_has_every_verb():
    public = {name for name, _ in inspect.getmembers(Book) if not name.startswith("_")}
    assert public - set(CALLS) <= HARMLESS | OWNERS


def test_no_verb_reaches_rows_that_are_in_a_foreign_space_now(book: Book, ids: list[str]):
    bob = book.acting_as(BOB)
    before = vault(book)
    (episode,) = {one.episode for one in book.messages("talk").items if one.episode}
    for verb, call in CALLS.items():
        unknown = answer(call, bob, UNKNOWN) if verb in BY_ID else None
        for id_ in ids:
            reply = answer(call, bob, id_)
            assert SECRET not in reply or verb in SESSIONS, (verb, reply)
            assert unknown in (None, reply), (verb, reply)
            assert verb not in SESSIONS or episode not in reply, (verb, reply)
        assert vault(book) == before, verb
    # The rewind of Bob's own session was done, though its episode is elsewhere now.
    assert all(one.rewound_at for one in bob.messages("talk", space="hr").items[:2])
    assert book.verify_log().findings == ()
