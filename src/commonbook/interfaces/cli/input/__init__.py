"""Input of the command line: texts and messages from arguments, files and standard input."""
