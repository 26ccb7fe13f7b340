"""What serves from now on: never anything that is slower than the default; recorded runs of an H200 and written-out ones."""

import gzip
import json
import random
from dataclasses import replace

import numpy as np
import pytest

from tests.tuner.gate_stats.gate_runs import H200, kernel, recorded, some
from tuner.gate.stats.runs import KernelRuns, Run
from tuner.gate.stats.winner import Contender, Problem, choose, runs_needed

SOFTMAX = [each for each in recorded() if each.op == "softmax"]
EMPTY = KernelRuns("k")


def side(config, which):
    (found,) = [each for each in SOFTMAX if all(each.config[name] == value for name, value in config.items())]
    return some(found, which)


def problem(default, served, *rivals, seed=1, runs=6):
    """All sides from the same recorded processes, in other orders."""
    which = random.Random(seed).sample(range(24), runs)
    named = [("served", served), *((f"rival {number}", rival) for number, rival in enumerate(rivals, 1))]
    return Problem("k", side(default, which), [Contender(name, side(config, which[::-1])) for name, config in named if config],
                   served="served" if served else "")


FAST, SIMILAR = {"STEPS": 3, "PER_SM": 32, "num_warps": 8}, {"STEPS": 3, "PER_SM": 32, "num_warps": 4}     # 38.5, 38.3 µs
MIDDLE, SLOW = {"STEPS": 3, "PER_SM": 16, "num_warps": 8}, {"STEPS": 3, "PER_SM": 8, "num_warps": 8}       # 40.4, 41.2 µs


@pytest.mark.parametrize(("default", "served", "rivals", "serves", "says"), [
    (SLOW, FAST, [SIMILAR], "served", "the served stays: it takes"),                    # a rival that is 0.6 % faster is no reason
    (SLOW, MIDDLE, [FAST], "rival 1", "less time than the served"),                     # still faster than the default, and beaten
    (FAST, SLOW, [MIDDLE], "", "the default serves now: the served is not surely faster"),
    (MIDDLE, SLOW, [FAST], "rival 1", "rival 1 serves now"),
    (SLOW, None, [FAST], "rival 1", "the default served so far"),
    (FAST, None, [SLOW], "", "the default stays"),
], ids=["stays", "beaten", "worse than the default", "rival", "default beaten", "default stays"])
def test_recorded_configurations(default, served, rivals, serves, says):
    for seed in range(8):
        (choice,) = choose([problem(default, served, *rivals, seed=seed)])
        assert (choice.serves, choice.open) == (serves, False) and says in choice.says, choice.says


def test_what_an_h200_measured():
    """tests/gpu/revalidate_on_gpu.py: seven fresh processes of each side in turn; the last winner was stale on purpose."""
    with gzip.open(H200.parent / "recorded" / "revalidation_on_gpu.json.gz", "rt") as file:
        session = json.load(file)
    grouped = {}
    for run in session["runs"]:
        grouped.setdefault(run["kernel"], {}).setdefault(run["side"], []).append(
            Run(f"{run['side']} {run['number']}", np.array(run["us"]), run["sm_clock_mhz"], run["gpu"]))
    found = choose([Problem(key, KernelRuns(key, key=key, runs=sides.pop("operator's default")),
                            [Contender(name, KernelRuns(key, key=key, runs=runs)) for name, runs in sides.items()],
                            served="cached winner") for key, sides in grouped.items()])
    assert [(choice.key.split()[0], choice.serves) for choice in found] == [
        ("matmul", "cached winner"), ("matmul", "cached winner"), ("softmax", "cached winner"), ("softmax", "")]
    gains = [choice.against_default["cached winner"].p50.ratio for choice in found]
    assert gains == pytest.approx([0.796, 0.371, 0.831, 1.285], abs=0.001)


def test_what_is_slower_than_the_default_never_serves():
    """Any configuration of the recording as default, served and rival: what is chosen is faster, or it is the default."""
    configs = [each.config for each in SOFTMAX]
    rng = random.Random(3)
    for seed in range(30):
        default, served, rival = rng.sample(configs, 3)
        (choice,) = choose([problem(default, served, rival, seed=seed)], last=True)
        if choice.serves:
            assert choice.against_default[choice.serves].p50.high < 1


def of(name, medians, refused=()):
    return Contender(name, kernel(medians, key="k") if medians else EMPTY, refused)


QUIET, FASTER = [100.0, 100.1, 99.9, 100.2, 99.8, 100.05], [90.0, 90.1, 89.9, 90.2, 89.8, 90.05]
NOISY = [80.0, 118.0, 90.0, 125.0, 84.0, 110.0]


def test_noise_asks_for_more_runs_and_then_the_default_serves():
    asked = Problem("k", kernel(QUIET, key="k"), [of("served", NOISY)], served="served")
    (choice,) = choose([asked])
    assert choice.open and choice.serves is None and choice.more_runs >= 5
    (choice,) = choose([asked], last=True)
    assert choice.serves == "" and not choice.open


def test_a_run_that_failed_is_tried_again_and_then_it_is_out():
    asked = Problem("k", kernel(QUIET, key="k"), [of("served", FASTER[:5], ["wrong: 3 elements differ"])], served="served")
    assert choose([asked])[0].open
    (choice,) = choose([asked], last=True)
    assert choice.serves == "" and "the served failed in 1 run: wrong: 3 elements differ" in choice.says
    never = replace(asked, contenders=[of("served", [], ["compile: ptxas says no"]), of("rival 1", FASTER)])
    (choice,) = choose([never])
    assert choice.serves == "rival 1" and "no run that can be used: compile: ptxas says no" in choice.says


def test_without_the_default_nothing_is_said():
    asked = Problem("k", EMPTY, [of("served", FASTER)], served="served", default_refused=["crash: illegal access"])
    (choice,) = choose([asked])
    assert choice.serves is None and not choice.open and "crash: illegal access" in choice.says


def test_runs_of_two_gpus_change_nothing():
    mixed = Problem("k", kernel(QUIET, key="k", gpu="A"), [Contender("served", kernel(FASTER, key="k", gpu="B"))], served="served")
    assert choose([mixed])[0].open
    (choice,) = choose([mixed], last=True)
    assert choice.serves is None and "nothing can be said" in choice.says


def test_kernels_share_one_risk():
    """A gain that six runs prove for one kernel is not proven among a hundred."""
    alone = Problem("k", kernel(QUIET, key="k"), [of("served", FASTER)], served="served")
    assert choose([alone])[0].serves == "served"
    noise = [replace(alone, key=f"n{number}", contenders=[of("served", QUIET)]) for number in range(99)]
    assert choose([alone, *noise])[0].serves != "served"
    assert runs_needed(1) == 5 and runs_needed(100) == 9
