"""Interfaces for people and programs: they translate input and output, and contain no decisions."""
