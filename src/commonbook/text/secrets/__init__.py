"""Secrets: how they are recognised in prose and in numbers, and the names that must not have one."""
