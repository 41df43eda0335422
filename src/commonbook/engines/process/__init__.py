"""Locks between processes, fork safety and the clock."""
