"""Placeholder while the tree grows: replaced by its owner."""
from django.http import HttpResponse
from rest_framework.views import APIView


def capture_detail(request, **kw):
    return HttpResponse("capture_detail: not built yet", status=501)


def capture_list(request, **kw):
    return HttpResponse("capture_list: not built yet", status=501)


def capture_new(request, **kw):
    return HttpResponse("capture_new: not built yet", status=501)


def capture_stop(request, **kw):
    return HttpResponse("capture_stop: not built yet", status=501)
