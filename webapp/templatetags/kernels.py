"""A kernel's name, the same on every page: its function, what tells it from its siblings, its element type.

``{% kernel_name kernel.name kernel.short_name %}``; the full name is on hover and in what is copied, and in its place while the
switch (`templates/profiles/_names_switch.html`) says demangled or mangled: `static/js/lib/kernel_names.js`.
"""

from __future__ import annotations

from functools import lru_cache

from django import template
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from profiles.analysis.core.identity import identity
from profiles.ingest.naming.names import readable, short_name

register = template.Library()
ROOM = 34                       # characters of a label that a cell mostly has room for
LONG = 15                       # a longer function keeps as many when it is cut
TAIL = 26                       # of a longer one that stay in view at its end


@register.simple_tag
@lru_cache(maxsize=1024)          # a page names a kernel many times, and its name never changes
def kernel_name(name: str, label: str = "") -> SafeString:
    """Return a kernel's name for a cell or a heading; `label` is the profile's own, else that of the name alone."""
    label = label or short_name(name)
    position = _split(label)
    function, rest = label[:position], label[position:]
    full = readable(name) if name.startswith("_Z") else name
    parts = [("kn-f kn-long" if len(function) > LONG else "kn-f", function), ("kn-a", rest), ("kn-t", _type(name, label))]
    return format_html('<span class="kn" title="{}"{}>{}</span>', full,
                       format_html(' data-mangled="{}"', name) if name.startswith("_Z") else "",
                       format_html_join("", '{}<span class="{}">{}</span>', ((" " if kind == "kn-t" else "", kind, text)
                                                                           for kind, text in parts if text)))


def _split(label: str) -> int:
    """Where what tells a kernel apart begins: its arguments; of words in a row the last ones, where tiles and layouts stand."""
    position = label.find("<", 1)
    if position > 0 or len(label) <= ROOM:
        return position if position > 0 else len(label)
    return max(label.find("_", len(label) - TAIL), 0) or len(label)


def _type(name: str, label: str) -> str:
    """The element type where the name states it and the label does not say it in the same letters."""
    dtype = identity(name).dtype
    return "" if dtype and dtype in label.lower().replace("-", "_").split("_") else dtype
