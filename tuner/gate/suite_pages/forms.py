"""The form of a suite: what people type becomes the same document that a file holds, and is checked by the same reader."""

from __future__ import annotations

from typing import Any, cast

from django import forms

from tuner.gate.suites import formats
from tuner.gate.suites.definition import Definition, DefinitionError, definition_document, read_definition
from tuner.models import Suite

RULE = {"target": "Target", "floor": "Floor", "alpha": "Risk of a false SLOWER"}
KINDS = [("operators", "Operators at shapes, measured here"), ("target", "The kernels that a capture target launches"),
         ("uploaded", "Runs that CI measures itself and sends")]


class SuiteForm(forms.Form):
    name = forms.CharField(max_length=60, help_text="What gates and pipelines call it: letters, digits, - and _.")
    title = forms.CharField(max_length=200, required=False)
    kind = forms.ChoiceField(choices=KINDS, initial="operators", widget=forms.RadioSelect)
    kernels = forms.CharField(required=False, max_length=100_000, strip=False,                # lines are counted as typed
                              widget=forms.Textarea(attrs={"rows": 7, "spellcheck": "false"}))
    device = forms.CharField(label="Where", max_length=120, initial="gpu", required=False,
                             widget=forms.TextInput(attrs={"list": "known-devices"}))
    target = forms.ChoiceField(label="Capture target", required=False)
    runs = forms.IntegerField(label="Fresh runs of a build", initial=5, min_value=1, max_value=200)
    baseline_runs = forms.IntegerField(label="Fresh runs of the baseline", initial=10, min_value=1, max_value=200)
    every_hours = forms.FloatField(label="Measure the newest build every … hours", required=False)
    metrics = forms.CharField(required=False, max_length=10_000, strip=False,
                              widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false"}))
    capture_slower = forms.BooleanField(label="Capture counters and timelines of both builds where a verdict is SLOWER",
                                        required=False)
    build_path = forms.CharField(label="Code of a build, on the workers", max_length=500, required=False)
    target_pct = forms.FloatField(label="Target (%)", required=False)
    floor_pct = forms.FloatField(label="Floor (%)", required=False)
    alpha_pct = forms.FloatField(label="Risk (%)", required=False)

    def __init__(self, *args: Any, suite: Suite | None = None, before: Definition | None = None, targets: list[str] | None = None,
                 **kwargs: Any) -> None:
        super().__init__(*args, **{"label_suffix": "", **kwargs})
        self.before = before
        cast(forms.ChoiceField, self.fields["target"]).choices = [("", "—"), *((name, name) for name in targets or [])]
        if suite is not None:
            self.fields["name"].disabled = True
            self.fields["name"].initial = suite.name

    def clean(self) -> dict[str, Any]:
        fields = super().clean() or {}
        if not self.errors:
            fields["definition"] = self._definition(fields)
        return fields

    def _definition(self, fields: dict[str, Any]) -> Definition | None:
        document: dict[str, Any] = {
            "name": fields["name"], "title": fields["title"], "kind": fields["kind"], "device": fields["device"] or "gpu",
            "runs": fields["runs"], "baseline_runs": fields["baseline_runs"], "build_path": fields["build_path"],
            "rule": {**self._kept("rule"), **self._rule(fields)}, "policy": self._kept("policy"),
            "enabled": self.before.enabled if self.before else True,
            "capture_slower": fields["capture_slower"] and fields["kind"] != "uploaded"}
        if fields["kind"] == "target":
            document["target"] = fields["target"]
        if fields["every_hours"]:
            document["every_hours"] = fields["every_hours"]
        try:
            document["metrics"] = formats.read_limits(fields["metrics"])
        except ValueError as error:
            self.add_error("metrics", str(error))
        try:
            if fields["kind"] == "operators":
                document["kernel"] = formats.read_kernel_lines(fields["kernels"])
        except ValueError as error:
            self.add_error("kernels", str(error))
        if self.errors:
            return None
        try:
            return self._with_own_rules(read_definition(document))
        except DefinitionError as error:
            self._tell(error, fields)
            return None

    def _rule(self, fields: dict[str, Any]) -> dict[str, float]:
        return {name: fields[f"{name}_pct"] / 100 for name in RULE if fields[f"{name}_pct"] is not None}

    def _kept(self, name: str) -> dict[str, Any]:
        """What a file said and the form does not show stays."""
        return {key: value for key, value in (getattr(self.before, name) if self.before else {}).items()
                if name != "rule" or key not in RULE}

    def _with_own_rules(self, found: Definition) -> Definition:
        """Kernels keep the rules and limits of their own that a file gave them: lines of text hold none."""
        own = {kernel.key: kernel for kernel in self.before.kernels} if self.before else {}
        document = definition_document(found)
        for entry, kernel in zip(document.get("kernel", []), found.kernels, strict=True):
            if kernel.key in own:
                entry |= {"rule": dict(own[kernel.key].rule), "metrics": dict(own[kernel.key].metrics)}
        return read_definition(document)

    def _tell(self, error: DefinitionError, fields: dict[str, Any]) -> None:
        numbers = [number for number, line in enumerate(fields["kernels"].splitlines(), start=1) if line.strip()]
        for problem in error.problems[:20]:
            first, _, rest = problem.field.partition(".")
            if first.startswith("kernel"):
                position = first.removeprefix("kernel").strip("[]")
                line = f"line {numbers[int(position)]}: " if position.isdecimal() and int(position) < len(numbers) else ""
                self.add_error("kernels", f"{line}{problem.what}")
            elif first == "rule":
                self.add_error(f"{rest}_pct" if rest in RULE else "target_pct", problem.what)
            elif first == "metrics" and rest:
                self.add_error("metrics", f"{rest}: {problem.what}")
            else:
                self.add_error(first if first in self.fields else None, problem.what if first in self.fields else str(problem))


def initial_fields(definition: Definition) -> dict[str, Any]:
    """The form of a suite that is there."""
    return {"name": definition.name, "title": definition.title, "kind": definition.kind, "device": definition.device,
            "target": definition.target, "runs": definition.runs, "baseline_runs": definition.baseline_runs,
            "every_hours": definition.every_hours, "build_path": definition.build_path,
            "capture_slower": definition.capture_slower,
            "kernels": formats.kernel_lines(definition), "metrics": formats.limits_lines(definition.metrics),
            **{f"{name}_pct": round(100 * definition.rule[name], 6) for name in RULE if name in definition.rule}}


class RunForm(forms.Form):
    """Measure now: one build, or two that take turns."""

    build = forms.CharField(max_length=80, widget=forms.TextInput(attrs={"list": "known-builds", "autocomplete": "off"}))
    other = forms.CharField(label="Interleaved with", max_length=80, required=False,
                            widget=forms.TextInput(attrs={"list": "known-builds", "autocomplete": "off"}))
    runs = forms.IntegerField(label="Fresh runs of each", min_value=1, max_value=200)
    device = forms.CharField(label="Where", max_length=120, required=False, widget=forms.TextInput(attrs={"list": "known-devices"}))

    @property
    def builds(self) -> list[str]:
        return [name for name in (self.cleaned_data["build"], self.cleaned_data["other"]) if name]


class UploadForm(forms.Form):
    """Runs that were measured elsewhere. It stands on one page with `RunForm`: its fields have ids of their own."""

    file = forms.FileField(label="Runs")
    build = forms.CharField(max_length=80, widget=forms.TextInput(attrs={"list": "known-builds", "autocomplete": "off"}))
    gpu = forms.CharField(label="GPU", max_length=120, required=False, help_text="as its driver names it; empty: the lines say it")
    toolkit = forms.CharField(max_length=80, required=False, help_text="for example cuda 13.0, triton 3.6.0")
    driver = forms.CharField(max_length=40, required=False)
    shard = forms.CharField(max_length=20, required=False, help_text="i/n, of n jobs with parts of the build; gates wait for all")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"auto_id": "upload_%s", **kwargs})
