"""Placeholder while the tree grows: replaced by its owner."""
from django.http import HttpResponse
from rest_framework.views import APIView


class CompareApi(APIView):
    pass


class CounterListApi(APIView):
    pass


class KernelListApi(APIView):
    pass


class ProfileApi(APIView):
    pass


class ProfileListApi(APIView):
    pass


class RooflineApi(APIView):
    pass
