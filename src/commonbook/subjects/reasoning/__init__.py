"""Reasoning links: reflections, supersession, notices, inbox and triage."""
