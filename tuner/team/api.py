"""JSON over HTTP: what can be tuned, and which packages of teams may bring operators."""

from __future__ import annotations

from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from tuner.models import OperatorPackage
from tuner.operators import all_operators
from tuner.team import selectors, services

JSON = OpenApiTypes.OBJECT


class OperatorListApi(APIView):
    @extend_schema(operation_id="operators_list", responses=JSON)
    def get(self, request: Request) -> Response:
        """Every operator that can be tuned: its dimensions, dtypes and presets, and the package it comes from."""
        owner = {each["name"]: package.name for package in selectors.package_list() for each in package.operators}
        return Response({"operators": [selectors.operator_json(operator, owner.get(name, ""))
                                       for name, operator in all_operators().items()]})


class PackageName(serializers.Serializer[None]):
    package = serializers.CharField(max_length=100)


class PackageListApi(APIView):
    write_permission = "tuner.add_operatorpackage"

    @extend_schema(operation_id="operator_packages", responses=JSON)
    def get(self, request: Request) -> Response:
        """Packages that were enabled once, those that living workers have, and what was decided about them."""
        return Response({
            "packages": [selectors.package_json(package) for package in selectors.package_list()],
            "on_workers": selectors.packages_on_workers(),
            "audit": [{"package": row.package, "what": row.what, "detail": row.detail, "at": row.at.isoformat(),
                       "by": row.by.get_username() if row.by else None} for row in selectors.audit_list()]})

    @extend_schema(operation_id="operator_package_enable", request=PackageName, responses={201: JSON})
    def post(self, request: Request) -> Response:
        """Enable a package, or have it described again. Owners only: its code will run on the workers."""
        asked = PackageName(data=request.data)
        asked.is_valid(raise_exception=True)
        try:
            package = services.package_enable(asked.validated_data["package"], by=request.user)
        except services.PackageRefused as refused:
            raise ValidationError({"package": [str(refused)]}) from refused
        return Response(selectors.package_json(package), status=201)


class PackageApi(APIView):
    write_permission = "tuner.delete_operatorpackage"

    @extend_schema(operation_id="operator_package_disable", responses={204: None})
    def delete(self, request: Request, name: str) -> Response:
        """No job starts with it any more; jobs and cached configurations stay."""
        services.package_disable(get_object_or_404(OperatorPackage, name=name), by=request.user)
        return Response(status=204)
