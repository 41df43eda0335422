"""Build the bundle for Claude Desktop and other hosts of MCP bundles: `python tools/make_mcpb.py [FOLDER]`.

The bundle is a zip archive with the sources and a manifest. The host has uv install the dependencies when it first
starts the server, so that one bundle serves all systems.
"""

from __future__ import annotations

import json
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

from commonbook.interfaces.mcp.tools import TOOLS
from commonbook.version import __version__

ROOT = Path(__file__).parents[1]
PRINCIPAL = "agent:claude-desktop"
EPOCH = (1980, 1, 1, 0, 0, 0)
"""The time of all members: the same sources give the same bytes."""


def manifest() -> dict[str, Any]:
    """Return the manifest of the bundle, with the tools as a host lists them before the server has run."""
    return {
        "manifest_version": "0.4",
        "name": "commonbook",
        "display_name": "Commonbook",
        "version": __version__,
        "description": "Long-term memory for agents, in Markdown files that you own",
        "author": {"name": "Commonbook"},
        "license": "Apache-2.0",
        "keywords": ["memory", "markdown", "mcp"],
        "server": {
            "type": "uv",
            "entry_point": "src/commonbook/__main__.py",
            "mcp_config": {
                "command": "uv",
                "args": ["run", "--directory", "${__dirname}", "--no-dev", "commonbook", "mcp", "--as", PRINCIPAL],
                "env": {"COMMONBOOK_HOME": "${user_config.home}"},
            },
        },
        "user_config": {
            "home": {
                "type": "directory",
                "title": "Folder of the memories",
                "description": "The folder with the Markdown files, which `commonbook init` makes",
                "default": "${HOME}/commonbook",
                "required": True,
            }
        },
        "tools": [{"name": tool.name, "description": _first_sentence(tool.description)} for tool in TOOLS.values()],
        "prompts_generated": True,
        "compatibility": {"platforms": ["darwin", "linux"], "runtimes": {"python": ">=3.11"}},
    }


def _first_sentence(description: str) -> str:
    return re.split(r"(?<=[.;:]) ", description, maxsplit=1)[0].rstrip(".;:") + "."


def members() -> list[Path]:
    """Return the files of the bundle: what the package is built from."""
    sources = sorted(path for path in (ROOT / "src").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return [ROOT / name for name in ("pyproject.toml", "README.md", "LICENSE")] + sources


def build(folder: Path) -> Path:
    """Write the bundle into a folder, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"commonbook-{__version__}.mcpb"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as bundle:
        _add(bundle, "manifest.json", json.dumps(manifest(), indent=2, ensure_ascii=False).encode())
        for member in members():
            _add(bundle, member.relative_to(ROOT).as_posix(), member.read_bytes())
    return path


def _add(bundle: zipfile.ZipFile, name: str, data: bytes) -> None:
    member = zipfile.ZipInfo(name, EPOCH)
    member.external_attr = 0o644 << 16
    bundle.writestr(member, data, compress_type=zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    print(build(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist"))
