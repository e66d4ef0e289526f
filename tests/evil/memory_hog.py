"""Wants more memory than it may have."""

kept = []
while True:
    kept.append(bytearray(8 << 20))
