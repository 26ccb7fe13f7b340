"""Forms of new jobs, for one or many shapes; services check everything again."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from django import forms

from tuner.devices import Device
from tuner.jobs.create_services import DEFAULT_EFFORT, EFFORTS
from tuner.tuning.measure.policy import TITLES
from tuner.tuning.operators import all_operators
from tuner.tuning.search.strategies import DEFAULT, STRATEGIES, plateau_of

MAX_LINES = 200
OWN = ""                 # no effort by name: the numbers below it
_PART = re.compile(r"([A-Za-z_]\w*)\s*[=:]\s*(-?\d{1,15})\Z")


def parse_shape(text: str) -> dict[str, int]:
    """Return the shape of "M=4096, N=4096 K=64". Raises ValueError with the part not understood."""
    shape: dict[str, int] = {}
    for part in re.split(r"[\s,;×]+", re.sub(r"\s*([=:])\s*", r"\1", text.strip())):
        match = _PART.match(part)
        if not match:
            raise ValueError(f'"{part[:40]}" is not understood; write it like M=4096 N=4096 K=4096')
        shape[match[1]] = int(match[2])
    return shape


def parse_shapes(text: str) -> list[dict[str, int]]:
    """Return the shapes of a text, one per line, each once."""
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) > MAX_LINES:
        raise ValueError(f"at most {MAX_LINES} shapes, one a line")
    shapes = [parse_shape(line) for line in lines]
    return [shape for index, shape in enumerate(shapes) if shape not in shapes[:index]]


class BudgetForm(forms.Form):
    """Where, how and how much: the fields that one job and a group share."""

    device = forms.ChoiceField(label="Where")
    strategy = forms.ChoiceField(choices=[(name, method.title) for name, method in STRATEGIES.items()], initial=DEFAULT,
                                 widget=forms.RadioSelect)
    effort = forms.ChoiceField(required=False, initial=DEFAULT_EFFORT, choices=[
        *((name, effort.title) for name, effort in EFFORTS.items()), (OWN, "Own numbers")])
    budget_trials = forms.IntegerField(label="At most … trials", required=False, help_text="Configurations compiled or run.")
    budget_seconds = forms.FloatField(label="At most … seconds", required=False, help_text="Of job time, over all attempts.")
    plateau = forms.IntegerField(label="Ends after … trials without a gain", required=False, help_text="Empty: it does not.")
    ceiling_pct = forms.FloatField(label="Ends at … % of the ceiling", required=False, help_text="Empty: it does not.",
                                   widget=forms.NumberInput(attrs={"min": 1, "max": 100, "step": "any", "placeholder": "95"}))
    timing = forms.ChoiceField(label="Timed with", required=False, initial="cold", choices=[
        (name, words) for name, words in TITLES.items()])
    seed = forms.IntegerField(initial=0, required=False, help_text="Same seed, same trials.")

    def __init__(self, *args: Any, devices: list[tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        cast(forms.ChoiceField, self.fields["device"]).choices = devices

    def clean_timing(self) -> str:
        return self.cleaned_data["timing"] or "cold"

    def clean_seed(self) -> int:
        return self.cleaned_data["seed"] or 0

    def clean(self) -> dict[str, Any]:
        """Take own numbers where given, else the effort's; without both the default's."""
        data = super().clean() or self.cleaned_data
        preset = EFFORTS.get(data.get("effort") or "")
        if plateau_of(str(data.get("strategy")), 1) is None:
            data["plateau"] = None               # an effort's number: it does not end this search
        numbers = (data.get("budget_trials"), data.get("budget_seconds"), data.get("plateau"))
        if preset is not None and any(number not in (None, of) for number, of in
                                      zip(numbers, (preset.trials, preset.seconds, preset.plateau), strict=True)):
            data["effort"] = OWN
        elif preset is None and numbers[0] is None and numbers[1] is None:
            data["effort"] = DEFAULT_EFFORT
        if data.get("effort") == OWN:
            base = EFFORTS[DEFAULT_EFFORT]
            data["budget_trials"] = base.trials if numbers[0] is None else numbers[0]
            data["budget_seconds"] = base.seconds if numbers[1] is None else numbers[1]
        return data


class TuneForm(BudgetForm):
    """One operator at one or several shapes; the page gives the `device` choices."""

    operator = forms.ChoiceField(label="Operator")
    shape = forms.CharField(max_length=20_000, widget=forms.Textarea(attrs={"rows": 2, "spellcheck": "false"}),
                            help_text="Typed, or one of the presets; several: one a line.")
    dtype = forms.ChoiceField(label="Data type")
    space = forms.CharField(label="Space", required=False, max_length=20_000, widget=forms.HiddenInput,
                            help_text='JSON of "parameters" and "constraints"; empty: the operator\'s own.')

    def __init__(self, *args: Any, operators: list[tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        cast(forms.ChoiceField, self.fields["operator"]).choices = operators
        dtypes = dict.fromkeys(dtype for operator in all_operators().values() for dtype in operator.dtypes)
        cast(forms.ChoiceField, self.fields["dtype"]).choices = [(dtype, dtype) for dtype in dtypes]

    def clean_shape(self) -> list[dict[str, int]]:
        try:
            return parse_shapes(self.cleaned_data["shape"])
        except ValueError as error:
            raise forms.ValidationError(str(error)) from error

    def clean_space(self) -> dict[str, Any] | None:
        text = self.cleaned_data["space"]
        try:
            space = json.loads(text) if text else None
        except (ValueError, RecursionError) as error:
            raise forms.ValidationError("this is no JSON") from error
        if space is not None and not isinstance(space, dict):
            raise forms.ValidationError('must be an object of "parameters" and "constraints"')
        return space


class HotForm(BudgetForm):
    """Problems picked from a profile, each "operator dtype M=… N=…"."""

    hot = forms.MultipleChoiceField(label="Shapes", error_messages={"required": "Pick at least one shape."})

    def __init__(self, *args: Any, problems: list[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        cast(forms.ChoiceField, self.fields["hot"]).choices = [(problem, problem) for problem in problems]


def job_form(places: Sequence[Device], hot: Sequence[Mapping[str, Any]] | None = None, typed: Any = None,
             initial: Mapping[str, Any] | None = None) -> BudgetForm:
    """Return the form of a new job, or of the `hot` shapes of a profile."""
    options = [(place.value, f"{place.title} (no worker)" if place.why_not else place.title) for place in places]
    if hot is not None:
        return HotForm(typed, initial=initial, devices=options, problems=[row["problem"] for row in hot])
    named = {(fields or {}).get("operator") for fields in (typed, initial)}
    return TuneForm(typed, initial=initial, devices=options,
                    operators=[(operator.name, operator.title) for operator in all_operators().values()
                               if operator.newest or operator.name in named])


def at_fields(form: BudgetForm, problems: Mapping[str, str]) -> dict[str, str]:
    """Return problems by the form's fields; one of a dimension stands at the shapes, one of a parameter at the space."""
    shapes = "shape" if "shape" in form.fields else "hot"
    placed: dict[str, str] = {}
    for name, text in problems.items():
        field, _, part = name.partition(".")
        if field not in form.fields:
            field, part = shapes, name
        sentence = f"{part}: {text}" if part else text
        placed[field] = f"{placed[field]}; {sentence}" if field in placed else sentence
    return placed
