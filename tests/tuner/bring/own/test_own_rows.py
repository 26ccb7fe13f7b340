"""Own kernels as rows: versions by hash, why one cannot be tuned yet, the page and the API, answers from behind walls."""

from __future__ import annotations

import json
import math
from typing import Any
from urllib.parse import urlencode

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from profiles.base.refused import Refused
from tests.tuner.bring.files import ADD
from tests.tuner.bring.test_called import CALL, record, tensor
from tuner.bring.checks import services as checks
from tuner.bring.own import selectors, services
from tuner.bring.travel.described import describe_text
from tuner.bring.travel.files import check_folder, name_of, read_files
from tuner.cache.entries.selectors import config_json
from tuner.jobs.selectors import job_json
from tuner.models import CachedConfig, KernelCheck, OwnKernel, ServedCount, TuneJob
from tuner.tuning.operators import all_operators, find, limits
from webapp.problem import address
from webapp.problem import services as problems
from workers.tune.own import read_answer

database = pytest.mark.django_db
ADD_TORCH = f"{ADD}\ndef add_torch(x, y):\n    return x + y\n"


def both() -> dict[str, Any]:
    return {**record(), "inputs": [{**tensor(4096, each), "maker": "randn", "bounds": []} for each in (1, 2)]}


def recorded(owner: Any, text: str = ADD_TORCH, told: Any = None, **more: Any) -> KernelCheck:
    """A check whose call was recorded, without the worker."""
    check = checks.check_create(text, file="kernel.py", call=CALL, owner=owner, **more)
    adapters = checks.read_alone({"file": "kernel.py", "text": text, "shape": {}, "dtype": "", "call": CALL,
                                  "recorded": told or both()})["adapters"]
    KernelCheck.objects.filter(pk=check.pk).update(adapters=adapters, status="done")
    return KernelCheck.objects.get(pk=check.pk)


def tune(check: KernelCheck, owner: Any, **more: Any) -> tuple[OwnKernel, TuneJob]:
    return services.own_tune(check, owner=owner, **{"device": "gpu", "strategy": "random", "effort": "quick", **more})


@database
def test_a_job_names_its_version_and_another_text_is_another_one(olga: Any) -> None:
    first, job = tune(recorded(olga), olga)
    assert job.operator == first.name and find(first.name) is not None and (job.shape, job.dtype) == ({"n_elements": 4096}, "bf16")
    operator = find(first.name)
    assert operator and operator.kernel_names == ("add_kernel",)
    assert len(operator.space(job.shape, "bf16", limits("NVIDIA H200"))) and operator.bytes(job.shape, "bf16") == 3 * 2 * 4096
    same, _ = tune(recorded(olga), olga)
    assert same.pk == first.pk
    other, _ = tune(recorded(olga, text=ADD_TORCH.replace("BLOCK_SIZE=1024", "BLOCK_SIZE=512")), olga)
    assert other.name != first.name and other.source_hash != first.source_hash
    known = all_operators()
    assert not known[first.name].newest and known[other.name].newest and known[first.name].version == first.source_hash
    edited, _ = tune(recorded(olga), olga, params={"BLOCK_SIZE": "64, 1024", "num_warps": "8", "num_stages": "3"})
    assert edited.name not in (first.name, other.name) and '"BLOCK_SIZE": (64, 1024)' in edited.adapter


@database
def test_what_comes_of_a_version_names_it_and_its_page_says_all_of_it(olga: Any, client: Client, sign_in_mode: None) -> None:
    """Job, entry, kernel of a suite with its runs and verdicts, launches: by the operator's name, which ends with the version."""
    row, job = tune(recorded(olga), olga)
    shape = {"dtype": "bf16", "shape_bucket": "n_elements=4096", "gpu": "NVIDIA H200", "toolkit": "cuda 13.0"}
    entry = CachedConfig.objects.create(operator=row.name, shape=job.shape, config={"BLOCK_SIZE": 64}, job=job, **shape)
    where = {"operator": row.name, "dtype": "bf16", "gpu": "NVIDIA H200", "n_elements": "4096"}
    problem = address.read(where)
    assert problem is not None
    guarded = problems.guard(problem, olga)
    ServedCount.objects.create(day="2026-11-30", operator=row.name, rule="exact", entry=entry.pk, launches=12,
                               updated=timezone.now(), **shape)
    assert row.name in guarded.key and job_json(job)["operator"] == config_json(entry)["operator"] == guarded.op == row.name
    newer, _ = tune(recorded(olga, text=ADD_TORCH.replace("BLOCK_SIZE=1024", "BLOCK_SIZE=512")), olga)
    client.force_login(olga)
    page = client.get(reverse("own-kernel", args=[row.name])).content.decode()
    for words in (f"Job {job.pk}", reverse("cache", args=[entry.pk]), guarded.key, " launches served", "newer version",
                  reverse("own-kernel", args=[newer.name])):
        assert words in page, words
    for path in (reverse("cache", args=[entry.pk]), reverse("tune", args=[job.pk]), f"{reverse('problem')}?{urlencode(where)}"):
        assert reverse("own-kernel", args=[row.name]) in client.get(path).content.decode(), path


@database
def test_what_is_right_is_a_function_of_the_file_or_said_to_be_not_independent(olga: Any) -> None:
    check = recorded(olga)
    own, _ = tune(check, olga)
    named, _ = tune(check, olga, reference="add_torch")
    assert not selectors.kernel_json(own)["independent"] and selectors.kernel_json(named)["independent"]
    assert "return add_torch(x=args[" in named.adapter and "from kernel import add_kernel, add_torch" in named.adapter
    with pytest.raises(Refused, match="there is add_torch"):
        tune(check, olga, reference="os.system")


@database
def test_what_cannot_be_tuned_yet_says_why(olga: Any) -> None:
    text_alone = checks.check_create(ADD, owner=olga)
    with pytest.raises(Refused, match="give one call"):
        tune(text_alone, olga)
    waiting = checks.check_create(ADD, call=CALL, owner=olga)
    assert selectors.why_not(waiting, waiting.adapters[0]) == "a worker makes the call first"
    index = record()
    index["launches"][0]["arguments"]["y_ptr"]["dtype"] = "int64"
    with pytest.raises(Refused, match="its author must write"):
        tune(recorded(olga, told=index), olga)
    with pytest.raises(Refused, match="has no kernel mm"):
        tune(recorded(olga), olga, kernel="mm")
    with pytest.raises(Refused, match="0 values"):
        tune(recorded(olga), olga, params={"BLOCK_SIZE": ""})


@database
def test_an_autotuners_own_list_is_the_space(olga: Any) -> None:
    listed = record()
    configs = [{"BLOCK_SIZE": block, "num_warps": 4, "num_stages": 2} for block in (256, 1024)]
    listed["launches"][0]["autotune"] = {"configs": configs, "kept": configs, "key": ["n_elements"], "names": list(configs[0]),
                                         "pruned": False, "prune_failed": "", "reset_to_zero": [], "restore_value": []}
    kernel, job = tune(recorded(olga, told=listed), olga)
    operator = find(kernel.name)
    assert operator and [dict(each) for each in operator.space(job.shape, job.dtype, limits("")).configs()] == configs
    assert [param.name for param in operator.space(job.shape, job.dtype, limits("")).params] == list(configs[0])


@database
def test_the_page_has_a_button_and_leads_to_the_job(olga: Any, alice: Any, client: Client, sign_in_mode: None) -> None:
    check = recorded(olga)
    client.force_login(olga)
    page = client.get(f"/tune/operators/check/{check.pk}/").content.decode()
    assert f"/tune/operators/check/{check.pk}/tune/" in page and "add_torch of the file" in page and "not independent" in page
    sent = {"kernel": "add_kernel", "effort": "quick", "param-BLOCK_SIZE": "128, 1024", "param-num_warps": "8",
            "param-num_stages": "3", "constraints": ""}
    answered = client.post(f"/tune/operators/check/{check.pk}/tune/", sent)
    job = TuneJob.objects.get()
    assert answered.status_code == 302 and answered["Location"] == f"/tune/{job.pk}/" and job.effort == "quick"
    told = client.get(answered["Location"]).content.decode()
    assert "reference not independent" in told and f"/tune/operators/own/{job.operator}/" in told
    assert "add_kernel(x_ptr" in client.get(f"/tune/operators/own/{job.operator}/").content.decode()
    assert f"/tune/{job.pk}/" in client.get(f"/tune/operators/check/{check.pk}/").content.decode()
    refused = client.post(f"/tune/operators/check/{check.pk}/tune/", {**sent, "param-BLOCK_SIZE": "x" * 99}, follow=True)
    assert "Not started: BLOCK_SIZE" in refused.content.decode() and TuneJob.objects.count() == 1
    client.force_login(alice)
    assert client.post(f"/tune/operators/check/{check.pk}/tune/", sent).status_code == 403


@database
def test_the_api_starts_a_job_and_shows_what_travels(api: Any, olga: Any, alice: Any) -> None:
    check = recorded(olga, siblings={"near.py": "X = 1\n"}, folder="")
    path = f"/api/operators/check/{check.pk}/tune/"
    assert api(alice).post(path, {}, format="json").status_code == 403
    told = api(olga).post(path, {"effort": "quick", "reference": "add_torch"}, format="json").json()
    assert told["job"]["operator"] == told["operator"] and told["files"] == ["kernel.py", "near.py"] and told["independent"]
    assert api(olga).get(f"/api/operators/own/{told['operator']}/").json()["sources"]["near.py"] == "X = 1\n"
    assert [each["operator"] for each in api(olga).get("/api/operators/own/").json()["results"]] == [told["operator"]]
    for body, field in (({"kernel": "x"}, "kernel"), ({"device": "replay:matmul"}, "device"),
                        ({"params": {"BLOCK_SIZE": []}}, "BLOCK_SIZE"), ({"effort": "much"}, "effort"),
                        ({"shape": {"M": 1}}, "shape")):
        refused = api(olga).post(path, body, format="json")
        assert refused.status_code == 400 and field in json.dumps(refused.json()), body
    assert api(olga).post("/api/operators/check/", {"text": ADD, "siblings": {"../x.py": ""}}, format="json").status_code == 400


@database
def test_files_that_came_with_one_come_with_the_next_check_of_its_page(olga: Any, client: Client, sign_in_mode: None) -> None:
    check = checks.check_create(ADD, file="add.py", siblings={"ops/near.py": "X = 1\n"}, folder="ops", owner=olga)
    client.force_login(olga)
    page = client.get(f"/tune/operators/check/{check.pk}/").content.decode()
    assert "With it: ops/near.py" in page and f'name="beside_of" id="check-beside-of" value="{check.pk}"' in page
    sent = {"text": ADD, "file": "add.py", "call": CALL, "beside_of": str(check.pk), "folder": "ops"}
    assert client.post("/tune/operators/check/", sent).status_code == 302
    again = KernelCheck.objects.latest("pk")
    assert (again.siblings, again.folder, again.result["call"]) == ({"ops/near.py": "X = 1\n"}, "ops", CALL)
    refused = client.post("/tune/operators/check/", {**sent, "siblings": "[1"})
    assert refused.status_code == 400 and "path → text" in refused.content.decode()


# files and descriptions


@pytest.mark.parametrize("files", [
    {"../x.py": ""}, {"/x.py": ""}, {"a/../b.py": ""}, {"x.so": ""}, {"a\\b.py": ""}, {".hidden/x.py": ""}, {"x.py": 3}, [],
    {"a/" * 20 + "x.py": ""}, {"x.py": "#" * (2 << 20)}, {f"m{i}.py": "" for i in range(300)}])
def test_paths_stay_below_the_root_and_files_within_bounds(files: Any) -> None:
    with pytest.raises(Refused):
        read_files(files)


def test_folders_and_names() -> None:
    assert check_folder("acme/ops") == "acme/ops" and check_folder("") == ""
    assert name_of("_fwd<1>", "ab", 1) != name_of("_fwd<1>", "ab", 2)
    assert len(name_of("k" * 90, "ab", 1)) <= 40 and name_of("2d", "ab", 1).startswith("k2d_")


@pytest.mark.parametrize("adapter", [
    "OPERATORS = [TritonOperator(dims=open('x'))]", "x = 1", "(",
    "OPERATORS = [TritonOperator(dims=(Dim('N', 'N', high=1 << 999),))]",
    "def reference(args):\n    raise NotImplementedError('write it')\nOPERATORS = [TritonOperator()]",
    "OPERATORS = [TritonOperator(dims=(Dim('N', 'N'),), dtypes=('bf16',), presets=({'N': 4},), flops='N', bytes='N')]"])
def test_a_text_that_states_no_operator_is_none(adapter: str) -> None:
    with pytest.raises(Refused):
        describe_text(adapter, "own", title="", kernel="k", source_hash="")


# answers


RUN = {"median_ms": 1.0, "min_ms": 0.9, "p90_ms": 1.1, "n": 5, "samples_ms": [1.0], "facts": {"registers": 20}, "spread": 0.1}


def test_an_answer_is_taken_as_it_is_meant() -> None:
    assert read_answer({"do": "run"}, {"ok": {**RUN, "ended": "settled"}})["ok"] == {**RUN, "ended": "settled"}
    assert read_answer({"do": "compile"}, {"ok": {"compile_s": 1.0, "registers": "many"}}) == {"ok": {"compile_s": 1.0}}
    refused = {"rejected": {"reason": "wrong", "message": "m", "facts": {}}, "fatal": True}
    assert read_answer({"do": "run"}, refused) == refused
    assert read_answer({"do": "finalists", "configs": [{}]}, {"ok": [RUN]})["ok"][0]["median_ms"] == 1.0


@pytest.mark.parametrize(("do", "answer"), [
    ("run", {"ok": {**RUN, "median_ms": -1.0}}), ("run", {"ok": {**RUN, "median_ms": math.nan}}),
    ("run", {"ok": {**RUN, "n": "5"}}),
    ("run", {"ok": {**RUN, "samples_ms": ["1"]}}), ("run", {"ok": {**RUN, "facts": 3}}), ("run", {"ok": None}), ("run", {}),
    ("run", {"ok": {**RUN, "facts": {"x": [[[[[[[[1]]]]]]]]}}}), ("run", {"ok": {**RUN, "facts": {"x": "y" * (1 << 17)}}}),
    ("run", {"rejected": {"reason": "none such", "message": "", "facts": {}}}), ("run", {"failed": {"what": 1, "hint": ""}}),
    ("open", {"ok": {"gpu": 3, "compute_capability": None, "library_ms": None, "policy": {}}}),
    ("finalists", {"ok": []}), ("compile", {"ok": []})])
def test_what_is_no_answer_is_refused(do: str, answer: Any) -> None:
    with pytest.raises((ValueError, KeyError, TypeError, AttributeError)):
        read_answer({"do": do, "configs": [{}]}, answer)
