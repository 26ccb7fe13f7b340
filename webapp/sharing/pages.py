"""The page of a profile's links, the way in, and the same over the API."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import get_script_prefix, path, reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from profiles.base.refused import Refused
from profiles.models import Profile
from webapp.models import ShareLink
from webapp.people.adapter import refuse
from webapp.sharing import services
from webapp.sharing.services import COOKIE
from webapp.sign_in import tries_forget, tries_take
from workers.list_api import MOST, PAGED, read_page, validated

CHANGE = "profiles.change_profile"


@login_not_required
@require_safe
@never_cache
def open_link(request: HttpRequest, secret: str) -> HttpResponse:
    """Let who has the link in: a cookie, and on to the profile."""
    if not tries_take("share", request):
        return refuse(request, "Too many tries.", "Try again in 15 minutes.")
    link = services.link_of(secret)
    if link is None:
        return refuse(request, "This link was ended, or its time is over.", "Ask for another one.")
    tries_forget("share", request)
    services.note_opened(link)
    root = request.root         # type: ignore[attr-defined]
    answer = redirect(f"{root}/profiles/{link.profile_id}/")
    answer.set_cookie(COOKIE, secret, expires=link.expires, path=f"{root}/", httponly=True, samesite="Lax",
                      secure=settings.SESSION_COOKIE_SECURE)
    answer["Referrer-Policy"] = "strict-origin"         # its address is the secret, as that of an invitation
    return answer


@require_safe
@never_cache
def links_page(request: HttpRequest, pk: int) -> HttpResponse:
    """Show the links of a profile."""
    return _page(request, get_object_or_404(Profile, pk=pk))


@require_POST
@never_cache
def link_create(request: HttpRequest, pk: int) -> HttpResponse:
    """Make a link and show it, this once."""
    profile, days = get_object_or_404(Profile, pk=pk), request.POST.get("days", "")
    if not request.user.has_perm(CHANGE):
        raise PermissionDenied("who may change a profile shares it")
    try:
        _, secret = services.share(profile, request.user, int(days) if days.isdecimal() and len(days) < 6 else 0)
    except Refused as refused:
        return _page(request, profile, problem=refused.what, status=400)
    return _page(request, profile, link=address(request, secret))


@require_POST
def link_end(request: HttpRequest, pk: int) -> HttpResponse:
    """End a link; who has it is out at the next request."""
    row = get_object_or_404(ShareLink, pk=pk)
    if not request.user.has_perm(CHANGE):
        raise PermissionDenied("who may change a profile shares it")
    row.delete()
    return redirect("share-links", row.profile_id)


def address(request: Any, secret: str) -> str:
    where = f"{request.root}/{reverse('share', args=[secret]).removeprefix(get_script_prefix())}"
    return f"{settings.PUBLIC_URL}{where}" if settings.PUBLIC_URL else str(request.build_absolute_uri(where))


def _page(request: HttpRequest, profile: Profile, *, link: str = "", problem: str = "", status: int = 200) -> HttpResponse:
    return render(request, "sharing/links.html", {"profile": profile, "links": services.links(profile), "link": link,
                                                  "problem": problem, "may": request.user.has_perm(CHANGE)}, status=status)


class LinkSerializer(serializers.Serializer[Any]):
    id = serializers.IntegerField(source="pk")
    created = serializers.DateTimeField()
    expires = serializers.DateTimeField()
    opened = serializers.IntegerField()
    made_by = serializers.CharField(source="made_by.username", default="")


class MadeSerializer(LinkSerializer):
    link = serializers.CharField(help_text="shown this once")


class ShareSerializer(serializers.Serializer[Any]):
    days = serializers.IntegerField(default=7, min_value=1, max_value=services.MOST_DAYS)


class LinksApi(APIView):
    write_permission = CHANGE

    @extend_schema(operation_id="share_links_list", responses=LinkSerializer(many=True), parameters=PAGED)
    def get(self, request: Request, pk: int) -> Response:
        """Links under which the profile can be read without an account. `Link` names the next page."""
        page = read_page(request, services.links(get_object_or_404(Profile, pk=pk)), MOST)
        return page.answer_rows(LinkSerializer(page.rows, many=True).data)

    @extend_schema(operation_id="share_links_create", request=ShareSerializer, responses={201: MadeSerializer})
    def post(self, request: Request, pk: int) -> Response:
        """Make one."""
        fields = validated(ShareSerializer, request.data)
        row, secret = services.share(get_object_or_404(Profile, pk=pk), request.user, fields["days"])
        return Response({**LinkSerializer(row).data, "link": address(request._request, secret)}, status=201)


class LinkApi(APIView):
    write_permission = CHANGE

    @extend_schema(operation_id="share_links_end", responses={204: None})
    def delete(self, request: Request, pk: int) -> Response:
        get_object_or_404(ShareLink, pk=pk).delete()
        return Response(status=204)


urlpatterns = [
    path("share/<str:secret>/", open_link, name="share"),
    path("sharing/<int:pk>/", links_page, name="share-links"),                      # of a profile
    path("sharing/<int:pk>/create/", link_create, name="share-link-create"),        # POST
    path("sharing/links/<int:pk>/end/", link_end, name="share-link-end"),           # POST
    path("api/sharing/<int:pk>/", LinksApi.as_view(), name="api-share-links"),      # of a profile
    path("api/sharing/links/<int:pk>/", LinkApi.as_view(), name="api-share-link"),
]
