"""Tests and static tools: the same system on throw-away services."""

from dataclasses import replace

from mitosis_site.settings import base
from mitosis_site.settings.base import *  # noqa: F403 - an overriding layer

DEBUG = False
# Looks files up when asked: scanning all of them at each test client's start costs 50 ms.
WHITENOISE_AUTOREFRESH = True
# One user of a test does the work of hundreds; the rate itself is tested with its real number.
MITOSIS = replace(base.MITOSIS, user_requests_per_s=100_000)
