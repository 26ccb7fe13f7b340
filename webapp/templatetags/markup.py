"""What many templates write alike: tables and their heads, options of a list, chips, marks, forms, steps of the way to a page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from django import template
from django.template.context import Context
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

register = template.Library()

_HEAD_UNITS = frozenset(("ns", "µs", "ms", "s", "%", "×", "B", "Hz", "MHz", "FLOP/s", "GPU-hours"))
_UNITLESS = frozenset(("count", "slice", "window", "kernel", "tune"))              # numbers of things, and links
_UNIT_NAMES = {"pct": "%", "bytes": "B"}
_SPACES = re.compile(r"[ \t\r\n]+")        # not a no-break space: it stays in numbers
_SLASH = SafeString(' <span aria-hidden="true">/</span> ')


@register.simple_block_tag
def grid(content: str, name: str, caption: str = "", **attributes: str) -> SafeString:
    """A table of data: `{% grid "runs" "Runs, in the order taken" %} … {% endgrid %}`.

    `name`: of its files and of its state in the address; `caption` is read aloud only; `class`, `id`: of the table.
    """
    classes = f"grid {attributes.pop('class', '')}".strip()
    head = format_html('<caption class="visually-hidden">{}</caption>', caption) if caption else ""
    return format_html('<div class="table-scroll"><table class="{}" data-grid data-name="{}"{}>{}{}</table></div>',
                       classes, name, _written(attributes), head, mark_safe(content))        # a template's own output


@register.simple_block_tag
def heads(content: str) -> SafeString:
    """The head of a table, a line a column: its title; behind ": " words of how it looks; behind " ? " what it says on hover.

    `text`, `number` and units make a grid's column sortable; `hidden`: shown once asked for; `unseen`: read aloud only; others are
    classes.
    """
    return SafeString(f"<thead><tr>{''.join(_head(line) for line in content.splitlines() if line.strip())}</tr></thead>")


def _head(line: str) -> str:
    line, _, hover = line.strip().partition(" ? ")
    title, colon, words = line.rpartition(": ")
    title, words = (title, words) if colon else (line, "")
    classes, attributes = [], ""
    for word in words.split():
        if word in ("text", "number", "html"):
            attributes += f' data-type="{word}"'
        elif word in _HEAD_UNITS:
            attributes += f' data-type="number" data-unit="{word}"'
        elif word == "hidden":
            attributes += " data-hidden"
        elif word == "unseen":
            title = f'<span class="visually-hidden">{title}</span>'
        else:
            classes.append(word)
    attributes += f' class="{" ".join(classes)}"' if classes else ""
    attributes += f' title="{hover}"' if hover else ""
    return f"<th{attributes}>{title}</th>"


@register.filter
def head(column: Mapping[str, Any]) -> SafeString:
    """The head of a column, {"name", "unit", "text"}; units of things and links show nowhere."""
    unit = "" if column["unit"] in _UNITLESS else _UNIT_NAMES.get(column["unit"], column["unit"] or "")
    return format_html('<th data-type="{}"{}>{}</th>', "text" if column["text"] else "number",
                       format_html(' data-unit="{}"', unit) if unit else "", column["name"])


@register.simple_tag(takes_context=True)
def post(context: Context, page: str, *arguments: Any, **attributes: str) -> SafeString:
    """The start of a form that is sent to a page, with its token: `{% post "suite-run" suite.pk class="stack" %} … </form>`."""
    return format_html('<form method="post" action="{}"{}><input type="hidden" name="csrfmiddlewaretoken" value="{}">',
                       reverse(page, args=arguments), _written(attributes), context["csrf_token"])


def _written(attributes: dict[str, str]) -> SafeString:
    """Return attributes of an element as they stand in its tag."""
    return format_html_join("", ' {}="{}"', attributes.items())


@register.simple_tag
def options(values: Iterable[Any], chosen: Any = None) -> SafeString:
    """The options of a list, of values or of (value, title) each, with one of them chosen: `{% options gpus form.gpu %}`."""
    pairs = ((value if isinstance(value, tuple | list) else (None, value)) for value in values or ())
    return format_html_join("", "<option{}{}>{}</option>", (
        ("" if value is None else format_html(' value="{}"', value),
         " selected" if (title if value is None else value) == chosen else "", title) for value, title in pairs))


@register.simple_tag
def datalist(name: str, values: Iterable[Any]) -> SafeString:
    """What a field offers while somebody types, by the name that its `list` has: `{% datalist "known-gpus" form.gpus %}`."""
    offered = format_html_join("", '<option value="{}">', ((each,) for each in values or ()))
    return format_html('<datalist id="{}">{}</datalist>', name, offered)


@register.simple_tag
def address(page: str, *arguments: Any, **query: Any) -> str:
    """The address of a page with a query: what is None is left out of it, a mapping gives each of its names."""
    pairs = ((name, element) for name, value in query.items()
             for name, element in (value.items() if isinstance(value, Mapping) else ((name, value),)) if element is not None)
    query_text = "&".join(f"{name}={quote(str(value))}" for name, value in pairs)
    return f"{reverse(page, args=arguments)}{'?' if query_text else ''}{query_text}"


@register.simple_block_tag
def oneline(content: str) -> SafeString:
    """A sentence of an attribute that is written in several lines, in one: its ends and what lies between words are a space."""
    return mark_safe(_SPACES.sub(" ", content).strip())         # a template's own output


@register.simple_tag
def slash() -> SafeString:
    """What stands between two steps of the way to a page."""
    return _SLASH


@register.simple_tag
def crumb(text: Any, page: str = "", *arguments: Any) -> SafeString:
    """A step of the way to a page, and what stands behind it: `{% crumb "Gates" "gate-list" %}`; without one: the page itself."""
    if not page:
        return format_html('<span aria-current="page">{}</span>', text)
    return format_html('<a href="{}">{}</a>{}', reverse(page, args=arguments), text, _SLASH)


@register.filter
def chip(value: Any, label: str = "") -> SafeString:
    """A fact of a page's head, bold behind its label; nothing where it is unknown."""
    if not value:
        return SafeString("")
    return format_html('<span class="chip">{} <b>{}</b></span>' if label else '<span class="chip">{}{}</span>', label, value)


@register.filter
def recording(where: Any) -> SafeString:
    """Words of what was recorded and not measured here; nothing where it was."""
    return format_html('<span class="recorded">{}</span>', where) if where else SafeString("")


@register.filter
def recorded(where: Any) -> SafeString:
    """The mark of what was recorded and not measured here; nothing where it was. `where`: the recording, on hover."""
    return format_html('<span class="recorded" title="{}">recorded</span>', where) if where else SafeString("")
