"""`backup` and `restore` on the command line: what they print, and how they end."""

from __future__ import annotations

import json

import pytest

import commonbook
from commonbook.interfaces.cli.main import main


@pytest.fixture
def run(home, monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("COMMONBOOK_HOME", str(home))
    with commonbook.open(home, create=True) as book:
        book.remember("Herons nest by the mill")

    def call(*args: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([str(arg) for arg in args])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


def test_the_commands_say_what_they_did_and_what_comes_next(run, home, tmp_path):
    (home / "link.md").symlink_to("elsewhere.md")
    code, out, err = run("backup", tmp_path / "book.tar")
    assert code == 0
    assert f"The backup is {tmp_path / 'book.tar'}: " in out
    assert "left out: link.md (a link is not followed)" in out
    assert f"commonbook restore {tmp_path / 'book.tar'} DIR" in out
    assert "keys" in err
    code, out, _ = run("restore", tmp_path / "book.tar", tmp_path / "elsewhere")
    assert code == 0
    assert f"The home {tmp_path / 'elsewhere'} is as it was at " in out
    assert "1 memory, " in out
    assert "nothing is wrong" in out
    assert run("--home", tmp_path / "elsewhere", "doctor")[0] == 0


def test_json_has_the_whole_reports(run, home, tmp_path):
    code, out, _ = run("backup", tmp_path / "folder", "--json")
    made = json.loads(out)
    assert code == 0
    assert made.keys() == {"home", "target", "made", "files", "size", "left_out"}
    assert (made["home"], made["target"], made["left_out"]) == (str(home), str(tmp_path / "folder"), {})
    code, out, _ = run("restore", tmp_path / "folder", "--home", tmp_path / "elsewhere", "--json")
    restored = json.loads(out)
    assert code == 0
    assert restored.keys() == {"home", "backup", "made", "files", "memories", "findings"}
    assert (restored["made"], restored["files"], restored["memories"]) == (made["made"], made["files"], 1)
    assert restored["findings"] == []


def test_a_restored_home_with_something_wrong_is_reported_and_ends_with_one(run, home, tmp_path):
    (home / "torn.md").write_text("---\nid: [\n---\ntext\n")
    assert run("backup", tmp_path / "book.tar")[0] == 0
    code, out, _ = run("restore", tmp_path / "book.tar", tmp_path / "elsewhere")
    assert code == 1
    assert "torn.md" in out


def test_each_refusal_has_its_exit_code_and_a_fix(run, home, tmp_path):
    (tmp_path / "taken").mkdir()
    for code, *args in (
        (5, "backup", tmp_path / "taken"),
        (5, "backup", home / "book.tar"),
        (2, "backup", tmp_path / "book.zip"),
        (1, "backup", tmp_path / "book.tar", "--home", tmp_path / "nowhere"),
        (4, "backup", tmp_path / "book.tar", "--as", "user:bob"),
        (2, "backup", tmp_path / "book.tar", "--url", "http://127.0.0.1:1"),
        (2, "restore", tmp_path / "nowhere.tar", tmp_path / "elsewhere"),
        (5, "restore", tmp_path / "nowhere.tar"),
        (2, "restore", tmp_path / "nowhere.tar", "--url", "http://127.0.0.1:1"),
    ):
        result = run(*args)
        assert (result[0], "fix: " in result[2]) == (code, True), (args, result)
    assert not list(tmp_path.glob("book.*"))
