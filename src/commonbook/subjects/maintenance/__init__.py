"""Status, doctor, rebuild and the background worker."""
