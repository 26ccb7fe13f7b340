"""cublasLt without a GPU: names, what is listed of what the library accepts, versions, and a machine without the library."""

from __future__ import annotations

import ctypes
import gzip
import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.scale import DEEP
from tests.tuner.measure.chosen import WITHOUT_TORCH

pytest.importorskip("torch", reason=WITHOUT_TORCH)

import torch

from tuner.tuning.kernels.problem import Unavailable
from tuner.tuning.kernels.vendor import cublaslt, lt_library, lt_space
from tuner.tuning.kernels.vendor.lt_library import Algorithm, Capabilities, Check, LibraryMissing, version_text
from tuner.tuning.kernels.vendor.lt_space import Limits, list_algorithms
from tuner.tuning.offer import Offer
from tuner.tuning.vendor.lt_names import ATTRIBUTES, PLACE, Numbers, apply_text, config_of, in_order, numbers_of

pytestmark = pytest.mark.torch
RECORDED = Path(__file__).resolve().parents[2] / "data" / "recorded" / "h200_cublaslt_fp8.json.gz"
V131 = "cublasLt 13.1.0"
TILES = tuple(range(1, 635 if DEEP else 64))
NUMBERS: Numbers = (66, 20, 36, 3, 0, 1, 0, 1, 4)
CONFIG = {"ALGO": 66, "TILE": "128x128", "STAGES": "128xAUTO", "CLUSTER": "2x1x1", "INNER": "UNDEFINED", "SPLIT_K": 1,
          "REDUCTION": "NONE", "SWIZZLE": 1, "CUSTOM": 4, "LIBRARY": V131}


class Rules:
    """Accepts by rules that were seen of cublasLt on an H200: see tuner.tuning.kernels.vendor.lt_space."""

    def __init__(self, workspace_bytes: int = 1 << 20, waves: float = 0.5) -> None:
        self.workspace_bytes, self.waves, self.asked = workspace_bytes, waves, 0

    def ids(self) -> list[int]:
        return [6, 67, 99, 66]

    def capabilities(self, number: int) -> Capabilities | None:
        old = Capabilities((15, 20), (15, 16), 0, True, True, (1, 2))
        new = Capabilities(TILES, (35,), 7, False, True, (2,))
        return {6: old, 66: new, 67: replace(new, custom_max=150)}.get(number)

    def algorithm(self, numbers: Sequence[int]) -> Algorithm:
        return Algorithm((ctypes.c_uint64 * 8)(*(number << 32 | numbers[8] if not at else number
                                                 for at, number in enumerate(numbers[:8]))))

    def check(self, algorithm: Algorithm) -> Check | None:
        self.asked += 1
        values = dict(zip(PLACE, (algorithm.data[0] >> 32, *algorithm.data[1:], algorithm.data[0] & 0xFFFF), strict=True))
        if values["ALGO"] == 67:
            return None
        goes = values["TILE"] in (20, 23) and values["CLUSTER"] in (3, 5) and values["CUSTOM"] == values["TILE"] - 19
        if values["ALGO"] == 66 and (not goes or values["INNER"]):
            return None
        return Check(self.workspace_bytes * (values["SPLIT_K"] - 1), self.waves * values["SPLIT_K"])


def test_names_are_those_of_the_header_and_go_both_ways() -> None:
    assert config_of(NUMBERS, V131) == CONFIG and numbers_of(CONFIG, V131) == NUMBERS
    sizes = {each.name: len(each.names) for each in ATTRIBUTES if each.prefix}
    assert sizes == {"TILE": 635, "STAGES": 39, "CLUSTER": 52, "INNER": 5, "REDUCTION": 5}
    for each in ATTRIBUTES:
        for number, name in enumerate(each.names):
            assert name == "-" or each.number_of(each.value_of(number)) == number
            assert name != "-" or each.value_of(number) == f"id {number}"
    assert numbers_of({**CONFIG, "TILE": "id 700"}, V131)[PLACE["TILE"]] == 700


@pytest.mark.parametrize(("change", "said"), [
    ({"LIBRARY": "cublasLt 12.8.4"}, "is of cublasLt 12.8.4, this machine has cublasLt 13.1.0"), ({"LIBRARY": 5}, "is of 5"),
    ({"TILE": "7x7"}, "TILE must be a name of CUBLASLT_MATMUL_TILE_"), ({"TILE": "-"}, "TILE must"),
    ({"CLUSTER": "id 1e9"}, "CLUSTER"),
    ({"SPLIT_K": -1}, "SPLIT_K must be a whole number"), ({"SPLIT_K": True}, "SPLIT_K"), ({"CUSTOM": "4"}, "CUSTOM"),
    ({"ALGO": 1 << 40}, "ALGO must be a whole number")])
def test_another_version_and_nonsense_are_refused(change: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        numbers_of({**CONFIG, **change}, V131)         # type: ignore[dict-item]


def test_a_configuration_that_lacks_attributes_is_refused() -> None:
    with pytest.raises(ValueError, match="does not name STAGES, CLUSTER"):
        numbers_of({name: value for name, value in CONFIG.items() if name not in ("STAGES", "CLUSTER")}, V131)


def test_the_text_to_paste_sets_every_attribute() -> None:
    text = apply_text({**CONFIG, "TILE": "id 700"})
    assert "D, 66, &algo);" in text and "uint32_t tile = 700;" in text and "CUBLASLT_CLUSTER_SHAPE_2x1x1" in text and V131 in text
    assert text.count("cublasLtMatmulAlgoConfigSetAttribute") == len(ATTRIBUTES) - 1 and apply_text({}) == ""


@pytest.mark.deep
def test_all_that_is_accepted_is_listed_and_what_is_not_read_is_left_alone() -> None:
    listing = list_algorithms(Rules(), (9, 0), Limits(seconds=60, workspace_bytes=100 << 20), preferred=[66])
    found = [dict(zip(PLACE, numbers, strict=True)) for numbers in listing.found]
    assert not listing.whole and listing.pruned[lt_space.UNSEEN] == 1, "67 accepts nothing and is given up"
    # 6: 2 tiles × 2 stages × 2 swizzles × (1 + 10 splits × 2 reductions); 66: 2 tiles with their option × 2 clusters × (1 + 10)
    assert listing.by_algorithm == {66: 4 * 11, 6: 4 * 2 * 21} and next(iter(listing.by_algorithm)) == 66
    assert {each["CLUSTER"] for each in found if each["ALGO"] == 6} == {0} and {each["INNER"] for each in found} == {0}
    assert {(each["TILE"], each["CUSTOM"]) for each in found if each["ALGO"] == 66} == {(20, 1), (23, 4)}
    assert all((each["REDUCTION"] != 0) == (each["SPLIT_K"] > 1) for each in found) and listing.pruned[lt_space.REFUSED] > 0


@pytest.mark.deep
def test_a_product_that_fills_the_gpu_is_not_split() -> None:
    listing = list_algorithms(Rules(waves=2.0), (9, 0), Limits(seconds=60), preferred=[66])
    assert {numbers[PLACE["SPLIT_K"]] for numbers in listing.found} == {1} and listing.pruned[lt_space.FULL] == 4 * 20 + 4 * 10


def test_clusters_are_for_gpus_that_have_them() -> None:
    listing = list_algorithms(Rules(), (8, 0), Limits(seconds=60))
    assert {numbers[PLACE["CLUSTER"]] for numbers in listing.found} == {0} and set(listing.by_algorithm) == {6}


def test_a_listing_ends_by_workspace_count_and_time_and_says_so() -> None:
    small = list_algorithms(Rules(), (9, 0), Limits(seconds=60, workspace_bytes=4 << 20))
    assert max(numbers[PLACE["SPLIT_K"]] for numbers in small.found) == 5 and small.pruned["needs more workspace than 4 MiB"] > 0
    few = list_algorithms(Rules(), (9, 0), Limits(seconds=60, configs=10))
    assert len(few.found) == 10 and not few.whole and few.pruned[lt_space.UNSEEN] == 4
    ticks = itertools.count()
    late = list_algorithms(Rules(), (9, 0), Limits(seconds=2), clock=lambda: float(next(ticks)))
    assert late.found and not late.whole and late.pruned[lt_space.UNSEEN]


def test_tiles_are_ordered_by_size() -> None:
    tiles = [config_of((6, tile, 0, 0, 0, 1, 0, 0, 0), V131) for tile in (23, 15, 20, 0, 634)]
    assert list(in_order(tiles)["TILE"]) == ["UNDEFINED", "64x64", "128x128", "128x256", tiles[-1]["TILE"]]
    offer = Offer.of(tiles, V131, preferred=tiles[2:3], values=in_order(tiles))
    assert offer.default_config == tiles[2] and offer.space.params[1].values[1] == "64x64"


@pytest.mark.parametrize(("number", "text"), [(130100, "13.1.0"), (120804, "12.8.4"), (11502, "11.5.2")])
def test_versions(number: int, text: str) -> None:
    assert version_text(number) == text


def test_a_machine_without_the_library_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lt_library, "SONAMES", ("libcublasLt-of-nobody.so.13",))
    if lt_library.loaded_path() is None:
        with pytest.raises(LibraryMissing, match=r"no cublasLt: libcublasLt-of-nobody\.so\.13"):
            lt_library.CublasLt()


def test_without_a_gpu_the_operator_says_so_and_compiles_nothing_ahead() -> None:
    shape = {"M": 64, "N": 64, "K": 64}
    with pytest.raises(Unavailable, match="cublasLt needs an NVIDIA GPU"):
        cublaslt.CublasLtMatmul(shape, "bf16", torch.device("cpu"), 0)
    with pytest.raises(NotImplementedError):
        cublaslt.CublasLtMatmul(shape, "bf16", torch.device("meta"), 0)


def test_attributes_go_through_the_library_itself() -> None:
    """Runs where cublasLt is installed, with or without a GPU: a description needs none."""
    try:
        library = lt_library.CublasLt()
    except LibraryMissing as error:
        pytest.skip(str(error))
    matrix = lt_library.Matrix(lt_library.DATA_TYPES["bf16"], 64, 64, 64)
    product = lt_library.Product(library, matrix, matrix, matrix)
    for attribute, number in zip(ATTRIBUTES[1:], (20, 36, 3, 2, 4, 2, 1, 7), strict=True):
        algorithm, value = Algorithm(), (ctypes.c_uint16 if attribute.bytes == 2 else ctypes.c_uint32)(number)
        library.call("cublasLtMatmulAlgoConfigSetAttribute", ctypes.byref(algorithm), attribute.number, ctypes.byref(value),
                     ctypes.c_size_t(attribute.bytes))
        assert product.attributes(algorithm)[PLACE[attribute.name]] == number
    assert re.fullmatch(r"cublasLt 1\d\.\d+\.\d+", library.name)


class Recorded(Rules):
    """What cublasLt 13.1.0 accepted for 4096³ fp8 on an H200."""

    def __init__(self) -> None:
        super().__init__()
        told = json.loads(gzip.decompress(RECORDED.read_bytes()))
        self.preferred = [tuple(numbers) for numbers in told["preferred"]]
        self.able = {int(number): can for number, can in told["capabilities"].items()}
        self.accepted = {tuple(row[:9]): Check(row[9], row[10]) for row in told["accepted"]}

    def ids(self) -> list[int]:
        return list(self.able)

    def capabilities(self, number: int) -> Capabilities | None:
        can: dict[str, Any] = {name: tuple(each) if isinstance(each, list) else each for name, each in self.able[number].items()}
        return Capabilities(**can)

    def check(self, algorithm: Algorithm) -> Check | None:
        self.asked += 1
        return self.accepted.get((algorithm.data[0] >> 32, *algorithm.data[1:], algorithm.data[0] & 0xFFFF))


@pytest.mark.slow
def test_what_an_h200_accepted_is_listed_again() -> None:
    recorded = Recorded()
    listing = list_algorithms(recorded, (9, 0), Limits(seconds=120), {numbers[0] for numbers in recorded.preferred})
    assert listing.found == recorded.accepted and listing.by_algorithm == {66: 11448, 62: 12}
    assert set(recorded.preferred) <= set(listing.found) and recorded.preferred[0][PLACE["CLUSTER"]] == 5
    assert listing.pruned[lt_space.UNSEEN] == 1, "67 is for newer GPUs"
