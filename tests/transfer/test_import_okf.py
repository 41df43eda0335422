"""Imports of bundles in the Open Knowledge Format v0.2 that others wrote: no field is lost, and a bundle comes out."""

from __future__ import annotations

import zipfile
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from commonbook.service.book import Book
from commonbook.values.memory import Filter, Memory
from tests.interfaces.cli.test_cli import cli
from tests.memories.test_mentions import mentioned
from tests.support.stored import stored
from tests.support.transfers import dump, everything, opened, texts, write
from tests.transfer.test_export_okf import check_index, concept

__all__ = ["cli"]

INDEX = '---\nokf_version: "0.2"\n---\n# Shop\n\n* [tables](tables/) - what is stored\n'
BUNDLE = {
    "index.md": INDEX,
    "tables/index.md": "# tables\n\n* [Orders](orders.md) - one row an order\n",
    "log.md": "# Changes of the shop\n\n## 2026-05-22\n* **Creation**: wrote about [orders](/tables/orders.md).\n",
    "tables/orders.md": (
        "---\n"
        "type: BigQuery Table\n"
        "title: Orders\n"
        "description: One row for each order.   # short\n"
        "resource: https://example.com/bigquery?t=orders\n"
        "tags: [sales, orders]\n"
        "generated: { by: human:petra, at: 2025-05-28T14:30:00Z }\n"
        "verified: { by: process:nightly, at: 2025-06-01T02:00:00Z }\n"
        "stale_after: 2099-09-23\n"
        "sources:\n"
        "  - id: policy\n"
        "    resource: /references/policy.md\n"
        "    usage_count: 12\n"
        "  - { id: ga, resource: 'https://example.com/schema', title: A schema }\n"
        "  - resource: all queries of the shop\n"
        "usage_window: { from: 2025-01-01, to: 2025-02-01 }\n"
        "x-team: [a, {b: c}]\n"
        "---\n\n"
        "Belongs to [customers](customers.md#keys) by `customer_id`.[^policy]\n\n"
        "Not [this](https://example.com/tables/log.md), nor `[that](/log.md)`.\n\n"
        "[^policy]: The policy\n"
    ),
    "tables/customers.md": (
        "---\ntype: BigQuery Table\nsources:\n  - resource: orders.md\n"
        "generated: {by: bot/2, at: 2025-03-01T10:00:00Z}\nstatus: deprecated\n---\n"
        "See [the policy](../references/policy.md) and [no such](/missing.md).\n"
    ),
    "references/policy.md": (
        "---\ntype: Decision\ntimestamp: 2024-02-03T04:05:06Z\nid: pol-1\nstale_after: soon\n---\nOrders are final.\n"
    ),
}


@pytest.mark.promise("export.okf")
def test_links_to_the_sources_of_a_concept_are_made_once(book: Book, tmp_path: Path):
    top = write(tmp_path / "shop", BUNDLE)
    report = book.import_folder(str(top))
    notes = by_name(book)
    assert set(notes) == {"log.md", "orders.md", "customers.md", "policy.md"}
    assert report.done == 4
    assert sources(book, notes["orders.md"]) == {"policy.md"}
    assert sources(book, notes["customers.md"]) == {"orders.md"}
    (listings,) = report.skipped
    assert (listings.where, listings.what) == ("index.md", "not imported")
    assert "2 listings" in listings.why
    before = dump(book)
    again = book.import_folder(str(top))
    assert (again.done, again.updated, again.unchanged, again.links) == (0, 0, 4, 0)
    assert dump(book) == before


def by_name(book: Book) -> dict[str, Memory]:
    return {path.rpartition("/")[2]: memory for path, memory in everything(book).items()}


def sources(book: Book, memory: Memory) -> set[str]:
    links = [link for link in memory.links if link.relation == "derived_from"]
    hashes = {link.target: link.target_hash for link in stored(book, memory.id).links}
    assert all(hashes[link.target] == stored(book, link.target).content_hash for link in links)
    return {book.get(link.target).path.rpartition("/")[2] for link in links}


def test_kinds_and_times_of_a_concept_are_understood(book: Book, tmp_path: Path):
    book.import_folder(str(write(tmp_path / "shop", BUNDLE)))
    notes = by_name(book)
    assert {name: memory.kind for name, memory in notes.items()} == {
        "orders.md": "note",
        "customers.md": "note",
        "policy.md": "decision",
        "log.md": "note",
    }
    assert notes["orders.md"].created == datetime(2025, 5, 28, 14, 30, tzinfo=UTC)
    assert notes["policy.md"].created == datetime(2024, 2, 3, 4, 5, 6, tzinfo=UTC)
    assert notes["orders.md"].author == "user:local"
    zone = book._engines.zone
    assert notes["orders.md"].valid_until == datetime(2099, 9, 23, tzinfo=zone) - timedelta(microseconds=1)
    assert notes["orders.md"].expires is None
    assert notes["customers.md"].valid_until == datetime(2025, 3, 1, 10, tzinfo=UTC)
    assert notes["policy.md"].valid_until is None


def test_a_deprecated_concept_is_recalled_only_on_request(book: Book, tmp_path: Path):
    old = "---\ntype: Metric\nstatus: Deprecated\n---\nRevenue counts refunds.\n"
    book.import_folder(str(write(tmp_path / "shop", {"index.md": INDEX, "old.md": old})))
    (memory,) = everything(book).values()
    assert memory.valid_until is not None
    assert memory.valid_until <= datetime.now(UTC)
    assert not book.recall("revenue refunds").hits
    assert [hit.id for hit in book.recall("revenue refunds", include=["expired"]).hits] == [memory.id]


def test_links_in_the_body_count_as_long_as_they_stand_there(book: Book, tmp_path: Path):
    book.import_folder(str(write(tmp_path / "shop", BUNDLE)), space="shop")
    notes = by_name(book)
    assert mentioned(book, notes["orders.md"].id) == ["customers"]
    assert mentioned(book, notes["log.md"].id) == ["Orders"]
    assert mentioned(book, notes["customers.md"].id) == ["policy"]
    book.edit(notes["log.md"].id, text="# Changes\n")
    assert mentioned(book, notes["log.md"].id) == []


@pytest.mark.promise("export.okf")
@pytest.mark.parametrize("name", ["shop", "shop.zip"])
def test_no_byte_of_the_front_matter_is_lost(tmp_path: Path, name: str):
    top = write(tmp_path / "shop", BUNDLE)
    if name.endswith(".zip"):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            for path, text in BUNDLE.items():
                archive.writestr(path, text)
    with opened(tmp_path / "home") as book:
        book.import_folder(str(top.parent / name))
        assert len(everything(book)) == 4
        files = {path.rpartition("/")[2]: data.decode() for path, data in texts(tmp_path / "home").items()}
    for path, text in BUNDLE.items():
        if path.endswith("index.md"):
            continue
        front, _, body = text.removeprefix("---\n").rpartition("---\n") if text.startswith("---") else ("", "", text)
        kept = files[path.rpartition("/")[2]]
        assert kept.startswith(f"---\n{front}")
        assert kept.endswith(body)
    assert "\ncommonbook_id: " in files["policy.md"]
    assert "commonbook_type" not in "".join(files.values())


@pytest.mark.promise("export.okf")
def test_an_export_of_it_is_a_bundle_that_says_the_same(book: Book, tmp_path: Path):
    book.import_folder(str(write(tmp_path / "shop", BUNDLE)))
    stale = "---\ntype: Metric\nstale_after: 2020-01-01\n---\nOld numbers\n"
    book.import_folder(str(write(tmp_path / "more", {"stale.md": stale})), okf=True)
    book.export(str(tmp_path / "out"), okf=True)
    out = {path.relative_to(tmp_path / "out").as_posix(): path for path in (tmp_path / "out").rglob("*.md")}
    check_index(out.pop("index.md"), root=True)
    fields: dict[str, dict[str, Any]] = {}
    for path, file in out.items():
        if path.endswith("/index.md"):
            check_index(file, root=False)
        else:
            fields[path] = concept(file)
            assert fields[path]["type"]
    for path in ("tables/orders.md", "tables/customers.md", "references/policy.md"):
        before = concept(tmp_path / "shop" / path)
        assert fields[path].items() >= before.items()
        assert {"sources", "status", "stale_after", "verified"} & (fields[path].keys() - before.keys()) == set()
    assert fields["stale.md"]["stale_after"] == date(2020, 1, 1)
    assert "status" not in fields["stale.md"]


def test_a_bundle_of_ours_comes_back_as_it_was(book: Book, tmp_path: Path):
    old = book.remember("Alice owns billing", space="team")
    new = book.remember("Bob owns billing", space="team", replaces=old.id)
    book.remember("Ask about it", space="team", links=[("reflects_on", new.id)], expires="2031-05-01")
    book.export(str(tmp_path / "out"), okf=True)
    before = dump(book)
    assert book.import_folder(str(tmp_path / "out")).unchanged == 3
    assert dump(book)["memory"] == before["memory"]
    with opened(tmp_path / "other") as other:
        other.import_folder(str(tmp_path / "out"))
        for memory in everything(book).values():
            came = other.get(memory.id)
            assert (came.valid_until, came.expires, came.created) == (
                memory.valid_until,
                memory.expires,
                memory.created,
            )
            assert {link[1:3] for link in came.links} == {link[1:3] for link in memory.links}


def test_a_source_that_comes_later_is_linked_and_a_changed_one_is_read_again(book: Book, tmp_path: Path):
    later = {**BUNDLE}
    policy = later.pop("references/policy.md")
    top = write(tmp_path / "shop", later)
    book.import_folder(str(top))
    assert sources(book, by_name(book)["orders.md"]) == set()
    write(top, {"references/policy.md": policy})
    report = book.import_folder(str(top))
    assert (report.done, report.unchanged) == (1, 3)
    assert sources(book, by_name(book)["orders.md"]) == {"policy.md"}
    changed = BUNDLE["tables/orders.md"].replace("/references/policy.md", "../log.md")
    write(top, {"tables/orders.md": changed})
    report = book.import_folder(str(top))
    assert (report.updated, report.unchanged, len(report.skipped)) == (1, 3, 1)
    assert sources(book, by_name(book)["orders.md"]) == {"log.md"}


def test_sources_in_a_large_bundle_are_linked_in_either_order(book: Book, tmp_path: Path):
    ends = {"a.md": "---\ntype: Metric\nsources: [{resource: z.md}]\n---\nA\n"}
    ends |= {"z.md": "---\ntype: Metric\nsources: [{resource: /a.md}, {resource: b/100.md}]\n---\nZ\n"}
    files = {f"b/{number:03}.md": f"---\ntype: Metric\n---\nNumber {number}\n" for number in range(201)}
    top = str(write(tmp_path / "large", {**ends, **files}))
    planned = book.import_folder(top, okf=True, dry_run=True)
    done = book.import_folder(top, okf=True)
    assert (done.done, done.links) == (203, 3)
    assert planned == done._replace(ids=())
    notes = by_name(book)
    assert {link.target for link in notes["a.md"].links} == {notes["z.md"].id}
    assert {link.target for link in notes["z.md"].links} == {notes["a.md"].id, notes["100.md"].id}
    before = dump(book)
    assert book.import_folder(top, okf=True).unchanged == 203
    assert dump(book) == before


@pytest.mark.parametrize("packed", [False, True])
def test_a_bundle_below_one_folder_is_known_as_one(book: Book, tmp_path: Path, *, packed: bool):
    source = write(tmp_path / "source", {f"shop-main/{path}": text for path, text in BUNDLE.items()})
    if packed:
        with zipfile.ZipFile(tmp_path / "shop.zip", "w") as archive:
            for path, text in BUNDLE.items():
                archive.writestr(f"shop-main/{path}", text)
        source = tmp_path / "shop.zip"
    report = book.import_folder(str(source))
    assert report.done == 4
    by_path = {Path(path).name: memory for path, memory in everything(book).items()}
    assert {link.target for link in by_path["orders.md"].links} == {by_path["policy.md"].id}
    assert {link.target for link in by_path["customers.md"].links} == {by_path["orders.md"].id}
    assert book.import_folder(str(source)).unchanged == 4


def test_notes_beside_a_bundle_are_no_part_of_it(book: Book, tmp_path: Path):
    source = write(tmp_path / "source", {f"shop/{path}": text for path, text in BUNDLE.items()})
    write(source, {"other/index.md": "My own index", "other/note.md": "---\nstatus: deprecated\n---\nMine"})
    assert book.import_folder(str(source)).done == 6
    mine = next(memory for memory in everything(book).values() if memory.text == "Mine")
    assert (mine.expires, mine.valid_until) == (None, None)


def test_metadata_of_ones_own_goes_through_a_bundle(book: Book, tmp_path: Path):
    receipt = book.remember("Alice owns billing", metadata={"ticket": "A-12", "score": 3, "open": True})
    book.export(str(tmp_path / "out.zip"), okf=True)
    with opened(tmp_path / "other") as other:
        other.import_folder(str(tmp_path / "out.zip"))
        assert other.get(receipt.id).metadata == {"ticket": "A-12", "score": 3, "open": True}
        assert other.list(Filter(metadata={"ticket": "A-12"})).items


def test_a_vault_with_an_index_of_its_own_is_no_bundle(book: Book, tmp_path: Path):
    files = {
        "index.md": "# Home\n",
        "sub/index.md": INDEX,
        "a.md": "---\nsources: [{resource: /b.md}]\nstatus: deprecated\nstale_after: 2020-01-01\n---\nA\n",
        "b.md": "B\n",
    }
    report = book.import_folder(str(write(tmp_path / "vault", files)))
    assert (report.done, report.skipped) == (4, ())
    note = by_name(book)["a.md"]
    assert (note.links, note.valid_until) == ((), None)


def test_an_index_with_fields_of_its_own_is_kept(book: Book, tmp_path: Path):
    files = {"index.md": INDEX, "sub/index.md": "---\ntype: Playbook\n---\nWhat to do\n"}
    report = book.import_folder(str(write(tmp_path / "shop", files)))
    assert report.done == 1
    assert "a listing of a folder" in report.skipped[0].why


def test_a_dry_run_says_what_an_import_does(book: Book, tmp_path: Path):
    top = str(write(tmp_path / "shop", BUNDLE))
    planned = book.import_folder(top, dry_run=True)
    assert not everything(book)
    done = book.import_folder(top)
    assert planned == done._replace(ids=())


def test_the_command_reads_a_bundle_that_does_not_say_so(cli, tmp_path: Path):
    files = {**BUNDLE, "index.md": "# Shop\n"}
    top = write(tmp_path / "shop", files)
    answer = cli("import", str(top), "--okf", "--json")
    assert answer.code == 0
    assert answer.json["done"] == 4
