"""`/metrics`: Prometheus' text, for loopback or whoever has the metrics token."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.utils.crypto import constant_time_compare
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from webapp.accounts import is_local
from webapp.operate import observed
from workers.metrics.prometheus import exposition
from workers.scope import EVERYTHING, within


@login_not_required
@never_cache
@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Answer a scraper: from this machine without a token, else with `Authorization: Bearer <RIDGEPOINT_METRICS_TOKEN>`."""
    headers = {name.lower(): value for name, value in request.headers.items()}
    scheme, _, token = headers.get("authorization", "").partition(" ")
    expected = settings.METRICS_TOKEN
    known = bool(expected) and scheme.lower() == "bearer" and constant_time_compare(token.strip(), expected)
    if not known and not is_local(request.META.get("REMOTE_ADDR", ""), headers):
        return HttpResponse("a metrics token is needed: Authorization: Bearer …\n", "text/plain; charset=utf-8", 401,
                            headers={"WWW-Authenticate": 'Bearer realm="metrics"'})
    with within(EVERYTHING):        # a scraper has no project
        body, content_type = exposition(headers.get("accept", ""), also=[observed.REGISTRY])
    return HttpResponse(body, content_type)
