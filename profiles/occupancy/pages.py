"""HTML of the occupancy calculator."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from profiles.analysis.kernel.occupancy import DEFAULT_SMEM_BYTES, FIELDS, LIMITER_WORDS, kib_text
from profiles.occupancy import charts, selectors


@require_safe
def occupancy(request: HttpRequest) -> HttpResponse:
    """What would the occupancy be? A wrong value keeps the answer of the last right one, and says what would be valid."""
    page = selectors.page(request.GET)
    question, result, warps = page["question"], page["answer"].occupancy, page["limits"].warps_per_sm
    typed = {name: page["asked"].typed.get(name, getattr(question, name)) for name in FIELDS}
    page |= {
        "architectures": selectors.architectures(), "query": request.GET.urlencode(),
        "typed": {name: "" if value is None else value for name, value in typed.items()},
        "limit_rows": [{"name": LIMITER_WORDS.get(name, name), "blocks": blocks, "limits": name in result.limiters}
                       for name, blocks in sorted(result.limits.items(), key=lambda pair: pair[1])],
        "ladder": [{"rung": rung, "smem": None if rung.smem_bytes is None else kib_text(rung.smem_bytes)}
                   for rung in page["answer"].ladder],
        "texts": {name: kib_text(getattr(page["limits"], name)) for name in
                  ("smem_bytes_per_sm", "smem_bytes_per_block", "smem_unit_bytes", "smem_reserved_bytes_per_block")},
        "split": kib_text(int(page["split_bytes"])) if page["split_bytes"] else "",
        "opt_in": question.smem_bytes > DEFAULT_SMEM_BYTES,
        "figures": charts.curve_figures(page["answer"].curves, warps),
    }
    return render(request, "profiles/kernel/occupancy.html", page, status=400 if page["asked"].errors else 200)
