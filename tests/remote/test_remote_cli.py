"""The command line with `--url`: the same commands on the book of a server."""

from __future__ import annotations

import httpx2
import pytest

from commonbook.remote.http import Patience
from commonbook.service.serving import begin_session
from tests.interfaces.cli.test_cli import cli_without_book

__all__ = ["cli_without_book"]


@pytest.fixture
def there(cli_without_book, server, key, monkeypatch):
    """The command line, with a server in place of a home."""
    monkeypatch.setenv("COMMONBOOK_KEY", key)
    monkeypatch.setenv("COMMONBOOK_HOME", "/nowhere")
    monkeypatch.delenv("COMMONBOOK_DATABASE", raising=False)
    return lambda *args: cli_without_book("--url", server.url, *args)


def test_commands_work_on_the_book_of_a_server(book, there):
    stored = there("remember", "Alice owns billing", "--tag", "team", "--json")
    assert (stored.code, stored.err) == (0, "")
    memory = stored.json["id"]
    assert book.get(memory).text == "Alice owns billing"
    assert there("show", memory[-8:], "--json").json["text"] == "Alice owns billing"
    assert there("edit", memory, "Bob owns billing").code == 0
    assert [item["id"] for item in there("list", "--json").json["items"]] == [memory]
    assert [hit["memory"] for hit in there("recall", "billing", "--json").json["hits"]] == [memory]
    assert there("share", memory, "--to", "office", "--json").code == 0
    assert there("session", "append", "talk", "hello", "--json").code == 0
    assert [message.text for message in book.messages("talk").items] == ["hello"]
    assert there("status", "--json").code == 0
    assert there("whoami", "--json").json["principal"] == "user:local"
    assert there("doctor").code == 0


READS = {
    "memories": ("list",),
    "memories/{memory}": ("show", "{memory}"),
    "memories/{memory}/history": ("history", "{memory}"),
    "memories/{memory}/lineage": ("lineage", "{memory}"),
    "memories/{memory}/copies": ("copies", "{memory}"),
    "spaces": ("space", "list"),
    "sessions": ("session", "list"),
    "inbox": ("inbox",),
    "grants": ("grant", "list"),
    "keys": ("key", "list"),
    "whoami": ("whoami",),
}


@pytest.mark.parametrize("path", READS)
def test_the_json_of_a_command_is_the_answer_of_the_server(book, server, key, there, path):
    memory = book.remember("Alice owns billing", tags=["people"]).id
    book.share(memory, "office")
    book.append("talk", ["hello"])
    book.grant("user:bob", "office", "reader")
    url, headers = f"{server.url}/v1/{path.format(memory=memory)}", {"Authorization": f"Bearer {key}"}
    answer = httpx2.get(url, headers=headers).json()
    assert there(*(word.format(memory=memory) for word in READS[path]), "--json").json == answer


def test_folders_of_this_machine_are_imported_and_exported(book, there, tmp_path):
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "tea.md").write_text("# Tea\n\nOolong at four\n")
    imported = there("import", str(notes), "--space", "vault", "--json")
    assert (imported.code, imported.json["done"]) == (0, 1), imported.err
    assert [memory.title for memory in book.list().items] == ["tea"]
    exported = there("export", str(tmp_path / "out"), "--json")
    assert (exported.code, exported.json["done"]) == (0, 1), exported.err
    assert [path.read_text().count("Oolong") for path in (tmp_path / "out").rglob("*.md") if "tea" in path.name] == [1]
    assert there("import", str(tmp_path / "missing")).code == 3


def test_errors_of_a_server_have_their_exit_codes(there, server, monkeypatch):
    assert there("show", "01a1e813-0000-7000-8000-000000000000").code == 3
    assert there("remember", "x", "--kind", "thought").code == 2
    server.kill()
    # It asks again for half a minute otherwise.
    monkeypatch.setattr("commonbook.remote.remote_book.Patience", lambda *_given, **_more: Patience(1.0, 1.0))
    refused = there("--space", "team", "remember", "x")
    assert (refused.code, "does not answer" in refused.err) == (1, True)


def test_a_login_comes_with_the_address_of_the_server(book, there, server):
    result = there("key", "create", "agent:helper", "--json")
    assert result.json["login"]["command"].startswith(f"commonbook login {server.url} ")


def test_a_sign_in_link_is_for_the_key_and_the_address_of_the_server(book, there, server):
    result = there("sign-in", "--json")
    page, _, code = result.json["link"].partition("#")
    assert page == f"{server.url}/sign-in"
    _, session = begin_session(book, code)
    assert session.key.principal == "user:local"
    assert "/sign-in#" in there("sign-in", "https://book.example/").out


def test_commands_about_this_machine_and_other_principals_are_refused(there, tmp_path):
    for command in (["worker"], ["trust"], ["init"], ["migrate", str(tmp_path / "new")]):
        refused = there(*command)
        assert (refused.code, "--url" in refused.err) == (2, True)
    assert there("--as", "user:bob", "list").code == 2
