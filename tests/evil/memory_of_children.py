"""Each child is modest, all together are not, and the parent ends well."""

import os
import time

for _ in range(12):
    if os.fork() == 0:
        kept = bytearray(12 << 20)
        time.sleep(600)
time.sleep(1)
