"""JSON over HTTP: who is told of verdicts, and what became of each message."""

from __future__ import annotations

from typing import Any

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiTypes, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from tuner.gates.refusal_services import GateRefused
from tuner.models import Delivery, Notified
from tuner.notify import selectors as notify_selectors
from tuner.notify import sending_services
from tuner.notify import services as notify_services

JSON = OpenApiTypes.OBJECT


class PlaceRequest(serializers.Serializer):
    kind = serializers.ChoiceField(choices=Notified.Kind.values)
    address = serializers.CharField(max_length=500)
    secret = serializers.CharField(max_length=120, required=False, allow_blank=True, help_text="webhooks; left out: we make one")
    suite = serializers.CharField(max_length=60, required=False, allow_blank=True, allow_null=True, help_text="left out: all")
    verdicts = serializers.ListField(child=serializers.ChoiceField(choices=notify_selectors.EVENTS), required=False,
                                     max_length=len(notify_selectors.EVENTS), help_text="left out: SLOWER and REGRESSION")



class PlaceChange(serializers.Serializer):
    enabled = serializers.BooleanField(required=False)
    verdicts = serializers.ListField(child=serializers.ChoiceField(choices=notify_selectors.EVENTS), required=False,
                                     max_length=len(notify_selectors.EVENTS))


class PlaceListApi(APIView):
    write_permission = "tuner.add_notified"

    @extend_schema(operation_id="notified_list", responses=JSON)
    def get(self, request: Request) -> Response:
        """Places, the newest messages, and what stands in their way."""
        whole = request.user.has_perm("tuner.change_notified")
        outlook = notify_selectors.outlook()
        return Response({"places": [notify_selectors.place_json(row, whole) for row in notify_selectors.places()],
                         "deliveries": [notify_selectors.delivery_json(row, whole) for row in notify_selectors.deliveries()],
                         "mail_server": not outlook["mail_files"], "public_url": outlook["public_url"],
                         "private_addresses": outlook["private_allowed"], "worker": outlook["worker"]})

    @extend_schema(operation_id="notified_create", request=PlaceRequest, responses={201: JSON})
    def post(self, request: Request) -> Response:
        """Tell one more place. The answer holds the secret of a webhook: it is shown this once."""
        asked = PlaceRequest(data=request.data)
        asked.is_valid(raise_exception=True)
        row = _or_refused(notify_services.notified_create, author=request.user, **asked.validated_data)
        return Response({**notify_selectors.place_json(row, whole=True), "secret": notify_services.secret_of(row)}, status=201)


class PlaceApi(APIView):
    write_permission = {"PATCH": "tuner.change_notified", "DELETE": "tuner.delete_notified"}

    @extend_schema(operation_id="notified_get", responses=JSON)
    def get(self, request: Request, pk: int) -> Response:
        row = get_object_or_404(Notified.objects.select_related("suite"), pk=pk)
        whole = request.user.has_perm("tuner.change_notified")
        return Response({**notify_selectors.place_json(row, whole), "deliveries": [
            notify_selectors.delivery_json(each, whole) for each in notify_selectors.deliveries(row.pk)]})

    @extend_schema(operation_id="notified_change", request=PlaceChange, responses=JSON)
    def patch(self, request: Request, pk: int) -> Response:
        row = get_object_or_404(Notified.objects.select_related("suite"), pk=pk)
        asked = PlaceChange(data=request.data)
        asked.is_valid(raise_exception=True)
        row = _or_refused(notify_services.notified_change, row, **asked.validated_data)
        return Response(notify_selectors.place_json(row, whole=True))

    @extend_schema(operation_id="notified_delete", responses={204: None})
    def delete(self, request: Request, pk: int) -> Response:
        """With its messages."""
        notify_services.notified_delete(get_object_or_404(Notified, pk=pk))
        return Response(status=204)


class PlaceTestApi(APIView):
    write_permission = "tuner.change_notified"

    @extend_schema(operation_id="notified_test", request=None, responses={201: JSON})
    def post(self, request: Request, pk: int) -> Response:
        """Sends a message that says that it is a test; follow it in the list."""
        delivery = notify_services.notified_test(get_object_or_404(Notified, pk=pk), request.user.get_username())
        return Response(notify_selectors.delivery_json(delivery, whole=True), status=201)


class DeliveryAgainApi(APIView):
    write_permission = "tuner.change_notified"

    @extend_schema(operation_id="notified_again", request=None, responses=JSON)
    def post(self, request: Request, pk: int) -> Response:
        """Tries a message again, from the first wait on."""
        row = get_object_or_404(Delivery.objects.select_related("to"), pk=pk)
        started = sending_services.delivery_again(row)
        row.refresh_from_db()
        return Response(notify_selectors.delivery_json(row, whole=True), status=200 if started else 409)


def _or_refused(service: Any, *arguments: Any, **named: Any) -> Notified:
    try:
        row: Notified = service(*arguments, **named)
    except GateRefused as refused:
        raise ValidationError({name: [what] for name, what in refused.fields.items()}) from refused
    return row
