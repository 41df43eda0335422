"""Markdown files of a home: the journal of pending writes, edits by hand, and the scan of the folder."""
