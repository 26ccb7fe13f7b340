"""Threads and the inbox over the API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from django.db import transaction
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from profiles.base.answers import Listed, Paged
from profiles.base.refused import Refused
from webapp.accounts import RolePermission
from webapp.models import Comment, Follow, TalkPreference, Thread
from webapp.threads import notices, selectors, services, subjects
from webapp.threads.people import people_of
from webapp.threads.texts import MOST_CHARACTERS
from workers.list_api import PAGED, Pages, read_page, validated

MOST_PEOPLE = 20


class OwnRows(RolePermission):
    """A person's own rows: who may read may also change them; a token of scope "read" may not."""

    def has_permission(self, request: Request, view: object) -> bool:
        signed_in = bool(request.user and request.user.is_authenticated)
        return super().has_permission(request, view) or (signed_in and getattr(request.auth, "scope", "write") == "write")


class TextRequest(serializers.Serializer[None]):
    text = serializers.CharField(max_length=MOST_CHARACTERS, help_text="Markdown; @name mentions somebody of the project.")


class WriteRequest(serializers.Serializer[None]):
    text = serializers.CharField(max_length=MOST_CHARACTERS, required=False, allow_blank=True,
                                 help_text="Markdown; @name mentions somebody of the project. Needed without assignee and due.")
    assignee = serializers.CharField(max_length=150, required=False, allow_blank=True, help_text="empty: nobody")
    due = serializers.DateField(required=False, allow_null=True, help_text="when it is to be ended")
    kind = serializers.ChoiceField(choices=list(subjects.KINDS))
    of = serializers.CharField(max_length=2000, help_text="id, or the query of a problem's page")


class ThreadChange(serializers.Serializer[None]):
    status = serializers.CharField(max_length=16, required=False)
    note = serializers.CharField(max_length=2000, required=False, allow_blank=True)
    assignee = serializers.CharField(max_length=150, required=False, allow_blank=True, help_text="empty: nobody")
    due = serializers.DateField(required=False, allow_null=True, help_text="when it is to be ended; null: not said")


class FollowRequest(serializers.Serializer[None]):
    kind = serializers.ChoiceField(choices=Follow.Kind.values)
    key = serializers.CharField(max_length=200, required=False, allow_blank=True, default="",
                                help_text="id of the thread, name of the kernel or suite; empty for the project")
    on = serializers.BooleanField(default=True)


class InboxRequest(serializers.Serializer[None]):
    id = serializers.IntegerField(required=False, min_value=1, help_text="left out: every line")


class InboxChange(serializers.Serializer[None]):
    mail = serializers.ChoiceField(choices=TalkPreference.Mail.values, required=False)


class ThreadPages(Pages):
    default_limit, max_limit = 50, 200


def _paged(request: Request, view: APIView, rows: Any, told: Any) -> Response:
    pages = ThreadPages()
    page: list[Any] | None = pages.paginate_queryset(rows, request, view=view)
    return pages.get_paginated_response([told(row) for row in page or ()])


class ThreadsJson(Listed):
    results: list[selectors.ThreadJson]


class PeopleJson(TypedDict):
    people: list[str]


class FollowsJson(TypedDict):
    follows: list[selectors.FollowJson]


class FollowsPageJson(FollowsJson, Paged):
    pass


class InboxJson(Listed):
    results: list[selectors.NoticeJson]


class ReadJson(TypedDict):
    """How many lines were marked as read, and how many are not."""

    read: int
    unread: int


class MailJson(TypedDict):
    """What a person wants by mail."""

    mail: str


class ThreadListApi(APIView):
    write_permission = "webapp.add_comment"

    @extend_schema(operation_id="threads_list", responses=ThreadsJson,
                   parameters=[*(OpenApiParameter(name) for name in selectors.FILTERS), *PAGED])
    def get(self, request: Request) -> Response:
        """Threads, what changed last first; without `status` open ones, "all" or "ended" others as well."""
        return _paged(request, self, selectors.thread_list(request.query_params), selectors.thread_json)

    @extend_schema(operation_id="threads_write", request=WriteRequest, responses={201: selectors.ThreadJson})
    def post(self, request: Request) -> Response:
        """Write about a finding, regression or kernel problem, or say who ends it and until when; its thread is made with it."""
        fields = validated(WriteRequest, request.data)
        owned: dict[str, Any] = {name: fields[name] for name in ("assignee", "due") if name in fields}
        if owned and not request.user.has_perm("webapp.change_thread"):
            self.permission_denied(request, "assigning needs the role engineer")
        subject = subjects.find(fields["kind"], fields["of"])
        if subject is None:
            raise Refused({"of": f"there is no such {subjects.KINDS[fields['kind']].label}"}, status=404)
        with transaction.atomic():          # a thread of nothing is not kept where it is refused
            thread = services.thread_ensure(subject)
            if fields.get("text") or not owned:
                services.comment_add(thread, fields.get("text", ""), by=request.user)
            _own(thread, owned, request.user)
        return Response(selectors.thread_json(thread, lines=True), status=201)


def _own(thread: Thread, given: Mapping[str, Any], by: Any) -> None:
    if "assignee" in given:
        services.assign(thread, given["assignee"], by=by)
    if "due" in given:
        services.due_set(thread, given["due"], by=by)


class PeopleApi(APIView):
    @extend_schema(operation_id="threads_people", parameters=[OpenApiParameter("q")], responses=PeopleJson)
    def get(self, request: Request) -> Response:
        """Names of people who may be mentioned or assigned, beginning with `q` first."""
        query = request.query_params.get("q", "")[:150].replace("\0", "")
        names = list(people_of().filter(username__icontains=query).values_list("username", flat=True)[:10 * MOST_PEOPLE])
        names.sort(key=lambda name: (not name.lower().startswith(query.lower()), name))
        return Response({"people": names[:MOST_PEOPLE]})


class ThreadApi(APIView):
    write_permission = "webapp.change_thread"

    @extend_schema(operation_id="threads_get", responses=selectors.ThreadJson)
    def get(self, request: Request, pk: int) -> Response:
        """A thread with its comments and events."""
        return Response(selectors.thread_json(_thread(pk), lines=True))

    @extend_schema(operation_id="threads_change", request=ThreadChange, responses=selectors.ThreadJson)
    def patch(self, request: Request, pk: int) -> Response:
        """Set status, assignee or the day until which it is to be ended. The status of a regression is its state."""
        thread, fields = _thread(pk), validated(ThreadChange, request.data)
        if "status" in fields:
            if not request.user.has_perm(subjects.KINDS[thread.kind].needs):
                self.permission_denied(request, "changing this status needs the role engineer")
            services.status_set(thread, fields["status"], by=request.user, note=fields.get("note", ""))
        _own(thread, fields, request.user)
        return Response(selectors.thread_json(_thread(pk)))


class CommentListApi(APIView):
    write_permission = "webapp.add_comment"

    @extend_schema(operation_id="threads_comment", request=TextRequest, responses={201: selectors.CommentJson})
    def post(self, request: Request, pk: int) -> Response:
        """Write a comment."""
        comment = services.comment_add(_thread(pk), validated(TextRequest, request.data)["text"], by=request.user)
        return Response(selectors.comment_json(comment), status=201)


class CommentApi(APIView):
    write_permission = {"PATCH": "webapp.change_comment", "DELETE": "webapp.delete_comment"}

    @extend_schema(operation_id="comments_edit", request=TextRequest, responses=selectors.CommentJson)
    def patch(self, request: Request, pk: int) -> Response:
        """Change an own comment; that it was edited is kept."""
        comment = get_object_or_404(Comment.objects.select_related("thread"), pk=pk)
        services.comment_edit(comment, validated(TextRequest, request.data)["text"], by=request.user)
        return Response(selectors.comment_json(comment))

    @extend_schema(operation_id="comments_delete", responses={204: None})
    def delete(self, request: Request, pk: int) -> Response:
        """Take the text of an own comment away; owners, of anybody's."""
        services.comment_delete(get_object_or_404(Comment.objects.select_related("thread"), pk=pk), by=request.user)
        return Response(status=204)


class FollowApi(APIView):
    permission_classes: list[type[BasePermission]] = [OwnRows]      # as REST framework names it

    @extend_schema(operation_id="follows_list", responses=FollowsPageJson, parameters=PAGED)
    def get(self, request: Request) -> Response:
        """What you follow in this project."""
        page = read_page(request, selectors.follows(request.user))
        return page.answer({"follows": page.rows})

    @extend_schema(operation_id="follows_set", request=FollowRequest, responses=FollowsJson)
    def post(self, request: Request) -> Response:
        """Follow a thread, kernel, suite or the project, or leave it."""
        fields = validated(FollowRequest, request.data)
        services.follow_set(request.user, fields["kind"], fields["key"], fields["on"])
        return Response({"follows": selectors.follows(request.user)})


class InboxApi(APIView):
    permission_classes: list[type[BasePermission]] = [OwnRows]      # as REST framework names it

    @extend_schema(operation_id="inbox_list", responses=InboxJson,
                   parameters=[OpenApiParameter("all"), *PAGED])
    def get(self, request: Request) -> Response:
        """Unread lines, the newest first; ?all=1 with those read."""
        rows = selectors.inbox(request.user, unread=request.query_params.get("all") != "1")
        return _paged(request, self, rows, selectors.notice_json)

    @extend_schema(operation_id="inbox_read", request=InboxRequest, responses=ReadJson)
    def post(self, request: Request) -> Response:
        """Mark one line or all as read."""
        fields = validated(InboxRequest, request.data)
        return Response({"read": notices.mark_read(request.user, **({"pk": fields["id"]} if "id" in fields else {})),
                         "unread": notices.unread_count(request.user)})

    @extend_schema(operation_id="inbox_mail", request=InboxChange, responses=MailJson)
    def patch(self, request: Request) -> Response:
        """Say what you want by mail."""
        changed = validated(InboxChange, request.data)
        row, _ = TalkPreference.objects.update_or_create(user_id=request.user.pk or 0, defaults=changed)
        return Response({"mail": row.mail})


def _thread(pk: int) -> Thread:
    return get_object_or_404(Thread.objects.select_related("assignee"), pk=pk)
