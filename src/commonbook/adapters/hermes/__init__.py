"""Commonbook as the memory provider of the Hermes agent.

Hermes finds it by the entry point group `hermes_agent.memory_providers`, or as a plugin folder: this folder with its
`plugin.yaml`. Nothing of Hermes is imported, and nothing of Commonbook until Hermes requests a provider.
"""

from __future__ import annotations

from typing import Protocol


class PluginContext(Protocol):
    """The context that Hermes passes to a plugin, as far as it is used here."""

    def register_memory_provider(self, provider: object) -> None:
        """Register a provider."""
        ...


def register(ctx: PluginContext) -> None:
    """Register a provider with Hermes."""
    # Imported by its full name, since Hermes may have loaded this folder under another name.
    from commonbook.adapters.hermes.provider import CommonbookMemoryProvider

    ctx.register_memory_provider(CommonbookMemoryProvider())
