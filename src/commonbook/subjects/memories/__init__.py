"""Memories: remember, edit, read, and the marks that readers see."""
