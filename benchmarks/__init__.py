"""Benchmarks through the public API: each figure stands beside a minimal reference measured in the same run."""
