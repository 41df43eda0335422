"""Ports: the protocols between the core and its engines (database, files, index, embedders, keys), one a module."""
