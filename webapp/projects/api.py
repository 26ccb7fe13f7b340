"""Projects and their members over the API."""

from __future__ import annotations

from typing import Any

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.exceptions import NotFound, PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from profiles.base.refused import Refused
from webapp.models import Membership, Project
from webapp.projects import selectors, services
from webapp.projects.request import seat_take
from webapp.roles import ROLES
from workers.list_api import MOST, PAGED, read_page, validated


class ProjectSerializer(serializers.ModelSerializer[Project]):
    """`slug` is in its addresses, /p/<slug>/."""

    class Meta:
        model = Project
        fields = ["slug", "name", "created"]
        read_only_fields = ["slug", "created"]


class MemberSerializer(serializers.Serializer[Any]):
    """A person by user name."""

    person = serializers.CharField(source="user.username", max_length=150)
    role = serializers.ChoiceField(choices=list(ROLES))


class ProjectsApi(APIView):
    """The projects that the person, or the token, may open; owners of the installation make them."""

    write_permission = "webapp.add_project"

    @extend_schema(responses=ProjectSerializer(many=True))
    def get(self, request: Request) -> Response:
        """List them."""
        return Response(ProjectSerializer(selectors.project_rows(_access(request).seats), many=True).data)

    @extend_schema(request=ProjectSerializer, responses={201: ProjectSerializer})
    def post(self, request: Request) -> Response:
        """Make one."""
        fields = validated(ProjectSerializer, request.data)
        return Response(ProjectSerializer(_do(services.project_create, fields["name"])).data, status=201)


class MembersApi(APIView):
    """Who works in a project by a membership; its owners say."""

    write_permission = {"POST": "webapp.change_membership", "DELETE": "webapp.delete_membership"}

    def initial(self, request: Request, *args: Any, **options: Any) -> None:
        """Ask for permissions in the project that the address names."""
        self.perform_authentication(request)
        own, access = request._request, _access(request)
        seat = access.seat(options["slug"])
        if seat is None:
            raise NotFound("there is no such project")
        if request.auth is not None and seat != own.seat:       # type: ignore[attr-defined]
            raise PermissionDenied("this token is of another project")
        if not access.alone:
            seat_take(own, access, seat)
        self.project = get_object_or_404(Project, pk=seat.pk)
        super().initial(request, *args, **options)

    @extend_schema(responses=MemberSerializer(many=True), parameters=PAGED)
    def get(self, request: Request, slug: str) -> Response:
        """List them. `Link` names the next page."""
        page = read_page(request, selectors.members(self.project), MOST)
        return page.answer_rows(MemberSerializer(page.rows, many=True).data)

    @extend_schema(request=MemberSerializer, responses=MemberSerializer)
    def post(self, request: Request, slug: str) -> Response:
        """Give a person a role, or another one."""
        fields = validated(MemberSerializer, request.data)
        member = _do(services.member_set, self.project, fields["user"]["username"], fields["role"])
        return Response(MemberSerializer(member).data)

    @extend_schema(request=MemberSerializer, responses={204: None})
    def delete(self, request: Request, slug: str) -> Response:
        """Take a person out: {"person": …}."""
        body: Any = request.data
        name = str(body.get("person", "")) if isinstance(body, dict) else ""
        member = get_object_or_404(Membership, project=self.project, user__username=name)
        services.member_remove(self.project, member.user_id)
        return Response(status=204)


def _access(request: Request) -> selectors.Access:
    access: selectors.Access = request._request.access      # type: ignore[attr-defined]
    return access


def _do(service: Any, *given: Any) -> Any:
    try:
        return service(*given)
    except Refused as refused:
        raise refused.renamed({"username": "person"}) from refused
