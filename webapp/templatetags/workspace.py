"""Template tags of a profile's frame: `{% workspace_facts profile %}` in the header, `{% workspace_tabs profile %}` below it.

`{% kernel_frame kernel tab %}`: the pinned header and the tabs of a kernel, on each of its pages.
"""

from __future__ import annotations

from typing import Any

from django import template
from django.template import Context
from django.urls import reverse

from profiles.kernel import selectors as kernel_selectors
from profiles.models import KernelStat, Profile
from profiles.overview import workspace
from webapp.templatetags.guests import is_guest

register = template.Library()


@register.inclusion_tag("profiles/_workspace_facts.html", takes_context=True)
def workspace_facts(context: Context, profile: Profile) -> dict[str, Any]:
    """Return the chips and the actions of a profile."""
    return workspace.header(profile) | {"perms": context.get("perms")}


@register.inclusion_tag("profiles/_workspace_tabs.html", takes_context=True)
def workspace_tabs(context: Context, profile: Profile) -> dict[str, Any]:
    """Return the tabs of a profile; a guest has those below its own address."""
    tabs = workspace.tabs(profile, context["request"].path)
    own = reverse("profile", args=[profile.pk])
    return {"profile": profile, "tabs": [tab for tab in tabs if tab.url.startswith(own) or not is_guest()]}


@register.inclusion_tag("profiles/kernel/_frame.html", takes_context=True)
def kernel_frame(context: Context, kernel: KernelStat, tab: str) -> dict[str, Any]:
    """Return the pinned header and the tabs of a kernel's pages."""
    request = context["request"]
    return kernel_selectors.frame(kernel, tab, request.GET) | {"request": request}


@register.inclusion_tag("profiles/kernel/_rules_here.html")
def kernel_rules(kernel: KernelStat, part: str) -> dict[str, Any]:
    """Return NVIDIA's rules that stand at one part of a kernel's pages."""
    return {"listed": kernel_selectors.rules_for(kernel, part)}
