"""JSON over HTTP: the space of a new job, and what an edit of it leaves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from profiles.base.answers import Scalar, make_answer
from profiles.base.refused import Refused
from tuner import devices
from tuner.query_api import Checked
from tuner.spaces.edit import Edit, EditedSpaceJson, OwnSpace, count_edited, edit_text, has_default, read_edit
from tuner.spaces.own import space_on_device
from tuner.tuning.measure.landscape import LandscapeError
from tuner.tuning.operators import all_operators, find
from workers.list_api import validated

UNEDITED: dict[str, Any] = {"parameters": {}, "constraints": []}


class SpaceParameterJson(TypedDict):
    """`takes`: what it takes beside its own values, where the operator says."""

    name: str
    values: list[Scalar]
    takes: NotRequired[str]


class LeftOutReasonJson(TypedDict):
    """How many configurations a constraint leaves out; `yours`: it is one of the edit's."""

    reason: str
    count: int
    yours: bool


class CountedJson(TypedDict):
    size: int | None
    valid: int | None
    whole: bool
    space: EditedSpaceJson | None
    left_out: list[LeftOutReasonJson]
    text: str
    has_default: bool | None


class SpaceJson(CountedJson):
    """An operator's own space and the count of the edited one; `fields`: what is wrong with it, then nothing is counted."""

    operator: str
    gpu: str
    names: list[str]
    fixed: str
    fields: dict[str, str]
    unknown: str
    parameters: list[SpaceParameterJson]


def space_answer(own: OwnSpace, given: Any) -> SpaceJson:
    """Return the own space and the count of the edited one; `fields`: what is wrong with it, then nothing is counted."""
    answer: SpaceJson = {
        "operator": own.operator, "gpu": own.gpu, "names": sorted(own.names), "fixed": own.fixed, "fields": {}, "size": None,
        "valid": None, "whole": True, "left_out": [], "text": "", "space": None, "has_default": None, "unknown": own.unknown,
        "parameters": [make_answer(SpaceParameterJson, param, **_takes(own, param.name)) for param in own.params]}
    try:
        edit = read_edit(UNEDITED if given is None else given, own)
        if own.unknown:
            return answer
        return {**answer, **_counted(own, edit)}
    except Refused as refused:
        return {**answer, "fields": refused.fields}


def _takes(own: OwnSpace, name: str) -> dict[str, str]:
    """Return {"takes": what a parameter takes beside its own values, "" nothing}; {} where the operator does not say."""
    return {"takes": own.takes[name]} if name in own.takes else {}


def _counted(own: OwnSpace, edit: Edit) -> CountedJson:
    counted = count_edited(own, edit)
    left_out: Mapping[str, int] = counted.left_out
    return {"size": counted.size, "valid": counted.valid, "whole": counted.whole, "space": edit.as_json() if edit else None,
            "left_out": [{"reason": reason, "count": count, "yours": reason in edit.constraints}
                         for reason, count in sorted(left_out.items(), key=lambda item: -item[1])],
            "text": edit_text(edit.as_json()) if edit else "", "has_default": has_default(own, edit)}


class TuneSpaceRequest(serializers.Serializer[None]):
    """A problem, and an edit of its space."""

    operator = serializers.CharField(max_length=60)
    shape = Checked(lambda given: isinstance(given, dict), "an object: dimension → size")
    dtype = serializers.CharField(max_length=16)
    device = serializers.CharField(max_length=120, default=devices.GPU)
    space = Checked(lambda given: isinstance(given, dict), 'an object of "parameters" and "constraints"', required=False)


class TuneSpaceApi(APIView):
    write_permission = "tuner.add_tunejob"

    @extend_schema(operation_id="tune_space", request=TuneSpaceRequest, responses=SpaceJson)
    def post(self, request: Request) -> Response:
        """What a job would search: the operator's parameters with their values, and how many configurations of the edited space can
        run. `fields`: what is wrong with the edit; `whole` false: counting ended early, `valid` is at least that many. Nothing is
        stored."""
        fields = validated(TuneSpaceRequest, request.data)
        operator, shape, dtype, device = find(fields["operator"]), fields["shape"], fields["dtype"], fields["device"]
        if operator is None and devices.is_gpu(device):
            raise ValidationError({"operator": [f"choose one of {', '.join(all_operators())}"]})
        if operator is not None and devices.is_gpu(device) and (problems := operator.problems(shape, dtype)):
            raise ValidationError({name: [problem] for name, problem in problems.items()})
        try:
            own = space_on_device(fields["operator"], shape, dtype, device)
        except (Refused, LandscapeError) as error:
            raise ValidationError({"device": [str(error)]}) from error
        return Response(space_answer(own, fields.get("space")))
