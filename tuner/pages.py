"""Placeholder while the tree grows: replaced by its owner."""
from django.http import HttpResponse
from rest_framework.views import APIView


def cache_detail(request, **kw):
    return HttpResponse("cache_detail: not built yet", status=501)


def cache_list(request, **kw):
    return HttpResponse("cache_list: not built yet", status=501)


def tune_detail(request, **kw):
    return HttpResponse("tune_detail: not built yet", status=501)


def tune_list(request, **kw):
    return HttpResponse("tune_list: not built yet", status=501)


def tune_new(request, **kw):
    return HttpResponse("tune_new: not built yet", status=501)


def tune_stop(request, **kw):
    return HttpResponse("tune_stop: not built yet", status=501)
