"""The options as Hermes' desktop panel shows them. Hermes loads this file by its path, in the web server."""

from __future__ import annotations

import importlib
from typing import Any

from commonbook.adapters.hermes import options


def _schema() -> Any:  # noqa: ANN401 - a class of Hermes
    try:
        hermes = importlib.import_module("plugins.memory.config_schema")
    except ImportError:
        # Hermes 0.13 has no panel, and other programs that load this file have no Hermes.
        return None
    fields = tuple(
        hermes.ProviderField(
            key=field["key"],
            label=field["key"].replace("_", " ").capitalize(),
            kind=getattr(hermes, "KIND_NUMBER", "text") if "minimum" in field else hermes.KIND_TEXT,
            default=str(field["default"]),
            description=field["description"],
            inline=field["key"] in ("home", "space"),
        )
        for field in options.schema()
        if field["key"] != "url"
    )
    return hermes.ProviderConfigSchema(name="commonbook", label="Commonbook", fields=fields)


CONFIG_SCHEMA = _schema()
