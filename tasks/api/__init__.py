"""HTTP of tasks, artifacts and attachments. Thin: read, call one service or selector, answer.

Paths, statuses and bodies of existing routes are those existing clients know: success is 200.
"""
