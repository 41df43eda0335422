"""Settings: the only reader of environment variables and configuration files."""
