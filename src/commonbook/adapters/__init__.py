"""Adapters: one package for each agent framework that can use Commonbook as its memory."""
