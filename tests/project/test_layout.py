"""The layout of the packages: no import cycle, a sentence on each package, and one HTTP client."""

from __future__ import annotations

import ast
import builtins
import dis
import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

import grimp
import pytest

import commonbook

ROOT = Path(commonbook.__file__).parent
HTTP_CLIENTS = {"aiohttp", "http.client", "httpx", "httpx2", "openai", "requests", "urllib.request", "urllib3"}


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    """The graph of imports, with those inside functions and for type checkers."""
    return grimp.build_graph("commonbook", cache_dir=None)


def imports_of(graph: grimp.ImportGraph) -> dict[str, set[str]]:
    return {module: set(graph.find_modules_directly_imported_by(module)) for module in graph.modules}


def without_leaves(imports: dict[str, set[str]]) -> dict[str, set[str]]:
    """Leave out modules that import nothing that is left, again and again: a rest is a cycle, or leads to one."""
    left = dict(imports)
    while leaves := [module for module, imported in left.items() if not imported & left.keys()]:
        for module in leaves:
            del left[module]
    return left


def test_no_module_imports_itself_through_others(graph):
    assert not without_leaves(imports_of(graph))


def test_a_cycle_would_be_found(graph):
    imports = imports_of(graph)
    imports["commonbook.errors"] = {"commonbook.service.book"}
    assert {"commonbook.errors", "commonbook.service.book"} <= without_leaves(imports).keys()


def test_every_package_of_the_source_says_what_it_is_for():
    packages = list(ROOT.rglob("__init__.py"))
    assert [path for path in packages if not path.read_text(encoding="utf-8").startswith('"""')] == []


def http_clients_of(source: str) -> set[str]:
    """The libraries of HTTP clients that a module imports, also inside functions and for type checkers."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names & HTTP_CLIENTS


def test_there_is_one_http_client_and_that_of_the_standard_library_in_the_plain_install():
    found = {path.relative_to(ROOT).as_posix(): http_clients_of(path.read_text("utf-8")) for path in ROOT.rglob("*.py")}
    assert {path: clients for path, clients in found.items() if clients} == {
        "remote/http.py": {"httpx2"},
        "compose/client.py": {"httpx2"},
        "engines/embedders/http.py": {"http.client", "urllib.request"},
    }


def test_every_name_that_a_function_reads_exists_in_its_module():
    # A name that only type checkers import is seen by no linter.
    missing = set()
    for module in pkgutil.walk_packages(commonbook.__path__, "commonbook."):
        if module.name.endswith("__main__"):
            continue
        names = vars(importlib.import_module(module.name))
        code = compile(Path(names["__file__"]).read_text(encoding="utf-8"), module.name, "exec")
        missing |= {
            (module.name, name) for name in _globals_of(code) if name not in names and not hasattr(builtins, name)
        }
    assert missing == set()


def _globals_of(code: CodeType) -> Iterator[str]:
    yield from (step.argval for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL")
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from _globals_of(part)
