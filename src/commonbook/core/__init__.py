"""The core holds what all subjects use: the write transaction, log, rights, files, formats, tables and texts."""
