"""The embedded recall index: immutable segments of memory-mapped arrays, searched by terms and by vectors."""
