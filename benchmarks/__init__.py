"""Benchmarks: our figure, the machine's limit and a peer's figure, taken in one run."""
