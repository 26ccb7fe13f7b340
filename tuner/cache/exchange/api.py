"""JSON over HTTP: files in and out of the cache, portability, and bucket policies."""

from __future__ import annotations

from typing import TypedDict

from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from profiles.base.answers import Paged, make_answer, plain
from tuner.cache.buckets import Buckets
from tuner.cache.entries import portability_selectors, services
from tuner.cache.exchange import export_selectors
from tuner.cache.exchange import services as exchange_services
from tuner.cache.exchange.forms import ImportForm
from tuner.cache.exchange.pages import asks_recordings, download_response
from tuner.cache.formats import FORMATS, Format
from tuner.cache.formats.document import FormatError
from tuner.models import ImportedFile, TuneJob
from tuner.tuning import operators
from workers.list_api import PAGED, read_page, validated

LIST_LIMIT = 200


class PortabilityApi(APIView):
    @extend_schema(operation_id="configs_portability", responses=portability_selectors.MatricesJson,
                   parameters=[OpenApiParameter("operator", str)])
    def get(self, request: Request) -> Response:
        """GPU × GPU and toolkit × toolkit: what the winner of one reaches on the other, and the transfers behind each cell."""
        return Response(portability_selectors.matrices(request.query_params.get("operator", "")))


class BucketRequest(serializers.Serializer[None]):
    """A bucket policy."""

    operator = serializers.CharField(max_length=60)
    exact_up_to = serializers.IntegerField()
    steps_per_doubling = serializers.FloatField()
    max_distance = serializers.FloatField()


class SetBucketsJson(portability_selectors.BucketsJson):
    moved: int                  # entries whose bucket has another name now


class BucketsApi(APIView):
    write_permission = "tuner.change_bucketpolicy"

    @extend_schema(operation_id="configs_buckets", responses=portability_selectors.BucketsJson,
                   parameters=[OpenApiParameter("operator", str, required=True)])
    def get(self, request: Request) -> Response:
        """How an operator's shapes are rounded, and what that and every other policy cost where it was measured."""
        return Response(portability_selectors.bucket_report(_operator(request.query_params.get("operator", ""))))

    @extend_schema(operation_id="configs_buckets_set", request=BucketRequest, responses=SetBucketsJson)
    def put(self, request: Request) -> Response:
        fields = validated(BucketRequest, request.data)
        try:
            policy = Buckets.from_json(fields)
        except ValueError as error:
            raise ValidationError({"policy": [str(error)]}) from error
        name = _operator(fields["operator"])
        moved = services.policy_set(name, policy, request.user)
        return Response({**portability_selectors.bucket_report(name), "moved": moved})


def _operator(name: str) -> str:
    names = [*operators.all_operators(), *portability_selectors.operator_names()]
    if name not in names:
        raise ValidationError({"operator": [f"choose one of {', '.join(dict.fromkeys(names))}"]})
    return name


class ImportJson(TypedDict):
    """A file that was brought; `refused`: why kernels were not taken → how many; `cached`: entries that came of it."""

    id: int
    name: str
    format: str
    sha256: str
    size_bytes: int
    operator: str
    dtype: str
    shape: dict[str, int]
    gpu: str
    toolkit: str
    entries: int
    refused: dict[str, int]
    n_trials: int
    best_ms: float | None
    created: str
    cached: list[int]


class ImportsJson(Paged):
    files: list[ImportJson]
    formats: dict[str, Format]


class ImportApi(APIView):
    write_permission = "tuner.add_importedfile"
    parser_classes = [MultiPartParser]

    @extend_schema(operation_id="configs_imports", responses=ImportsJson, parameters=PAGED)
    def get(self, request: Request) -> Response:
        """Files that were brought, newest first, and the formats that are read and written."""
        page = read_page(request, ImportedFile.objects.defer("tested"), LIST_LIMIT)
        return page.answer({"files": [import_json(file) for file in page.rows],
                            "formats": {name: plain(file_format) for name, file_format in FORMATS.items()}})

    @extend_schema(operation_id="configs_import", request={"multipart/form-data": OpenApiTypes.OBJECT},
                   responses={201: ImportJson})
    def post(self, request: Request) -> Response:
        """A file, and as fields what it does not say: format, operator, dtype, gpu, toolkit, shape ("K=4096")."""
        form = ImportForm(request.data, request.FILES)
        if not form.is_valid():
            raise ValidationError({name: [str(message) for message in errors] for name, errors in form.errors.items()})
        sent = form.cleaned_data["file"]
        try:
            if sent.size > exchange_services.MAX_BYTES:
                raise FormatError(sent.name, f"holds more than {exchange_services.MAX_BYTES // 2**20} MiB")
            file = exchange_services.import_file(owner=request.user, name=sent.name, data=sent.read(),
                                                 format=form.cleaned_data["format"], hints=form.hints)
        except FormatError as error:
            raise ValidationError({"file": [str(error)]}) from error
        return Response(import_json(file), status=201)


def import_json(file: ImportedFile) -> ImportJson:
    return make_answer(ImportJson, file, cached=list(file.cached.values_list("pk", flat=True)[:500]))


class ExportApi(APIView):
    @extend_schema(operation_id="configs_export", responses={(200, "application/octet-stream"): OpenApiTypes.BINARY}, parameters=[
        *(OpenApiParameter(name, str) for name in ("as", "operator", "gpu", "dtype", "state", "K", "topk")),
        OpenApiParameter("recorded", bool, description="recordings too")])
    def get(self, request: Request) -> HttpResponse:
        """The chosen entries as another project's file, or a zip of several."""
        try:
            query = request.query_params
            return download_response(export_selectors.export_entries(query.get("as", ""), query, asks_recordings(query)))
        except FormatError as error:
            raise ValidationError({"format": [str(error)]}) from error


class TrialsExportApi(APIView):
    @extend_schema(operation_id="tune_export", responses={(200, "application/json"): OpenApiTypes.BINARY})
    def get(self, request: Request, pk: int, kind: str) -> HttpResponse:
        """Every trial of a job as T4 results or a Kernel Tuner cache."""
        try:
            return download_response(export_selectors.export_trials(kind, get_object_or_404(TuneJob, pk=pk)))
        except FormatError as error:
            raise ValidationError({"format": [str(error)]}) from error
