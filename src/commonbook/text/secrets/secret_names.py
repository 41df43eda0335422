"""Hides secrets in the paths that reports show: the name of a file that a person made stays as it is."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from commonbook.model.reports import Finding
from commonbook.text import masking


def safe_path(path: str) -> str:
    """Return a path to be shown: each name that has a secret in it is masked."""
    return "/".join(map(_safe_part, path.split("/")))


def _safe_part(name: str) -> str:
    stem, dot, ending = name.rpartition(".") if "." in name[1:] else (name, "", "")
    masked = masking.mask_name(stem)
    return f"{masked.text}{dot}{ending}" if masked.count else name


def telling_paths(paths: Iterable[str]) -> list[str]:
    """Return those of these paths in which a name has a secret in it, in order."""
    safe_part = cache(_safe_part)
    return sorted(path for path in paths if any(safe_part(part) != part for part in path.split("/")))


def safe_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings that name no secret: neither by the path of a file nor in what they say of it."""
    return tuple(map(_safe_finding, findings))


def _safe_finding(finding: Finding) -> Finding:
    where = safe_path(finding.where)
    if where == finding.where:
        return finding
    why, fix = (text.replace(finding.where, where) for text in (finding.why, finding.fix))
    return Finding(finding.what, where, masking.mask(why).text, masking.mask(fix).text)
