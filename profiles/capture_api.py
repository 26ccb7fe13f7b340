"""Placeholder while the tree grows: replaced by its owner."""
from django.http import HttpResponse
from rest_framework.views import APIView


class CaptureApi(APIView):
    pass


class CaptureListApi(APIView):
    pass


class CaptureStopApi(APIView):
    pass
