"""Pages of projects: which there are, who works in one."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import path
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from profiles.base.refused import Refused
from webapp.models import Membership, Project
from webapp.projects import selectors, services
from webapp.projects.request import seat_take
from webapp.roles import ROLES


@require_safe
@never_cache
def project_list(request: HttpRequest) -> HttpResponse:
    """Show the projects that the person may open."""
    return _list_page(request)


@require_POST
def project_create(request: HttpRequest) -> HttpResponse:
    """Make a project."""
    if not request.user.has_perm("webapp.add_project"):
        raise PermissionDenied("owners of the installation make projects")
    try:
        project = services.project_create(request.POST.get("name", ""))
    except Refused as refused:
        return _list_page(request, problem=refused.what, status=400)
    return redirect("project-members", project.slug)


@require_safe
@never_cache
def project_members(request: HttpRequest, slug: str) -> HttpResponse:
    """Show who works in a project."""
    return _members_page(request, _project(request, slug))


@require_POST
def member_set(request: HttpRequest, slug: str) -> HttpResponse:
    """Give a person a role in a project."""
    project = _project(request, slug, "webapp.change_membership")
    try:
        services.member_set(project, request.POST.get("username", ""), request.POST.get("role", ""))
    except Refused as refused:
        return _members_page(request, project, problem=refused.what, status=400)
    return redirect("project-members", slug)


@require_POST
def member_remove(request: HttpRequest, slug: str, pk: int) -> HttpResponse:
    """Take a person out of a project."""
    project = _project(request, slug, "webapp.delete_membership")
    services.member_remove(project, get_object_or_404(Membership, project=project, pk=pk).user_id)
    return redirect("project-members", slug)


def _project(request: Any, slug: str, permission: str = "") -> Project:
    """Return a project that the person may open, and work in it: roles are asked of it, whichever the address names."""
    seat = request.access.seat(slug)
    if seat is None:
        raise Http404
    if not request.access.alone:
        seat_take(request, request.access, seat)
    if permission and not request.user.has_perm(permission):
        raise PermissionDenied("owners of a project say who works in it")
    return get_object_or_404(Project, pk=seat.pk)


def _list_page(request: Any, *, problem: str = "", status: int = 200) -> HttpResponse:
    return render(request, "projects/list.html", {
        "projects": selectors.project_rows(request.access.seats), "problem": problem}, status=status)


def _members_page(request: Any, project: Project, *, problem: str = "", status: int = 200) -> HttpResponse:
    return render(request, "projects/members.html", {
        "project": project, "members": selectors.members(project), "everywhere": selectors.people_everywhere(),
        "roles": list(ROLES), "problem": problem}, status=status)


urlpatterns = [
    path("", project_list, name="project-list"),
    path("create/", project_create, name="project-create"),                                     # POST
    path("<slug:slug>/", project_members, name="project-members"),
    path("<slug:slug>/members/", member_set, name="member-set"),                                # POST
    path("<slug:slug>/members/<int:pk>/remove/", member_remove, name="member-remove"),          # POST
]
