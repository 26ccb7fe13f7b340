"""JSON over HTTP for the client library: snapshots, what was served of them, what Triton's autotuner found, the client's file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from django.http import Http404, HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from profiles.base.answers import Paged, Scalar
from tuner.cache.entries import services as config_services
from tuner.cache.rules import Rule
from tuner.cache.serve import selectors, services
from tuner.texts import paste_text
from tuner.tuning.trial import storable
from workers.list_api import PAGED, read_page, validated

FILES = {"ridgepoint_client.py": "client.py", "ridgepoint_listener.py": "listener.py",      # as a job calls them -> ours
         "ridgepoint_shared.py": "shared.py"}
FOLDER = Path(__file__).resolve().parents[1]
MAX_ROWS, MAX_LAUNCHES = 2000, 10**15
MAX_FOUND, MAX_TIMINGS, MAX_PARAMETERS, MAX_DIMS, MAX_DTYPES = 500, 64, 24, 12, 16
MAX_SHAPE_TEXT = 160             # characters; the column of the bucket that it is rounded to has 200
_NAME_THE_GPU = "name the GPU as its driver does, for example NVIDIA H200"


class SnapshotQuery(serializers.Serializer[None]):
    gpu = serializers.CharField(max_length=120, help_text="as the driver names it",
                                error_messages={"required": _NAME_THE_GPU, "blank": _NAME_THE_GPU})
    compute_capability = serializers.CharField(max_length=8, default="", allow_blank=True,
                                               help_text="where the server's table may not know the GPU")
    sms = serializers.IntegerField(min_value=0, max_value=10_000, default=0,
                                   help_text="as the driver counts them: with fewer than its card has, a GPU is a slice")
    toolkit = serializers.CharField(max_length=80, default="", allow_blank=True, help_text='"cuda 13.0, triton 3.6.0"')
    id = serializers.CharField(max_length=32, default="", allow_blank=True,
                               help_text="a snapshot that stays what it was; without it, the newest")
    verified = serializers.BooleanField(default=False, help_text="serve only what a tune job here proved: no file's, no listener's")
    recorded = serializers.BooleanField(default=False, help_text="with recordings, each marked: the client leaves them out unless "
                                                                 "the job asks for them")
    revoked = serializers.BooleanField(default=False, help_text='{"revoked": entries in quarantine} instead: for kept snapshots, '
                                                                "of the snapshot `id` under `toolkit` where they are told")


class Text(serializers.CharField):
    """A text as it was sent: no number is taken for one, no space is cut. One with NUL is refused."""

    def __init__(self, longest: int) -> None:
        super().__init__(max_length=longest, allow_blank=True, trim_whitespace=False)

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return str(super().to_internal_value(data))


class Name(serializers.RegexField):
    def __init__(self) -> None:
        super().__init__(r"\A[A-Za-z_][A-Za-z0-9_]{0,59}\Z", trim_whitespace=False)


class Whole(serializers.IntegerField):
    """A whole number; neither true nor "1" is one."""

    def to_internal_value(self, data: Any) -> int:
        if isinstance(data, bool) or not isinstance(data, int):
            self.fail("invalid")
        return data


class Milliseconds(serializers.FloatField):
    def to_internal_value(self, data: Any) -> float:
        if isinstance(data, bool) or not isinstance(data, int | float) or not 0 < data < 1e7:
            self.fail("invalid")
        return float(data)


class ServedRow(serializers.Serializer[None]):
    operator = Text(60)
    dtype = Text(16)
    bucket = Text(200)
    rule = serializers.ChoiceField([str(member) for member in Rule])
    entry = Whole(min_value=0, max_value=2**63 - 1, allow_null=True, default=None)
    launches = Whole(min_value=0, max_value=MAX_LAUNCHES)
    asked = Whole(min_value=0, max_value=MAX_LAUNCHES, default=0)

    def validate(self, data: dict[str, Any]) -> dict[str, Any]:
        if not data["launches"] and not data["asked"]:
            raise serializers.ValidationError("a row tells of a launch, or of a question, at least")
        return data


class ServedReport(serializers.Serializer[None]):
    snapshot = serializers.CharField(max_length=32, allow_blank=True)
    gpu = serializers.CharField(max_length=120, allow_blank=True)
    toolkit = serializers.CharField(max_length=80, allow_blank=True)
    host = serializers.CharField(max_length=120, allow_blank=True)
    form = Whole(min_value=1, max_value=2**31 - 1, default=1)       # 2: "exact" is of a launch's own shape, not of its bucket
    served = serializers.ListField(child=ServedRow(), max_length=MAX_ROWS)


class Shape(serializers.DictField):
    """Dimensions with their sizes."""

    child = Whole(min_value=0, max_value=2**40 - 1)

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        _check_names(data, MAX_DIMS)
        shape: dict[str, Any] = super().to_internal_value(data)
        if len(config_services.shape_key(shape)) > MAX_SHAPE_TEXT:
            raise serializers.ValidationError(f"at most {MAX_SHAPE_TEXT} characters in all")
        return shape


class Parameters(serializers.DictField):
    """A configuration: parameters with numbers, truth values or short texts."""

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        _check_names(data, MAX_PARAMETERS)
        values: dict[str, Any] = super().to_internal_value(data)
        for name, entry in values.items():
            fine = isinstance(entry, bool) or (isinstance(entry, str) and len(entry) <= 60 and storable(entry)) or (
                isinstance(entry, int | float) and abs(entry) < 2**40)                   # NaN and Infinity are not
            if not fine:
                raise serializers.ValidationError(f"{name}={str(entry)[:40]!r} is no parameter's value")
        if not values:
            raise serializers.ValidationError("a configuration names a parameter at least")
        return values


class Timings(serializers.ListField):
    """Pairs of a configuration and its time in ms; those beyond the first 64 are left out."""

    def to_internal_value(self, data: Any) -> list[list[Any]]:
        pairs = super().to_internal_value(data[:MAX_TIMINGS] if isinstance(data, list) else data)
        if any(not isinstance(pair, list) or len(pair) != 2 for pair in pairs):
            raise serializers.ValidationError("pairs of a configuration and its time in ms")
        return [[Parameters().run_validation(config), Milliseconds().run_validation(ms)] for config, ms in pairs]


class AutotunerFinding(serializers.Serializer[None]):
    kernel = Text(200)
    name = Text(60)
    shape = Shape()
    config = Parameters()
    median_ms = Milliseconds()
    dtypes = serializers.ListField(child=Text(16))
    variant = serializers.DictField(child=Text(40))
    timings = Timings()
    source_hash = Text(64)
    tried = Whole(min_value=0, max_value=2**31 - 1)
    failed = Whole(min_value=0, max_value=2**31 - 1)

    def validate_dtypes(self, value: list[str]) -> list[str]:
        return value[:MAX_DTYPES]

    def validate_variant(self, value: dict[str, str]) -> dict[str, str]:
        variant = dict(list(value.items())[:MAX_DIMS])
        _check_names(variant, MAX_DIMS)
        return variant


class ListenedReport(serializers.Serializer[None]):
    gpu = serializers.CharField(max_length=120)
    compute_capability = serializers.CharField(max_length=8, default="", allow_blank=True)
    sms = Whole(min_value=0, max_value=10_000, default=0)
    toolkit = serializers.CharField(max_length=80, allow_blank=True)
    host = serializers.CharField(max_length=120, allow_blank=True)
    found = serializers.ListField(child=AutotunerFinding(), max_length=MAX_FOUND)


def _check_names(data: Any, most: int) -> None:
    """Raise ValidationError where an object has more than `most` keys, or one that is no name."""
    if isinstance(data, Mapping):
        if len(data) > most:
            raise serializers.ValidationError(f"at most {most} names")
        for name in data:
            Name().run_validation(name)


class BucketPolicyJson(TypedDict):
    exact_up_to: int
    steps_per_doubling: float
    max_distance: float


class ServedOperatorJson(TypedDict):
    """How launches of an operator are looked up: its dimensions, those that must be equal, values that a file may lack."""

    dims: list[str]
    exact: list[str]
    absent: dict[str, Scalar]
    dtypes: list[str]
    policy: BucketPolicyJson


class ServedEntryJson(TypedDict):
    """An entry; `same`, `home`, `away`: its order among those of its toolkit, its GPU and others, null where it is none of them."""

    id: int
    operator: str
    dtype: str
    bucket: str
    state: str
    origin: str
    recorded: bool
    shape: NotRequired[dict[str, int]]
    same: NotRequired[list[float | str] | None]
    home: list[float | str] | None
    away: list[float | str] | None
    config: dict[str, Scalar]
    library: float | None
    plain: dict[str, Scalar] | None


class HeldEntryJson(TypedDict):
    id: int
    operator: str
    dtype: str
    bucket: str
    why: str


class SnapshotJson(TypedDict):
    """Everything that launches on one GPU are served; the client library reads `entries` and `operators`."""

    version: int
    id: str
    verified: bool
    gpu: str
    compute_capability: str
    toolkit: str
    why: dict[str, str]                         # rule → what it says
    operators: dict[str, ServedOperatorJson]
    entries: list[ServedEntryJson]
    held: list[HeldEntryJson]                   # entries that do not serve, and why


class RevokedJson(TypedDict):
    """Entries in quarantine, in place of a snapshot."""

    revoked: list[int]


class SnapshotApi(APIView):
    @extend_schema(operation_id="configs_snapshot", responses=SnapshotJson | RevokedJson, parameters=[SnapshotQuery])
    def get(self, request: Request) -> HttpResponse:
        """Everything that launches on one GPU are served, the rules applied. Answers 304 to the ETag of the same snapshot."""
        query = validated(SnapshotQuery, request.query_params)
        if query["revoked"]:
            kit = query["toolkit"] if "toolkit" in request.query_params else None
            return Response({"revoked": services.list_revoked(query["id"], kit)}, headers={"Cache-Control": "private, no-cache"})
        name = query["id"] or services.take_snapshot(query["verified"])
        etag = f'"{name}"'
        if request.headers.get("If-None-Match") == etag:
            return HttpResponse(status=304, headers={"ETag": etag})
        document = services.snapshot_view(name, query["gpu"], query["compute_capability"], query["toolkit"], query["sms"],
                                          recorded=query["recorded"])
        if document is None:
            raise NotFound("no such snapshot; leave out id for the newest")
        if query["verified"] and not document.get("verified"):
            raise NotFound("that snapshot holds what is not verified too; leave out id for the newest that does not")
        return Response(document, headers={"ETag": etag, "Cache-Control": "private, no-cache"})


class ServedRowJson(TypedDict):
    """What launches of one bucket were served; `asked`: how often it was only asked for."""

    operator: str
    dtype: str
    shape_bucket: str
    gpu: str
    rule: str
    launches: int
    asked: int
    entry: int | None
    measured_shape: dict[str, int] | None
    state: str | None
    recorded: str
    triton: str | None
    last: str


class ServedListJson(Paged):
    shares: list[selectors.ShareJson]
    served: list[ServedRowJson]


class LaunchesJson(TypedDict):
    launches: int
    asked: int


class ListenedJson(TypedDict):
    entries: list[int]


class ServedApi(APIView):
    write_permission = "tuner.add_servedcount"

    @extend_schema(operation_id="configs_served", responses=ServedListJson,
                   parameters=[OpenApiParameter("days", int, description="of the past, today included; 7 unless told"), *PAGED])
    def get(self, request: Request) -> Response:
        """What launches were served, most first; `asked`: how often it was only asked for, which is in no share."""
        days = request.query_params.get("days", "")
        rows = selectors.launches_since(min(365, max(1, int(days))) if days.isdecimal() and len(days) < 9 else selectors.DAYS)
        page = read_page(request, rows)
        return page.answer({"shares": selectors.rule_shares(rows), "served": [
            {**{name: row[name] for name in ("operator", "dtype", "shape_bucket", "gpu", "rule", "launches", "asked")},
             "entry": row["entry"] or None, "measured_shape": row["cached"].shape if row["cached"] else None,
             "state": row["cached"].state if row["cached"] else None, "recorded": row["cached"].recorded if row["cached"] else "",
             "triton": paste_text(row["cached"].operator, row["cached"].config) if row["cached"] else None,
             "last": row["last"].isoformat()} for row in page.rows]})

    @extend_schema(operation_id="configs_served_report", request=ServedReport, responses=LaunchesJson)
    def post(self, request: Request) -> Response:
        """A client tells what it served since it last told."""
        fields = validated(ServedReport, request.data)
        return Response(services.record_launches(reporter=request.user, rows=fields.pop("served"), **fields))


class ListenedApi(APIView):
    write_permission = "tuner.add_cachedconfig"

    @extend_schema(operation_id="configs_listened", request=ListenedReport, responses=ListenedJson)
    def post(self, request: Request) -> Response:
        """What Triton's autotuner found in a job: entries of their own kind, never above a tune job's."""
        entries = services.record_findings(**validated(ListenedReport, request.data))
        return Response({"entries": [entry.pk for entry in entries]})


class ClientFileApi(APIView):
    @extend_schema(operation_id="configs_client", responses=OpenApiTypes.BINARY)
    def get(self, request: Request, name: str) -> HttpResponse:
        """The client library: one file of the standard library, to put beside a job's own code."""
        if name not in FILES:
            raise Http404
        return HttpResponse((FOLDER / FILES[name]).read_bytes(), content_type="text/x-python; charset=utf-8",
                            headers={"Content-Disposition": f'attachment; filename="{name}"'})
