"""The tools: each module has one, `TOOL`, which translates its arguments into a call of the book."""
