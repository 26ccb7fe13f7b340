"""Settings: the environment is read once, here. No logic beyond that.

DATABASE_URL, REDIS_URL    servers to use; `manage.py` starts private ones and sets both where they are absent
RIDGEPOINT_HOME            data folder of the private servers and the object store (default: var/ beside this project)
RIDGEPOINT_S3_BUCKET       object store in a bucket in place of the folder (AWS_* variables name endpoint and keys)
RIDGEPOINT_FLEET_URL       ClickHouse for the fleet's sums, clickhouse://user:password@host:8443/database; PostgreSQL without it
RIDGEPOINT_FLEET_HOURS     days that the fleet's hours are kept (90); its days: RIDGEPOINT_FLEET_DAYS (800),
                           its months: RIDGEPOINT_FLEET_MONTHS (3650)
RIDGEPOINT_GPU_HOUR_PRICE  what an hour of a GPU costs, and its currency: "3.20 USD" (none: no money is shown)
RIDGEPOINT_METRICS_TOKEN   lets a scraper of another machine read /metrics (loopback needs none); OTEL_EXPORTER_OTLP_ENDPOINT sends
                           the same by OpenTelemetry, and traces. RIDGEPOINT_GRAFANA_URL: address of the dashboard, for links to it
RIDGEPOINT_SIGN_IN         1: people sign in; 0: single-user local mode, loopback only (the default)
RIDGEPOINT_HOSTS           comma-separated host names the web server answers to
RIDGEPOINT_SECRET_KEY      signs sessions and seals webhooks' secrets; the same on every host (default: one made in RIDGEPOINT_HOME)
RIDGEPOINT_SECRET_KEY_OLD  the one before, after it was changed: what was sealed under it is still read
RIDGEPOINT_OIDC_*          single sign-on: webapp/people/sso.py names them
RIDGEPOINT_TWO_FACTOR      "owners" or "all": who must have a second factor
RIDGEPOINT_PROXIES         addresses or networks of proxies whose X-Forwarded-For is believed: "10.0.0.5,10.1.0.0/16" (none)
RIDGEPOINT_PREFIX          /perf: a proxy serves the site below this path of its host, and hands it on (docs/operate-deploy.md)
RIDGEPOINT_COOKIE_TAG      ends the name of the session's cookie: two installations at one host name have one each (`manage.py
                           serve`: the port, unless it is 8000). The prefix is part of the name already
RIDGEPOINT_HTTPS           1: a proxy in front speaks HTTPS; cookies are sent over HTTPS only
RIDGEPOINT_PUBLIC_URL      https://guard.example: put before links in messages and mails; without it they carry paths
RIDGEPOINT_WEBHOOK_PRIVATE 1: webhooks may go to addresses inside this network too (loopback, private, link-local)
RIDGEPOINT_ENGINE_PRIVATE  0: serving engines that owners name may not lie inside this network
RIDGEPOINT_CODE_*          of workers that fetch the code of builds: _PRIVATE, _FILES, _SSH_KEY, _SSH_KNOWN_HOSTS (docs/suites.md)
RIDGEPOINT_EMAIL_URL       smtp://user:password@host:587?tls=1 (or ?ssl=1); without it mails become files under RIDGEPOINT_HOME
RIDGEPOINT_EMAIL_FROM      sender of mails
RIDGEPOINT_STAGE_MEMORY_MB memory that each stage of the work on a profile (ingest, families, analyses) may take, in MB of 10^6 B
                           (default: 2000). A bound of one process: programs that it starts (decoders, nsys) have as much each
RIDGEPOINT_STAGE_SECONDS   time that each of these stages, and each analysis, may take beside a second a MB of the upload
                           (default: 600; 0: for ever)
RIDGEPOINT_DISK_REST       room that new uploads and captures leave free on each disk: a size, a share, or both (the smaller one
                           holds; default: "2 GB, 5 %")
RIDGEPOINT_LIMITS          how often a person or token may upload, run SQL, search and use tools (/mcp): "upload=120/min,
                           sql=120/min, search=600/min, agents=600/min" (these are the defaults; sql=0: without limit)
RIDGEPOINT_LOG             level of our own log, on standard error (default: INFO); "json": one object a line, "json DEBUG" both
RIDGEPOINT_ACCESS_LOG      1: a line for every request; without it for refused and failed ones (as JSON always every one)
"""

import os
import re
import socket
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

from webapp.embedded.secret import secret_key
from webapp.people import sso

BASE_DIR = Path(__file__).resolve().parent.parent
HOME = Path(os.environ.get("RIDGEPOINT_HOME") or BASE_DIR / "var").absolute()       # queries run in folders of their own
DEBUG = os.environ.get("RIDGEPOINT_DEBUG") == "1"
SECRET_KEY = os.environ.get("RIDGEPOINT_SECRET_KEY") or secret_key(HOME)
SECRET_KEY_FALLBACKS = [os.environ["RIDGEPOINT_SECRET_KEY_OLD"]] if os.environ.get("RIDGEPOINT_SECRET_KEY_OLD") else []
ALLOWED_HOSTS = os.environ.get("RIDGEPOINT_HOSTS", "localhost,127.0.0.1,[::1]").split(",")
LOCAL_MODE = os.environ.get("RIDGEPOINT_SIGN_IN", "0") != "1"
HTTPS = os.environ.get("RIDGEPOINT_HTTPS") == "1"
PREFIX = "/".join(["", *filter(None, os.environ.get("RIDGEPOINT_PREFIX", "").split("/"))])       # "" or "/perf"
FORCE_SCRIPT_NAME = PREFIX or None
PROXIES = os.environ.get("RIDGEPOINT_PROXIES", "")
WEB_PROCESS = os.environ.get("RIDGEPOINT_WEB_PROCESS") == "1"        # set by manage.py and webapp.asgi


def _checked(name: str, schemes: Collection[str]) -> str:
    """Return an address of the environment; what is none is said here, and not by each process that tries it."""
    url = os.environ.get(name, "")
    if url and urlsplit(url).scheme not in schemes:
        raise ImproperlyConfigured(f"{name} begins with none of {', '.join(f'{scheme}:' for scheme in schemes)}")
    return url


REDIS_URL = _checked("REDIS_URL", ("redis", "rediss", "unix"))
CUT_OFF_S = 20                  # a server or client from which nothing comes for that long is given up
REDIS_OPTIONS: dict[str, Any] = {} if REDIS_URL.startswith("unix:") else {
    "socket_keepalive": True, "socket_keepalive_options": {
        socket.TCP_KEEPIDLE: 10, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 2, socket.TCP_USER_TIMEOUT: CUT_OFF_S * 1000}}

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.postgres",
    "rest_framework",
    "knox",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "channels",
    "csp",
    "allauth",
    "allauth.account",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.openid_connect",
    "allauth.mfa",
    "allauth.usersessions",
    "webapp",
    "profiles",
    "tuner",
    "workers",
]
MIDDLEWARE = [
    "webapp.statics.streaming.stream_in_pieces",
    "webapp.statics.compressed.CompressedAnswers",
    "webapp.operate.observed.NoteView",
    "django.middleware.security.SecurityMiddleware",
    "webapp.errors.RefuseNul",
    "webapp.projects.request.ProjectAddress",
    "webapp.errors.RedirectToForm",
    "csp.middleware.CSPMiddleware",
    "webapp.statics.compressed.CompressedStatic",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "webapp.accounts.LocalModeMiddleware",
    "webapp.projects.request.ProjectScope",
    "webapp.sharing.services.SharedVisits",
    "django.contrib.auth.middleware.LoginRequiredMiddleware",
    "webapp.operate.limits.LimitPages",
    "django.contrib.messages.middleware.MessageMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "webapp.people.two_factor.SecondFactorFirst",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "webapp.urls"
ASGI_APPLICATION = "webapp.asgi.application"
TEMPLATES = [{
    "BACKEND": "django.template.backends.django.DjangoTemplates",
    "DIRS": [BASE_DIR / "templates"],
    "APP_DIRS": True,
    "OPTIONS": {
        "context_processors": [
            "django.template.context_processors.request",
            "django.contrib.auth.context_processors.auth",
            "django.contrib.messages.context_processors.messages",
        ],
        "builtins": ["webapp.templatetags.numbers", "webapp.templatetags.markup", "webapp.templatetags.kernels",
                     "webapp.templatetags.frame", "webapp.templatetags.guests", "webapp.templatetags.kept"],
    },
}]


def _database(url: str) -> dict[str, Any]:
    parts, query = urlsplit(url), parse_qs(urlsplit(url).query)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path.lstrip("/") or "postgres",
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": query.get("host", [parts.hostname or ""])[0],
        "PORT": query.get("port", [str(parts.port or "")])[0],
        # The web's threads are few and stay (webapp.slots): each keeps its connection. A pool waits for a database that is
        # away, and ever longer between two tries; without one a request knows at once, and so does the first after it is back.
        "CONN_MAX_AGE": 600 if WEB_PROCESS else 0,       # a new one reads the clock anew (workers.clock)
        "CONN_HEALTH_CHECKS": True,     # a connection that broke is made anew by the next request
        # seconds; milliseconds. Both ends give up a host that is cut off: it must not keep its locks, nor wait for hours.
        "OPTIONS": {
            **{name: query[name][0] for name in ("sslmode", "sslrootcert", "sslcert", "sslkey") if name in query},
            "connect_timeout": 3 if WEB_PROCESS else 10, "tcp_user_timeout": 10_000 if WEB_PROCESS else CUT_OFF_S * 1000,
            "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 2,
            "options": "-c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=2 "
                       f"-c tcp_user_timeout={CUT_OFF_S * 1000}",
        },
    }


DATABASES = {"default": _database(_checked("DATABASE_URL", ("postgresql", "postgres")))}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
CHANNEL_PREFIX = "ridgepoint"
CHANNEL_LAYERS = {"default": {
    "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
    "CONFIG": {"hosts": [{"address": REDIS_URL, "health_check_interval": 15, **REDIS_OPTIONS}], "prefix": CHANNEL_PREFIX},
}}



def object_store(env: Mapping[str, str]) -> dict[str, Any]:
    """Return where profiles live: a named bucket, else a folder; equal keys are overwritten."""
    if env.get("RIDGEPOINT_S3_BUCKET"):
        return {"BACKEND": "storages.backends.s3.S3Storage", "OPTIONS": {
            "bucket_name": env["RIDGEPOINT_S3_BUCKET"], "endpoint_url": env.get("AWS_ENDPOINT_URL_S3"), "file_overwrite": True,
            "querystring_auth": False, "default_acl": None,
        }}
    return {"BACKEND": "django.core.files.storage.FileSystemStorage", "OPTIONS": {
        "location": HOME / "store", "allow_overwrite": True,
    }}


# mails: to a server where one is named, else into files
_MAIL = urlsplit(os.environ.get("RIDGEPOINT_EMAIL_URL", ""))
EMAIL_USE_TLS, EMAIL_USE_SSL = "tls=1" in _MAIL.query, "ssl=1" in _MAIL.query
EMAIL_BACKEND = f"django.core.mail.backends.{'smtp' if _MAIL.hostname else 'filebased'}.EmailBackend"
EMAIL_FILE_PATH = HOME / "mail"
EMAIL_HOST, EMAIL_PORT = _MAIL.hostname or "", _MAIL.port or (465 if EMAIL_USE_SSL else 587 if EMAIL_USE_TLS else 25)
EMAIL_HOST_USER, EMAIL_HOST_PASSWORD = unquote(_MAIL.username or ""), unquote(_MAIL.password or "")
EMAIL_TIMEOUT = 15
DEFAULT_FROM_EMAIL = os.environ.get("RIDGEPOINT_EMAIL_FROM", "ridgepoint@localhost")
PUBLIC_URL = os.environ.get("RIDGEPOINT_PUBLIC_URL", "").rstrip("/")
WEBHOOK_PRIVATE = os.environ.get("RIDGEPOINT_WEBHOOK_PRIVATE") == "1"
ENGINE_PRIVATE = os.environ.get("RIDGEPOINT_ENGINE_PRIVATE", "1") != "0"
STORAGES = {
    "default": object_store(os.environ),
    "staticfiles": {"BACKEND": "webapp.statics.bundled.BundledStorage"},
}
STATIC_URL = f"{PREFIX}/static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
STATICFILES_FINDERS = [
    "django.contrib.staticfiles.finders.FileSystemFinder",
    "django.contrib.staticfiles.finders.AppDirectoriesFinder",
    "webapp.statics.bokeh.BokehFinder",
    "webapp.statics.bundled.BundleFinder",
]
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = DEBUG
WHITENOISE_ALLOW_ALL_ORIGINS = False            # no other site loads them
WHITENOISE_IMMUTABLE_FILE_TEST = r"^/static/bundles/"       # their address holds their hash
FILE_UPLOAD_HANDLERS = ["django.core.files.uploadhandler.TemporaryFileUploadHandler"]   # to disk, never to memory
FILE_UPLOAD_TEMP_DIR = None
UPLOAD_MAX_BYTES = int(os.environ.get("RIDGEPOINT_UPLOAD_MAX_BYTES", 20 * 2**30))
DISK_REST = os.environ.get("RIDGEPOINT_DISK_REST", "2 GB, 5 %")
LIMITS = os.environ.get("RIDGEPOINT_LIMITS", "")
STAGE_MEMORY_MB = int(os.environ.get("RIDGEPOINT_STAGE_MEMORY_MB", 2000))
STAGE_SECONDS = int(os.environ.get("RIDGEPOINT_STAGE_SECONDS", 600))
# Arrow's allocator asks for 1 GB before it needs any, and a limit of memory would count it. Read when Arrow loads: after this.
os.environ.setdefault("MIMALLOC_ARENA_EAGER_COMMIT", "0")

AUTHENTICATION_BACKENDS = ["django.contrib.auth.backends.ModelBackend", "webapp.projects.permissions.MembershipRoles"]
AUTH_PASSWORD_VALIDATORS: list[dict[str, Any]] = [
    {"NAME": f"django.contrib.auth.password_validation.{name}", "OPTIONS": options} for name, options in (
        ("UserAttributeSimilarityValidator", {}), ("MinimumLengthValidator", {"min_length": 12}), ("CommonPasswordValidator", {}),
        ("NumericPasswordValidator", {}))]
# django-allauth's: second factors, sessions, single sign-on. Its own limits count in each process apart; webapp.sign_in has ours
OIDC: sso.Provider | None = sso.read(os.environ, ("viewer", "engineer", "owner"))
TWO_FACTOR = os.environ.get("RIDGEPOINT_TWO_FACTOR", "")
SOCIALACCOUNT_PROVIDERS = sso.provider_settings(OIDC)
ACCOUNT_ADAPTER, MFA_ADAPTER = "webapp.people.adapter.Accounts", "webapp.people.adapter.SecondFactor"
SOCIALACCOUNT_ADAPTER = "webapp.people.adapter.SingleSignOn"
ACCOUNT_EMAIL_VERIFICATION = SOCIALACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_LOGIN_METHODS, ACCOUNT_SIGNUP_FIELDS, ACCOUNT_RATE_LIMITS = {"username"}, ["username*"], False
ACCOUNT_FORMS = {"reauthenticate": "webapp.people.forms.PasswordAgainForm"}
MFA_FORMS = {"authenticate": "webapp.people.forms.CodeForm", "reauthenticate": "webapp.people.forms.CodeAgainForm"}
MFA_SUPPORTED_TYPES, MFA_ALLOW_UNVERIFIED_EMAIL, MFA_RECOVERY_CODES_SHOW_ONCE = ["totp", "recovery_codes"], True, True
MFA_TOTP_TOLERANCE = 1                  # a phone's clock may be half a minute off
SOCIALACCOUNT_LOGIN_ON_GET = True       # the policy lets no form lead to another site
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "home"
LOGOUT_REDIRECT_URL = "login"
# A name of its own: of two cookies of one name, an application at the root of the host would win over one below a path. How it
# begins is known to browsers (RFC 6265bis, 4.1.3): sent over HTTPS alone, and with __Host- to no other host of the domain.
_PREFIXED = "" if not HTTPS else "__Secure-" if PREFIX else "__Host-"
SESSION_COOKIE_NAME = _PREFIXED + re.sub(
    r"[^A-Za-z0-9]+", "_", f"ridgepoint_session {PREFIX} {os.environ.get('RIDGEPOINT_COOKIE_TAG', '')}").rstrip("_")
SESSION_COOKIE_PATH = CSRF_COOKIE_PATH = f"{PREFIX}/"
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = HTTPS
CSRF_COOKIE_SAMESITE = "Lax"
CSRF_TRUSTED_ORIGINS = [f"https://{host}" for host in ALLOWED_HOSTS if HTTPS and "*" not in host]
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if HTTPS else None
X_FRAME_OPTIONS = "DENY"
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CONTENT_TYPE_NOSNIFF = True
CONTENT_SECURITY_POLICY = {"DIRECTIVES": {
    "default-src": ["'none'"],
    "script-src": ["'self'"],
    "style-src": ["'self'", "'unsafe-inline'"],      # Bokeh and Tabulator set style elements
    "img-src": ["'self'", "data:", "blob:"],
    "font-src": ["'self'"],
    "connect-src": ["'self'"],
    "form-action": ["'self'"],
    "frame-ancestors": ["'none'"],
    "base-uri": ["'none'"],
}}
PERFETTO_URL = os.environ.get("RIDGEPOINT_PERFETTO_URL", "https://ui.perfetto.dev")     # or one's own, where that is out of reach
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["webapp.accounts.ProjectToken", "rest_framework.authentication.SessionAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["webapp.accounts.RolePermission"],
    "DEFAULT_THROTTLE_CLASSES": ["webapp.operate.limits.Throttle"],
    "DEFAULT_SCHEMA_CLASS": "webapp.answer_schema.TypedSchema",
    "DEFAULT_RENDERER_CLASSES": ["webapp.negotiation.AnyTextJson"],
    "EXCEPTION_HANDLER": "webapp.errors.exception_handler",
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "webapp.negotiation.FormatOrFile",
}
KNOX_TOKEN_MODEL = "webapp.ApiToken"
MIGRATION_MODULES = {"knox": None}      # its migrations make its own table even where the model is swapped for ours
REST_KNOX = {"TOKEN_TTL": None, "TOKEN_PREFIX": "rp_"}       # the expiry is chosen with each token
SPECTACULAR_SETTINGS = {
    "TITLE": "Ridgepoint", "VERSION": "0.1.0", "OAS_VERSION": "3.1.0",
    "SWAGGER_UI_DIST": "SIDECAR", "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "SERVE_INCLUDE_SCHEMA": False, "SERVE_PERMISSIONS": ["webapp.accounts.RolePermission"],
    "ENUM_NAME_OVERRIDES": {"ProfileKindEnum": "profiles.models.Profile.Kind",
                            "ChartKindEnum": "profiles.sql.query_services.CHARTS"},
}
_LOG = os.environ.get("RIDGEPOINT_LOG", "").lower().replace(",", " ").split()
LOG_JSON = "json" in _LOG
LOG_LEVEL = next((word.upper() for word in _LOG if word != "json"), "INFO")
LOG_REQUESTS = LOG_JSON or os.environ.get("RIDGEPOINT_ACCESS_LOG") == "1"
LOGGING = {
    "version": 1, "disable_existing_loggers": False,
    "formatters": {"text": {"()": "webapp.logs.TextLine"}, "json": {"()": "webapp.logs.JsonLine"}},
    "filters": {name: {"()": f"webapp.logs.{name}"} for name in ("ExpectedInOneLine", "OutageInOneLine", "AddTrail")},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json" if LOG_JSON else "text",
                            "filters": ["ExpectedInOneLine", "OutageInOneLine", "AddTrail"]}},
    "root": {"handlers": ["stderr"], "level": "WARNING"},
    "loggers": {
        **{name: {"level": LOG_LEVEL} for name in ("profiles", "tuner", "webapp", "workers")},
        "django": {"level": "WARNING"},          # in place of its own handlers, which know DEBUG only
        "django.server": {"level": "WARNING", "handlers": [], "propagate": True},
    },
}
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = False


# --- the fleet ---------------------------------------------------------------------------------------------------------------

FLEET_URL = os.environ.get("RIDGEPOINT_FLEET_URL", "")
FLEET_KEEP_HOURS_DAYS = int(os.environ.get("RIDGEPOINT_FLEET_HOURS", "90"))
FLEET_KEEP_DAYS_DAYS = int(os.environ.get("RIDGEPOINT_FLEET_DAYS", "800"))
FLEET_KEEP_MONTHS_DAYS = int(os.environ.get("RIDGEPOINT_FLEET_MONTHS", "3650"))
METRICS_TOKEN = os.environ.get("RIDGEPOINT_METRICS_TOKEN", "")
GRAFANA_URL = os.environ.get("RIDGEPOINT_GRAFANA_URL", "").rstrip("/")
GPU_HOUR_PRICE = os.environ.get("RIDGEPOINT_GPU_HOUR_PRICE", "")
