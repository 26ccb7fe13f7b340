"""What a new job would meet, asked while somebody fills in its form: what is wrong, and the state of its queue."""

from __future__ import annotations

from typing import TypedDict

from django.core.exceptions import SuspiciousOperation
from django.http import QueryDict
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from profiles.base.answers import make_answer
from tuner.jobs import new_services
from tuner.jobs.forms import at_fields, job_form
from workers.list_api import validated

MAX_FORM_CHARACTERS = 100_000


class TuneCheckRequest(serializers.Serializer[None]):
    form = serializers.CharField(max_length=MAX_FORM_CHARACTERS, help_text="the form's fields, as a browser would send them")


class OutlookJson(TypedDict):
    """What a job would meet that is queued now; `why_not`: no living worker can take it."""

    why_not: str
    ahead: int
    running: int
    idle: int
    text: str


class TuneCheckJson(TypedDict):
    """`fields`: name → what is wrong; `queue`: what the job would meet."""

    fields: dict[str, str]
    jobs: int
    queue: OutlookJson | None


class TuneCheckApi(APIView):
    write_permission = "tuner.add_tunejob"

    @extend_schema(operation_id="tune_check", request=TuneCheckRequest, responses=TuneCheckJson, parameters=[
        OpenApiParameter("profile", int, description="whose hot shapes the form offers")])
    def post(self, request: Request) -> Response:
        """`fields`: name -> what is wrong; `queue`: what the job would meet. Nothing is made."""
        body = validated(TuneCheckRequest, request.data)
        hot = None
        if text := request.query_params.get("profile"):
            pair = new_services.profile_problems(text)
            if pair is None:
                raise ValidationError({"profile": ["there is no such profile"]})
            hot = pair[1]
        try:
            typed = QueryDict(body["form"])
        except SuspiciousOperation as error:                # more fields than DATA_UPLOAD_MAX_NUMBER_FIELDS
            raise ValidationError({"form": [str(error)]}) from error
        form = job_form(new_services.device_choices(), hot, typed)
        wrong = {name: " ".join(map(str, errors)) for name, errors in form.errors.items()}
        fields, queue = form.cleaned_data, None
        problems = new_services.asked_problems(fields, hot)
        if not wrong:
            wrong = at_fields(form, new_services.asked_errors(problems, fields))
        if fields.get("device"):
            outlook = new_services.asked_outlook(problems, fields["device"])
            queue = make_answer(OutlookJson, outlook)
        return Response({"fields": wrong, "jobs": len(problems), "queue": queue})
