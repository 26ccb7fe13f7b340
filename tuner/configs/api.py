"""JSON over HTTP: the configurations that launches are served."""

from __future__ import annotations

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from tuner.configs import selectors
from tuner.operators import OPERATORS

JSON = OpenApiTypes.OBJECT
LIST_LIMIT = 5000


class ConfigListApi(APIView):
    @extend_schema(operation_id="configs_list", responses=JSON, parameters=[
        OpenApiParameter("operator", str), OpenApiParameter("gpu", str), OpenApiParameter("dtype", str)])
    def get(self, request: Request) -> Response:
        entries = selectors.config_list()
        for name in ("operator", "gpu", "dtype"):
            if request.query_params.get(name):
                entries = entries.filter(**{name: request.query_params[name]})
        return Response({"configs": [selectors.config_json(entry) for entry in entries[:LIST_LIMIT]]})


class ConfigBestApi(APIView):
    """?operator=matmul&dtype=bf16&gpu=NVIDIA H200&M=4096&N=4096&K=4096[&toolkit=cuda 13.0, triton 3.6.0]"""

    @extend_schema(operation_id="configs_best", responses=JSON, parameters=[
        OpenApiParameter("operator", str, required=True), OpenApiParameter("gpu", str, required=True),
        OpenApiParameter("dtype", str), OpenApiParameter("toolkit", str),
        OpenApiParameter("M", int, description="and the operator's other dimensions by name")])
    def get(self, request: Request) -> Response:
        """The configuration that a launch gets, and which rule served it."""
        query = request.query_params
        operator = OPERATORS.get(query.get("operator", ""))
        if operator is None:
            raise ValidationError({"operator": [f"choose one of {', '.join(OPERATORS)}"]})
        if not query.get("gpu"):
            raise ValidationError({"gpu": ["name the GPU as its driver does, for example NVIDIA H200"]})
        dtype = query.get("dtype") or operator.dtypes[0]
        shape = {dim.name: _dimension(query.get(dim.name)) for dim in operator.dims}
        problems = operator.problems(shape, dtype)
        if problems:
            raise ValidationError({name: [problem] for name, problem in problems.items()})
        return Response(selectors.config_best(operator.name, dtype, query["gpu"], shape, query.get("toolkit", "")))


def _dimension(text: str | None) -> int:
    """-1 is no dimension of any operator: the operator's own check then says what would be valid."""
    return int(text) if text and text.lstrip("-").isdecimal() and len(text) < 12 else -1
