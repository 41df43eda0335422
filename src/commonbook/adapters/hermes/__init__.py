"""Commonbook as the memory provider of the Hermes agent.

Found by the entry point group `hermes_agent.memory_providers`, or as a plugin folder: this folder, with its
`plugin.yaml`. Nothing of Hermes is imported, and nothing of Commonbook until a provider is asked for.
"""

from __future__ import annotations

from typing import Protocol


class PluginContext(Protocol):
    """What Hermes hands to a plugin, as far as it is used here."""

    def register_memory_provider(self, provider: object) -> None:
        """Take a provider."""
        ...


def register(ctx: PluginContext) -> None:
    """Give Hermes a provider."""
    # By its full name: Hermes may have loaded this folder under a name of its own.
    from commonbook.adapters.hermes.provider import CommonbookMemoryProvider

    ctx.register_memory_provider(CommonbookMemoryProvider())
