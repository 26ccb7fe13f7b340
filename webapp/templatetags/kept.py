"""Parts of a page that equal values make equal: ``{% kept tables profile.pk %} … {% endkept %}``.

Between the tags stands what these values alone decide, and whether a guest reads it: nothing else of the page can be named there,
so what is kept is never old. A dotted name is there under its dots (`profile.pk`, and no other field of the profile).
"""

from __future__ import annotations

import hashlib
import itertools
import pickle
import threading
from collections import OrderedDict
from typing import Any

from django import template
from django.template.base import FilterExpression, NodeList, Parser, Token
from django.template.context import Context
from django.urls import get_script_prefix
from django.utils.safestring import SafeString, mark_safe

from webapp.templatetags.guests import is_guest

KEPT_BYTES = 32_000_000         # of text in a process, those shown last
register = template.Library()
_kept: OrderedDict[tuple[int, bytes], SafeString] = OrderedDict()
_lock = threading.Lock()
_numbers = itertools.count()
_held = 0


@register.tag
def kept(parser: Parser, token: Token) -> KeptNode:
    names = token.split_contents()[1:]
    if not names or any("|" in name or not name.replace(".", "").replace("_", "").isalnum() for name in names):
        raise template.TemplateSyntaxError("kept: name the values that its content is made of")
    nodes = parser.parse(("endkept",))
    parser.delete_first_token()
    return KeptNode(nodes, [(name, parser.compile_filter(name)) for name in names])


class KeptNode(template.Node):
    """`number` tells it from all others, also from one made anew of the same text."""

    def __init__(self, nodelist: NodeList, values: list[tuple[str, FilterExpression]]) -> None:
        self.nodelist, self.values, self.number = nodelist, values, next(_numbers)

    def render(self, context: Context) -> SafeString:
        values = [(name, expression.resolve(context, ignore_failures=True)) for name, expression in self.values]
        key = (self.number, hashlib.sha256(pickle.dumps((get_script_prefix(), is_guest(), values), protocol=5)).digest())
        with _lock:
            if key in _kept:
                _kept.move_to_end(key)
                return _kept[key]
        text = self.nodelist.render(context.new(_nested(values)))
        _keep(key, text)
        return text


def _nested(values: list[tuple[str, Any]]) -> dict[str, Any]:
    """[("profile.pk", 3)] -> {"profile": {"pk": 3}}."""
    tree: dict[str, Any] = {}
    for name, value in values:
        *way, last = name.split(".")
        branch = tree
        for part in way:
            branch = branch.setdefault(part, {})
        branch[last] = value
    return tree


def _keep(key: tuple[int, bytes], text: SafeString) -> None:
    global _held
    with _lock:
        _held += len(text) - len(_kept.pop(key, ""))
        _kept[key] = mark_safe(text)        # a template's own output
        while _held > KEPT_BYTES and len(_kept) > 1:
            _held -= len(_kept.popitem(last=False)[1])
