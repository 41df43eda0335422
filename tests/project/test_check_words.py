"""The check of words finds vague names, private words and long lines, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools.check_words import check_code, check_page

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("told = 1", "`told` is a vague name"),
        ("def read(asked): ...", "`asked` is a vague name"),
        ("class Thing:\n    def __init__(self):\n        self.said = 1", "`said` is a vague name"),
        ("_MOST = 3", "`_MOST` does not say what it limits"),
        ("_LONG: float = 0.5", "`_LONG` does not say what it limits"),
        ('"""The desk of a write."""', "`desk` is a private word"),
        ("x = 1  # whoever reads it", "`whoever` is a private word"),
        ('def read():\n    """What is read."""', "begins with a subject and a verb"),
    ],
)
def test_a_vague_name_or_a_private_word_is_found(code, message):
    (finding,) = check_code("module.py", code)
    assert message in finding.message


def test_ordinary_code_passes():
    code = '"""Reads rows."""\nMAX_ROWS = 3\n\ndef read(request):\n    """Return the rows."""\n    return request.told'
    assert list(check_code("module.py", code)) == []


def test_the_line_of_a_finding_is_that_of_the_word():
    (finding,) = check_code("module.py", '"""Reads rows.\n\nA story follows.\n"""')
    assert finding.line == 3


def test_long_lines_of_pages_are_found_but_not_rows_of_tables():
    page = "short\n" + "x" * 121 + "\n| " + "x" * 121 + " |\n"
    assert [finding.line for finding in check_page("page.md", page)] == [2]


@pytest.mark.parametrize(("code", "status"), [("told = 1\n", 1), ("receipt = 1\n", 0)])
def test_a_finding_fails_the_check(tmp_path, code, status):
    file = tmp_path / "module.py"
    file.write_text(code, encoding="utf-8")
    check = [sys.executable, str(ROOT / "tools" / "check_words.py"), str(file)]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert (done.returncode, bool(done.stdout)) == (status, bool(status))
