"""PostgreSQL: the database of a server, and the recall index in it."""
