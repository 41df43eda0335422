"""The people who talk with Hermes: the space of each, and the sessions that an earlier version stored elsewhere."""
