"""JSON over HTTP: what can be tuned, and which packages of teams may bring operators."""

from __future__ import annotations

from typing import TypedDict

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from tuner.models import OperatorPackage
from tuner.team import selectors, services
from tuner.tuning.operators import all_operators, find
from workers.list_api import validated


class OperatorsJson(TypedDict):
    operators: list[selectors.OperatorJson]


class OperatorListApi(APIView):
    @extend_schema(operation_id="operators_list", responses=OperatorsJson)
    def get(self, request: Request) -> Response:
        """Every operator that can be tuned: its dimensions, dtypes and presets, and the package it comes from."""
        owner = {operator["name"]: package.name for package in selectors.package_list() for operator in package.operators}
        return Response({"operators": [selectors.operator_json(operator, owner.get(name, ""))
                                       for name, operator in all_operators().items()]})


class WholeOperatorJson(selectors.OperatorJson, selectors.OperatorSpaceJson):
    pass


class OperatorApi(APIView):
    @extend_schema(operation_id="operator_get", responses=WholeOperatorJson, parameters=[
        OpenApiParameter("dtype", str), OpenApiParameter("gpu", str, description="model, whose limits bound the space"),
        OpenApiParameter("M", int, description="and the operator's other dimensions by name; without any, its first preset")])
    def get(self, request: Request, name: str) -> Response:
        """One operator with what a search of it would try: its parameters with their values, how many configurations are valid."""
        operator, query = find(name), request.query_params
        if operator is None:
            raise NotFound(f"choose one of {', '.join(all_operators())}")
        dtype = query.get("dtype") or operator.dtypes[0]
        dims = {dim.name: int(text) if text.isdecimal() and len(text) < 12 else -1
                for dim in operator.dims if (text := query.get(dim.name, ""))}
        shape = dims or dict(operator.presets[0])
        if problems := operator.problems(shape, dtype):
            raise ValidationError({field: [problem] for field, problem in problems.items()})
        space = selectors.space_json(operator, shape, dtype, query.get("gpu", "")[:120])
        return Response({**selectors.operator_json(operator), **space})


class PackageName(serializers.Serializer[None]):
    package = serializers.CharField(max_length=100)


class PackageAuditJson(TypedDict):
    package: str
    what: str
    detail: str
    at: str
    by: str | None


class PackagesJson(TypedDict):
    """Packages that were enabled once, those that living workers have, and what was decided about them."""

    packages: list[selectors.PackageJson]
    on_workers: dict[str, list[selectors.PackageOnWorkerJson]]
    audit: list[PackageAuditJson]


class PackageListApi(APIView):
    write_permission = "tuner.add_operatorpackage"

    @extend_schema(operation_id="operator_packages", responses=PackagesJson)
    def get(self, request: Request) -> Response:
        """Packages that were enabled once, those that living workers have, and what was decided about them."""
        return Response({
            "packages": [selectors.package_json(package) for package in selectors.package_list()],
            "on_workers": selectors.packages_on_workers(),
            "audit": [{"package": row.package, "what": row.what, "detail": row.detail, "at": row.at.isoformat(),
                       "by": row.by.get_username() if row.by else None} for row in selectors.audit_list()]})

    @extend_schema(operation_id="operator_package_enable", request=PackageName, responses={201: selectors.PackageJson})
    def post(self, request: Request) -> Response:
        """Enable a package, or have it described again. Owners only: its code will run on the workers."""
        fields = validated(PackageName, request.data)
        package = services.package_enable(fields["package"], by=request.user)
        return Response(selectors.package_json(package), status=201)


class PackageApi(APIView):
    write_permission = "tuner.delete_operatorpackage"

    @extend_schema(operation_id="operator_package_disable", responses={204: None})
    def delete(self, request: Request, name: str) -> Response:
        """No job starts with it any more; jobs and cached configurations stay."""
        services.package_disable(get_object_or_404(OperatorPackage, name=name), by=request.user)
        return Response(status=204)
