"""Serving: the process around the app, with health, metrics, streams of changes, addresses and signals."""
