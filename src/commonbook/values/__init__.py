"""The values of the domain: immutable, shared by all packages, and independent of how they are stored."""
