"""JSON over HTTP: destinations of notifications, and their deliveries."""

from __future__ import annotations

from typing import TypedDict

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from tuner.gate.channels import selectors, sending_services, services
from tuner.gate.channels.kinds import KINDS
from tuner.models import Delivery, Notified
from workers.list_api import validated


class PlaceRequest(serializers.Serializer[None]):
    kind = serializers.ChoiceField(choices=list(KINDS))
    address = serializers.CharField(max_length=500)
    secret = serializers.CharField(max_length=120, required=False, allow_blank=True, help_text="webhooks; left out: we make one")
    suite = serializers.CharField(max_length=60, required=False, allow_blank=True, allow_null=True, help_text="left out: all")
    verdicts = serializers.ListField(child=serializers.ChoiceField(choices=services.EVENTS), required=False,
                                     max_length=len(services.EVENTS), help_text="left out: SLOWER and REGRESSION")


class PlaceChange(serializers.Serializer[None]):
    enabled = serializers.BooleanField(required=False)
    verdicts = serializers.ListField(child=serializers.ChoiceField(choices=services.EVENTS), required=False,
                                     max_length=len(services.EVENTS))


class PlacesJson(TypedDict):
    """Places, the newest messages, and what stands in their way."""

    places: list[selectors.PlaceJson]
    deliveries: list[selectors.DeliveryJson]
    mail_server: bool
    public_url: str
    private_addresses: bool
    worker: bool


class NewPlaceJson(selectors.PlaceJson):
    secret: str                         # of a webhook, this once


class PlaceListApi(APIView):
    write_permission = "tuner.add_notified"

    @extend_schema(operation_id="notified_list", responses=PlacesJson)
    def get(self, request: Request) -> Response:
        """Places, the newest messages, and what stands in their way."""
        whole = request.user.has_perm("tuner.change_notified")
        outlook = selectors.sending_conditions()
        return Response({"places": [selectors.destination_json(row, whole) for row in selectors.list_destinations()],
                         "deliveries": [selectors.delivery_json(row, whole) for row in selectors.newest_deliveries()],
                         "mail_server": not outlook["mail_files"], "public_url": outlook["public_url"],
                         "private_addresses": outlook["private_allowed"], "worker": outlook["worker"]})

    @extend_schema(operation_id="notified_create", request=PlaceRequest, responses={201: NewPlaceJson})
    def post(self, request: Request) -> Response:
        """Tell one more place. The answer holds the secret of a webhook: it is shown this once."""
        row = services.add_destination(author=request.user, **validated(PlaceRequest, request.data))
        return Response({**selectors.destination_json(row, whole=True), "secret": services.secret_of(row)},
                        status=201)


class WholePlaceJson(selectors.PlaceJson):
    deliveries: list[selectors.DeliveryJson]


class PlaceApi(APIView):
    write_permission = {"PATCH": "tuner.change_notified", "DELETE": "tuner.delete_notified"}

    @extend_schema(operation_id="notified_get", responses=WholePlaceJson)
    def get(self, request: Request, pk: int) -> Response:
        row = get_object_or_404(Notified.objects.select_related("suite"), pk=pk)
        whole = request.user.has_perm("tuner.change_notified")
        return Response({**selectors.destination_json(row, whole), "deliveries": [
            selectors.delivery_json(delivery, whole) for delivery in selectors.newest_deliveries(row.pk)]})

    @extend_schema(operation_id="notified_change", request=PlaceChange, responses=selectors.PlaceJson)
    def patch(self, request: Request, pk: int) -> Response:
        row = get_object_or_404(Notified.objects.select_related("suite"), pk=pk)
        row = services.change_destination(row, **validated(PlaceChange, request.data))
        return Response(selectors.destination_json(row, whole=True))

    @extend_schema(operation_id="notified_delete", responses={204: None})
    def delete(self, request: Request, pk: int) -> Response:
        """With its messages."""
        get_object_or_404(Notified, pk=pk).delete()
        return Response(status=204)


class PlaceTestApi(APIView):
    write_permission = "tuner.change_notified"

    @extend_schema(operation_id="notified_test", request=None, responses={201: selectors.DeliveryJson})
    def post(self, request: Request, pk: int) -> Response:
        """Sends a message that says that it is a test; follow it in the list."""
        delivery = services.send_test(get_object_or_404(Notified, pk=pk), request.user.get_username())
        return Response(selectors.delivery_json(delivery, whole=True), status=201)


class DeliveryAgainApi(APIView):
    write_permission = "tuner.change_notified"

    @extend_schema(operation_id="notified_again", request=None, responses=selectors.DeliveryJson)
    def post(self, request: Request, pk: int) -> Response:
        """Tries a message again, from the first wait on."""
        row = get_object_or_404(Delivery.objects.select_related("to"), pk=pk)
        started = sending_services.retry_delivery(row)
        row.refresh_from_db()
        return Response(selectors.delivery_json(row, whole=True), status=200 if started else 409)
