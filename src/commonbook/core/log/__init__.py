"""The signed log: one hash chain of signed entries for each space."""
