"""Each promise has a test, and each marker a promise; the check of `make lint` names what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import promises

PAGE = """# What is guaranteed

The file
`state.db` is no promise.

`writes.durable` A write survives.

- `writes.whole` A write is whole.

| promise | threat |
| --- | --- |
| `web.rebinding` | A page has a foreign name. |
"""

TESTS = """import pytest

pytestmark = [pytest.mark.promise("writes.whole"), pytest.mark.slow]


@pytest.mark.promise("writes.durable", "web.rebinding")
@pytest.mark.parametrize("n", [1, 2])
def test_a_write_survives(n): ...
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for folder in (*promises.TESTS, "docs"):
        (tmp_path / folder).mkdir()
    (tmp_path / "docs" / "GUARANTEES.md").write_text(PAGE)
    (tmp_path / "docs" / "SECURITY.md").write_text("# Security\n")
    (tmp_path / "tests" / "test_writes.py").write_text(TESTS)
    return tmp_path


def test_promises_with_tests_are_listed_with_them(project):
    assert list(promises.findings(project)) == []
    assert list(promises.listing(project, "write")) == [
        "writes.durable: A write survives.",
        "    tests/test_writes.py::test_a_write_survives",
        "writes.whole: A write is whole.",
        "    tests/test_writes.py",
    ]


@pytest.mark.parametrize(
    ("old", "new", "finding"),
    [
        ('"writes.durable", ', "", "docs/GUARANTEES.md:6: no test is marked with `writes.durable`"),
        ("writes.whole", "writes.hole", "tests/test_writes.py:3: no page has a promise `writes.hole`"),
        ('"web.rebinding"', "ID", "tests/test_writes.py:6: a marker needs the ids of promises, each as a string"),
    ],
)
def test_a_promise_without_a_test_and_a_marker_without_a_promise_are_named(project, old, new, finding):
    tests = project / "tests" / "test_writes.py"
    tests.write_text(TESTS.replace(old, new))
    assert finding in list(promises.findings(project))


def test_an_id_names_one_promise(project):
    (project / "docs" / "SECURITY.md").write_text("`writes.whole` Twice.\n\n- `writes.whole` Twice.\n")
    assert list(promises.findings(project)) == ["docs/SECURITY.md:3: there is a promise `writes.whole` already"]


def test_an_unknown_promise_in_a_text_is_named(project):
    (project / "docs" / "SECURITY.md").write_text(
        "# Security\n\nAlso `writes.whole` and `writes.hole` in `state.db`.\n"
    )
    assert list(promises.findings(project)) == ["docs/SECURITY.md: there is no promise `writes.hole`"]
