"""What is read of kernel files from their text alone."""

from __future__ import annotations

import pytest

from profiles.base.refused import Refused
from tests.tuner.bring.files import ADD, GATHER, HELION, MATMUL
from tuner.bring.literals import UNKNOWN
from tuner.bring.source import Kernel, kernels_of
from tuner.bring.spaces import assumed_constexprs, default_of, params_of, space_of
from tuner.tuning.operators.limits import Limits

GPU = Limits("H100", "9.0", 232_448, 132)


def only(text: str) -> Kernel:
    kernel, = kernels_of(text)
    return kernel


def kinds(kernel: Kernel) -> dict[str, str]:
    return {each.name: each.kind for each in kernel.arguments}


def test_a_plain_kernel_with_what_the_file_launches_it_with() -> None:
    kernel = only(ADD)
    assert kinds(kernel) == {"x_ptr": "pointer", "y_ptr": "pointer", "output_ptr": "pointer", "n_elements": "integer",
                             "BLOCK_SIZE": "constexpr"}
    assert [each.name for each in kernel.arguments if each.written] == ["output_ptr"]
    assert kernel.fixed == {"BLOCK_SIZE": 1024, "num_warps": 8}
    assert kernel.grid == 'lambda meta: (triton.cdiv(meta["n_elements"], meta["BLOCK_SIZE"]),)'
    assert default_of(kernel, params_of(kernel)) == {"BLOCK_SIZE": 1024, "num_warps": 8, "num_stages": 1}


def test_an_autotuned_kernel_with_its_list_and_a_helper_that_is_none_itself() -> None:
    kernel = only(MATMUL)
    assert (kernel.kind, kernel.name, kernel.key) == ("triton.autotune", "mm", ("M", "N", "K"))
    assert kernel.configs is not None and len(kernel.configs) == 6
    assert kernel.configs[0] == {"BM": 64, "BN": 128, "BK": 32, "num_warps": 4, "num_stages": 3}
    assert {name for name, kind in kinds(kernel).items() if kind == "pointer"} == {"A", "B", "C"}
    assert kernel.tiles == (("BM", "BN"),) and kernel.loops
    space = space_of(kernel, GPU)
    assert (space.size, len(space)) == (6, 6)


def test_pointers_are_followed_into_other_kernels_and_indices_told_from_values() -> None:
    kernel = only(GATHER)
    assert kinds(kernel) == {"out": "pointer", "table": "pointer", "ids": "index", "D": "integer", "stride": "integer",
                             "eps": "number", "HAS_BIAS": "constexpr", "B": "constexpr"}
    params = params_of(kernel)
    assert set(params) == {"num_warps", "num_stages"}          # B must cover D: neither a program nor a loop steps by it
    assert assumed_constexprs(kernel, params, {}) == {"HAS_BIAS": False}
    assert assumed_constexprs(kernel, params, {"HAS_BIAS": 1}) == {}


def test_accumulators_that_no_thread_can_hold_are_left_out() -> None:
    plain = MATMUL.replace(MATMUL[MATMUL.index("@triton.autotune"):MATMUL.index("@triton.jit\ndef mm")], "")
    space = space_of(only(plain), GPU)
    assert space.pruned == {"BM × BN accumulators fit into the registers": space.size - len(space)} and len(space)
    assert all(int(config["BM"]) * int(config["BN"]) <= 255 * 32 * int(config["num_warps"]) for config in space.configs())


def test_a_block_that_the_caller_computes_is_not_tuned() -> None:
    kernel = only(ADD.replace("BLOCK_SIZE=1024", "BLOCK_SIZE=triton.next_power_of_2(n)"))
    assert kernel.fixed["BLOCK_SIZE"] is UNKNOWN
    assert "BLOCK_SIZE" not in params_of(kernel)


def test_helion_kernels_and_configurations_that_are_computed() -> None:
    kernel = only(HELION)
    assert kernel.kind == "helion.kernel" and kernel.configs is not None
    assert kernel.configs[1] == {"block_sizes": [128, 64], "num_warps": 8}
    computed = only(MATMUL.replace("configs=[", "configs=get_configs() or ["))
    assert computed.configs is None


@pytest.mark.slow
@pytest.mark.parametrize(("text", "said"), [
    ("def f(:\n", "in line 1"), ("(" * 5000, "no Python"), ("x = '\0'", "no Python"), ("#" * (3 << 20), "characters"),
    ("x = [" + "1," * 300_000 + "]", "parts")])
def test_what_is_no_python_is_refused_in_words(text: str, said: str) -> None:
    with pytest.raises(Refused, match=said):
        kernels_of(text)


def test_nothing_of_the_file_runs_and_endless_values_end() -> None:
    hostile = MATMUL.replace("for bm in (64, 128)", "for bm in range(10**9)")
    assert only(hostile).configs is None
    assert only(MATMUL.replace("bm * bn >= 64 * 128", "2 ** 10 ** 9")).configs is None
    assert only(ADD + "\nraise SystemExit('it ran')\n").name == "add_kernel"
    assert kernels_of("x = 1") == []
