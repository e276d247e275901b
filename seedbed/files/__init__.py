"""Atomic writes, folder locks, JSON lines."""
