"""The frame of a page: the lit section, its tabs, and what the palette knows at once."""

from __future__ import annotations

from typing import Any

from django import template
from django.template.context import Context

from webapp.frame import navigation
from webapp.frame.documents import titles

register = template.Library()


@register.simple_tag(takes_context=True)
def frame(context: Context) -> dict[str, Any]:
    """Return sections, tabs and entries for the request's address and person; without a request (an outage) no query is made."""
    request = context.get("request")
    path, user = (request.path, getattr(request, "user", None)) if request is not None else ("", None)
    place = navigation.place_of(path)
    return {
        "sections": [{"title": each.title, "url": each.url, "lit": place is not None and place.section is each}
                     for each in navigation.SECTIONS],
        "section": place.section.title if place else "",
        "tabs": [{"title": page.title, "url": page.url, "lit": place is not None and place.page is page}
                 for page in navigation.allowed(navigation.tabs_of(path), user)],
        "settings": [{"title": page.title, "url": page.url, "lit": place is not None and place.page is page}
                     for page in navigation.allowed(navigation.SETTINGS.pages, user)],
        "docs": [{"name": name, "title": titles()[name]} for name in (place.page.docs if place else ()) if name in titles()],
        "entries": navigation.entries(user),
        "person": user.get_username() if user is not None and user.is_authenticated else "",
    }
