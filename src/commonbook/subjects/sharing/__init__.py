"""Sharing: copies and their freshness, lineage, sharing rules and requests."""
