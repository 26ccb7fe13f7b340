"""What a page offers to people alone, and not to who has a link to one profile: other pages would ask a guest to sign in.

``{% members %}…{% endmembers %}`` is left out for a guest; ``{% members_link %}…{% endmembers_link %}`` keeps the words and their
look without the link.
"""

from __future__ import annotations

import re

from django import template
from django.utils.safestring import SafeString, mark_safe

from workers.scope import current

register = template.Library()
_LINK = re.compile(r'<a\b([^>]*?)\shref="[^"]*"([^>]*)>(.*?)</a>', re.DOTALL)


def is_guest() -> bool:
    """Return whether the page is that of a link: of the project one profile alone is seen."""
    return current().profile is not None


@register.simple_block_tag
def members(content: str) -> str:
    return "" if is_guest() else content


@register.simple_block_tag
def members_link(content: str) -> str | SafeString:
    return mark_safe(_LINK.sub(r"<span\1\2>\3</span>", content)) if is_guest() else content     # of a template's own output
