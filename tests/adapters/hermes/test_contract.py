"""The provider has what Hermes calls, as published, and takes nothing from Hermes.

The signatures are those of `MemoryProvider` in agent/memory_provider.py of NousResearch/hermes-agent, as read at commit
015e865f820234a20be8790c3dc68feb6f5f8a4d: names, kinds of parameters and defaults, and nothing else of that file.
"""

from __future__ import annotations

import importlib.metadata
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from commonbook.adapters import hermes
from commonbook.adapters.hermes.provider import CommonbookMemoryProvider
from commonbook.errors import BadInput
from tests.support import crashing

SIGNATURES = {
    "is_available": "()",
    "initialize": "(session_id, **kwargs)",
    "initialize_for_inspection": "(session_id, **kwargs)",
    "unavailable_reason": "()",
    "system_prompt_block": "()",
    "prefetch": "(query, *, session_id='')",
    "queue_prefetch": "(query, *, session_id='')",
    "recall_status": "()",
    "sync_turn": "(user_content, assistant_content, *, session_id='', messages=None)",
    "get_tool_schemas": "()",
    "handle_tool_call": "(tool_name, args, **kwargs)",
    "shutdown": "()",
    "on_turn_start": "(turn_number, message, **kwargs)",
    "on_session_end": "(messages)",
    "on_session_switch": "(new_session_id, *, parent_session_id='', reset=False, rewound=False, **kwargs)",
    "on_pre_compress": "(messages)",
    "on_delegation": "(task, result, *, child_session_id='', **kwargs)",
    "get_config_schema": "()",
    "save_config": "(values, hermes_home)",
    "post_setup": "(hermes_home, config)",
    "get_status_config": "(provider_config)",
    "on_memory_write": "(action, target, content, metadata=None)",
    "backup_paths": "()",
}


@pytest.fixture
def provider(home, tmp_path, monkeypatch):
    """A provider for which nothing was configured."""
    monkeypatch.setenv("COMMONBOOK_HOME", str(home))
    return CommonbookMemoryProvider(hermes_home=str(tmp_path / "hermes"))


def plain(signature: inspect.Signature) -> str:
    """A signature without its types."""
    bare = [one.replace(annotation=inspect.Parameter.empty) for one in signature.parameters.values()]
    return str(inspect.Signature(bare))


@pytest.mark.parametrize("name", SIGNATURES)
def test_every_method_of_the_contract_is_there_as_published(provider, name):
    assert plain(inspect.signature(getattr(provider, name))) == SIGNATURES[name]


def test_there_is_nothing_public_beside_the_contract(provider):
    public = {name for name in dir(provider) if not name.startswith("_")}
    assert public == {*SIGNATURES, "name", "pre_compress_checkpoint_api_version"}


def test_the_provider_keeps_the_checkpoint_contract(provider):
    assert provider.name == "commonbook"
    assert provider.pre_compress_checkpoint_api_version == 2


def test_register_hands_over_a_provider():
    found: list[Any] = []
    hermes.register(SimpleNamespace(register_memory_provider=found.append))
    assert isinstance(found[0], CommonbookMemoryProvider)


def test_hermes_finds_the_plugin_by_its_entry_point_and_by_its_folder():
    (entry,) = importlib.metadata.entry_points(group="hermes_agent.memory_providers", name="commonbook")
    assert entry.load() is hermes
    folder = Path(hermes.__file__).parent
    # Hermes looks for this word in the first 8 KiB before it imports a folder.
    assert "register_memory_provider" in (folder / "__init__.py").read_text()[:8192]
    plugin = yaml.safe_load((folder / "plugin.yaml").read_text())
    assert plugin["name"] == "commonbook"
    assert plugin["description"]
    assert (folder / "README.md").exists()


def test_hermes_may_load_the_folder_under_a_name_of_its_own():
    script = """
import importlib.util, sys
from pathlib import Path
folder = Path(sys.argv[1])
for path in sorted(folder.glob("*.py")):
    name = "_hermes_user_memory.commonbook" + ("" if path.stem == "__init__" else "." + path.stem)
    spec = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
class Context:
    def register_memory_provider(self, provider):
        print(type(provider).__module__, provider.is_available())
sys.modules["_hermes_user_memory.commonbook"].register(Context())
"""
    process = subprocess.run(
        [sys.executable, "-c", script, str(Path(hermes.__file__).parent)],
        capture_output=True,
        text=True,
        check=True,
        env=crashing.environment(),
    )
    assert process.stdout.split() == ["commonbook.adapters.hermes.provider", "True"]


def test_nothing_of_hermes_and_nothing_slow_is_imported():
    script = """
import sys
from types import SimpleNamespace
import commonbook.adapters.hermes as plugin
plugin.register(SimpleNamespace(register_memory_provider=lambda provider: provider.get_tool_schemas()))
print(*sys.modules)
"""
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in process.stdout.split()}
    hermes = {"agent", "plugins", "hermes_cli", "hermes_constants", "tools", "toolsets", "run_agent"}
    assert not loaded & (hermes | {"cryptography", "yaml", "numpy", "watchfiles", "rich", "asyncio"})


def test_the_tools_are_few_short_and_in_the_format_of_functions(provider):
    schemas = provider.get_tool_schemas()
    assert [one["name"] for one in schemas] == ["commonbook_recall", "commonbook_remember"]
    assert all(set(one) == {"name", "description", "parameters"} for one in schemas)
    assert len(json.dumps(schemas)) < 1200
    assert all(one["name"] in provider.system_prompt_block() for one in schemas)
    assert len(provider.system_prompt_block()) < 600


def test_an_inspected_provider_opens_nothing_and_stores_nothing(provider, home, tmp_path):
    provider.initialize_for_inspection("s1", hermes_home=str(tmp_path / "hermes"), platform="cli")
    assert provider.get_tool_schemas()
    assert provider.system_prompt_block()
    assert not home.exists()


def test_a_book_on_a_server_is_not_the_backup_s_to_take_along(provider, monkeypatch):
    monkeypatch.setenv("COMMONBOOK_DATABASE", "postgresql://db.example/book")
    assert provider.backup_paths() == []


def test_what_is_configured_is_written_read_and_described(provider, home, tmp_path):
    hermes_home = str(tmp_path / "hermes")
    assert {one["key"] for one in provider.get_config_schema()} >= {"home", "space", "settle_every", "min_confidence"}
    assert all(one["description"] for one in provider.get_config_schema())
    provider.save_config({"home": str(tmp_path / "elsewhere"), "settle_every": "3"}, hermes_home)
    provider.save_config({"min_confidence": 0.3}, hermes_home)
    path = tmp_path / "hermes" / "commonbook" / "config.json"
    assert json.loads(path.read_text()) == {
        "home": str(tmp_path / "elsewhere"),
        "settle_every": 3,
        "min_confidence": 0.3,
    }
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "values",
    [{"setle_every": 3}, {"settle_every": "often"}, {"recall_seconds": 60}, {"home": 7}, {"min_confidence": "nan"}],
)
def test_what_cannot_be_configured_is_refused_and_nothing_is_written(provider, tmp_path, values):
    with pytest.raises(BadInput):
        provider.save_config(values, str(tmp_path / "hermes"))
    assert not (tmp_path / "hermes").exists()


def test_a_broken_configuration_makes_the_provider_unavailable_and_says_why(provider, tmp_path):
    path = tmp_path / "hermes" / "commonbook" / "config.json"
    path.parent.mkdir(parents=True)
    path.write_text("{not json")
    assert not provider.is_available()
    assert str(path) in provider.unavailable_reason()
    assert provider.backup_paths() == []


def test_a_server_without_a_way_to_it_makes_the_provider_unavailable_and_says_why(provider, tmp_path):
    provider.save_config({"url": "https://memory.example"}, str(tmp_path / "hermes"))
    assert not provider.is_available()
    assert "https://memory.example" in provider.unavailable_reason()
    assert "servers are not supported yet" in provider.unavailable_reason()


def test_the_folder_of_hermes_is_where_hermes_says(monkeypatch, tmp_path):
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "mine"))
    CommonbookMemoryProvider().save_config({"space": "work"}, os.environ["HERMES_HOME"])
    assert CommonbookMemoryProvider().is_available()
    (tmp_path / "mine" / "commonbook" / "config.json").write_text("[]")
    assert not CommonbookMemoryProvider().is_available()
