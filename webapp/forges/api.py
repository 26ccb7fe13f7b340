"""Forges and issues of threads over the API."""

from __future__ import annotations

from typing import TypedDict

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from profiles.base.answers import make_answer
from profiles.base.refused import Refused
from webapp.forges import services
from webapp.forges.table import FORGES
from webapp.models import Forge, IssueLink, Thread
from workers.list_api import validated


class ForgeRequest(serializers.Serializer[None]):
    kind = serializers.ChoiceField(choices=list(FORGES))
    name = serializers.CharField(max_length=80)
    place = serializers.CharField(max_length=200, help_text="owner/name, group/project, or the key of a Jira project")
    key = serializers.CharField(max_length=10_000, help_text="the App's private key (PEM), or a token")
    api = serializers.CharField(max_length=300, required=False, allow_blank=True)
    account = serializers.CharField(max_length=200, required=False, allow_blank=True)
    hook_secret = serializers.CharField(max_length=120, required=False, allow_blank=True)


class ForgeChange(serializers.Serializer[None]):
    enabled = serializers.BooleanField(required=False)
    checks = serializers.BooleanField(required=False)
    comments = serializers.BooleanField(required=False)
    resolves = serializers.BooleanField(required=False, help_text="a closed issue resolves its thread")


class IssueRequest(serializers.Serializer[None]):
    address = serializers.CharField(max_length=500, required=False, help_text="of an issue that exists")
    forge = serializers.IntegerField(required=False, min_value=1, help_text="where a new one is made, without an address")
    title = serializers.CharField(max_length=240, required=False)
    text = serializers.CharField(max_length=30_000, required=False)


class ForgeJson(TypedDict):
    """GitHub, GitLab or Jira; `checks`, `comments`, `resolves`: what is sent there, and whether its changes end threads."""

    kind: str
    name: str
    api: str
    place: str
    account: str
    enabled: bool
    checks: bool
    comments: bool
    resolves: bool
    id: int


class NewForgeJson(ForgeJson):
    hook_secret: str                    # this once


class ForgesJson(TypedDict):
    forges: list[ForgeJson]


class IssueJson(TypedDict):
    """An issue of a thread; `address` null until it is made."""

    id: int
    forge: int | None
    address: str | None
    number: str | None
    state: str | None


class IssuesJson(TypedDict):
    issues: list[IssueJson]


def forge_json(row: Forge) -> ForgeJson:
    """Without what is secret."""
    return make_answer(ForgeJson, row)


def link_json(row: IssueLink) -> IssueJson:
    return make_answer(IssueJson, row, forge=row.forge_id, address=row.address or None, number=row.number or None,
                       state=row.state or None)


class ForgeListApi(APIView):
    write_permission = "webapp.add_forge"

    @extend_schema(operation_id="forges_list", responses=ForgesJson)
    def get(self, request: Request) -> Response:
        """The project's forges."""
        return Response({"forges": [forge_json(row) for row in Forge.objects.all()]})

    @extend_schema(operation_id="forges_create", request=ForgeRequest, responses={201: NewForgeJson})
    def post(self, request: Request) -> Response:
        """Add one. The answer holds the secret of its webhook: it is shown this once."""
        row, secret = services.forge_add(**validated(ForgeRequest, request.data), by=request.user)
        return Response({**forge_json(row), "hook_secret": secret}, status=201)


class ForgeApi(APIView):
    write_permission = {"PATCH": "webapp.change_forge", "DELETE": "webapp.delete_forge"}

    @extend_schema(operation_id="forges_change", request=ForgeChange, responses=ForgeJson)
    def patch(self, request: Request, pk: int) -> Response:
        """Switch a forge, or what it is told, on or off."""
        row, fields = get_object_or_404(Forge, pk=pk), validated(ForgeChange, request.data)
        for name, value in fields.items():
            setattr(row, name, value)
        if fields:
            row.save(update_fields=list(fields))
        return Response(forge_json(row))

    @extend_schema(operation_id="forges_delete", responses={204: None})
    def delete(self, request: Request, pk: int) -> Response:
        get_object_or_404(Forge, pk=pk).delete()
        return Response(status=204)


class IssueListApi(APIView):
    write_permission = "webapp.change_thread"

    @extend_schema(operation_id="issues_list", responses=IssuesJson)
    def get(self, request: Request, pk: int) -> Response:
        """Issues of a thread."""
        return Response({"issues": [link_json(row) for row in get_object_or_404(Thread, pk=pk).issues.all()]})

    @extend_schema(operation_id="issues_create", request=IssueRequest, responses={201: IssueJson})
    def post(self, request: Request, pk: int) -> Response:
        """Link an issue by its address, or have a forge make one."""
        thread, fields = get_object_or_404(Thread, pk=pk), validated(IssueRequest, request.data)
        if fields.get("address"):
            return Response(link_json(services.link_add(thread, fields["address"], by=request.user)), status=201)
        forge = Forge.objects.filter(pk=fields.get("forge", 0), enabled=True).first()
        if forge is None:
            raise Refused({"forge": "the address of an issue, or a forge of the project"})
        text = fields.get("text") or services.issue_text(thread)
        return Response(link_json(services.issue_create(thread, forge, fields.get("title") or thread.title, text, by=request.user)),
                        status=201)
