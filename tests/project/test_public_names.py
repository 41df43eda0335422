"""The public names, on which users rely: adding or removing one must be a decision, not an accident."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
import typing
from collections.abc import Iterator
from pathlib import Path

import pytest

import commonbook
from commonbook import errors
from commonbook.book.book import Book
from commonbook.client import client

INPUTS = {"Draft", "Filter", "NewMessage", "Progress", "UNSET", "Unset"}
RESULTS = {
    "Ancestor",
    "ApiKey",
    "AppendReceipt",
    "CopyInfo",
    "CopyNode",
    "CopyPlace",
    "Decision",
    "Deleted",
    "Dependent",
    "Finding",
    "Grant",
    "Hit",
    "Inbox",
    "InboxItem",
    "Invalidation",
    "Lineage",
    "Link",
    "LogEntry",
    "LogReport",
    "Memory",
    "MemoryReference",
    "Message",
    "MessagePage",
    "MessageReceipt",
    "NewKey",
    "Notice",
    "Page",
    "RateLimit",
    "RecallResult",
    "Receipt",
    "Revision",
    "SchemaMigration",
    "Session",
    "SettleReport",
    "ShareReceipt",
    "ShareRequest",
    "SharingRule",
    "Space",
    "Status",
    "SupersedeReason",
    "SupersedeReport",
    "SyncReport",
    "TransferReport",
    "TriageReport",
    "WorkReport",
}
ERRORS = {name for name, value in vars(errors).items() if inspect.isclass(value) and issubclass(value, Exception)}


def modules_loaded_by(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_package_exports_exactly_these_names():
    assert set(commonbook.__all__) == {"__version__", "open", "Book"} | INPUTS | RESULTS | set(client.__all__) | ERRORS
    assert len(commonbook.__all__) == len(set(commonbook.__all__))


def test_every_exported_name_can_be_imported():
    names: dict[str, object] = {}
    exec("from commonbook import *", names)
    assert set(commonbook.__all__) <= {*names, "__version__"}
    assert all(names[name] is getattr(commonbook, name) for name in commonbook.__all__)
    assert set(commonbook.__all__) <= set(dir(commonbook))
    assert not hasattr(commonbook, "Nonsense")
    with pytest.raises(ImportError, match="Nonsense"):
        exec("from commonbook import Nonsense")


def test_type_checkers_see_every_exported_name():
    tree = ast.parse(Path(commonbook.__file__).read_text(encoding="utf-8"))
    blocks = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    imported = {
        (alias.name, node.module)
        for block in blocks
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    table = {(name, module) for module, names in commonbook._MODULES.items() for name in names}
    assert imported == table
    assert {name for name, _ in table} == set(commonbook.__all__) - {"__version__", "open"}


def test_importing_the_package_alone_loads_nothing_else():
    loaded = modules_loaded_by("import commonbook")
    assert {name for name in loaded if name.startswith("commonbook")} == {"commonbook", "commonbook.version"}


def test_importing_a_value_does_not_load_the_book():
    loaded = modules_loaded_by("from commonbook import NotFound, NewMessage")
    assert {name for name in loaded if name.startswith("commonbook")} == {
        "commonbook",
        "commonbook.errors",
        "commonbook.model",
        "commonbook.model.session",
        "commonbook.model.spaces",
        "commonbook.version",
    }


def own_types(annotation: object) -> Iterator[type]:
    """Yield the classes of the package that an annotation names, however deep."""
    if isinstance(annotation, type) and annotation.__module__.partition(".")[0] == "commonbook":
        yield annotation
    parts = annotation if isinstance(annotation, list) else typing.get_args(annotation)
    for part in parts:
        yield from own_types(part)


def types_in_verbs(facade: type) -> Iterator[type]:
    """Yield the classes of the package in the signatures of a facade's public verbs, and in the fields of those."""
    exported = {name: getattr(commonbook, name) for name in commonbook.__all__}
    verbs = [getattr(facade, name) for name in dir(facade) if not name.startswith("_")]
    waiting = [inspect.unwrap(getattr(verb, "fget", verb)) for verb in verbs]
    seen: set[type] = set()
    while waiting:
        hints = typing.get_type_hints(waiting.pop(), localns=exported)
        found = {type_ for hint in hints.values() for type_ in own_types(hint)} - seen - {facade}
        seen |= found
        waiting += found
    yield from seen


@pytest.mark.parametrize("facade", [Book, client.Client])
def test_every_type_in_the_signature_of_a_verb_is_exported(facade):
    types = set(types_in_verbs(facade))
    assert types
    assert {type_.__name__ for type_ in types} <= set(commonbook.__all__)
    assert all(getattr(commonbook, type_.__name__) is type_ for type_ in types)


def test_a_book_has_just_these_verbs():
    public = {name for name in dir(Book) if not name.startswith("_")}
    assert public == {
        "accept_deletions",
        "acting_as",
        "actor",
        "add_rule",
        "adopt",
        "append",
        "approve",
        "close",
        "close_session",
        "copies",
        "create_key",
        "create_space",
        "default_space",
        "delete",
        "delete_where",
        "dependents",
        "detach",
        "doctor",
        "edit",
        "export",
        "find_id",
        "get",
        "grant",
        "grants",
        "history",
        "home",
        "import_folder",
        "inbox",
        "keys",
        "limits",
        "lineage",
        "link",
        "links",
        "list",
        "log",
        "messages",
        "move",
        "pending",
        "prefetch",
        "prefetched",
        "pull",
        "rebuild",
        "recall",
        "reflect",
        "refresh",
        "reindex",
        "reinstate",
        "reject",
        "remember",
        "remember_many",
        "remove_rule",
        "rename_space",
        "request_share",
        "revoke",
        "revoke_key",
        "rewind",
        "rules",
        "schema_migration",
        "sessions",
        "set_depth",
        "set_limit",
        "set_refresh",
        "settle",
        "share",
        "share_many",
        "share_with",
        "spaces",
        "status",
        "supersede",
        "switch",
        "sync",
        "triage",
        "unlink",
        "unshare",
        "verify_log",
        "watching",
        "with_key",
        "work",
        "working",
    }


def test_the_client_offers_just_this():
    public = {name for name in vars(client.Client) if not name.startswith("_")}
    assert public == {"append", "close", "counts", "discard", "flush", "pending", "refused", "retry", "trouble"}
    assert set(client.__all__) == {
        "Client",
        "EnqueuedMessage",
        "OutboxCounts",
        "OutboxEntry",
        "OutboxMessage",
        "OutboxReceipt",
        "SessionContext",
        "StoredMessage",
        "Transport",
    }


def test_importing_the_package_and_its_facade_imports_nothing_slow():
    loaded = modules_loaded_by("import commonbook.compose.book")
    assert not loaded & {
        "cryptography",
        "yaml",
        "watchfiles",
        "rich",
        "shtab",
        "asyncio",
        "zipfile",
        "tarfile",
        "tomllib",
    }
