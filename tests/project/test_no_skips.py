"""The plugin that refuses runs in which a test was left out."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PLUGIN = Path(__file__).parents[1] / "support" / "no_skips.py"

LEFT_OUT = {
    "skipped": "@pytest.mark.skip\ndef test_it(): ...",
    "skipped module": "pytest.importorskip('no_such_module')\ndef test_it(): ...",
    "expected to fail": "@pytest.mark.xfail\ndef test_it(): assert False",
    "passing unexpectedly": "@pytest.mark.xfail\ndef test_it(): ...",
    "deselected": "def test_unwanted(): ...",
}


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makepyfile(no_skips=PLUGIN.read_text())
    pytester.makeconftest("pytest_plugins = ['no_skips']")
    return pytester


def run(project: pytest.Pytester, *args: str) -> pytest.RunResult:
    return project.runpytest_subprocess("-p", "no:randomly", "-p", "no:cacheprovider", *args)


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_run_that_leaves_tests_out_fails_and_names_each(project, monkeypatch, workers):
    monkeypatch.setenv("COMMONBOOK_NO_SKIPS", "1")
    files = {f"test_{how.replace(' ', '_')}": f"import pytest\n{body}\n" for how, body in LEFT_OUT.items()}
    project.makepyfile(test_other="def test_other(): ...", **files)
    result = run(project, "-n", workers, "-k", "not unwanted")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*left out*"])
    named = result.outlines[next(at for at, line in enumerate(result.outlines) if "left out" in line) :]
    for name in files:
        assert any(line.startswith(f"{name}.py") for line in named)
    assert not any(line.startswith("test_other.py") for line in named)


def test_a_run_of_everything_passes(project, monkeypatch):
    monkeypatch.setenv("COMMONBOOK_NO_SKIPS", "1")
    project.makepyfile("def test_it(): ...")
    assert run(project, "-n", "1").ret == pytest.ExitCode.OK


def test_without_the_variable_a_test_may_be_left_out(project, monkeypatch):
    monkeypatch.delenv("COMMONBOOK_NO_SKIPS", raising=False)
    project.makepyfile("import pytest\n@pytest.mark.skip\ndef test_it(): ...")
    assert run(project).ret == pytest.ExitCode.OK
