"""Secrets are masked by remember, edit, reflect and import, before anything is stored, named or logged."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import pytest

from commonbook import BadInput, Book, Draft, KeyConflict
from tests.conftest import OpenBook, Stored
from tests.interfaces.cli.test_cli import cli

__all__ = ["cli"]

SECRET = "Tr0ub4dor99"
SAID = f"My password is {SECRET}."
MASKED = "My password is [masked: secret]."


def nowhere(stored: Stored) -> bool:
    """Tell whether the secret is in no file, no file name and no row of the book."""
    content = stored()
    assert content
    return not any(SECRET.lower().encode() in (name.encode() + data).lower() for name, data in content.items())


# --- remember


@pytest.mark.promise("secrets.masked")
def test_a_remembered_secret_is_in_no_text_title_file_name_or_log(book: Book, stored: Stored):
    receipt = book.remember(SAID, space="team")
    memory = book.get(receipt.id)
    assert (memory.text, memory.title, receipt.masked) == (MASKED, MASKED, 1)
    assert SECRET.lower() not in receipt.path.lower()
    titled = book.remember("nothing here", title=f"the PIN is 4821, {SAID}", space="team")
    assert titled.masked == 2
    assert "4821" not in book.get(titled.id).title
    assert "4821" not in titled.path
    assert nowhere(stored)
    assert SECRET not in str(book.log(space="team"))
    assert book.recall("password", spaces=["team"]).hits[0].text.count("[masked: secret]") == 1


@pytest.mark.promise("secrets.masked")
def test_a_secret_is_stored_as_it_is_only_if_that_is_asked_for(book: Book):
    receipt = book.remember(SAID, mask=False)
    assert (book.get(receipt.id).text, receipt.masked) == (SAID, 0)
    assert book.get(book.remember_many([Draft(SAID, mask=False)])[0].id).text == SAID
    assert book.edit(receipt.id, text=f"{SAID} Really.", mask=False).masked == 0
    assert book.get(receipt.id).text == f"{SAID} Really."


@pytest.mark.promise("secrets.repeats")
def test_a_repeat_is_recognised_by_the_text_as_it_was_sent(book: Book):
    first = book.remember(SAID, key="k")
    again = book.remember(SAID, key="k")
    assert (again.id, again.new, again.masked) == (first.id, False, 1)
    with pytest.raises(KeyConflict) as refused:
        book.remember("My password is 0therS3cret.", key="k")
    assert "0therS3cret" not in str(refused.value)
    with pytest.raises(KeyConflict):
        book.remember(MASKED, key="k")
    assert len(book.list().items) == 1


# --- edit and reflect


@pytest.mark.promise("secrets.masked")
def test_an_edit_and_a_reflection_are_masked_too(book: Book, stored: Stored):
    memory = book.remember("The wifi is slow").id
    receipt = book.edit(memory, text=SAID)
    assert (book.get(memory).text, book.get(memory).title, receipt.masked) == (MASKED, MASKED, 1)
    assert book.edit(memory, title=SAID).masked == 1
    reflection = book.reflect(f"So {SAID}", [memory])
    assert reflection.masked == 1
    newer = book.remember("The wifi is fast").id
    book.supersede(memory, newer, reason=SAID)
    for item in book.inbox().items:
        book.triage(item.id, "keep", note=SAID)
    assert nowhere(stored)


def test_an_older_text_comes_back_as_it_was(book: Book):
    memory = book.remember(SAID, mask=False).id
    book.edit(memory, text="nothing to see")
    assert book.edit(memory, to_revision=1).masked == 0
    assert book.get(memory).text == SAID


# --- files


@pytest.mark.promise("secrets.own-files")
def test_a_file_of_a_person_is_never_rewritten_by_masking(home: Path, book: Book):
    receipt = book.remember("The wifi is slow")
    path = home / receipt.path
    path.write_text(path.read_text().replace("The wifi is slow", SAID))
    book.sync()
    assert book.get(receipt.id).text == SAID
    assert SAID in path.read_text()
    own = home / "team" / "wifi.md"
    own.parent.mkdir()
    own.write_text(SAID)
    book.sync()
    assert SAID in own.read_text()
    book.edit(receipt.id, tags=["home"])
    assert SAID in path.read_text(), "a verb that changes another field leaves the text alone"


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    folder = tmp_path / "vault"
    (folder / "notes").mkdir(parents=True)
    (folder / "notes" / "wifi.md").write_text(f"---\ntitle: {SAID}\nlogin: {SAID}\n---\n\n{SAID}\n")
    (folder / "notes" / f"my password is {SECRET}.md").write_text("a note with a bad name")
    return folder


@pytest.mark.promise("secrets.masked")
def test_an_import_is_masked_and_done_once_and_the_folder_stays(book: Book, vault: Path, stored: Stored):
    before = {path: path.read_bytes() for path in vault.rglob("*.md")}
    assert book.import_folder(str(vault), dry_run=True).masked == 4
    report = book.import_folder(str(vault), space="team")
    assert (report.done, report.masked) == (2, 4)
    assert {path: path.read_bytes() for path in vault.rglob("*.md")} == before
    assert nowhere(stored)
    assert all(SECRET.lower() not in memory.path.lower() for memory in book.list().items)
    again = book.import_folder(str(vault), space="team")
    assert (again.unchanged, again.done, again.updated, again.masked) == (2, 0, 0, 0)


def test_an_import_stores_secrets_only_if_that_is_asked_for(book: Book, vault: Path):
    assert book.import_folder(str(vault), space="team", mask=False).masked == 0
    assert SECRET in "".join(memory.text for memory in book.list().items)


def test_an_export_of_unmasked_memories_is_unchanged_where_it_came_from(book: Book, tmp_path: Path):
    receipt = book.remember(SAID, mask=False)
    book.export(str(tmp_path / "out"))
    assert book.import_folder(str(tmp_path / "out")).unchanged == 1
    assert book.get(receipt.id).text == SAID


# --- the command line


@pytest.mark.promise("secrets.names")
def test_the_command_line_counts_what_it_masked_and_no_error_tells_a_secret(cli, tmp_path: Path):
    receipt = cli("remember", SAID, "--json").json
    assert receipt["masked"] == 1
    assert "1 secret was masked" in cli("remember", SAID).err
    assert cli("show", receipt["id"], "--json").json["text"] == MASKED
    assert cli("edit", receipt["id"], SAID, "--no-mask", "--json").json["masked"] == 0
    assert cli("show", receipt["id"], "--json").json["text"] == SAID
    lines = tmp_path / "lines.jsonl"
    lines.write_text(json.dumps({"text": SAID}) + "\n")
    assert cli("remember", "--batch", str(lines), "--json").json["masked"] == 1
    assert cli("remember", "--batch", str(lines), "--no-mask", "--json").json["masked"] == 0
    for refused in (
        cli("remember", "a", "--occurred", f"password={SECRET}"),
        cli("remember", "My", "password", f"password is {SECRET}"),
        cli("remember", "a", "--space", f"../password is {SECRET}", "--json"),
    ):
        assert refused.code == 2
        assert SECRET not in refused.err
        assert "masked" in refused.err


def test_an_archive_is_masked_too(book: Book, tmp_path: Path, stored: Stored):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("team/wifi.md", SAID)
    (tmp_path / "notes.zip").write_bytes(data.getvalue())
    assert book.import_folder(str(tmp_path / "notes.zip")).masked == 1
    assert nowhere(stored)


def test_a_masked_text_survives_a_reopening(book: Book, open_book: OpenBook):
    receipt = book.remember(SAID)
    again = open_book()
    assert again.sync().edited == 0
    assert again.get(receipt.id).text == MASKED


# --- tags, metadata and names


@pytest.mark.promise("secrets.masked")
def test_tags_and_metadata_are_masked_as_texts_are(book: Book, stored: Stored):
    receipt = book.remember("wifi", tags=["home", f"my password is {SECRET}"], metadata={"password": SECRET, "n": 3})
    memory = book.get(receipt.id)
    assert (memory.tags, receipt.masked) == (("home", "my password is (masked)"), 2)
    assert memory.metadata == {"password": "[masked: secret]", "n": 3}
    assert book.edit(receipt.id, tags=["home", SAID]).masked == 1
    assert book.get(receipt.id).tags == ("home", "My password is (masked).")
    book.append("chat", ["hello"], tags=[SAID])
    assert nowhere(stored)
    assert book.edit(receipt.id, tags=[SAID], mask=False).masked == 0
    assert book.get(receipt.id).tags == (SAID,)


@pytest.mark.promise("secrets.masked")
def test_an_import_masks_tags_metadata_and_aliases(book: Book, tmp_path: Path, stored: Stored):
    note = f'---\ntags: [home, {SAID}]\naliases: [{SAID}]\npassword: "{SECRET}"\n---\nwifi\n'
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "wifi.md").write_text(note)
    assert book.import_folder(str(tmp_path / "notes")).masked == 3
    (memory,) = book.list().items
    assert memory.tags == ("home", "My password is (masked).")
    assert "masked" in str(memory.metadata["password"])
    assert nowhere(stored)
    assert book.import_folder(str(tmp_path / "notes")).unchanged == 1
    book.export(str(tmp_path / "out"))
    assert all(SECRET not in path.read_text() for path in (tmp_path / "out").rglob("*.md"))


KEY = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"


@pytest.mark.promise("secrets.names")
def test_a_name_that_identifies_something_is_refused_and_not_repeated(book: Book, stored: Stored):
    book.remember("here", space="team")
    for refused in (
        lambda: book.remember("a", space=KEY),
        lambda: book.create_space(f"team/{KEY}"),
        lambda: book.rename_space("team", KEY),
        lambda: book.append(KEY, ["hello"]),
        lambda: book.append(f"my password is {SECRET}", ["hello"]),
        lambda: book.switch("one", KEY),
        lambda: book.add_rule("team", "personal", tags=[KEY]),
    ):
        with pytest.raises(BadInput) as error:
            refused()
        assert KEY not in f"{error.value} {error.value.fix}"
        assert SECRET not in f"{error.value} {error.value.fix}"
    assert nowhere(stored)
    for innocent in ("4111111111111111", "telegram:4012888888881881", "password-reset-2024", "support-42"):
        assert book.append(innocent, ["hello"]).messages[0].new


@pytest.mark.promise("secrets.names")
def test_a_session_in_an_import_whose_id_has_a_key_is_refused(book: Book, tmp_path: Path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a.md").write_text(f"---\ntype: episode\nsession_id: {KEY}\n---\n\nx\n")
    report = book.import_folder(str(tmp_path / "out"), folders_as_spaces=True)
    assert (report.done, len(report.skipped)) == (0, 1)
    assert KEY not in str(report)


def test_the_file_name_of_a_masked_memory_is_no_finding(home: Path, book: Book):
    memory = book.get(book.remember(f"We ship on Tuesday, my password is {SECRET}").id)
    assert "masked-secret" in memory.path
    assert SECRET.lower() not in memory.path
    assert book.doctor() == ()
