"""`hermes commonbook`, of the package."""

from commonbook.adapters.hermes.cli import commonbook_command, register_cli

__all__ = ["commonbook_command", "register_cli"]
