"""The text of every operator is a candidate of it that is right, in each form that a candidate may have."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.product import PROJECT
from tests.tuner.measure.chosen import each_operator
from tests.warm.parent import run_program
from tuner.tuning.operators import OPERATORS

PACKAGES = PROJECT / "tests" / "packages"
PROGRAM = "import sys; from tests.tuner.candidates.every_operator import main; main(*sys.argv[1:])"
ON_ONE_GPU = [name for name, operator in OPERATORS.items() if not operator.on_several_gpus]          # as candidates are


FIRST = {OPERATORS[name].kernel_module: name for name in reversed(ON_ONE_GPU)}.values()         # of each file of kernels
OTHERS = [name for name in ON_ONE_GPU if name not in FIRST]


@pytest.mark.torch
@pytest.mark.parametrize("name", [*each_operator(*FIRST), *each_operator(*OTHERS, marks=(pytest.mark.deep_only,)),
                                  "acme_scale_add", *(pytest.param(name, marks=pytest.mark.deep_only)
                                                      for name in ("acme_column_sum", "acme_clamp"))])
def test_the_text_of_an_operator_is_a_right_candidate_of_it_in_each_form(name: str, tmp_path: Path) -> None:
    found = json.loads(run_program(PROGRAM, name, str(tmp_path), TRITON_INTERPRET="1", PYTHONPATH=str(PACKAGES),
                                   RIDGEPOINT_OPERATOR_PACKAGES="acme-kernels")[0])
    assert {"module", "kernel"} <= set(found["forms"]) and found["left_alone"] and found["replaced"] == []
    for form, (seen, right, message, changed) in found["forms"].items():
        assert (seen, right, changed) == (form, True, []), (form, message)
