"""The import contracts agree with each other; that the code keeps them is for `make lint`."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

PROJECT = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8"))
CONTRACTS = {contract["id"]: contract for contract in PROJECT["tool"]["importlinter"]["contracts"]}


def floor_with(module: str) -> set[str]:
    """The full names of the modules on the same floor."""
    floors = [layer.replace("|", " ").replace(":", " ").split() for layer in CONTRACTS["floors"]["layers"]]
    return {f"commonbook.{name}" for floor in floors if module in floor for name in floor}


@pytest.mark.parametrize(
    ("contract", "beside", "allowed"),
    [
        ("engines", "book", set()),
        ("doors", "engines", set()),
        # What an adapter puts into a prompt, it fences; what comes back, it takes out: before it compares or spills.
        ("adapters", "engines", {"commonbook.masking"}),
    ],
)
def test_a_contract_that_forbids_flows_and_mechanisms_names_all_of_them(contract, beside, allowed):
    forbidden = set(CONTRACTS[contract]["forbidden_modules"])
    inside = floor_with("book_sharing") | floor_with("hands") | floor_with("writing") | floor_with("memories")
    assert forbidden == {f"commonbook.{beside}"} | inside - allowed
