"""Tables about what the book was used for."""
