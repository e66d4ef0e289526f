"""The system's keyring, when there is one: GNOME, KDE, macOS and Windows have theirs.

Optional twice: the package keyring may be missing, and a server has no keyring to speak to. It is
imported only at a login and for tokens that are in it, since that takes longer than most commands.
"""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

SERVICE: Final = "mitosis"


class Keyring:
    """Tokens by address and user."""

    def __init__(self, backend: "KeyringBackend") -> None:
        self._backend = backend

    def read(self, url: str, user: str) -> str | None:
        """None if it is not there, or the keyring does not open."""
        from keyring.errors import KeyringError  # noqa: PLC0415 - optional

        try:
            return self._backend.get_password(_service(url), user)
        except KeyringError:
            return None

    def keep(self, url: str, user: str, token: str) -> bool:
        """Whether it is kept there; looked up once, for some backends forget silently."""
        from keyring.errors import KeyringError  # noqa: PLC0415 - optional

        try:
            self._backend.set_password(_service(url), user, token)
        except KeyringError:
            return False
        return self.read(url, user) == token

    def forget(self, url: str, user: str) -> None:
        from keyring.errors import KeyringError  # noqa: PLC0415 - optional

        try:
            self._backend.delete_password(_service(url), user)
        except KeyringError:
            return  # was not there; whatever it holds is no longer asked for


def find_keyring() -> Keyring | None:
    """The one of this session, if any can keep something."""
    try:
        import keyring  # noqa: PLC0415 - optional, and slow to import
    except ImportError:
        return None
    backend = keyring.get_keyring()
    # The backends that refuse or forget everything say so by their priority.
    return Keyring(backend) if backend.priority > 0 else None


def _service(url: str) -> str:
    return f"{SERVICE} {url}"
