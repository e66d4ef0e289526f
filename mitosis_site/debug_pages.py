"""What a debug page may show of the settings; named in settings.security."""

import re

from django.views.debug import SafeExceptionReporterFilter


class SecretFilter(SafeExceptionReporterFilter):
    # Django's own words, and `URL`: addresses of stores carry their passwords.
    hidden_settings = re.compile(
        f"{SafeExceptionReporterFilter.hidden_settings.pattern}|URL|HOSTS", re.IGNORECASE
    )
