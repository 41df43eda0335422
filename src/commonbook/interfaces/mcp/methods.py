"""The methods of the protocol that this server has, without a transport: parameters in, a result out.

Both transports call these: the loop on stdio, and the official SDK over HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from commonbook.errors import BadInput
from commonbook.interfaces.mcp import prompts, resources
from commonbook.interfaces.mcp.calls import call
from commonbook.interfaces.mcp.failures import ProtocolError, failed
from commonbook.interfaces.mcp.table import TOOLS
from commonbook.interfaces.similar_names import did_you_mean
from commonbook.version import __version__

if TYPE_CHECKING:
    from commonbook.interfaces.mcp.sources import BookSource

Parameters: TypeAlias = Mapping[str, Any]
Method: TypeAlias = "Callable[[BookSource, Parameters], dict[str, Any]]"

SERVER: Final = {"name": "commonbook", "title": "Commonbook", "version": __version__}

CAPABILITIES: Final[Mapping[str, Mapping[str, bool]]] = {
    "tools": {"listChanged": False},
    "resources": {"listChanged": False, "subscribe": False},
    "prompts": {"listChanged": False},
}

LIST_SECONDS: Final = 3600
"""How long a client may keep a list that only another version of the program changes."""


def _list_tools(_source: BookSource, _parameters: Parameters) -> dict[str, Any]:
    return {"tools": [tool.listed() for tool in TOOLS.values()]}


def _call_tool(source: BookSource, parameters: Parameters) -> dict[str, Any]:
    name = parameters.get("name")
    tool = TOOLS.get(name) if isinstance(name, str) else None
    if tool is None:
        # An error of the protocol would reach the client, but not every model.
        unknown = f"there is no tool {str(name)[:100]!r}{did_you_mean(str(name), TOOLS)}"
        return failed(BadInput(unknown, fix=f"call one of: {', '.join(TOOLS)}"))
    return call(tool, parameters.get("arguments"), source)


def _list_resources(source: BookSource, parameters: Parameters) -> dict[str, Any]:
    return resources.listed(source, parameters.get("cursor"))


def _list_templates(_source: BookSource, _parameters: Parameters) -> dict[str, Any]:
    return {"resourceTemplates": list(resources.TEMPLATES)}


def _read_resource(source: BookSource, parameters: Parameters) -> dict[str, Any]:
    return resources.read(source, parameters.get("uri"))


def _list_prompts(_source: BookSource, _parameters: Parameters) -> dict[str, Any]:
    return {"prompts": list(prompts.LISTED)}


def _get_prompt(source: BookSource, parameters: Parameters) -> dict[str, Any]:
    arguments = parameters.get("arguments") or {}
    if not isinstance(arguments, Mapping):
        raise ProtocolError(-32602, "the arguments are no object")
    return prompts.get(source, parameters.get("name"), arguments)


METHODS: Final[Mapping[str, Method]] = {
    "tools/list": _list_tools,
    "tools/call": _call_tool,
    "resources/list": _list_resources,
    "resources/templates/list": _list_templates,
    "resources/read": _read_resource,
    "prompts/list": _list_prompts,
    "prompts/get": _get_prompt,
}

WITH_BOOK: Final = frozenset({"tools/call", "resources/list", "resources/read", "prompts/get"})
"""The methods that use the book, which may take a while."""

CACHED_SECONDS: Final[Mapping[str, int]] = {
    "tools/list": LIST_SECONDS,
    "resources/templates/list": LIST_SECONDS,
    "prompts/list": LIST_SECONDS,
    "server/discover": LIST_SECONDS,
    "resources/list": 0,
    "resources/read": 0,
}
"""How long a client may keep each answer, by the method; others are not kept."""
