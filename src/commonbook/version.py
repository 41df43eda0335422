"""The version of the program, said once: the build reads it from this line."""

__version__ = "0.1.0"
