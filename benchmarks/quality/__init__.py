"""The laboratory of recall: how well it finds, ranks and stays silent, measured through the public API."""
