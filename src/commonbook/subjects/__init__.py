"""Subjects hold the operations behind the verbs, one package each."""
