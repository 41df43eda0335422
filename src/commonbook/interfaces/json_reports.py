"""JSON forms of reports about a whole home."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from commonbook.interfaces.json_values import findings_json

if TYPE_CHECKING:
    from commonbook.model.reports import HomePlan


def home_plan_json(plan: HomePlan, *, made: bool) -> dict[str, Any]:
    """Return what `init` does or would do to a folder; `made` tells whether it was done."""
    return {
        "home": plan.home,
        "made": made,
        "notes": plan.notes,
        "spaces": [{"name": name, "notes": count} for name, count in plan.spaces.items()],
        "changed_files": plan.changed_files,
        "added": dict(plan.added),
        "replaced_lines": plan.replaced_lines,
        "skipped": findings_json(plan.skipped),
        "trusts": plan.trusts,
    }
