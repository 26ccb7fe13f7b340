"""A profile as the API takes and answers it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.reverse import reverse

from profiles.analysis.trace.breakdown import DeviceTime, StepTime
from profiles.base.answers import ErrorJson, Numbers
from profiles.ingest.trace import Integrity
from profiles.models import Finding, Profile
from profiles.profile import selectors as selectors_profile
from profiles.profile.counted_selectors import counted_in
from profiles.profile.finding_selectors import integrity_mark, rows_once
from profiles.progress import IngestProgressJson
from workers.list_api import Typed
from workers.scope import account_name


@dataclass(frozen=True)
class SummaryDevice(DeviceTime):
    """Where the time of one GPU of a trace went, and which GPU it is."""

    memory_bytes: int | None = None
    label: str = ""                         # of a job of several ranks: whose it is
    compute_capability: str | None = None


class ListedTableJson(TypedDict):
    title: str
    rows: int


class CpuTopJson(TypedDict):
    """The name of most time of its own, of a trace without kernels."""

    name: str
    share_pct: float


class SummaryJson(TypedDict, total=False):
    """What was summed when the file was read, as far as it holds it: of a trace its GPUs and steps, else its tables."""

    start_ns: int
    wall_ns: int
    devices: list[SummaryDevice]
    steps: list[StepTime]
    needed_pct: float
    calculated_occupancy: dict[str, float]          # by kernel, %
    tables: list[ListedTableJson]
    headline: str
    cpu_top: CpuTopJson
    reading: int                                    # version of the reader's analyses
    progress: IngestProgressJson


class FindingSerializer(serializers.ModelSerializer[Finding]):
    numbers = Typed(Numbers)

    class Meta:
        model = Finding
        fields = ("rule", "severity", "title", "advice", "numbers", "worth_ns", "kernel")


class ProfileSerializer(serializers.ModelSerializer[Profile]):
    """A row of the list. `progress` is set while the ingest runs."""

    owner = serializers.SerializerMethodField(help_text="its uploader; null for who reads by a link")
    busy_pct = serializers.SerializerMethodField()
    needed_pct = serializers.SerializerMethodField(
        help_text="of the steps' time, what the work needs at least; null where that is not known or not made yet")
    error = Typed(ErrorJson | None)
    integrity_mark = serializers.SerializerMethodField(help_text="ok, warn or bad, and why; empty while it is not read")
    progress = serializers.SerializerMethodField()
    links = serializers.SerializerMethodField()

    class Meta:
        model = Profile
        fields: tuple[str, ...] = (
            "id", "name", "status", "error", "kind", "format", "build", "model", "tags", "notes", "recorded", "owner",
            "created", "file_name", "upload_bytes", "sha256", "gpu", "steps", "wall_ns", "busy_ns", "busy_pct", "needed_pct",
            "integrity_mark",
            "launches", "gpu_time_ns", "top_kernel", "seconds", "peak_rss_bytes", "stored_bytes", "progress", "links")

    def get_owner(self, profile: Profile) -> str | None:
        return account_name(profile.owner)

    def get_busy_pct(self, profile: Profile) -> float | None:
        return selectors_profile.busy_pct(profile)

    def get_needed_pct(self, profile: Profile) -> float | None:
        return selectors_profile.needed_pct(profile)

    @extend_schema_field(serializers.ListField(child=serializers.CharField()))
    def get_integrity_mark(self, profile: Profile) -> tuple[str, str]:
        return integrity_mark(profile)

    @extend_schema_field(Typed(IngestProgressJson | None))
    def get_progress(self, profile: Profile) -> Any:
        return profile.summary.get("progress") if profile.status == Profile.Status.INGESTING else None

    def get_links(self, profile: Profile) -> dict[str, str]:
        request = self.context.get("request")
        names = {"self": "api-profile", "page": "profile", "kernels": "api-kernels"}
        if profile.kind == Profile.Kind.TRACE:
            names |= {"timeline": "timeline"}
        if profile.kind == Profile.Kind.COUNTERS:
            names |= {"counters": "api-counters", "roofline": "api-roofline"}
        if profile.kind == Profile.Kind.SUMMARY:
            names |= {"tables": "api-tables"}
        return {key: reverse(name, args=[profile.pk], request=request) for key, name in names.items()}


class ProfileDetailSerializer(ProfileSerializer):
    """Everything that was found."""

    summary = Typed(SummaryJson)
    integrity = Typed(Integrity)
    findings = serializers.SerializerMethodField()
    duplicates = serializers.SerializerMethodField()
    counted_in = serializers.SerializerMethodField()

    class Meta(ProfileSerializer.Meta):
        fields = (*ProfileSerializer.Meta.fields, "summary", "integrity", "metadata", "findings", "duplicates", "counted_in")

    @extend_schema_field(FindingSerializer(many=True))
    def get_findings(self, profile: Profile) -> Any:
        return FindingSerializer(rows_once(profile), many=True).data

    def get_duplicates(self, profile: Profile) -> list[int]:
        return list(selectors_profile.duplicates(profile).values_list("pk", flat=True))

    def get_counted_in(self, profile: Profile) -> list[int]:
        """Jobs that hold the same bytes: sums over profiles count those."""
        return [trace.pk for trace in counted_in(profile)]


class UploadSerializer(serializers.Serializer[None]):
    """Multipart form: `file` once or several times."""

    file = serializers.FileField(allow_empty_file=True, required=False)
    name = serializers.CharField(required=False, allow_blank=True, max_length=300)
    build = serializers.CharField(required=False, allow_blank=True, max_length=80)
    model = serializers.CharField(required=False, allow_blank=True, max_length=120)
    tags = serializers.CharField(required=False, allow_blank=True, help_text="Separated by commas or spaces")
    notes = serializers.CharField(required=False, allow_blank=True)
    together = serializers.BooleanField(required=False, default=False, help_text="The files are ranks of one job: one profile")
    written = serializers.DateTimeField(required=False, help_text="When the file was last written: when a log ends whose rows "
                                        "have no time")


class EditSerializer(serializers.Serializer[None]):
    name = serializers.CharField(required=False, max_length=300)
    build = serializers.CharField(required=False, allow_blank=True, max_length=80)
    model = serializers.CharField(required=False, allow_blank=True, max_length=120)
    tags = serializers.ListField(required=False, child=serializers.CharField(max_length=60), max_length=50)
    notes = serializers.CharField(required=False, allow_blank=True)


class NamesSerializer(serializers.Serializer[None]):
    files = serializers.ListField(child=serializers.CharField(max_length=1000), max_length=1000, help_text="Names of files")


class NamesAnswerSerializer(serializers.Serializer[None]):
    ranks = serializers.BooleanField(help_text="The names differ in nothing but the rank")
    job = serializers.CharField(help_text="What the job would be called; empty where the names share nothing", allow_blank=True)


class ApartSerializer(serializers.Serializer[None]):
    profiles = ProfileSerializer(many=True)
