"""The embedded recall index: immutable segments of mapped arrays."""
