"""Every core, for as long as it is let."""

import os

for _ in range(8):
    if os.fork() == 0:
        break
while True:
    pass
