"""Production and the embedded stack: the base as it is, refused when it is not fit to serve."""

from mitosis_site.settings.base import *  # noqa: F403 - an overriding layer

DEBUG = False
MITOSIS_PRODUCTION = True
