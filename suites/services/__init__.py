"""Writes to suites: creation, life cycle, pausing, and the sweeps behind the periodic jobs."""
