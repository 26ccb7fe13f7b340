"""Tags and filters that stand for what many templates write alike: what they write, and that it is escaped."""

from __future__ import annotations

from typing import Any

import pytest
from django.template import Context, Template


def render(source: str, values: dict[str, Any]) -> str:
    return Template(source).render(Context({"csrf_token": "token", **values}))


@pytest.mark.parametrize("text, values, written", [
    ('{% grid "runs" %}<tbody></tbody>{% endgrid %}', {},
     '<div class="table-scroll"><table class="grid" data-grid data-name="runs"><tbody></tbody></table></div>'),
    ('{% grid "runs" "Runs, newest first" class="tight" id="all" %}{{ x }}{% endgrid %}', {"x": "<"},
     '<div class="table-scroll"><table class="grid tight" data-grid data-name="runs" id="all">'
     '<caption class="visually-hidden">Runs, newest first</caption>&lt;</table></div>'),
    ('{% post "suite-run" 3 class="stack" %}</form>', {}, '<form method="post" action="/suites/3/run/" class="stack">'
     '<input type="hidden" name="csrfmiddlewaretoken" value="token"></form>'),
    ("{% options values chosen %}", {"values": ["a", "<b>"], "chosen": "<b>"},
     "<option>a</option><option selected>&lt;b&gt;</option>"),
    ("{% options values.items chosen %}", {"values": {"30": "a month", "7": "a week"}, "chosen": "7"},
     '<option value="30">a month</option><option value="7" selected>a week</option>'),
    ("{% options none nothing.here %}", {"none": None}, ""),
    ('{% datalist "known-gpus" values %}{% datalist "none" nothing.here %}', {"values": ["H200", "<b>"]},
     '<datalist id="known-gpus"><option value="H200"><option value="&lt;b&gt;"></datalist><datalist id="none"></datalist>'),
    ('{{ gpu|chip:"GPU" }}{{ gpu|chip }}{{ none|chip:"GPU" }}', {"gpu": "H200 <1>", "none": ""},
     '<span class="chip">GPU <b>H200 &lt;1&gt;</b></span><span class="chip">H200 &lt;1&gt;</span>'),
    ("{{ a|recording }}{{ b|recording }}", {"a": "on an H200 & later", "b": ""},
     '<span class="recorded">on an H200 &amp; later</span>'),
    ('{% crumb name "suite" 3 %}', {"name": "a<b"}, '<a href="/suites/3/">a&lt;b</a> <span aria-hidden="true">/</span> '),
    ("{% crumb name|truncatechars:3 %}", {"name": "a<bcd"}, '<span aria-current="page">a&lt;…</span>'),
    ('{% address "tune-new" operator="a b" shape=shape none=none %}', {"shape": {"M": 4096, "K": "1&2"}, "none": None},
     "/tune/new/?operator=a%20b&amp;M=4096&amp;K=1%262"),
    ('{% address "tune-new" operator=none %}', {"none": None}, "/tune/new/"),
    ('{% address "tune-new" operator=nothing.here %}', {}, "/tune/new/?operator="),
    ("{% oneline %}\n  a\n  {% if True %}\n b\u00a0c{% endif %}\n{% endoneline %}", {}, "a b\u00a0c"),
    ("{{ column|head }}", {"column": {"name": "<Time>", "unit": "pct", "text": False}},
     '<th data-type="number" data-unit="%">&lt;Time&gt;</th>'),
    ("{{ column|head }}", {"column": {"name": "Open", "unit": "slice", "text": True}}, '<th data-type="text">Open</th>'),
    ('{{ 3|in_unit:"" }}{{ none|in_unit:"" }}{{ text|in_unit:"" }}', {"none": None, "text": "<"}, "3—&lt;"),
    ('{{ 1200|num:"ns" }}{{ 1200|in_unit:"ns" }}', {}, '<td class="num"><span class="num" title="1,200 ns">1.20\u00a0µs</span></td>'
     '<span class="num" title="1,200 ns">1.20\u00a0µs</span>'),
])
def test_a_tag_writes_what_templates_wrote(text: str, values: dict[str, Any], written: str) -> None:
    assert render(text, values) == written
