"""Pure functions on text: terms, titles, dates, masking, validation."""
