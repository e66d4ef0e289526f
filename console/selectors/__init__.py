"""Reads of the console: bounded statements, each for what a viewer may see."""
