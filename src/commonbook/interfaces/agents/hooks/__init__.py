"""Hooks of agents: prompts and answers go into the book, and what the book knows goes into prompts."""
