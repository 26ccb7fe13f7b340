"""Placeholder while the tree grows: replaced by its owner."""
from django.http import HttpResponse
from rest_framework.views import APIView


class WorkersApi(APIView):
    pass


def examples_load(request, **kw):
    return HttpResponse("examples_load: not built yet", status=501)


def health(request, **kw):
    return HttpResponse("health: not built yet", status=501)


def home(request, **kw):
    return HttpResponse("home: not built yet", status=501)


def search(request, **kw):
    return HttpResponse("search: not built yet", status=501)


def workers(request, **kw):
    return HttpResponse("workers: not built yet", status=501)
