"""One GPU seen slower is told from a slower build: recorded runs of an H200, with effects of cards injected into them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from tests.tuner.gate.test_gates import H200, records
from tuner.gate.stats.suite import card_effect, tell_card_from_build
from tuner.gate.verdicts import services
from tuner.models import Gate, Suite

pytestmark = pytest.mark.django_db
OPS = ("matmul", "softmax", "layernorm")


@pytest.fixture
def suite() -> Suite:
    return Suite.objects.create(name="fleet", kind=Suite.Kind.UPLOADED, device="")


def gate(suite: Suite, build: str, hour: int, card: str, runs: Sequence[int], factors: dict[str, float] | float = 1.0,
         records_of: Any = records) -> Gate:
    """Runs of one card; `factors`: of the card and the build together."""
    slower = dict.fromkeys(OPS, factors) if isinstance(factors, float) else factors
    sent = [{**line, "gpu_uuid": card, "us": [*line["us"][hour:], *line["us"][:hour]]}
            for line in records_of(runs, slower, label=f"{card}-{hour}-")]
    return services.create_gate(suite, build, at=timezone.now() - timedelta(days=9) + timedelta(hours=hour), environment=H200,
                                records=sent)


def test_a_card_that_is_slower_with_the_old_build_too_is_the_gpu_not_the_build(suite: Suite) -> None:
    gate(suite, "b1", 0, "GPU-a", range(1, 11))
    gate(suite, "b0", -3, "GPU-a", range(11, 16))
    gate(suite, "b0", -2, "GPU-b", range(16, 21), 1.08)
    found = gate(suite, "b2", 1, "GPU-b", range(16, 25), 1.08)
    assert found.verdict == "AMBIGUOUS", found.reason
    worst = found.kernels.first()
    assert worst.reason.startswith("this GPU, not the build: +8.") and "run it on GPU-a" in worst.reason
    assert gate(suite, "b2", 2, "GPU-a", range(11, 16)).verdict == "PASS", "run where the baseline ran it is told"


def test_a_slow_build_on_a_slow_card_is_slower(suite: Suite) -> None:
    gate(suite, "b1", 0, "GPU-a", range(1, 11))
    gate(suite, "b0", -3, "GPU-a", range(11, 16))
    gate(suite, "b0", -2, "GPU-b", range(16, 21), 1.05)
    found = gate(suite, "b2", 1, "GPU-b", range(16, 25), {"softmax": 1.05 * 1.08, "matmul": 1.05, "layernorm": 1.05})
    row = found.kernels.first()
    assert (found.verdict, row.kernel.op) == ("SLOWER", "softmax") and "does not explain it" in row.reason


def test_all_kernels_slower_on_an_unknown_card_cannot_be_told(suite: Suite) -> None:
    gate(suite, "b1", 0, "GPU-a", range(1, 11))
    found = gate(suite, "b2", 1, "GPU-b", range(11, 21), 1.08)
    assert found.verdict == "AMBIGUOUS" and found.kernels.first().reason.startswith("this GPU or the build")


def test_one_slow_kernel_on_another_card_is_the_build(suite: Suite) -> None:
    gate(suite, "b1", 0, "GPU-a", range(1, 11))
    found = gate(suite, "b2", 1, "GPU-b", range(11, 21), {"softmax": 1.08})
    assert found.verdict == "SLOWER" and "so the card is not" in found.kernels.first().reason


def test_one_card_only_or_cards_that_nobody_named_change_nothing(suite: Suite) -> None:
    gate(suite, "b1", 0, "GPU-a", range(1, 11))
    assert gate(suite, "b2", 1, "GPU-a", range(11, 21), 1.08).verdict == "SLOWER"
    assert gate(suite, "b3", 2, "", range(11, 21), 1.09).verdict == "SLOWER"


def test_another_card_does_not_clear_a_slow_build(suite: Suite) -> None:
    gate(suite, "b1", 0, "GPU-a", range(1, 11))
    assert gate(suite, "b2", 1, "GPU-a", range(11, 16), {"softmax": 1.08}).verdict == "SLOWER"
    assert gate(suite, "b2", 2, "GPU-b", range(16, 21), 1.08).verdict != "PASS"


@pytest.mark.parametrize(("ratio", "others", "effect", "kind"), [
    (1.08, [1.08, 1.07], None, "unknown"), (1.08, [1.0, 1.001], None, "build"), (1.08, [], None, "unknown"),
    (1.08, [1.0, 1.0], 1.08, "card"), (1.08, [1.08, 1.08], 1.03, "build"), (1.08, [1.0, 1.0], 0.97, "build")])
def test_what_can_be_told(ratio: float, others: list[float], effect: float | None, kind: str) -> None:
    assert tell_card_from_build(ratio, 0.02, others, effect).kind == kind


def test_an_effect_needs_runs_of_one_build_on_both_cards() -> None:
    assert card_effect({"b": [1.1] * 3}, {"b": [1.0] * 3}) == pytest.approx(1.1)
    assert card_effect({"b": [1.1] * 2}, {"b": [1.0] * 9}) is None and card_effect({"b": [1.1] * 3}, {"c": [1.0] * 3}) is None
