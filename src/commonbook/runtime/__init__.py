"""Helpers of the Python runtime: batches of a sequence, imports at first use, and resets after a fork."""
