"""Layout of the plan of `init` for people: what becomes of a folder that is made a home."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from commonbook.interfaces.cli.output.memories import show_findings

if TYPE_CHECKING:
    from commonbook.interfaces.cli.output.plain import Output
    from commonbook.model.reports import HomePlan


def show_home_plan(out: Output, plan: HomePlan) -> None:
    """Show which notes become memories, what is written into them, and which are left out."""
    out.facts(_facts(plan))
    if plan.skipped:
        show_findings(out, plan.skipped, fine="")


def _facts(plan: HomePlan) -> Iterator[tuple[str, str]]:
    yield "home", plan.home
    yield "notes", f"{plan.notes}"
    if plan.notes:
        yield "spaces", _counted(plan.spaces)
        yield "changed files", f"{plan.changed_files}"
    if plan.changed_files:
        yield "added fields", _counted(plan.added)
        yield "replaced lines", f"{plan.replaced_lines}" if plan.replaced_lines else "none: every line stays"
    if plan.new_files:
        yield "new files", ", ".join(plan.new_files)
    if plan.trusts:
        yield "trusted", "the database, keys and settings that .commonbook/ brings"
    if plan.secrets:
        yield "secrets", f"{plan.secrets} in the texts, which stay as they are (`commonbook import` masks them)"
    if plan.skipped:
        yield "left out", f"{len(plan.skipped)}"


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} ({count})" for name, count in counts.items())
