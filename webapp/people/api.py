"""People, invitations and one's own sessions over the API."""

from __future__ import annotations

from typing import Any

from allauth.usersessions.models import UserSession
from django.contrib.auth import get_user_model
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from webapp.models import Invitation
from webapp.people import selectors, services
from webapp.people.pages import ADD, CHANGE, VIEW, link_of
from webapp.roles import ROLES
from workers.list_api import MOST, PAGED, read_page, validated


class SeatSerializer(serializers.Serializer[Any]):
    project = serializers.CharField()
    role = serializers.CharField()


class PersonSerializer(serializers.Serializer[Any]):
    """`role`: in the whole installation, empty without one; `ways`: how the person signs in."""

    id = serializers.IntegerField(source="pk")
    name = serializers.CharField()
    email = serializers.CharField()
    role = serializers.CharField()
    superuser = serializers.BooleanField()
    active = serializers.BooleanField()
    last_sign_in = serializers.DateTimeField(allow_null=True)
    ways = serializers.ListField(child=serializers.CharField())
    second_factor = serializers.BooleanField()
    tokens = serializers.IntegerField()
    projects = serializers.SerializerMethodField()

    @extend_schema_field(SeatSerializer(many=True))
    def get_projects(self, person: selectors.Person) -> list[dict[str, str]]:
        return [{"project": slug, "role": role} for slug, role in person.projects]


class ChangeSerializer(serializers.Serializer[Any]):
    role = serializers.ChoiceField(choices=["", *ROLES], required=False)
    active = serializers.BooleanField(required=False)


class InviteSerializer(serializers.Serializer[Any]):
    role = serializers.ChoiceField(choices=list(ROLES))
    project = serializers.CharField(required=False, allow_blank=True, max_length=60, help_text=(
        "its slug; without it the project of the request; “*”: a role in the whole installation, in later projects too"))
    email = serializers.EmailField(required=False, allow_blank=True)
    days = serializers.IntegerField(required=False, default=7, min_value=1, max_value=services.MOST_DAYS)


class InvitationSerializer(serializers.Serializer[Any]):
    id = serializers.IntegerField(source="pk")
    role = serializers.CharField()
    project = serializers.CharField(source="invited_to.slug", default=services.EVERY_PROJECT)
    email = serializers.CharField()
    expires = serializers.DateTimeField()


class InvitedSerializer(InvitationSerializer):
    link = serializers.CharField(help_text="shown this once")


class SessionSerializer(serializers.Serializer[Any]):
    id = serializers.IntegerField(source="pk")
    address = serializers.CharField(source="ip")
    browser = serializers.CharField(source="user_agent")
    since = serializers.DateTimeField(source="created_at")


def need(request: Request, permission: str) -> None:
    if not request.user.has_perm(permission):
        raise PermissionDenied("owners of the installation manage people")


class PeopleApi(APIView):
    @extend_schema(operation_id="people_list", responses=PersonSerializer(many=True),
                   parameters=[OpenApiParameter("q", str), *PAGED])
    def get(self, request: Request) -> Response:
        """Everybody, by name; owners of the installation ask. `Link` names the next page."""
        need(request, VIEW)
        page = read_page(request, selectors.people_rows(request.query_params.get("q", "").strip()), MOST)
        return page.answer_rows(PersonSerializer(selectors.described(page.rows), many=True).data)


class PersonApi(APIView):
    write_permission = CHANGE

    @extend_schema(operation_id="people_get", responses=PersonSerializer)
    def get(self, request: Request, pk: int) -> Response:
        need(request, VIEW)
        return Response(self._json(get_object_or_404(get_user_model(), pk=pk)))

    @extend_schema(operation_id="people_update", request=ChangeSerializer, responses=PersonSerializer)
    def patch(self, request: Request, pk: int) -> Response:
        """Give another role, deactivate, let in again."""
        row = changeable(request, pk)
        fields = validated(ChangeSerializer, request.data)
        if "role" in fields:
            services.person_role(row, fields["role"])
        if "active" in fields:
            services.person_active(row, fields["active"])
        return Response(self._json(row))

    def _json(self, row: Any) -> Any:
        return PersonSerializer(selectors.people(pks=[row.pk])[0]).data


class SignOutApi(APIView):
    write_permission = CHANGE

    @extend_schema(operation_id="people_sign_out", request=None, responses={200: dict[str, int]})
    def post(self, request: Request, pk: int) -> Response:
        """End every session of a person; tokens stay."""
        return Response({"ended": services.sessions_end(changeable(request, pk))})


class InvitationsApi(APIView):
    write_permission = ADD

    @extend_schema(operation_id="invitations_list", responses=InvitationSerializer(many=True), parameters=PAGED)
    def get(self, request: Request) -> Response:
        """Those that can still be accepted. `Link` names the next page."""
        need(request, ADD)
        page = read_page(request, selectors.invitations(), MOST)
        return page.answer_rows(InvitationSerializer(page.rows, many=True).data)

    @extend_schema(operation_id="invitations_create", request=InviteSerializer, responses={201: InvitedSerializer})
    def post(self, request: Request) -> Response:
        """Make a link that makes one account."""
        fields = validated(InviteSerializer, request.data)
        seat = request._request.seat        # type: ignore[attr-defined]
        project = services.invited_to(fields.pop("project", ""), seat and seat.pk)
        row, secret = services.invite(request.user, project=project, **fields)
        return Response({**InvitationSerializer(row).data, "link": link_of(request._request, secret)}, status=201)


class InvitationApi(APIView):
    write_permission = ADD

    @extend_schema(operation_id="invitations_revoke", responses={204: None})
    def delete(self, request: Request, pk: int) -> Response:
        get_object_or_404(Invitation, pk=pk, used=None).delete()
        return Response(status=204)


class SessionsApi(APIView):
    @extend_schema(operation_id="sessions_list", responses=SessionSerializer(many=True))
    def get(self, request: Request) -> Response:
        """Where one is signed in oneself."""
        return Response(SessionSerializer(selectors.sessions(request.user), many=True).data)


class SessionApi(APIView):
    @extend_schema(operation_id="sessions_end", responses={204: None})
    def delete(self, request: Request, pk: int) -> Response:
        """End one of one's own sessions."""
        services.session_end(get_object_or_404(UserSession, pk=pk, user=request.user.pk))
        return Response(status=204)

    def check_permissions(self, request: Request) -> None:
        """Everybody ends their own."""
        if not request.user.is_authenticated:
            self.permission_denied(request)


def changeable(request: Request, pk: int) -> Any:
    row = get_object_or_404(get_user_model(), pk=pk)
    if not services.may_change(request.user, row):
        raise PermissionDenied("only a superuser changes a superuser")
    return row
