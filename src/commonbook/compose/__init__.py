"""The composition root: the only place that knows engines and wires a book."""
