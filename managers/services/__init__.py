"""Writes to managers: registration, tokens, heartbeats, eligibility, scheduling, quarantine."""
