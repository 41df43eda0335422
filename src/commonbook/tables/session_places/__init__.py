"""Where sessions are, and which sessions they continue: rows of the table `session` that refer to others."""
