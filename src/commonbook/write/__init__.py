"""The write transaction: its context, retries, finalization, and the ways a memory gets a new version."""
