"""The verbs of a remote book, one module for each group; all but `base` are made by `tools/make_client.py`."""
