"""Embedders: the built-in word vector table, sentence-transformers, and an OpenAI-compatible address."""
