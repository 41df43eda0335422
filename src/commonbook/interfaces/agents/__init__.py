"""Plugs the book into agents that people use, by editing their configuration, and takes it out again."""
