"""Adapters: one package for each framework whose memory Commonbook can be."""
