"""Template tags of a profile's frame: `{% workspace_facts profile %}` in the header, `{% workspace_tabs profile %}` below it."""

from __future__ import annotations

from typing import Any

from django import template
from django.template import Context

from profiles.models import Profile
from profiles.overview import workspace

register = template.Library()


@register.inclusion_tag("profiles/_workspace_facts.html", takes_context=True)
def workspace_facts(context: Context, profile: Profile) -> dict[str, Any]:
    """Return the chips and the actions of a profile."""
    return workspace.header(profile) | {"perms": context.get("perms")}


@register.inclusion_tag("profiles/_workspace_tabs.html", takes_context=True)
def workspace_tabs(context: Context, profile: Profile) -> dict[str, Any]:
    """Return the tabs of a profile."""
    return {"profile": profile, "tabs": workspace.tabs(profile, context["request"].path)}
