"""The write transaction: its context, pending work, retries, finalization, and new versions of a memory."""
