"""The range of a step's time holds its mean, where the GPU's work runs on behind the last step too."""

from __future__ import annotations

import pytest

from profiles.analysis.compare.step import step_times
from tests.profiles.needed.natural import needs


@pytest.mark.parametrize("file", ["h200/kineto_layer.json.gz", "h200/kineto_train.json.gz", "natural/scores_written_out.json.gz"])
def test_the_mean_of_the_steps_is_within_their_range(file):
    gpu, = (gpu for gpu in needs(file).gpus if gpu.steps)
    times = step_times(vars(gpu))
    assert len(times) == gpu.steps and sum(times) == gpu.wall_ns
    assert min(times) <= gpu.wall_ns / gpu.steps <= max(times)


def test_only_the_last_step_has_what_runs_behind_it():
    gpu, = needs("h200/kineto_layer.json.gz").gpus
    times = step_times(vars(gpu))
    assert times[:-1] == list(gpu.step_ns[:-1]) and times[-1] - gpu.step_ns[-1] == gpu.wall_ns - sum(gpu.step_ns) > 2_000_000


def test_steps_that_are_not_all_kept_stay_as_they_are():
    assert step_times({"step_ns": [5, 6], "steps": 3, "wall_ns": 30}) == [5, 6]
    assert step_times({"step_ns": [], "steps": 1, "wall_ns": 9}) == []
