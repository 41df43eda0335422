"""With COMMONBOOK_NO_SKIPS=1 a run fails when any test was skipped, expected to fail, or deselected.

On a developer's machine a test may be left out; in continuous integration a test that does not run proves nothing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get("COMMONBOOK_NO_SKIPS") == "1":
        config.pluginmanager.register(NoSkips(config), "commonbook-no-skips")


class NoSkips:
    """Collects the tests that did not run, in this process and in its xdist workers."""

    def __init__(self, config: pytest.Config) -> None:
        self.left_out: set[str] = set()
        # A worker of xdist sends this dictionary to the main process when it ends.
        self.home: dict[str, object] | None = getattr(config, "workeroutput", None)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if hasattr(report, "wasxfail"):
            self.left_out.add(f"{report.nodeid} (expected to fail)")
        elif report.skipped:
            self.left_out.add(f"{report.nodeid} (skipped)")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self.left_out.add(f"{report.nodeid} (skipped)")

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        self.left_out.update(f"{item.nodeid} (deselected)" for item in items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        self.left_out.update(getattr(node, "workeroutput", {}).get("left_out", ()))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.home is not None:
            self.home["left_out"] = sorted(self.left_out)
        elif self.left_out and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.left_out:
            terminalreporter.section("left out, and COMMONBOOK_NO_SKIPS is set", red=True)
            for line in sorted(self.left_out):
                terminalreporter.line(line)
