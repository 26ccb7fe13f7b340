"""Teams' own kernels: a real package with an entry point, its adapters, its autotuner's rules, and who may enable it."""

import functools
import hashlib
import json
import sys
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import CommandError
from django.urls import reverse

from profiles.base.refused import Refused
from tests.warm.parent import run_program
from tuner.bring.own import selectors as own
from tuner.cache.serve.services import matching_operator
from tuner.models import CachedConfig, OperatorAudit, OperatorPackage, TuneJob
from tuner.team import selectors, services
from tuner.tuning import operators
from tuner.tuning.operators import limits
from tuner.tuning.team import description, packages
from tuner.tuning.team.expressions import Expression
from workers import jobs
from workers.core import gpu
from workers.tune import gpu_child, lead, runner, team
from workers.tune.sandbox import SandboxRunner

PROJECT = Path(__file__).resolve().parents[3]
PACKAGES = PROJECT / "tests" / "packages"
NAMES = ["acme_scale_add", "acme_column_sum", "acme_clamp"]
ENABLED = "not-installed,acme-kernels"
H200 = limits("NVIDIA H200")


@pytest.fixture(autouse=True)
def looked_anew(monkeypatch):
    """Rows of one test are gone in the next, within the second that an answer stands."""
    monkeypatch.setattr(selectors, "FRESH_S", 0.0)


@pytest.fixture
def acme(monkeypatch):
    """The package is installed: for this process's look at metadata, and for children."""
    monkeypatch.syspath_prepend(str(PACKAGES))
    monkeypatch.setenv("PYTHONPATH", str(PACKAGES))


def python(code, *arguments, **environ):
    """Two packages are enabled; that one of them is not installed here must not take the other's kernels away."""
    return run_program(code, *arguments, **{"PYTHONPATH": str(PACKAGES), packages.ENABLED: ENABLED, **environ})[0]


# ---- arithmetic ----

@pytest.mark.parametrize(("text", "value"), [
    ("2 * M * N", 2 * 30 * 7), ("cdiv(M, 4) * size", 8 * 2), ("M // 4 if N > 5 else 1", 7), ("min(M, N) ** 2", 49),
    ("next_power_of_2(M)", 32), ("M < N < 40", False), ("N < M and not M == 3", True), ("-N + 0.5", -6.5)])
def test_expressions_are_arithmetic(text, value):
    assert Expression(text, ["M", "N", "size"]).value({"M": 30, "N": 7, "size": 2}) == value


@pytest.mark.parametrize("text", [
    "", "f'{M}'", "M.__class__", "__import__('os')", "(lambda: 1)()", "[M]", "M[0]", "'a' * 9", "unknown", "min(M, key=M)",
    "M := 2", "open('x')", "M" + " + M" * 300, "(" * 300, "min()", "M if", "await M", "{M: 1}", "M @ M", "M << 400"])
def test_expressions_are_nothing_else(text):
    with pytest.raises(ValueError, match=r"."):
        Expression(text, ["M"])


@pytest.mark.parametrize("text", ["M ** 65", "((((M ** 60) ** 60) ** 60) ** 60)", "M // 0", "2.0 ** 64 ** 64"])
def test_expressions_stay_small(text):
    with pytest.raises(ValueError, match=r"."):
        Expression(text, ["M"]).value({"M": 10**6})


# ---- descriptions ----

def told():
    dim = {"name": "N", "meaning": "", "low": 1, "high": 4096, "exact": False, "only": []}
    return {"name": "acme", "title": "t", "dims": [dim], "dtypes": ["fp16"], "presets": [{"N": 64}], "params": None,
            "configs": [{"BLOCK": 64, "num_warps": 1}, {"BLOCK": 4096, "num_warps": 4}], "default": {"BLOCK": 64, "num_warps": 1},
            "constraints": {"fits": "BLOCK * size <= smem_bytes"}, "flops": "2 * N", "bytes": "size * N", "tolerance": {},
            "unit": "B/s", "kernel_names": ["k"], "kernel": "m.k", "key": ["N"], "prunes": {"early": False, "top_k": None},
            "source_hash": "0" * 64}


def test_a_description_becomes_an_operator():
    operator = description.make_operator(told())
    assert (operator.flops({"N": 10}), operator.bytes({"N": 10}, "fp16"), operator.unit) == (20, 20, "B/s")
    assert len(operator.space({"N": 10}, "fp16", H200)) == 2
    narrow = description.make_operator({**told(), "constraints": {"fits": "BLOCK * size < 8192"}})
    assert narrow.space({"N": 10}, "fp16", H200).pruned == {"fits": 1}
    assert operator.problems({"N": 5000}, "fp16") == {"N": "N (N) must be between 1 and 4,096"}


@pytest.mark.parametrize(("change", "words"), [
    ({"name": "acme; drop"}, "name"), ({"dims": []}, "list of 1"), ({"dims": [{}]}, "is missing"),
    ({"flops": "import os"}, "no expression"),
    ({"flops": "2 * K"}, "K is none of"), ({"configs": []}, "needs `params`"), ({"default": {"BLOCK": 64}}, "must name"),
    ({"configs": [{"BLOCK": 1}]}, "default configuration must name"),
    ({"configs": [{"BLOCK": [1], "num_warps": 1}]}, "no parameter's value"),
    ({"presets": [{"N": 5000}]}, "between 1 and 4,096"), ({"dtypes": ["<script>"]}, "dtype"),
    ({"tolerance": {"fp16": "x"}}, "acme"),
    ({"params": {"B": list(range(65))}}, "list of 1 to 64"), ({"dtypes": "fp16"}, "list"),
    ({"constraints": {"x": "exit()"}}, "only numbers"),
    ({"presets": [{"N": 2**50}]}, "whole number"), ({"kernel_names": None}, "list")])
def test_a_hostile_description_is_refused(change, words):
    with pytest.raises(Refused, match=words):
        description.read_operators(json.dumps([{**told(), **change}]).encode())


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"[1]", b"[" * 100_000, b'[{"name": "a"}]', b" " * (description.MAX_BYTES + 1),
                                  json.dumps([told(), told()]).encode()])
def test_what_is_no_description_is_refused(body):
    with pytest.raises(Refused):
        description.read_operators(body)


# ---- the package ----

PRUNE = """
import json, sys
from tuner.tuning.team import child, packages
packages.provide()
print(json.dumps(child.prune(*sys.argv[1:3], json.loads(sys.argv[3]))))
"""


def test_packages_are_found_without_running_their_code(acme):
    assert {"package": "acme-kernels", "version": "0.3"} in packages.installed_packages()
    assert not any(name.startswith("acme_kernels") for name in sys.modules)


@pytest.mark.torch
@pytest.mark.django_db
def test_a_worker_describes_an_enabled_package(acme, olga, monkeypatch):
    package = services.package_enable("Acme_Kernels", by=olga)
    assert (package.name, package.status) == ("acme-kernels", "waiting") and operators.find("acme_clamp") is None
    team.describe_package(package.pk, "worker-1")
    package.refresh_from_db()
    assert (package.status, package.version, package.error) == ("ready", "0.3", None)
    assert [each["name"] for each in package.operators] == NAMES
    scale, column, clamp = map(operators.find, NAMES)
    # @triton.autotune: its configs are the space, its key the shape
    assert len(scale.space({"N": 1000}, "fp16", H200)) == 9 and scale.kernel_names == ("scale_add",)
    assert package.operators[0]["key"] == ["N"] and package.operators[0]["prunes"] == {"early": True, "top_k": 5}
    assert column.default_config({}, "fp16", H200) == {"ROWS": 1, "num_warps": 4, "num_stages": 3}
    # @triton.jit: the adapter's own parameters and constraints
    space = clamp.space({"N": 600}, "fp16", H200)
    assert space.pruned == {"elements per thread": 8, "no larger than the vector": 1} and len(space) == 7
    # prune_configs_by, run by a fork (early_config_prune, by the worker's child: in the job below)
    monkeypatch.setattr(team, "_run_child", lambda what, *given: json.loads(python(PRUNE, *given)))
    kept = team.prune_space("acme_scale_add", {"N": 1 << 20}, "fp16", scale.space({"N": 1 << 20}, "fp16", H200))
    assert len(kept) == 5 and kept.pruned == {"perf_model's top_k": 4}
    assert team.prune_space("acme_clamp", {"N": 600}, "fp16", space) is space
    assert not any(name.startswith("acme_kernels") for name in sys.modules)          # neither web nor worker imported it
    assert [row.what for row in selectors.audit_list()] == ["described", "enabled"]
    services.package_enable("acme-kernels", by=olga)          # described again: jobs that run keep their kernels meanwhile
    assert operators.find("acme_clamp") is not None and selectors.enabled_packages() == ["acme-kernels"]
    services.package_disable(package, by=olga)
    assert operators.find("acme_clamp") is None and OperatorAudit.objects.first().what == "disabled"


@pytest.mark.torch
@pytest.mark.django_db
def test_a_package_that_is_not_there_or_raises_is_told(acme, olga, tmp_path, monkeypatch):
    absent = services.package_enable("no-such-thing", by=olga)
    team.describe_package(absent.pk, "worker-1")
    absent.refresh_from_db()
    assert absent.status == "failed" and "not installed" in absent.error["what"]
    (tmp_path / "broken-1.dist-info").mkdir()
    (tmp_path / "broken-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (tmp_path / "broken-1.dist-info" / "entry_points.txt").write_text("[ridgepoint.operators]\nx = broken_kernels\n")
    (tmp_path / "broken_kernels.py").write_text(
        "import ctypes; print('{}'); dies = ctypes.c_int(); ctypes.CDLL(None).prctl(2, ctypes.byref(dies))     # PR_GET_PDEATHSIG\n"
        "raise RuntimeError(f'it is broken\\0, and dies of {dies.value} with its worker')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    broken = services.package_enable("broken", by=olga)
    team.describe_package(broken.pk, "worker-1")
    broken.refresh_from_db()
    assert broken.status == "failed" and broken.error["what"] == "RuntimeError: it is broken�, and dies of 9 with its worker"


CHECK = """
import sys, torch
from tuner.tuning.team import packages
from tuner.tuning.operators import find, limits
packages.provide()
from tuner.tuning.measure import accuracy
from tuner.tuning.team.problem import PROBLEMS
for name, shape in (("acme_scale_add", {"N": 1000}), ("acme_column_sum", {"R": 37, "C": 300}), ("acme_clamp", {"N": 777})):
    space = find(name).space(shape, "fp16", limits("NVIDIA H200"))
    problem = PROBLEMS[name](shape, "fp16", torch.device("cpu"), 1)
    for seed, config in enumerate(list(space.configs())[:3]):
        for again in range(2):          # a second launch must not add to the first
            _, verdict = accuracy.check_config(problem, config, seed, 2e-3)
            assert verdict.right, (name, config, verdict)
    if "forget" in sys.argv:
        problem._zeroed, problem._kept = [], {}
        problem.launch(config), problem.launch(config)
        right = accuracy.compare_output(problem.out, problem.reference(), 2e-3).right
        assert right == (name == "acme_clamp"), name
print("right")
"""


@pytest.mark.torch
def test_results_are_right_and_outputs_are_reset_as_the_autotuner_would():
    """Interpreted. Without reset_to_zero and restore_value two of the three would be wrong: that is checked too."""
    assert python(CHECK, "forget", TRITON_INTERPRET="1") == "right\n"


COMPILE = """
import sys
from tuner.tuning.team import packages
packages.provide()
from tuner.tuning.measure.compiler import Compiler
one = Compiler()
one.open({"operator": "acme_scale_add", "shape": {"N": 100000}, "dtype": "bf16", "seed": 0,
          "compute_capability": sys.argv[1], "sms": int(sys.argv[2])})
print(one.compile({"config": {"BLOCK": 1024, "num_warps": 4, "num_stages": 2}})["registers"] > 0)
"""


@pytest.mark.torch
@pytest.mark.parametrize(("capability", "sms"), [pytest.param("8.0", 108, marks=pytest.mark.deep_only), ("9.0", 132),
                                                 pytest.param("10.0", 148, marks=pytest.mark.deep_only)])
def test_a_teams_kernel_compiles_ahead_for_gpus_that_are_not_here(capability, sms, binaries):
    assert python(COMPILE, capability, str(sms), TRITON_CACHE_DIR=str(binaries)) == "True\n"


DESCRIBE = """
import json
from tuner.tuning.team import packages
print(json.dumps([packages.describe_adapter(adapter) for adapter in packages.load_adapters("acme-kernels").values()]))
"""


@pytest.mark.torch
@pytest.mark.django_db(transaction=True, available_apps=settings.INSTALLED_APPS)
def test_a_teams_kernel_is_tuned_like_any_other(acme, alice, olga, monkeypatch, tmp_path):
    """Row → worker → the real GPU child, interpreted: checked, timed, and cached under the hash of the team's own source."""
    card = gpu.Gpu(0, "GPU-interpreted", "Triton's interpreter", "9.0", "", 1)
    monkeypatch.setattr(gpu, "gpus", lambda: [card])
    monkeypatch.setattr(gpu_child, "SPARES", 0)         # each imports torch
    monkeypatch.setattr(gpu.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(runner, "SandboxRunner", functools.partial(
        SandboxRunner, child_module="tests.workers.tune.interpreted_child", policy={"max_samples": 5, "rounds": 2}))
    OperatorPackage.objects.create(name="acme-kernels", status="ready", operators=json.loads(python(DESCRIBE)),
                                   described="2026-01-01T00:00Z", enabled_by=olga)
    job = TuneJob.objects.create(operator="acme_scale_add", shape={"N": 100}, dtype="fp16", device="gpu", strategy="random",
                                 owner=alice, budget_trials=9, budget_seconds=120)
    lead.run(job.pk, "worker-1")
    job.refresh_from_db()
    assert (job.status, job.error, job.pruned) == ("done", None, {"early_config_prune": 6})
    trials = list(job.trials.all())
    assert len(trials) == 3 and all(each.outcome == "measured" and each.config["BLOCK"] == 256 for each in trials)
    source = (PACKAGES / "acme_kernels" / "kernels.py").read_bytes()
    entry = CachedConfig.objects.get(job=job)
    assert entry.source_hash == hashlib.sha256(source).hexdigest() and entry.operator == "acme_scale_add"
    # a kernel of that name in somebody's job is the team's operator
    heard = matching_operator("scale_add", {"N": 64}, "bf16", {"BLOCK": 256, "num_warps": 1, "num_stages": 2}, "NVIDIA H200")
    assert heard.name == job.operator


# ---- who may ----

@pytest.mark.django_db
def test_owners_enable_and_everybody_reads(client, api, alice, bob, olga):
    url = reverse("api-operator-packages")
    assert api(alice).post(url, {"package": "acme-kernels"}).status_code == 403
    assert api(olga, scope="read").post(url, {"package": "acme-kernels"}).status_code == 403
    assert "as pip names it" in api(olga).post(url, {"package": "a b"}).json()["fields"]["package"][0]
    made = api(olga).post(url, {"package": "acme-kernels"})
    assert made.status_code == 201 and made.json()["enabled_by"] == "olga"
    answer = api(bob).get(url).json()
    assert answer["packages"][0]["status"] == "waiting" and answer["audit"][0]["what"] == "enabled"
    assert "matmul" in [each["name"] for each in api(bob).get(reverse("api-operators")).json()["operators"]]
    client.force_login(alice)
    assert client.post(reverse("operator-enable"), {"package": "acme-kernels"}).status_code == 403
    page = client.get(reverse("operators")).content.decode()
    assert "no worker has it" in page and 'name="package"' not in page
    assert "team package<" not in page                       # none of its operators is known yet
    client.force_login(olga)
    package = OperatorPackage.objects.get()
    assert client.post(reverse("operator-package", args=[package.pk]), {"do": "disable"}).status_code == 302
    assert api(alice).delete(reverse("api-operator-package", args=["acme-kernels"])).status_code == 403
    assert OperatorAudit.objects.filter(by=olga).count() == 2
    again = client.post(reverse("operator-enable"), {"package": "<script>"})
    assert again.status_code == 400 and b"&lt;script&gt;" in again.content


@pytest.mark.django_db
def test_a_package_is_described_when_a_worker_has_it(olga, django_capture_on_commit_callbacks):
    with django_capture_on_commit_callbacks(execute=True):
        package = services.package_enable("acme-kernels", by=olga)
    assert package.pk not in jobs.waiting("operators")
    having = [{"package": "acme-kernels", "version": "0.3"}]
    jobs.announce("gpu@test", {"queues": ["gpu"], "gpus": [], "replay": [], "packages": having})
    try:
        assert selectors.packages_on_workers()["acme-kernels"][0]["queue"] == "gpu"
        assert services.packages_wake() == [package.pk] and package.pk in jobs.waiting("operators")
        assert services.packages_wake() == []
    finally:
        jobs.retire("gpu@test")


@pytest.mark.django_db
def test_describing_enables_nothing_and_says_at_once_where_no_worker_has_it(client, olga):
    client.force_login(olga)
    package = services.package_enable("acme-kernels", by=olga)
    services.package_disable(package, by=olga)
    where = reverse("operator-package", args=[package.pk])
    for words, enable in (("acme-kernels is not enabled", False), ("installed on no gpu or compile worker that runs now", True)):
        if enable:
            assert client.post(where, {"do": "enable"}).status_code == 302
        answer = client.post(where, {"do": "describe"})
        assert answer.status_code == 409 and words in answer.content.decode()
        with pytest.raises(CommandError, match=words):
            call_command("operators", "describe", "Acme_Kernels")
        package.refresh_from_db()
        assert package.enabled == enable
    with pytest.raises(CommandError, match="no package is named 'other'"):
        call_command("operators", "describe", "other")


@pytest.mark.django_db
def test_a_page_of_many_unknown_names_asks_the_database_once(django_assert_max_num_queries, monkeypatch):
    monkeypatch.setattr(selectors, "FRESH_S", 60.0)
    monkeypatch.setattr(own, "FRESH_S", 60.0)
    selectors.forget_operators()
    own.forget()
    with django_assert_max_num_queries(2):          # packages', and files that nobody packaged
        assert [operators.find(f"triton:job.kernel_{n}") for n in range(100)] == [None] * 100
    OperatorPackage.objects.create(name="acme", status="ready", operators=[told()], described="2026-01-01T00:00Z")
    assert operators.find("acme") is None
    selectors.forget_operators()
    assert operators.find("acme") is not None
    selectors.forget_operators()


@pytest.mark.django_db
def test_a_team_cannot_take_a_built_in_name(olga):
    OperatorPackage.objects.create(name="acme", status="ready", operators=[{**told(), "name": "matmul"}, told()],
                                   described="2026-01-01T00:00Z")
    assert operators.find("matmul") is operators.OPERATORS["matmul"] and operators.find("acme").title == "t"


@pytest.mark.parametrize("answer", [{}, {"kept": 3, "pruned": {}}, {"kept": [{"BLOCK": 1}], "pruned": [1]}, "text"])
def test_an_answer_of_another_shape_ends_the_job_with_its_reason(monkeypatch, answer):
    from tuner.tuning.space import Param, Space
    from workers.tune import team

    told = {"params": [], "prunes": {"early": True, "top_k": None}}
    monkeypatch.setattr(team.selectors, "operator_description", lambda name: told)
    monkeypatch.setattr(team, "_run_child", lambda *arguments: answer)
    with pytest.raises(team.TeamError, match="no list of configurations"):
        team.prune_space("acme_clamp", {"N": 8}, "fp32", Space.enumerate((Param("BLOCK", (1, 2)),)))
