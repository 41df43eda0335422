"""SQLite: the database of a home, and the outbox of a client."""
