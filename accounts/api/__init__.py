"""HTTP views of sessions, users and groups. Thin: read, call one service or selector, answer.

Paths, statuses and bodies are those existing clients know: every success is exactly 200.
"""
