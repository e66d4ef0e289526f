"""Writes to runners, their leases and group roles, shared by managers and workers."""
