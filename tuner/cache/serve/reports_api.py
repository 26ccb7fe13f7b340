"""What clients may ask and report: a snapshot, rows of what was served, and what Triton's autotuner found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rest_framework import serializers

from tuner.cache.entries import services as config_services
from tuner.cache.rules import Rule
from tuner.tuning.trial import storable

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
    rule = serializers.ChoiceField([str(each) for each in Rule])
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
        for name, each in values.items():
            fine = isinstance(each, bool) or (isinstance(each, str) and len(each) <= 60 and storable(each)) or (
                isinstance(each, int | float) and abs(each) < 2**40)                   # NaN and Infinity are not
            if not fine:
                raise serializers.ValidationError(f"{name}={str(each)[:40]!r} is no parameter's value")
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
