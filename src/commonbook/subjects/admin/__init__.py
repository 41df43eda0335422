"""Administration: spaces, grants, API keys and rate limits."""
