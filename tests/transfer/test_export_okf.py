"""Exports as a bundle in the Open Knowledge Format v0.2: every file conforms, and says what the book knows."""

from __future__ import annotations

import re
import zipfile
from datetime import date
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml

from commonbook.service.book import Book
from tests.interfaces.cli.test_cli import cli
from tests.support.transfers import write

__all__ = ["cli"]

FRONT = re.compile(r"\A---\n(.*?)^---\n(.*)\Z", re.DOTALL | re.MULTILINE)
LISTED = re.compile(r"^\* \[(?:[^\\\]]|\\.)+\]\(([^()\s]+)\)(?: - .+)?$")


def concept(file: Path) -> dict[str, Any]:
    """Return the front matter of a file, as any reader of YAML sees it."""
    match = FRONT.match(file.read_text(encoding="utf-8-sig").replace("\r\n", "\n"))
    assert match, file
    fields = yaml.safe_load(match[1])
    assert isinstance(fields, dict)
    return fields


def check_bundle(top: Path) -> dict[str, dict[str, Any]]:
    """Check a bundle by the rules of section 11 of the format; return the fields of its concepts by path."""
    concepts: dict[str, dict[str, Any]] = {}
    for file in sorted(top.rglob("*.md")):
        path = file.relative_to(top).as_posix()
        if file.name == "index.md":
            check_index(file, root=path == "index.md")
            continue
        concepts[path] = concept(file)
        assert isinstance(concepts[path]["type"], str)
        assert concepts[path]["type"]
        for source in concepts[path].get("sources", []):
            if isinstance(source, str):
                continue  # a field that a person wrote
            assert source["resource"].startswith(("urn:uuid:", "/"))
            if source["resource"].startswith("/"):
                assert (top / source["resource"][1:]).is_file()
    return concepts


def check_index(file: Path, *, root: bool) -> None:
    text = file.read_text(encoding="utf-8")
    if root:
        front = FRONT.match(text)
        assert front
        assert yaml.safe_load(front[1]) == {"okf_version": "0.2"}
        text = front[2]
    lines = [line for line in text.split("\n") if line]
    assert lines[0].startswith("# ")
    listed: set[str] = set()
    for line in lines:
        if line.startswith("# "):
            continue
        match = LISTED.match(line)
        assert match, line
        listed.add(match[1])
    present = {each.name + "/" if each.is_dir() else each.name for each in file.parent.iterdir() if each.name[0] != "."}
    assert listed == {name.replace(" ", "%20") for name in present - {"index.md"}}


def test_a_bundle_conforms_and_says_what_the_book_knows(book: Book, tmp_path: Path):
    old = book.remember("Alice owns billing", space="team/backend", tags=["billing"])
    thought = book.remember(
        "So ask Alice: invoices", kind="decision", space="team", links=[("derived_from", old.id)], expires="2031-05-01"
    )
    new = book.remember("Bob owns billing", space="team/backend", replaces=old.id)
    book.triage(thought.id, "keep", note="she still helps")
    copy = book.share(new.id, to="other")
    ended = book.remember("The lease is cheap", space="team", valid_until="2020-12-31")
    report = book.export(str(tmp_path / "out"), okf=True)
    concepts = check_bundle(tmp_path / "out")
    by_id = {fields["id"]: fields for fields in concepts.values()}
    assert set(report.ids) == by_id.keys()
    assert report.done == len(by_id)
    assert by_id[old.id]["type"] == "note"
    assert by_id[old.id]["tags"] == ["billing"]
    assert by_id[old.id]["status"] == "deprecated"
    assert "stale_after" not in by_id[old.id]
    assert by_id[thought.id]["type"] == "decision"
    assert by_id[thought.id]["title"] == "So ask Alice: invoices"
    (source,) = by_id[thought.id]["sources"]
    assert (source["id"], source["title"]) == (old.id, "Alice owns billing")
    assert concepts[source["resource"][1:]]["id"] == old.id
    assert by_id[thought.id]["stale_after"] == date(2031, 5, 2)
    assert "status" not in by_id[thought.id]
    assert [each["by"] for each in by_id[thought.id]["verified"]] == ["human:local"]
    assert by_id[new.id]["generated"]["by"] == "human:local"
    assert by_id[new.id]["generated"]["at"] == book.history(new.id)[-1].at.replace(microsecond=0)
    assert [each["id"] for each in by_id[copy.id]["sources"]] == [new.id]
    assert by_id[ended.id]["status"] == "deprecated"
    assert by_id[ended.id]["stale_after"] == date(2021, 1, 1)
    again = book.export(str(tmp_path / "out"), okf=True)
    assert (again.done, again.unchanged) == (0, len(by_id))


def test_an_agent_is_no_person(book: Book, tmp_path: Path):
    book.grant("agent:reviewer", "team", "writer")
    memory = book.acting_as("agent:reviewer").remember("The tests are slow", space="team")
    book.export(str(tmp_path / "out"), okf=True)
    (fields,) = check_bundle(tmp_path / "out").values()
    assert fields["id"] == memory.id
    assert fields["generated"]["by"] == "reviewer/unknown"


def test_a_source_outside_the_bundle_is_named_by_its_id_alone(book: Book, tmp_path: Path):
    secret = book.remember("We fire Carla in March", space="vault")
    thought = book.remember("Plan for spring", space="team", links=[("derived_from", secret.id)])
    book.export(str(tmp_path / "out"), space="team", okf=True)
    (fields,) = check_bundle(tmp_path / "out").values()
    assert fields["id"] == thought.id
    assert fields["sources"] == [{"id": secret.id, "resource": f"urn:uuid:{secret.id}"}]
    assert "Carla" not in "".join(file.read_text() for file in (tmp_path / "out").rglob("*.md"))


FOREIGN = {
    "index.md": "# Home [1]\n\nStart here (or there)\n",
    "Deep/log.md": "---\ntype: Journal\nstatus: draft\nsources: [a book]\n---\nDay one\n",
    "Deep/with space.md": "---\r\ntype:\r\nmood: # none\r\n---\r\nText\r\n",
    "Deep/Er/bom.md": "\ufeff---\nalias: [x, y]\n---\nBOM\n",
}


@pytest.mark.parametrize("name", ["out", "out.zip"])
def test_fields_and_names_of_people_are_kept(book: Book, tmp_path: Path, name: str):
    book.import_folder(str(write(tmp_path / "vault", FOREIGN)), space="vault")
    book.export(str(tmp_path / name), okf=True)
    out = tmp_path / name
    if name.endswith(".zip"):
        out = tmp_path / "unpacked"
        zipfile.ZipFile(tmp_path / name).extractall(out)
    concepts = {path.removeprefix("vault/"): fields for path, fields in check_bundle(out).items()}
    names = {
        str(PurePosixPath(path).parent / re.sub("--[0-9a-f]{8}", "", path.rpartition("/")[2])) for path in concepts
    }
    assert names == set(FOREIGN)
    fields = {re.sub("--[0-9a-f]{8}", "", path): each for path, each in concepts.items()}
    assert (fields["Deep/log.md"]["type"], fields["Deep/log.md"]["status"]) == ("Journal", "draft")
    assert fields["Deep/log.md"]["sources"] == ["a book"]
    assert fields["Deep/with space.md"]["type"] == "note"
    assert "mood" in fields["Deep/with space.md"]
    assert fields["Deep/Er/bom.md"]["alias"] == ["x", "y"]
    assert not list(out.rglob("log.md"))


def test_the_command_writes_a_bundle(cli, tmp_path: Path):
    cli.remember("Alice owns billing")
    assert cli("export", str(tmp_path / "out"), "--okf").code == 0
    assert len(check_bundle(tmp_path / "out")) == 1
