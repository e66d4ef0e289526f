"""Traces for OpenTelemetry, made from the event log when a collector is configured."""
