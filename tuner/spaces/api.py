"""JSON over HTTP: the space of a new job, and what an edit of it leaves."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from profiles.base.refused import Refused
from tuner import devices
from tuner.query_api import Checked
from tuner.spaces.own import space_on_device
from tuner.spaces.selectors import SpaceJson, space_answer
from tuner.tuning.measure.landscape import LandscapeError
from tuner.tuning.operators import all_operators, find
from workers.list_api import validated


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
        given = validated(TuneSpaceRequest, request.data)
        operator, shape, dtype, device = find(given["operator"]), given["shape"], given["dtype"], given["device"]
        if operator is None and devices.is_gpu(device):
            raise ValidationError({"operator": [f"choose one of {', '.join(all_operators())}"]})
        if operator is not None and devices.is_gpu(device) and (problems := operator.problems(shape, dtype)):
            raise ValidationError({name: [problem] for name, problem in problems.items()})
        try:
            own = space_on_device(given["operator"], shape, dtype, device)
        except (Refused, LandscapeError) as error:
            raise ValidationError({"device": [str(error)]}) from error
        return Response(space_answer(own, given.get("space")))
