"""An edited space without a database: what is read, refused, counted, and what a search then sees."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from profiles.base.refused import Refused
from tuner.spaces import own as own_spaces
from tuner.spaces.edit import TAKEN_OUT, OwnSpace, Values, count_edited, edit_text, edited_space, has_default, read_edit
from tuner.spaces.own import space_of_operator
from tuner.tuning.measure.landscape import Landscape
from tuner.tuning.operators import OPERATORS, limits
from tuner.tuning.search.strategies import STRATEGIES
from tuner.tuning.search.strategies.prior_knowledge import PastSearch, PriorKnowledge
from tuner.tuning.space import MAX_PRODUCT, Param
from tuner.tuning.trial import Config, Measured, Trial, config_key

H200 = limits("NVIDIA H200")
MATMUL, ROW_SUM = OPERATORS["matmul"], OPERATORS["row_sum"]
SHAPE = {"M": 1024, "N": 1024, "K": 1024}
NARROW = {"parameters": {"BM": [64, 128], "KERNEL": ["tiles"]}, "constraints": ["BM * BN <= 8192", "num_stages < 5 or M > 4096"]}


@pytest.fixture
def own() -> OwnSpace:
    return space_of_operator(MATMUL, SHAPE, "bf16", H200)


def described(*, constraints: dict[str, str] | None = None, **params: list[Any]) -> dict[str, Any]:
    """A team's operator as a worker describes it."""
    return {"params": params, "constraints": constraints or {}}


@pytest.fixture
def team(monkeypatch: pytest.MonkeyPatch) -> Any:
    def make(told: dict[str, Any], default: Config) -> OwnSpace:
        class Team:
            name = "acme_scale"

            def default_config(self, *problem: Any) -> Config:
                return default

        monkeypatch.setattr(own_spaces.selectors, "operator_description", lambda name: told)
        return space_of_operator(Team(), {"N": 4096}, "fp32", H200)          # type: ignore[arg-type]
    return make


def refused(own: OwnSpace, given: Any) -> dict[str, str]:
    with pytest.raises(Refused) as caught:
        read_edit(given, own)
    return caught.value.fields


def test_values_are_taken_out_and_constraints_added(own: OwnSpace) -> None:
    edit = read_edit(NARROW, own)
    whole = MATMUL.space(SHAPE, "bf16", H200)
    expected = [config for config in whole.configs() if config["BM"] in (64, 128) and config["KERNEL"] == "tiles"
                and int(config["BM"]) * int(config["BN"]) <= 8192 and int(config["num_stages"]) < 5]
    space, counted = edited_space(own, edit), count_edited(own, edit)
    assert [config_key(each) for each in space.configs()] == [config_key(each) for each in expected] and expected
    assert (counted.valid, counted.size, counted.whole) == (len(expected), whole.size, True)
    assert counted.left_out == space.pruned and sum(counted.left_out.values()) + counted.valid == counted.size == space.size
    assert counted.left_out[TAKEN_OUT] and counted.left_out["BM * BN <= 8192"] and counted.left_out["shared memory"] > 0
    assert [param.values for param in space.params if param.name == "BM"] == [(64, 128)]


def test_the_same_values_in_another_order_are_no_edit(own: OwnSpace) -> None:
    edit = read_edit({"parameters": {"BM": [256.0, 16, 192, 32, 64, 128], "STORE": ["halves", "tma", "direct"]}}, own)
    assert not edit and edit.as_json() == {"parameters": {}, "constraints": [], "own": {}}
    assert read_edit({"parameters": {"BM": "64, 16"}}, own).parameters == {"BM": (16, 64)}
    assert read_edit({"parameters": {"STORE": ["tma", "direct"]}}, own).parameters == {"STORE": ("direct", "tma")}


def test_what_a_row_keeps_is_read_again(own: OwnSpace) -> None:
    edit = read_edit(NARROW, own)
    assert read_edit(edit.as_json(), own) == edit
    assert edit_text(edit.as_json()) == (
        "BM 64, 128 (without 16, 32, 192, 256); KERNEL tiles (without tma, persistent, specialised, waves and split, warp groups); "
        "BM * BN <= 8192; num_stages < 5 or M > 4096")
    wider = {"parameters": {"a": [1, 2, 3]}, "own": {"a": [1, 2]}, "constraints": []}
    assert edit_text(None) == "" and edit_text(wider) == "a with 3"


@pytest.mark.parametrize(("given", "field", "words"), [
    ({"parameters": {"BM": [48]}}, "parameters.BM", "48: its kernels are not written for that value; it has 16, 32, 64"),
    ({"parameters": {"BM": []}}, "parameters.BM", "leave at least one value"),
    ({"parameters": {"BM": 64}}, "parameters.BM", "give a list"),
    ({"parameters": {"BM": [{}]}}, "parameters.BM", "no number and no short text"),
    ({"parameters": {"BM": [True]}}, "parameters.BM", "not written for"),
    ({"parameters": {"BM": [float("nan")]}}, "parameters.BM", "no number"),
    ({"parameters": {"BM": [2**70]}}, "parameters.BM", "no number"),
    ({"parameters": {"BQ": [1]}}, "parameters.BQ", "matmul has no such parameter; it has BM, BN"),
    ({"parameters": [1]}, "parameters", "must be an object"),
    ({"constraints": ["BM <"]}, "constraints[0]", "is no expression"),
    ({"constraints": ["BM > 1", "__import__('os')"]}, "constraints[1]", "only numbers, names"),
    ({"constraints": ["x > 1"]}, "constraints[0]", "x is none of BK, BM"),
    ({"constraints": ["BM\0 > 1"]}, "constraints[0]", "is no expression"),
    ({"constraints": [3]}, "constraints[0]", "an expression is a text"),
    ({"constraints": "BM > 1"}, "constraints", "must be a list of at most 16"),
    ({"constraints": ["BM > 1"] * 17}, "constraints", "must be a list of at most 16"),
    ({"params": {}}, "", 'must be an object of "parameters"'), ([], "", 'must be an object of "parameters"'),
])
def test_what_is_wrong_is_named_at_its_field(own: OwnSpace, given: Any, field: str, words: str) -> None:
    fields = refused(own, given)
    assert list(fields) == [field] and words in fields[field]


@pytest.mark.parametrize("text", ["KERNEL * 1000000000 != 3", "KERNEL % 3 != 1", "KERNEL + 1 > 0"])
def test_a_text_has_no_arithmetic(own: OwnSpace, text: str) -> None:
    with pytest.raises(Refused, match="no arithmetic") as caught:
        count_edited(own, read_edit({"constraints": [text]}, own))
    assert list(caught.value.fields) == ["constraints[0]"]


def test_a_space_that_leaves_nothing_says_what_took_it(own: OwnSpace) -> None:
    edit = read_edit({"constraints": ["BM > 9999"]}, own)
    with pytest.raises(Refused, match=r"no configuration is left on NVIDIA H200 \(.*BM > 9999"):
        edited_space(own, edit)
    assert count_edited(own, edit).valid == 0


def test_the_default_is_in_it_or_not(own: OwnSpace) -> None:
    default = own.default
    assert default is not None and has_default(own, read_edit({"constraints": ["BM <= 128"]}, own))
    assert not has_default(own, read_edit({"parameters": {"BM": [64]}}, own))
    assert not has_default(own, read_edit({"constraints": ["num_stages > 3"]}, own)) and default["num_stages"] == 3


def test_a_teams_space_takes_values_and_counts_its_own_constraints_again(team: Any) -> None:
    told = described(BLOCK=[256, 512], num_warps=[4, 8], MODE=["a", "b"],
                     constraints={"a block per warp": "BLOCK >= 64 * num_warps"})
    own = team(told, {"BLOCK": 256, "num_warps": 4, "MODE": "a"})
    edit = read_edit({"parameters": {"BLOCK": [128, 256, 1024], "MODE": ["c"], "num_warps": [1, 4]}}, own)
    assert edit.parameters == {"BLOCK": (128, 256, 1024), "MODE": ("c",), "num_warps": (1, 4)}
    counted, space = count_edited(own, edit), edited_space(own, edit)
    assert (counted.size, counted.valid, counted.left_out) == (6, 5, {"a block per warp": 1}) and len(space) == 5
    assert {config["MODE"] for config in space.configs()} == {"c"} and not has_default(own, edit)
    assert has_default(own, read_edit({"parameters": {"BLOCK": [128, 256]}}, own))
    assert edit_text(edit.as_json()) == ("BLOCK 256 (without 512, with 128, 1024); MODE c (without a, b, with c); "
                                         "num_warps 4 (without 8, with 1)")


@pytest.mark.parametrize(("values", "words"), [
    ({"num_warps": [3, 4]}, "a block has 1, 2, 4"), ({"num_warps": [64]}, "a block has"), ({"num_stages": [99]}, "0 to 16 stages"),
    ({"BLOCK": ["x"]}, "of another kind than 256"), ({"BLOCK": [256.5]}, "of another kind"), ({"BLOCK": [True]}, "of another kind"),
    ({"MODE": [1]}, "of another kind than a"), ({"MODE": ["a\0"]}, "no NUL"), ({"BLOCK": list(range(100))}, "give 1 to 64"),
])
def test_values_that_a_teams_operator_cannot_have(team: Any, values: dict[str, Any], words: str) -> None:
    own = team(described(BLOCK=[256], num_warps=[4], num_stages=[2], MODE=["a"]), {"BLOCK": 256})
    assert words in next(iter(refused(own, {"parameters": values}).values()))


def test_a_kernel_that_lists_its_configurations_takes_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_spaces.selectors, "operator_description", lambda name: {"params": {}, "constraints": {}})
    monkeypatch.setattr(own_spaces, "OPERATORS", {})
    own = space_of_operator(ROW_SUM, {"R": 8192, "C": 8192}, "bf16", H200)
    assert "autotuner lists its configurations: add it there" in refused(own, {"parameters": {"BLOCK": [777]}})["parameters.BLOCK"]


def test_counting_has_a_limit_and_says_so(team: Any) -> None:
    own = team(described(A=list(range(1, 65)), B=list(range(1, 65)), C=list(range(1, 65))), {"A": 1, "B": 1, "C": 1})
    counted = count_edited(own, read_edit({"constraints": ["A + B + C > 0"]}, own), limit_s=0.05)
    assert not counted.whole and 0 < counted.valid < counted.size == 64**3
    with pytest.raises(Refused, match=f"at most {MAX_PRODUCT:,}"):
        count_edited(team(described(**{name: list(range(64)) for name in "ABCD"}), {}), read_edit({}, own))


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_no_strategy_proposes_anything_outside_whatever_was_measured_in_wider_spaces(strategy: str) -> None:
    landscape = Landscape.load(own_spaces.devices.landscape_paths()["matmul"])
    own = own_spaces.space_of_recording(landscape, 0)
    space = edited_space(own, read_edit({"parameters": {"BM": [64, 128], "num_warps": [4, 8]}, "constraints": ["BN != 128"]}, own))
    assert 20 < len(space) < len(landscape.space(0)) and own.default not in space

    def trials(index: int) -> Iterator[Trial]:
        for number, (config, outcome) in enumerate(landscape.at(index).outcomes.values()):
            yield Trial(number, config, outcome, 0.0)

    past = [PastSearch("matmul", landscape.at(index).shape, "bf16", H200, "", list(trials(index)), 10**9, 10**6)
            for index in (1, 2)]
    known = PriorKnowledge("matmul", landscape.at(0).shape, "bf16", H200, "", 10**9, 10**6, own.default, past)
    search, asked = STRATEGIES[strategy].make(space, np.random.default_rng(1), known), 0
    while asked < 60 and (configs := search.ask(3)):
        assert all(config in space for config in configs), configs
        asked += len(configs)
        for config in configs:
            ms = 1.0 + 1 / math.prod(value for value in config.values() if isinstance(value, int))
            search.tell([Trial(asked, config, Measured(ms, ms, ms, 9), 0.0)])
    assert asked >= 10


def test_an_own_space_says_its_values() -> None:
    def walk(values: Values) -> Iterator[tuple[Config, str]]:
        yield {"a": 1}, ""
    own = OwnSpace("x", "", (Param("a", (1, 2)),), {}, None, "", {}, walk, lambda values: 1)
    assert own.values == {"a": (1, 2)} and not has_default(own, read_edit({}, own))
