"""Helpers of the Python runtime: batches of a sequence, and objects that begin anew in a forked child."""
