"""Embedders: the built-in table of word vectors, sentence-transformers, and an OpenAI-compatible HTTP service."""
