"""Writes of webhooks: subscriptions, deliveries, bursts of failures."""
