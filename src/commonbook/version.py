"""The version of the program; the build reads it from this line."""

__version__ = "0.1.0"
