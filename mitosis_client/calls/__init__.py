"""Requests as values: each function builds one Call, which either client can send."""
