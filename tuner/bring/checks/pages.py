"""The page that checks a kernel file: a form, and below it what was understood."""

from __future__ import annotations

import json
from typing import Any

from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from profiles.base.refused import Refused
from profiles.base.words import pairs_text
from tuner.bring.checks import selectors, services, sources
from tuner.models import KernelCheck

MAY_CHECK = "tuner.add_kernelcheck"
# fields of the forms
TYPED = ("text", "file", "shape", "dtype", "call", "siblings", "beside_of", "folder", "source", "commit", "path")
LIVE = (KernelCheck.Status.WAITING, KernelCheck.Status.RUNNING)


@require_http_methods(["GET", "HEAD", "POST"])
def check_new(request: HttpRequest) -> HttpResponse:
    """Show the form; POST checks what is in it."""
    if request.method == "POST":
        return _create(request)
    return _page(request, {}, {})


@permission_required(MAY_CHECK, raise_exception=True)
def _create(request: HttpRequest) -> HttpResponse:
    typed = {name: request.POST.get(name, "") for name in TYPED}
    about = {name: typed[name] for name in ("shape", "dtype", "call")}
    try:
        if typed["source"]:
            check = sources.check_create(sources.read_source(typed["source"], typed["commit"], typed["path"]), owner=request.user,
                                         **about)
        else:
            before = _check_before(typed)
            check = services.check_create(typed["text"], file=typed["file"], siblings=_read_siblings(typed, before),
                                          folder=typed["folder"], source=_source_of(typed, before), owner=request.user, **about)
    except Refused as refused:
        return _page(request, typed, refused.fields, status=400)
    return redirect("kernel-check", pk=check.pk)


@require_safe
def check_detail(request: HttpRequest, pk: int) -> HttpResponse:
    """Show one check."""
    check = get_object_or_404(KernelCheck.objects.select_related("owner"), pk=pk)
    shape = pairs_text(check.shape)
    named = check.source or {}
    return _page(request, {"text": check.text, "file": check.file, "shape": shape, "dtype": check.dtype,
                           "call": check.result.get("call", ""), "folder": check.folder,
                           "source": named.get("address") or (sources.source_text({**named, "path": ""}) if named else ""),
                           "commit": named.get("commit", ""), "path": named.get("path", ""),
                           "beside_of": str(check.pk) if check.siblings or check.source else ""}, {}, check)


@permission_required(MAY_CHECK, raise_exception=True)
@require_POST
def check_stop(request: HttpRequest, pk: int) -> HttpResponse:
    """Stop a check."""
    services.check_stop(get_object_or_404(KernelCheck, pk=pk))
    return redirect("kernel-check", pk=pk)


def _page(request: HttpRequest, typed: dict[str, str], wrong: dict[str, str], check: KernelCheck | None = None,
          status: int = 200) -> HttpResponse:
    operators = check.result.get("operators", []) if check else []
    adapters = [{**adapter, **_edited_space(adapter, operators)} for adapter in check.adapters] if check else []
    edited = {adapter["kernel"] for adapter in adapters if adapter.get("fields")}
    return render(request, "tuner/check.html", {
        "beside": sorted(check.siblings or {}) if check else (),
        "proposals": check.result.get("proposals", ()) if check else (),
        "from": sources.source_text(check.source) if check else "", "found": (check.source or {}).get("found") if check else None,
        "check": check, "live": check is not None and check.status in LIVE, "typed": typed, "wrong": wrong,
        "step": selectors.step_of(check) if check else None,
        "operators": [{**_in_order(entry), "is_edited": entry["name"] in edited} for entry in operators], "adapters": adapters,
        "ability": selectors.ability(), "dtypes": services.DTYPES, "most_bytes": services.MAX_TEXT_BYTES,
        "may_check": request.user.has_perm(MAY_CHECK), "checks": selectors.check_list() if check is None else ()}, status=status)


def _check_before(typed: dict[str, str]) -> KernelCheck | None:
    """Return the check that the form came with."""
    before = typed["beside_of"]
    return KernelCheck.objects.filter(pk=int(before)).first() if before.isdecimal() and len(before) < 12 else None


def _source_of(typed: dict[str, str], before: KernelCheck | None) -> Any:
    """Return where the text was fetched from, if it is that text still."""
    if before is None or before.source is None or typed["text"].split() != before.text.split():
        return None
    return before.source


def _read_siblings(typed: dict[str, str], before: KernelCheck | None) -> Any:
    """Return {path: text}: what the form's script wrote, or those of the check that the form came with. Raises Refused."""
    text = typed["siblings"]
    if not text and before is not None:
        return before.siblings or {}
    try:
        return json.loads(text) if text else {}
    except (ValueError, RecursionError) as error:
        raise Refused({"siblings": "files that come with it: path → text, as JSON"}) from error


def _in_order(operator: dict[str, Any]) -> dict[str, Any]:
    """Return an operator whose configurations name the parameters in their order: jsonb loses it."""
    names = [parameter["name"] for parameter in operator["parameters"]]

    def order(config: dict[str, Any]) -> dict[str, Any]:
        return {name: config[name] for name in sorted(config, key=lambda name: names.index(name) if name in names else len(names))}

    return {**operator, "default": order(operator["default"]),
            "compiled": [{**sample, "config": order(sample["config"])} for sample in operator["compiled"]]}


def _edited_space(adapter: dict[str, Any], operators: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the fields of an adapter's space, and what its constraints leave out of it as it stands."""
    space = adapter.get("space")
    operator = next((entry for entry in operators if entry["name"] == adapter["kernel"]), None)
    if not space or operator is None:
        return {}
    rules = {constraint["reason"]: constraint["expression"] for constraint in space["constraints"]}
    return {"fields": [{"name": param["name"], "text": ", ".join(map(str, param["values"]))} for param in space["params"]],
            "rules": "\n".join(rules.values()), "size": operator["size"], "valid": operator["valid"],
            "names": sorted(space["names"]),
            "left_out": [{"reason": reason, "count": count, "expression": rules.get(reason, "")}
                         for reason, count in operator["pruned"].items()]}
