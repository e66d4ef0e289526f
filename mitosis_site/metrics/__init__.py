"""The page Prometheus reads: who may, what the database says, how it is written."""
