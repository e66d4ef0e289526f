"""What protects browsers and the login: headers, cookies, CSRF, hosts, password hashing."""

from urllib.parse import urlsplit

from mitosis_site.env import ENV
from mitosis_site.settings.numbers import MITOSIS

MITOSIS_PUBLIC_URL = ENV.public_url
MTLS_HEADER = ENV.mtls_header
_public = urlsplit(ENV.public_url)
_public_host = _public.hostname or ""
_https = _public.scheme == "https"

# The name in the public address and loopback (health checks of a supervisor) always work.
ALLOWED_HOSTS = [
    *dict.fromkeys(
        [
            *ENV.allowed_hosts,
            f"[{_public_host}]" if ":" in _public_host else _public_host,
            "127.0.0.1",
            "localhost",
            "[::1]",
        ]
    )
]
CSRF_TRUSTED_ORIGINS = [f"{_public.scheme}://{_public.netloc}"]

SECURE_CONTENT_TYPE_NOSNIFF = True
# Not `no-referrer`: under it browsers send `Origin: null` with a form, which the CSRF check has
# to refuse. `same-origin` tells other sites just as little.
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
# HTTP only when the public address is: an embedded stack on loopback has no certificate.
SECURE_HSTS_SECONDS = 31_536_000 if _https else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = False
SECURE_HSTS_PRELOAD = False
# A proxy ends TLS in front of us and has to set (and strip from outside) this header.
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if _https else None
# That proxy redirects; behind it we only ever see plain HTTP.
SECURE_SSL_REDIRECT = False

SESSION_COOKIE_NAME = "mitosis_session"
SESSION_COOKIE_SECURE = _https
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_AGE = 12 * 3600
SESSION_ENGINE = "django.contrib.sessions.backends.db"
CSRF_COOKIE_NAME = "mitosis_csrf"
CSRF_COOKIE_SECURE = _https
CSRF_COOKIE_SAMESITE = "Lax"
CSRF_FAILURE_VIEW = "mitosis_site.pages.csrf_failure"
# Debug pages hide settings by name; addresses with a password in them need naming.
DEFAULT_EXCEPTION_REPORTER_FILTER = "mitosis_site.debug_pages.SecretFilter"

# Everything comes from our own origin and no script or style stands inside a page.
CONTENT_SECURITY_POLICY = {
    "default-src": ("'self'",),
    "script-src": ("'self'",),
    "style-src": ("'self'",),
    "img-src": ("'self'", "data:"),
    "connect-src": ("'self'",),
    "object-src": ("'none'",),
    "base-uri": ("'none'",),
    "form-action": ("'self'",),
    "frame-ancestors": ("'none'",),
}

# The ASGI entry stops bodies at the policy's limits before Django spools them; the last net.
DATA_UPLOAD_MAX_MEMORY_SIZE = MITOSIS.bulk_body_bytes
DATA_UPLOAD_MAX_NUMBER_FIELDS = 2000
FILE_UPLOAD_HANDLERS = ["django.core.files.uploadhandler.MemoryFileUploadHandler"]

AUTH_USER_MODEL = "accounts.User"
AUTHENTICATION_BACKENDS = ["accounts.backends.ConsoleBackend"]
PASSWORD_HASHERS = [
    "accounts.password.Argon2Md5Hasher",
    "django.contrib.auth.hashers.Argon2PasswordHasher",
]
AUTH_PASSWORD_VALIDATORS = [
    {
        "NAME": "django.contrib.auth.password_validation.MinimumLengthValidator",
        "OPTIONS": {"min_length": 10},
    },
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
]
# Whoever sends it as a bearer token may read /metrics; empty: staff only.
METRICS_TOKEN = ENV.metrics_token
MITOSIS_WEBHOOK_HOSTS = ENV.webhook_hosts
OTLP_ENDPOINT = ENV.otlp_endpoint
OTLP_HEADERS = ENV.otlp_headers

LOGIN_URL = "/admin/login/"
LOGIN_REDIRECT_URL = "/"

# Django looks for the exact names of its middleware; ours are subclasses (mitosis_site.middleware
# .stock), which mitosis.E004 checks for instead. The headers themselves are tested on every page.
SILENCED_SYSTEM_CHECKS = ["security.W001", "security.W002", "security.W003"]
