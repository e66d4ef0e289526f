"""Writes to tasks: one module per use case. What each one returns is safe to send on."""
