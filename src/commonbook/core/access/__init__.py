"""Access control: which spaces an actor may reach, with which role, and how often."""
