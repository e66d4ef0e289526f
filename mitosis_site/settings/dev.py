"""Development: errors show in the browser, `runserver` speaks ASGI and reloads."""

from mitosis_site.settings import base
from mitosis_site.settings.base import *  # noqa: F403 - an overriding layer

DEBUG = True
# Its runserver replaces Django's, which would serve WSGI: no WebSockets, no pool.
INSTALLED_APPS = ["daphne", *base.INSTALLED_APPS]
WHITENOISE_AUTOREFRESH = True
WHITENOISE_MAX_AGE = 0
