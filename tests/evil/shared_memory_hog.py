"""Memory that belongs to no process, only to the group: an anonymous file."""

import os

file = os.memfd_create("hog")
while True:
    os.write(file, b"x" * (4 << 20))
