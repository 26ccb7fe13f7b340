"""What equal values make equal is rendered once: parts of pages, figures, sums over the fleet."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from django.template import Context, Engine, TemplateSyntaxError

from profiles import theme
from profiles.families import kept_selectors
from profiles.models import KernelFamily, KernelStat, Profile
from webapp.templatetags import kept

engine = Engine(libraries={"kept": "webapp.templatetags.kept"}, builtins=["webapp.templatetags.kept"])


class Counted:
    """A value that says how often it was shown."""

    shown = 0

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        Counted.shown += 1
        return self.text


def test_a_part_is_rendered_once_for_equal_values_and_anew_for_others() -> None:
    page = engine.from_string("{% kept rows owner.pk %}{% for row in rows %}{{ row }}, {% endfor %}{{ owner.pk }}{% endkept %}")
    Counted.shown = 0

    def text(*rows: str, pk: int = 1) -> str:
        return page.render(Context({"rows": [Counted(row) for row in rows], "owner": SimpleNamespace(pk=pk)}))

    assert text("a", "<b>") == text("a", "<b>") == "a, &lt;b&gt;, 1" and Counted.shown == 2
    assert text("a", "c") == "a, c, 1" and text("a", "c", pk=2) == "a, c, 2" and Counted.shown == 6


def test_nothing_else_of_the_page_can_be_shown_there() -> None:
    page = engine.from_string("{% kept rows profile.pk %}{{ rows }}{{ secret }}{{ profile.name }}{% endkept %}")
    context = {"rows": 1, "secret": "token", "profile": SimpleNamespace(pk=2, name="theirs")}
    assert page.render(Context(context)) == "1"
    for wrong in ("{% kept %}{% endkept %}", "{% kept rows|length %}{% endkept %}", "{% kept a=b %}{% endkept %}"):
        with pytest.raises(TemplateSyntaxError, match="name the values"):
            engine.from_string(wrong)


def test_two_parts_of_equal_values_are_two_and_old_ones_go(monkeypatch: pytest.MonkeyPatch) -> None:
    page = engine.from_string("{% kept at %}one {{ at }}{% endkept %} {% kept at %}two {{ at }}{% endkept %}")
    monkeypatch.setattr(kept, "KEPT_BYTES", 200)
    for at in range(50):
        assert page.render(Context({"at": at})) == f"one {at} two {at}"
    assert kept._held == sum(map(len, kept._kept.values())) <= 200


def test_a_figure_is_made_once_for_equal_arguments() -> None:
    made: list[Any] = []

    @theme.kept_figure
    def figure(points: list[float], *, height: int = 1) -> dict[str, Any]:
        made.append(points)
        return {"n": len(points)}

    assert figure([1.0, 2.0]) is figure([1.0, 2.0]) and figure([1.0]) == {"n": 1} and figure([1.0], height=2) == {"n": 1}
    assert made == [[1.0, 2.0], [1.0], [1.0]]


@pytest.mark.django_db
def test_a_sum_over_the_fleet_is_kept_until_any_row_is_written() -> None:
    family = KernelFamily.objects.create(name="gemm", op="gemm")
    profile = Profile.objects.create(name="a", kind="trace", status="ready")
    stat = KernelStat.objects.create(profile=profile, name="gemm", short_name="gemm", total_ns=5, launches=1, family=family)
    asked: list[int] = []

    def answer() -> int:
        return kept_selectors.cached_answer("test", lambda: (asked.append(1), len(asked))[1])

    assert answer() == answer() == 1
    KernelStat.objects.filter(pk=stat.pk).update(total_ns=6)
    assert answer() == answer() == 2
    KernelFamily.objects.filter(pk=family.pk).update(op="conv")
    assert answer() == 3
    Profile.objects.filter(pk=profile.pk).update(build="b")
    assert answer() == 4
    stat.delete()
    assert answer() == answer() == 5
