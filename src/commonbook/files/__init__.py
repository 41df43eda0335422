"""Markdown files of a home: the journal of pending writes, hand edits, and the scan of the folder."""
