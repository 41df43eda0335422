"""What others may rely on: a name that goes or comes here is a decision, not an accident."""

from __future__ import annotations

import subprocess
import sys

import commonbook
from commonbook import client
from commonbook.book import Book


def test_the_package_offers_just_this():
    assert commonbook.__all__ == ["__version__", "open"]


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
        "sessions",
        "set_depth",
        "set_limit",
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
        "Context",
        "Counts",
        "Entry",
        "Held",
        "Kept",
        "OutMessage",
        "OutboxReceipt",
        "Transport",
    }


def test_importing_the_package_and_its_facade_imports_nothing_slow():
    said = subprocess.run(
        [sys.executable, "-c", "import sys, commonbook.compose; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(said.stdout.split())
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
