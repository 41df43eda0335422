"""The facade: class Book, with every public verb."""
