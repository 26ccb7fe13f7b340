"""Kernels that are SLOWER where the builds ran on different cards: what of it the card may have done."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from tuner.gate.stats.cards import CardAnswer, card_effect, tell_card_from_build
from tuner.gate.stats.results import KernelVerdict, percent_text
from tuner.gate.stats.rule import Verdict, rule_of
from tuner.gate.verdicts.sides_selectors import STORED, KernelComparison, Sides
from tuner.models import Gate, KernelRun

MOST_RUNS = 4_000           # newest runs of a kernel's other builds that are read


def doubt_other_cards(gate: Gate, sides: Sides, kernels: Sequence[KernelVerdict]) -> list[KernelVerdict]:
    """Return the verdicts; SLOWER becomes AMBIGUOUS where the card did it, or may have. Runs in turn share a card: they stand."""
    compared = {one.kernel.key: one for one in sides.kernels}
    ratios = {each.key: each.p50.ratio for each in kernels if each.p50 is not None}
    return [_doubt(gate, compared[each.key], each, [ratio for key, ratio in ratios.items() if key != each.key])
            if each.verdict == Verdict.SLOWER and each.key in compared else each for each in kernels]


def _doubt(gate: Gate, one: KernelComparison, said: KernelVerdict, others: Sequence[float]) -> KernelVerdict:
    ours, theirs = _cards(one.candidate), _cards(one.baseline.runs)
    if one.stage != STORED or len(ours) != 1 or "" in ours | theirs or not theirs or ours & theirs or said.p50 is None \
            or any(metric.get("verdict") == Verdict.SLOWER for metric in said.metrics):
        return said
    card = next(iter(ours))
    answer = tell_card_from_build(said.p50.ratio, rule_of(gate.suite.rule, one.kernel.rule).floor, others,
                                  _measured_effect(gate, one, card, theirs))
    if answer.kind == "build":
        return replace(said, reason=f"{said.reason} (on {_short(card)}, the baseline on {_named(theirs)}; {_cleared(answer)})")
    return replace(said, verdict=Verdict.AMBIGUOUS, reason=_sentence(answer, said, card, theirs), more_runs=max(1, gate.suite.runs))


def _cards(rows: Sequence[KernelRun]) -> set[str]:
    return {row.gpu_uuid for row in rows}


def _measured_effect(gate: Gate, one: KernelComparison, card: str, theirs: set[str]) -> float | None:
    """Time on the candidate's card over time on the baseline's, from other builds that ran on both."""
    row = one.candidate[0]
    rows = KernelRun.objects.filter(kernel=one.kernel, rejected="", gpu_uuid__in=[card, *theirs], gpu=row.gpu, toolkit=row.toolkit,
                                    driver=row.driver, recorded=row.recorded).exclude(build=gate.build_id).order_by("-pk")
    here: dict[str, list[float]] = defaultdict(list)
    there: dict[str, list[float]] = defaultdict(list)
    for build, uuid, us in rows.values_list("build__name", "gpu_uuid", "p50_us")[:MOST_RUNS]:
        if us is not None:
            (here if uuid == card else there)[build].append(us)
    return card_effect(here, there)


def _sentence(answer: CardAnswer, said: KernelVerdict, card: str, theirs: set[str]) -> str:
    size = f"{percent_text(said.p50.ratio)} slower" if said.p50 else "slower"
    where = f"all its runs are of {_short(card)}, the baseline's of {_named(theirs)}"
    ask = f"For a verdict, run it on {_named(theirs)}, or the baseline's build on {_short(card)}"
    if answer.kind == "card":
        known = f"{_short(card)} is {percent_text(answer.effect or 1)} slower with other builds too"
        return f"this GPU, not the build: {size}, and {known}; {where}. {ask}"
    seen = "the other kernels are slower as well" if answer.common else "no other kernel tells them apart"
    return f"this GPU or the build, which cannot be told: {size}; {where}, and {seen}. {ask}"


def _cleared(answer: CardAnswer) -> str:
    if answer.effect is not None:
        return f"other builds differ by {percent_text(answer.effect)} between them, which does not explain it"
    return "the other kernels are no slower there, so the card is not"


def _short(uuid: str) -> str:
    return uuid if len(uuid) <= 14 else f"{uuid[:13]}…"


def _named(cards: set[str]) -> str:
    names = sorted(cards)
    return ", ".join(map(_short, names[:3])) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
