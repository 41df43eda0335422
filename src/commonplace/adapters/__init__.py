"""Adapters: one package for each framework whose memory Commonplace can be."""
