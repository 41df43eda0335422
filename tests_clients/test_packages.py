"""Plugins and the bundle, checked by the programs that install them."""

from __future__ import annotations

import json
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests_clients.agents import CLAUDE, CODEX, NODE, PROGRAMS
from tools import make_mcpb

pytestmark = pytest.mark.promise("install.plugins")

ROOT = Path(__file__).parents[1]


def run(*command: object, home: Path) -> str:
    """Run a program with a home directory of its own, and return what it says."""
    env = {"HOME": str(home), "PATH": f"{NODE.parent}:/usr/bin:/bin", "LANG": "C.UTF-8", "TERM": "dumb"}
    done = subprocess.run(
        [str(word) for word in command], env=env, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def linted(folder: Path) -> subprocess.CompletedProcess[str]:
    """Check a folder by the validator, which has the schemas that the MCP registry has published."""
    program = PROGRAMS.parent / "python" / "bin" / "skillsaw"
    return subprocess.run([str(program), "lint", str(folder)], capture_output=True, text=True, timeout=180, check=False)


def test_the_entry_of_the_registry_plugins_marketplaces_and_skills_keep_their_schemas(tmp_path):
    for name in (".agents", ".claude-plugin", "plugins"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "server.json", tmp_path)
    done = linted(tmp_path)
    assert done.returncode == 0, done.stdout
    checked = next(line for line in done.stdout.splitlines() if "Repo type:" in line)
    kinds = {kind.strip() for kind in checked.partition(":")[2].split(",")}
    assert {"mcp-registry", "marketplace", "codex-marketplace", "agentskills"} <= kinds
    # It looks: an entry that breaks a rule of the schema is refused.
    entry = json.loads((ROOT / "server.json").read_text(encoding="utf-8"))
    (tmp_path / "server.json").write_text(json.dumps({**entry, "description": "x" * 101}))
    assert "at most 100" in linted(tmp_path).stdout


def test_the_manifest_of_the_bundle_keeps_its_schema(tmp_path):
    with zipfile.ZipFile(make_mcpb.build(tmp_path)) as bundle:
        manifest = bundle.extract("manifest.json", tmp_path)
    program = PROGRAMS / "@anthropic-ai" / "mcpb" / "dist" / "cli" / "cli.js"
    assert "passes" in run(NODE, program, "validate", manifest, home=tmp_path)


def test_codex_installs_the_plugin(tmp_path):
    run(CODEX, "plugin", "marketplace", "add", ROOT, home=tmp_path)
    run(CODEX, "plugin", "add", "commonbook@commonbook", home=tmp_path)
    assert "mcp --as agent:codex" in run(CODEX, "mcp", "list", home=tmp_path)
    (installed,) = tmp_path.glob(".codex/plugins/cache/commonbook/commonbook/*")
    assert (installed / "hooks" / "hooks.json").exists()
    assert (installed / "skills" / "commonbook" / "SKILL.md").exists()


def test_claude_code_takes_the_plugin_and_its_marketplace(tmp_path):
    run(CLAUDE, "plugin", "validate", ROOT / "plugins" / "claude-code", home=tmp_path)
    run(CLAUDE, "plugin", "marketplace", "add", ROOT, home=tmp_path)
    run(CLAUDE, "plugin", "install", "commonbook@commonbook", home=tmp_path)
    assert "commonbook@commonbook" in run(CLAUDE, "plugin", "list", home=tmp_path)
