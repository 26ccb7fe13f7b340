"""The form of a new job. What it takes is checked once more, and fully, by services.tune_create."""

from __future__ import annotations

import re
from typing import Any

from django import forms

from tuner.operators import OPERATORS
from tuner.strategies import DEFAULT, STRATEGIES

_PART = re.compile(r"([A-Za-z_]\w*)\s*[=:]\s*(-?\d+)\Z")


def shape_parse(text: str) -> dict[str, int]:
    """"M=4096, N=4096 K=64" -> {"M": 4096, …}. ValueError says which part is not understood."""
    shape: dict[str, int] = {}
    for part in re.split(r"[\s,;×]+", re.sub(r"\s*([=:])\s*", r"\1", text.strip())):
        found = _PART.match(part)
        if not found:
            raise ValueError(f'"{part[:40]}" is not understood; write it like M=4096 N=4096 K=4096')
        shape[found[1]] = int(found[2])
    return shape


def shape_text(shape: dict[str, int]) -> str:
    return " ".join(f"{name}={value}" for name, value in shape.items())


class TuneForm(forms.Form):
    """`device` choices are given by the page, which knows the workers that live."""

    operator = forms.ChoiceField(label="Operator")
    shape = forms.CharField(max_length=200, help_text="Typed, or one of the presets.")
    dtype = forms.ChoiceField(label="Data type")
    device = forms.ChoiceField(label="Where")
    strategy = forms.ChoiceField(choices=[(name, method.title) for name, method in STRATEGIES.items()], initial=DEFAULT,
                                 widget=forms.RadioSelect)
    budget_trials = forms.IntegerField(label="At most … trials", initial=120,
                                       help_text="Configurations compiled or run.")
    budget_seconds = forms.FloatField(label="At most … seconds", initial=600,
                                      help_text="Of job time, over all attempts.")
    seed = forms.IntegerField(initial=0, required=False, help_text="Same seed, same trials.")

    def __init__(self, *args: Any, devices: list[tuple[str, str]], operators: list[tuple[str, str]],
                 **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["operator"].choices = operators
        self.fields["device"].choices = devices
        dtypes = dict.fromkeys(dtype for operator in OPERATORS.values() for dtype in operator.dtypes)
        self.fields["dtype"].choices = [(dtype, dtype) for dtype in dtypes]

    def clean_shape(self) -> dict[str, int]:
        try:
            return shape_parse(self.cleaned_data["shape"])
        except ValueError as error:
            raise forms.ValidationError(str(error)) from error

    def clean_seed(self) -> int:
        return self.cleaned_data["seed"] or 0
