"""The embedded stack behind `mitosis up`: stores, coordinator and agents under one supervisor.

Free of Django on purpose: it only starts programs. Documented in docs/adr/0010-embedded-stack.md.
"""
