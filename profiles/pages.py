"""Placeholder while the tree grows: replaced by its owner."""
from django.http import HttpResponse
from rest_framework.views import APIView


def build_list(request, **kw):
    return HttpResponse("build_list: not built yet", status=501)


def compare(request, **kw):
    return HttpResponse("compare: not built yet", status=501)


def kernel_detail(request, **kw):
    return HttpResponse("kernel_detail: not built yet", status=501)


def kernel_list(request, **kw):
    return HttpResponse("kernel_list: not built yet", status=501)


def profile_delete(request, **kw):
    return HttpResponse("profile_delete: not built yet", status=501)


def profile_detail(request, **kw):
    return HttpResponse("profile_detail: not built yet", status=501)


def profile_list(request, **kw):
    return HttpResponse("profile_list: not built yet", status=501)


def profile_upload(request, **kw):
    return HttpResponse("profile_upload: not built yet", status=501)


def roofline(request, **kw):
    return HttpResponse("roofline: not built yet", status=501)


def timeline(request, **kw):
    return HttpResponse("timeline: not built yet", status=501)
