"""Writes to workers: registration, tags and labels, leaving, heartbeats."""
