"""The facade of the library: class `Book`, whose methods are all public verbs."""
