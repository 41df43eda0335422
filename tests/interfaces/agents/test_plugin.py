"""The plugin for Claude Code: it has what `install` writes, and says when to use it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from commonbook.interfaces.agents.clients import CLIENTS, Request
from commonbook.interfaces.agents.installation import plan_install
from commonbook.interfaces.mcp.table import TOOLS
from commonbook.settings.agents import AgentFolders
from commonbook.version import __version__

ROOT = Path(__file__).parents[3]
PLUGIN = ROOT / "plugins" / "claude-code"


def parsed(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def test_the_plugin_has_what_install_writes_into_a_project(tmp_path):
    request = Request(
        command=("commonbook", "mcp", "--as", "agent:claude-code"),
        hook=("commonbook", "hook", "claude-code", "--as", "agent:claude-code"),
        folders=AgentFolders(*[str(tmp_path)] * 3),
        project=str(tmp_path),
        scope="project",
        permissions=False,
    )
    servers, settings = plan_install(CLIENTS["claude-code"], request).changes
    assert parsed(PLUGIN / ".mcp.json") == json.loads(servers.after or "")
    assert parsed(PLUGIN / "hooks" / "hooks.json") == json.loads(settings.after or "")


def test_the_manifests_name_the_plugin_and_its_version():
    manifest = parsed(PLUGIN / ".claude-plugin" / "plugin.json")
    assert (manifest["name"], manifest["version"]) == ("commonbook", __version__)
    (listed,) = parsed(ROOT / ".claude-plugin" / "marketplace.json")["plugins"]
    assert listed["name"] == manifest["name"]
    assert (ROOT / listed["source"]).resolve() == PLUGIN


def test_the_skill_costs_little_until_it_is_used_and_names_tools_that_there_are():
    _, front, body = (PLUGIN / "skills" / "commonbook" / "SKILL.md").read_text(encoding="utf-8").split("---\n", 2)
    fields = yaml.safe_load(front)
    assert fields.keys() == {"name", "description"}
    assert fields["name"] == "commonbook"
    assert len(fields["description"]) <= 1024
    assert {"recall", "remember", "edit", "get"} <= {name for name in TOOLS if f"`{name}" in body}


def test_llms_txt_leads_to_pages_that_there_are():
    lines = (ROOT / "llms.txt").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "# Commonbook"
    targets = [line.split("](")[1].split(")")[0] for line in lines if line.startswith("- [")]
    assert targets
    assert all((ROOT / target).exists() for target in targets)
