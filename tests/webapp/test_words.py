"""The counter of words: what a page shows counts, and nothing else."""

from __future__ import annotations

from tests.words import words


def test_text_counts_and_code_tags_help_and_titles_do_not() -> None:
    assert words("""{% extends "base.html" %}{# a note #}{% block title %}Gates · X{% endblock %}
        <p class="muted" title="hidden words">Two <b>words</b> {{ row.name|default:"none" }} here</p>
        <script>let code = 1;</script><pre>export A=b</pre>{% block help %}<p>long text</p>{% endblock %}""") == 3


def test_all_branches_count_and_numbers_do_not() -> None:
    assert words("{% if a %}one{% else %}two three{% endif %} 12 % × µs") == 4
