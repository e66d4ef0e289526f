"""Falls down and would like to leave a core of its memory."""

import os
import resource

kept = bytearray(16 << 20)
try:
    resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
except (ValueError, OSError):
    os.abort()
raise SystemExit("it may write cores")
