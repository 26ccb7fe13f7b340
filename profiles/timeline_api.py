"""Placeholder while the tree grows: replaced by its owner."""
from django.http import HttpResponse
from rest_framework.views import APIView


class NamesApi(APIView):
    pass


class SelectionApi(APIView):
    pass


class SliceApi(APIView):
    pass


class SliceSearchApi(APIView):
    pass


class TileApi(APIView):
    pass


class TimelineApi(APIView):
    pass
