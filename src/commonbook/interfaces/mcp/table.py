"""The table of tools, in the order in which clients list them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from commonbook.interfaces.mcp.tools import (
    append,
    delete,
    edit,
    get,
    inbox,
    lineage,
    recall,
    reflect,
    remember,
    share,
    status,
    supersede,
    switch,
    triage,
)

if TYPE_CHECKING:
    from commonbook.interfaces.mcp.tool import Tool

_MODULES: Final = (
    remember, recall, get, edit, delete, append, switch, share, lineage, reflect, supersede, inbox, triage, status,
)  # fmt: skip

TOOLS: Final[Mapping[str, Tool]] = {module.TOOL.name: module.TOOL for module in _MODULES}
