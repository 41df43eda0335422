"""Pages for browsers: HTML that needs a signed-in session."""
