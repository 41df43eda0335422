"""Immutable values that cross module boundaries; they know nothing of storage."""
