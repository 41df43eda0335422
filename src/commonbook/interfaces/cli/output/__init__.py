"""Output of the command line: plain lines, terminal, progress."""
