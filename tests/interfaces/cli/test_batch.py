"""`remember --batch`: JSON lines in, receipts out."""

from __future__ import annotations

import json

import pytest

from tests.interfaces.cli.test_cli import RECEIPT, cli

__all__ = ["cli"]


def lines(*objects: object) -> bytes:
    return "".join(json.dumps(one) + "\n" for one in objects).encode()


def test_every_line_gets_its_receipt_in_order(cli, tmp_path):
    (tmp_path / "many.jsonl").write_bytes(
        lines({"text": "one", "tags": ["a"], "kind": "fact"}, {"text": "two", "space": "team", "importance": 1})
        + b"\n"
        + json.dumps({"text": "three", "title": None, "key": "k"}).encode()
    )
    result = cli("remember", "--batch", "many.jsonl", "--json")
    receipts = [json.loads(line) for line in result.out.splitlines()]
    assert [receipt.keys() for receipt in receipts] == [RECEIPT] * 3
    assert [receipt["space"] for receipt in receipts] == ["personal", "team", "personal"]
    shown = [cli("show", receipt["id"], "--json").json for receipt in receipts]
    assert [(one["text"], one["kind"], one["tags"], one["importance"]) for one in shown] == [
        ("one", "fact", ["a"], None), ("two", "note", [], 1.0), ("three", "note", [], None),
    ]  # fmt: skip


def test_lines_come_from_standard_input_into_the_space_that_is_asked_for(cli):
    result = cli("remember", "--batch", "-", "--space", "team", stdin=lines({"text": "one"}, {"text": "two"}))
    assert [line.split("\t")[1] for line in result.out.splitlines()] == ["team", "team"]


def test_links_are_written_as_pairs_or_as_show_prints_them(cli):
    other = cli.remember("other")["id"]
    links = [["related_to", other], {"relation": "derived_from", "target": other, "revision": 1}]
    result = cli("remember", "--batch", "-", "--json", stdin=lines({"text": "one", "links": links}))
    shown = cli("show", result.json["id"], "--json").json["links"]
    assert {link["relation"] for link in shown} == {"related_to", "derived_from"}


def test_more_than_a_thousand_lines_are_several_transactions_and_a_bad_one_spoils_only_its_own(cli):
    many = [{"text": f"memory {number}"} for number in range(1, 1201)]
    result = cli("remember", "--batch", "-", "--json", stdin=lines(*many, {"text": 5}))
    assert result.code == 2
    assert len(result.out.splitlines()) == 1000
    message = json.loads(result.err.splitlines()[-1])["error"]
    assert message["message"].startswith("line 1201: ")
    assert "lines 1 to 1000 are stored" in message["fix"]
    assert cli("status", "--json").json["memories"] == 1000


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (b"{", "bad_input"),
        (b"[]", "bad_input"),
        (b"[" * 100_000, "bad_input"),
        (b"\xff", "bad_text"),
        (b'{"title": "no text"}', "bad_input"),
        (b'{"text": null}', "bad_input"),
        (b'{"text": ["x"]}', "bad_input"),
        (b'{"text": "x", "colour": "red"}', "bad_input"),
        (b'{"text": "x", "importance": "high"}', "bad_input"),
        (b'{"text": "x", "importance": true}', "bad_input"),
        (b'{"text": "x", "importance": NaN}', "bad_input"),
        (b'{"text": "x", "tags": "a"}', "bad_input"),
        (b'{"text": "x", "tags": [1]}', "bad_input"),
        (b'{"text": "x", "links": [["related_to"]]}', "bad_input"),
        (b'{"text": "x", "links": {}}', "bad_input"),
        (b'{"text": "x", "kind": "poem"}', "bad_input"),
        (b'{"text": "x", "space": "../x"}', "bad_space_name"),
        (b'{"text": "x", "occurred": "soon"}', "bad_time"),
        (b'{"text": "a \\u0000 b"}', "bad_text"),
        (b'{"text": "a \\ud800 b"}', "bad_text"),
        (b'{"text": "x", "replaces": "01a1e0fd-4dd4-7b8b-8d8e-afb3dac445c8"}', "not_found"),
    ],
)
def test_a_bad_line_is_named_and_nothing_of_its_chunk_is_stored(cli, line, kind):
    result = cli("remember", "--batch", "-", "--json", stdin=lines({"text": "good"}) + line + b"\n")
    assert (result.code, result.out) == (3 if kind == "not_found" else 2, "")
    assert result.error["type"] == kind
    assert result.error["message"].startswith("line")
    assert "nothing is stored" in result.error["fix"]
    assert cli.ids() == []


def test_fields_belong_into_the_lines(cli):
    assert cli("remember", "--batch", "-", "--tag", "x", stdin=lines({"text": "one"})).code == 2
    assert cli("remember", "text", "--batch", "-", stdin=lines({"text": "one"})).code == 2
    assert cli.ids() == []


def test_a_file_that_is_not_there_is_not_found(cli):
    assert cli("remember", "--batch", "nowhere.jsonl").code == 3
    assert cli("remember", "--file", "nowhere.md").code == 3
    assert cli("remember", "--file", ".").code == 2
