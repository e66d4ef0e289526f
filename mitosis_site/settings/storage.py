"""S3 for artifacts and attachments, and the static files of the console.

Static files are served by their finders: neither a clone nor a wheel needs collectstatic.
"""

from typing import Any

from mitosis_site.bundled import bundled
from mitosis_site.env import ENV

S3_ENDPOINT_URL = ENV.s3_endpoint_url
S3_ACCESS_KEY_ID = ENV.s3_access_key_id
S3_SECRET_ACCESS_KEY = ENV.s3_secret_access_key
S3_REGION = ENV.s3_region
S3_ARTIFACTS_BUCKET = ENV.s3_artifacts_bucket
S3_ATTACHMENTS_BUCKET = ENV.s3_attachments_bucket

STATIC_URL = "/static/"
STATIC_ROOT = None
STATICFILES_DIRS = [bundled("static")]
STORAGES: dict[str, dict[str, Any]] = {
    # Django's own file fields are not used; uploads go to S3 by presigned URL.
    "default": {"BACKEND": "django.core.files.storage.InMemoryStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = False
# Scripts of another origin have no business with our files.
WHITENOISE_ALLOW_ALL_ORIGINS = False
WHITENOISE_MAX_AGE = 300
