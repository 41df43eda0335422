"""Guards: the layers around the app that refuse what no request of a client of ours would do."""
