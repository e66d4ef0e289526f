"""A client from the user's own settings: the context and the token that `mitosis login` kept."""

from pathlib import Path

from mitosis_client.client import Client
from mitosis_client.errors import NotLoggedIn
from mitosis_client.settings import environment, find_home, read_settings


def connect(*, context: str | None = None, coordinator: str | None = None) -> Client:
    """Logged in as the command line is. Raises ConfigError, NotLoggedIn."""
    env = environment()
    home = find_home(env)
    flags = {"context": context, "coordinator": coordinator}
    settings = read_settings(home, env, Path.cwd(), flags)
    token = home.token(settings.coordinator, settings.user)
    if token is None:
        raise NotLoggedIn(f"not logged in at {settings.coordinator}: run `mitosis login` first")
    return Client(settings.coordinator, token)
