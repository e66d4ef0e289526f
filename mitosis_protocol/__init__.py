"""What coordinator, agent and client say to each other: types, tables and limits.

A leaf package: the standard library and msgspec only. It imports nobody; everybody may import it.
"""

from typing import Final

# Raised by one when a peer of the previous number could misread us; checked in the handshake.
PROTOCOL_VERSION: Final = 1
