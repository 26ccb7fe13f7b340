"""Notes of a timeline over HTTP. Reading needs a signed-in user; the team's changes also arrive on the topic `profile.<id>`."""

from __future__ import annotations

from typing import Any

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from profiles.base.refused import Refused
from profiles.models import Profile, TimelineNote
from profiles.notes import selectors, services
from profiles.timeline.api import TimelineView
from workers.list_api import validated

_MAX_NS = 2**63 - 1


class NoteSerializer(serializers.Serializer[Any]):
    start_ns = serializers.IntegerField(min_value=0, max_value=_MAX_NS)
    end_ns = serializers.IntegerField(min_value=0, max_value=_MAX_NS, required=False, allow_null=True,
                                      help_text="Absent: a moment.")
    track = serializers.IntegerField(min_value=0, max_value=2**31 - 1, required=False, allow_null=True,
                                     help_text="Absent: all tracks.")
    depth = serializers.IntegerField(min_value=0, max_value=2**15 - 1, required=False, allow_null=True)
    text = serializers.CharField(required=False, allow_blank=True, trim_whitespace=False, max_length=10 * services.MAX_TEXT,
                                 help_text="Plain text; empty is a bookmark.")


class TextSerializer(serializers.Serializer[Any]):
    text = serializers.CharField(allow_blank=True, trim_whitespace=False, max_length=10 * services.MAX_TEXT)


class NoteView(TimelineView):
    def handle_exception(self, exc: Exception) -> Response:
        if isinstance(exc, Refused):
            return Response({"error": str(exc), "where": "note", "hint": exc.hint}, status=400)
        return super().handle_exception(exc)


class NotesJson(selectors.NoteRightsJson):
    notes: list[selectors.NoteJson]


class NoteListApi(NoteView):
    write_permission = "profiles.add_timelinenote"

    @extend_schema(operation_id="profiles_notes", responses=NotesJson)
    def get(self, request: Request, pk: int) -> Response:
        """All notes by time, and what you may do with them."""
        profile = get_object_or_404(Profile, pk=pk)
        return Response({"notes": selectors.notes(profile), **selectors.note_rights(request.user)})

    @extend_schema(operation_id="profiles_notes_create", request=NoteSerializer, responses={201: selectors.NoteJson})
    def post(self, request: Request, pk: int) -> Response:
        """Write a note, or without a text a bookmark."""
        fields = validated(NoteSerializer, request.data)
        note = services.note_create(profile=get_object_or_404(Profile, pk=pk), author=request.user, **fields)
        return Response(selectors.note_json(note), status=201)


class NoteApi(NoteView):
    write_permission = {"PATCH": "profiles.change_timelinenote", "DELETE": "profiles.delete_timelinenote"}

    @extend_schema(operation_id="profiles_note_edit", request=TextSerializer, responses=selectors.NoteJson)
    def patch(self, request: Request, pk: int, note_pk: int) -> Response:
        """Change the text of your own note; owners, of anybody's."""
        fields = validated(TextSerializer, request.data)
        note = services.note_update(self.note(pk, note_pk), by=request.user, **fields)
        return Response(selectors.note_json(note))

    @extend_schema(operation_id="profiles_note_delete", responses={204: None})
    def delete(self, request: Request, pk: int, note_pk: int) -> Response:
        services.note_delete(self.note(pk, note_pk), by=request.user)
        return Response(status=204)

    def note(self, pk: int, note_pk: int) -> TimelineNote:
        return get_object_or_404(TimelineNote.objects.select_related("author"), pk=note_pk, profile_id=pk)
