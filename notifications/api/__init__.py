"""HTTP views of webhooks: thin, calling notifications.services."""
