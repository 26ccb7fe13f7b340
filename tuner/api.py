"""Placeholder while the tree grows: replaced by its owner."""
from django.http import HttpResponse
from rest_framework.views import APIView


class ConfigBestApi(APIView):
    pass


class ConfigListApi(APIView):
    pass


class TrialListApi(APIView):
    pass


class TuneApi(APIView):
    pass


class TuneListApi(APIView):
    pass


class TuneStopApi(APIView):
    pass
