"""The wire format: what a server of a book and its remote clients agree on, without a server, a client or a book."""
