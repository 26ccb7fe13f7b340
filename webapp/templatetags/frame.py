"""The frame of a page: the lit section, its tabs, what the palette knows at once, styles and scripts, errors of fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import template
from django.conf import settings
from django.template.context import Context
from django.templatetags.static import static
from django.urls import get_script_prefix
from django.utils.html import format_html, format_html_join, json_script
from django.utils.safestring import SafeString, mark_safe

from webapp.frame import navigation
from webapp.frame.documents import titles
from webapp.projects.request import PREFIX
from webapp.templatetags.guests import is_guest
from webapp.templatetags.markup import oneline
from webapp.threads.notices import unread_count
from workers import disk
from workers.scope import account_name

register = template.Library()


SITE = "Ridgepoint"


@register.simple_block_tag(takes_context=True)
def keep_title(context: Context, content: str) -> str:
    """Keep what the page is called as `page_title`, its heading for who does not see its tabs; the site's name goes behind it."""
    context["page_title"] = mark_safe(content or SITE)        # escaped where the title was written
    return mark_safe(f"{content} · {SITE}" if content else SITE)


@register.simple_tag
def css(*names: str) -> SafeString:
    """Styles of a page: {% css "gate/gates" %}."""
    return format_html_join("", '<link rel="stylesheet" href="{}">', ((static(f"css/{name}.css"),) for name in names))


@register.simple_tag
def js(*names: str) -> SafeString:
    """Scripts of a page, modules: {% js "lib/save" "lib/follow" %}."""
    return format_html_join("", '<script type="module" src="{}"></script>', ((static(f"js/{name}.js"),) for name in names))


@register.simple_block_tag
def figure(content: str, drawn: Any, name: str, id: str = "", save: str = "") -> SafeString:
    """A figure with its data, which lies beside it as `name`-json; `content` is what it says to who does not see it.

    `drawn` may state the `room` that it needs, px; `save`: the name of its files.
    """
    room = drawn.get("room") if isinstance(drawn, Mapping) else getattr(drawn, "room", None)
    attributes = [("style", f"min-height:{room}px" if room else ""), ("id", id), ("data-save", save)]
    return format_html('{}<div class="figure" data-figure="{}-json"{} role="img" aria-label="{}"></div>',
                       json_script(drawn, f"{name}-json"), name,
                       format_html_join("", ' {}="{}"', (attribute for attribute in attributes if attribute[1])), oneline(content))


@register.filter
def errors(what: Any, role: str = "") -> SafeString:
    """What is wrong with a field: one text, or those of a form's; nothing where nothing is. `role`: of ARIA, as "alert"."""
    texts = what if isinstance(what, list) else [what] if what else []
    start = format_html('<p class="field-error" role="{}">', role) if role else SafeString('<p class="field-error">')
    return format_html_join("", "{}{}</p>", ((start, text) for text in texts))


@register.simple_tag(takes_context=True)
def frame(context: Context) -> dict[str, Any]:
    """Return sections, tabs and entries for the request's address and person; without a request (an outage) no query is made."""
    request = context.get("request")
    path, user = (request.path_info, getattr(request, "user", None)) if request is not None else ("", None)
    place = navigation.place_of(path)
    return {
        "sections": [{"title": each.title, "url": next((page.url for page in navigation.allowed(each.pages, user)), each.url),
                      "lit": place is not None and place.section is each} for each in navigation.SECTIONS],
        "section": place.section.title if place else "",
        "tabs": [{"title": page.title, "url": page.url, "lit": place is not None and place.page is page}
                 for page in navigation.allowed(navigation.tabs_of(path), user)],
        "settings": [{"title": page.title, "url": page.url, "lit": place is not None and place.page is page}
                     for page in navigation.allowed(navigation.SETTINGS.pages, user)],
        "docs": [{"name": name, "title": titles()[name]} for name in (place.page.docs if place else ()) if name in titles()],
        "entries": [] if is_guest() else navigation.entries(user),
        "root": get_script_prefix(),
        "project": getattr(request, "seat", None),
        "projects": _others(request),
        "upload_max_bytes": settings.UPLOAD_MAX_BYTES,
        "short_disk": disk.shortage() if user is not None and user.is_authenticated else None,
        "unread": unread_count(user) if user is not None and user.is_authenticated else 0,
        "person": user.get_username() if user is not None and user.is_authenticated else "",
    }


@register.filter
def account(person: Any) -> str:
    """Return the name of an account; "" for nobody, and for who reads by a link."""
    return account_name(person or None) or ""


def _others(request: Any) -> list[dict[str, Any]]:
    """Return the projects to switch between; none where there is one."""
    access, seat = getattr(request, "access", None), getattr(request, "seat", None)
    if access is None or len(access.seats) < 2:
        return []
    return [{"name": other.name, "url": f"{request.root}{PREFIX}{other.slug}/", "lit": other == seat} for other in access.seats]


BROWSERS = (("Edg/", "Edge"), ("OPR/", "Opera"), ("Firefox/", "Firefox"), ("Chrome/", "Chrome"), ("Safari/", "Safari"),
            ("curl/", "curl"))
SYSTEMS = (("Windows", "Windows"), ("Android", "Android"), ("iPhone", "iOS"), ("iPad", "iOS"), ("Mac OS X", "macOS"),
           ("Linux", "Linux"))


@register.filter
def browser(agent: str) -> str:
    """Name browser and system of a User-Agent header: what a person recognises their session by."""
    name = next((name for word, name in BROWSERS if word in agent), agent[:40] or "unknown")
    system = next((name for word, name in SYSTEMS if word in agent), "")
    return f"{name} on {system}" if system else name
