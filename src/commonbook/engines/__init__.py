"""Implementations of the ports: databases, file system, embedders, indexes, locks. Only `compose` imports them."""
