"""The rules that the simulated year of a team's CI sets beside the gate, and how all of them are counted."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from bench.gate_year.rules import Score, other_rules, table


def test_others_are_counted_as_the_gate_is() -> None:
    random, code, builds = np.random.default_rng(1), np.ones(3), []
    for number in range(60):
        if number == 40:
            code = code * np.array([1.0, 1.15, 1.0])
        us = np.array([10.0, 40.0, 100.0]) * code * np.exp(0.003 * random.standard_normal((5, 3)))
        if number == 50:
            us[:, 2] *= 1.3                     # a bad host: nobody's code
        builds.append(SimpleNamespace(number=number, on_main=True, code=code, us=us, own=None))
    twice, tenth, _ = other_rules(builds, builds, {40: [1]})[:3]
    assert (twice.caught, twice.false_builds) == ({}, set()) and (tenth.caught, tenth.false_builds) == ({40: 1}, {50})
    year = Score(tenth.name)
    for _ in range(2):
        tenth.months, tenth.slowdowns = 3, 1
        year.add(tenth)
    assert len(year.caught) == len(year.false_builds) == 2 and (year.months, year.slowdowns) == (6, 2)
    assert "| 0.3 | 2 of 2 | 2 | 1, 1 |" in list(table([year]))[-1]
