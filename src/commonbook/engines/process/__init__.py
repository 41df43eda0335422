"""Process-level engines: the fair file lock, the fork gate and the system clock."""
