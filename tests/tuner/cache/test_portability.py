"""Transfers between GPUs, toolkits and shapes: small known answers, and a published recording."""

from pathlib import Path

import pytest

from tuner.cache.buckets import Buckets
from tuner.cache.portability import MeasuredSpace as Place
from tuner.cache.portability import between_gpus, between_toolkits, cells_by_distance, shape_steps, shared_bucket_cell, transfer
from tuner.tuning.measure.landscape import Landscape
from tuner.tuning.trial import Measured

SPACES = Path(__file__).parents[2] / "data" / "public_spaces"


def tried(times, gpu="A", toolkit="triton 3.6.0", operator="matmul", shape=None, exact=()):
    return Place(operator, "bf16", shape or {"M": 4096}, gpu, toolkit, times, exact=frozenset(exact))


def test_efficiency_is_the_best_there_over_the_winner_there():
    moved = transfer(tried({"a": 1.0, "b": 2.0}), tried({"a": 5.0, "b": 4.0, "c": None}, "B"))
    assert (moved.config, moved.efficiency, moved.failed) == ("a", 0.8, False)


def test_what_was_not_tried_is_unknown_and_what_failed_reaches_nothing():
    assert transfer(tried({"a": 1.0}), tried({"b": 4.0}, "B")).efficiency is None
    failed = transfer(tried({"a": 1.0}), tried({"a": None, "b": 4.0}, "B"))
    assert (failed.efficiency, failed.failed) == (0.0, True)
    assert transfer(tried({"a": None}), tried({"b": 4.0}, "B")) is None


def test_a_cell_is_the_geometric_mean_over_shapes_and_keeps_the_unknown():
    far = [tried({"a": 1.0}, shape={"M": 64}), tried({"a": 4.0, "b": 1.0}, "B", shape={"M": 64}),
           tried({"a": 1.0}), tried({"a": 1.0}, "B"), tried({"z": 1.0}, shape={"M": 1}), tried({"y": 1.0}, "B", shape={"M": 1})]
    found = between_gpus(far)
    cell = found.cells["A", "B"]
    assert (len(cell.transfers), len(cell.tried)) == (3, 2)
    assert cell.efficiency == pytest.approx(0.5) and cell.worst == 0.25 and cell.loss == pytest.approx(1.0)
    assert found.names == ["A", "B"]


def test_toolkits_are_compared_on_the_same_gpu_only():
    found = between_toolkits([tried({"a": 1.0, "b": 1.1}), tried({"a": 2.0, "b": 1.0}, toolkit="triton 3.7.0"),
                              tried({"a": 9.0, "b": 1.0}, "B", "triton 3.7.0")])
    assert found.cells["triton 3.6.0", "triton 3.7.0"].efficiency == 0.5
    assert len(found.cells) == 2


def test_what_a_bucket_policy_costs():
    """2900 and 5700 share a power of two, not half of one; 4096 shares a bucket with each in turn."""
    shapes = {2900: {"a": 1.0, "b": 1.2, "c": 1.5}, 4096: {"a": 1.5, "b": 1.2, "c": 1.5}, 5700: {"a": 4.0, "b": 3.0, "c": 2.0}}
    found = shape_steps([tried(times, shape={"M": m}) for m, times in shapes.items()])
    assert len(found) == 6
    whole = shared_bucket_cell(found, Buckets())
    assert len(whole.tried) == 6 and whole.worst == 0.5
    assert shared_bucket_cell(found, Buckets(steps_per_doubling=2)).tried == []
    assert shared_bucket_cell(found, Buckets(steps_per_doubling=0)).efficiency is None
    bands = dict(cells_by_distance(found))
    assert [len(bands[limit].tried) for limit in (0.5, 1, 2)] == [4, 2, 0]
    assert bands[1].worst == 0.5


def test_shapes_that_differ_in_a_dimension_of_the_code_are_no_pair():
    assert shape_steps([tried({"a": 1.0}, shape={"D": 64}, exact={"D"}), tried({"a": 1.0}, shape={"D": 128}, exact={"D"})]) == []


@pytest.mark.slow
@pytest.mark.parametrize(("source", "target", "reaches"), [
    ("A4000", "A6000", 0.964), ("A6000", "A4000", 0.996), ("W7800", "A4000", 0.806)])
def test_published_winners_of_the_convolution_space(source, target, reaches):
    """Recomputed here from the files alone: the time of one GPU's fastest configuration on the other, against its best."""
    def times(gpu):
        landscape = Landscape.load(SPACES / f"convolution_milo_{gpu}_T4.json.xz")
        return {key: outcome.median_ms if isinstance(outcome, Measured) else None
                for key, (_, outcome) in landscape.shapes[0].outcomes.items()}
    here, there = times(source), times(target)
    fastest = min((ms, key) for key, ms in here.items() if ms is not None)[1]
    by_hand = min(ms for ms in there.values() if ms is not None) / there[fastest]
    places = [tried(here, source, operator="convolution"), tried(there, target, operator="convolution")]
    cell = between_gpus(places).cells[source, target]
    assert cell.efficiency == pytest.approx(by_hand) == pytest.approx(reaches, abs=0.001)
