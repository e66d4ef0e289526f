"""The `mitosis` command."""
