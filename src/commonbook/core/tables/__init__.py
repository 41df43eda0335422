"""Rows of the database: one module owns each table or family of tables, and all SQL on it."""
