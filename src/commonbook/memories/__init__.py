"""Verbs on memories: remember, edit, read."""
