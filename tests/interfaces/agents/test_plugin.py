"""Plugins, the bundle and the entry of the registry have what `install` writes, and say when to use it."""

from __future__ import annotations

import json
import re
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from commonbook.core.settings.settings import AgentFolders
from commonbook.interfaces.agents.clients import CLIENTS, Request, Scope
from commonbook.interfaces.agents.installation import plan_install
from commonbook.interfaces.cli.commands import make_parser
from commonbook.interfaces.mcp.tools import TOOLS
from commonbook.version import __version__
from tools import make_mcpb

ROOT = Path(__file__).parents[3]
PLUGIN = ROOT / "plugins" / "claude-code"
CODEX = ROOT / "plugins" / "codex"


def parsed(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def request_of(agent: str, scope: Scope, folder: str) -> Request:
    """Return the request for an installation with hooks, as the plugins have it."""
    principal = ("--as", f"agent:{agent}")
    return Request(
        command=("commonbook", "mcp", *principal),
        hook=("commonbook", "hook", agent, *principal),
        folders=AgentFolders(*[folder] * 4),
        project=folder,
        scope=scope,
        permissions=False,
    )


@pytest.mark.promise("install.plugins")
def test_the_plugin_has_what_install_writes_into_a_project(tmp_path):
    request = request_of("claude-code", "project", str(tmp_path))
    servers, settings = plan_install(CLIENTS["claude-code"], request).changes
    assert parsed(PLUGIN / ".mcp.json") == json.loads(servers.after or "")
    assert parsed(PLUGIN / "hooks" / "hooks.json") == json.loads(settings.after or "")


@pytest.mark.promise("install.plugins")
def test_the_plugin_of_codex_has_what_install_writes(tmp_path):
    request = request_of("codex", "user", str(tmp_path))
    (config,) = plan_install(CLIENTS["codex"], request).changes
    written = tomllib.loads(config.after or "")
    assert parsed(CODEX / ".mcp.json")["mcpServers"] == written["mcp_servers"]
    assert parsed(CODEX / "hooks" / "hooks.json")["hooks"] == written["hooks"]


def test_the_manifest_of_codex_names_files_that_there_are():
    manifest = parsed(CODEX / ".codex-plugin" / "plugin.json")
    assert (manifest["name"], manifest["version"]) == ("commonbook", __version__)
    assert all((CODEX / manifest[part]).exists() for part in ("skills", "hooks", "mcpServers"))
    (listed,) = parsed(ROOT / ".agents" / "plugins" / "marketplace.json")["plugins"]
    assert (listed["name"], ROOT / listed["source"]["path"]) == ("commonbook", CODEX)
    skill = Path("skills") / "commonbook" / "SKILL.md"
    assert (CODEX / skill).read_bytes() == (PLUGIN / skill).read_bytes()


@pytest.mark.promise("install.plugins")
def test_the_entry_of_the_registry_keeps_its_rules():
    """The rules are those of the schema that the entry names, and of the registry for packages of PyPI."""
    entry = parsed(ROOT / "server.json")
    assert entry["$schema"].endswith("/2025-12-11/server.schema.json")
    assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", entry["name"])
    assert f"mcp-name: {entry['name']}" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert 1 <= len(entry["description"]) <= 100
    (package,) = entry["packages"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (package["registryType"], package["identifier"]) == ("pypi", project["name"])
    assert entry["version"] == package["version"] == __version__
    words = []
    for argument in package["packageArguments"]:
        words += [argument["name"], argument["default"]] if argument["type"] == "named" else [argument["value"]]
    arguments = make_parser(words).parse_args(words)
    assert (arguments.command, arguments.actor) == ("mcp", "agent:other")


@pytest.mark.promise("install.plugins")
def test_the_bundle_has_the_sources_and_starts_the_server(tmp_path):
    path = make_mcpb.build(tmp_path)
    with zipfile.ZipFile(path) as bundle:
        manifest = json.loads(bundle.read("manifest.json"))
        names = set(bundle.namelist())
    assert (manifest["version"], [tool["name"] for tool in manifest["tools"]]) == (__version__, list(TOOLS))
    assert {manifest["server"]["entry_point"], "pyproject.toml", "src/commonbook/data/static-table.bin"} <= names
    assert not any("__pycache__" in name for name in names)
    words = manifest["server"]["mcp_config"]["args"]
    words = words[words.index("commonbook") + 1 :]
    arguments = make_parser(words).parse_args(words)
    assert (arguments.command, arguments.actor) == ("mcp", "agent:claude-desktop")


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
