"""The remote client, with an outbox on its own disk."""
