"""HTTP of managers: registration and listing, attributes, wishes; heartbeat and tokens."""
