"""The cache's rows: what is written and when, states, buckets that change, files in and out, over services, API, pages, command."""

import ast
import json
import lzma
import re
from io import StringIO
from pathlib import Path

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import CommandError, call_command
from django.urls import reverse
from django.utils import timezone

from tests.tuner.jobs.test_tune_pages import seen as ran
from tuner.cache import rules
from tuner.cache.buckets import Buckets
from tuner.cache.client import Snapshot
from tuner.cache.entries import portability_selectors, selectors, services
from tuner.cache.entries import services as state_services
from tuner.cache.exchange import export_selectors
from tuner.cache.exchange import services as exchange_services
from tuner.cache.formats import fused_moe, helion
from tuner.cache.formats.document import FormatError
from tuner.cache.serve.services import record_launches, snapshot_view, take_snapshot
from tuner.jobs.quarantine import quarantine_put
from tuner.models import CachedConfig, GpuEnvironment, ImportedFile, Quarantine, SuiteJob, TrialRow, TuneJob
from tuner.revalidation import selectors as revalidation_selectors
from tuner.revalidation import services as revalidation_services
from tuner.tuning.measure.runner import Session
from tuner.tuning.operators import OPERATORS, limits
from tuner.tuning.search.finalists import Finalist
from tuner.tuning.trial import Measured, Reason, Rejected, config_key

pytestmark = pytest.mark.django_db

GPU = "NVIDIA H200"
SHAPE = {"M": 4096, "N": 4096, "K": 4096}
MATMUL = OPERATORS["matmul"]
DEFAULT = dict(MATMUL.default_config(SHAPE, "bf16", limits(GPU)))
FAST = {**DEFAULT, "BM": 128, "BN": 256, "BK": 64, "num_warps": 8}
OTHER = {**DEFAULT, "BM": 64, "BN": 64, "BK": 64}
ENVIRONMENT = {"cuda": "13.0", "triton": "3.6.0", "driver": "580.159"}
SPACES = Path(__file__).parents[2] / "data" / "public_spaces"


def samples(ms, spread=0.001):
    return [ms * (1 + spread * (i % 5 - 2)) for i in range(20)]


def measured(ms):
    return Measured(ms, ms * 0.99, ms * 1.01, 20, {"samples_ms": samples(ms), "registers": 168})


def put(config=FAST, ms=0.2, default_ms=0.3, shape=SHAPE, gpu=GPU, environment=ENVIRONMENT, source="ab12", trials=None,
        recorded=""):
    """What a finished job does: its rows, then config_put."""
    job = TuneJob.objects.create(
        operator="matmul", shape=shape, dtype="bf16", device="gpu", strategy="local", budget_trials=9, budget_seconds=9,
        status="done", gpu=gpu, environment=environment, best_ms=ms, best_config=config, default_ms=default_ms, recorded=recorded,
        valid_size=500, finished=timezone.now())
    tried = trials or {config_key(config): ms, config_key(DEFAULT): default_ms}
    for number, (key, time) in enumerate(tried.items()):
        TrialRow.objects.create(job=job, number=number, config=json.loads(key), config_key=key, at_s=number,
                                outcome="measured" if time else "rejected", median_ms=time, reason="" if time else "resources",
                                facts={"samples_ms": samples(time)} if time else {})
    session = Session(gpu=gpu, compute_capability="9.0", environment=environment, policy={"kind": "cold"}, recorded=recorded)
    finalists = [Finalist(config, measured(ms)), Finalist(DEFAULT, measured(default_ms))]
    return services.config_put(job, session, measured(ms), source, finalists=finalists, default=DEFAULT)


# ---- the library wins ----

def library_job(best_ms, library_ms, rounds=None):
    """A job whose finalist was timed beside the library: in rounds, or by medians alone."""
    facts = {"round_ms": [best_ms * each for each in rounds], "library_round_ms": [library_ms * each for each in rounds]} \
        if rounds else {}
    outcome = Measured(best_ms, best_ms, best_ms, 20, facts)
    finalist = Finalist(FAST, outcome)
    job = TuneJob.objects.create(
        operator="matmul", shape=SHAPE, dtype="bf16", device="gpu", strategy="local", budget_trials=9, budget_seconds=9,
        status="done", gpu=GPU, environment=ENVIRONMENT, best_ms=best_ms, best_config=FAST, default_ms=9.0,
        library_ms=library_ms, finalists=[finalist.as_json()], finished=timezone.now())
    session = Session(gpu=GPU, compute_capability="9.0", environment=ENVIRONMENT, policy={"kind": "cold"})
    services.config_put(job, session, outcome, "ab12", finalists=[finalist], default=DEFAULT)
    return job


DRIFT = [1.0, 1.3, 0.9, 1.1, 1.2, 0.8, 1.05, 0.95, 1.15, 1.25]


@pytest.mark.parametrize(("best_ms", "library_ms", "rounds", "gain"), [
    (1.04, 1.0, DRIFT, 1.04), (1.04, 1.0, None, 1.04), (1.005, 1.0, None, None), (0.9, 1.0, DRIFT, None), (1.0, None, None, None)])
def test_a_library_that_wins_is_kept_on_the_jobs_page_and_by_the_cache(client, alice, best_ms, library_ms, rounds, gain):
    """Only by the whole interval; medians alone are 1 % apart at least."""
    job = library_job(best_ms, library_ms, rounds)
    answer = selectors.config_best("matmul", "bf16", GPU, SHAPE)
    assert answer["rule"] == "exact" and answer["library"] == (pytest.approx(gain) if gain else None)
    name = take_snapshot()
    view = snapshot_view(name, GPU, "9.0", "cuda 13.0, triton 3.6.0")
    served = Snapshot(view).find("matmul", "bf16", SHAPE)
    assert served.library == answer["library"] and served.config == FAST
    near = Snapshot(view).find("matmul", "bf16", {**SHAPE, "M": 2 * SHAPE["M"]})
    assert near is None or near.library is None                      # what another shape's library does is unknown
    client.force_login(alice)
    for page in (f"/tune/{job.pk}/", f"/cache/{job.cached.get().pk}/"):
        assert ("Keep cuBLAS: 1.04× faster than the best found" in client.get(page).content.decode()) == bool(gain)


# ---- the entry in force, measured again ----

def put_beside(config, ms, entry_config, entry_ms, tie, state="verified"):
    """A job that measured what is served now in turn with its own winner; the stored time is of a luckier day."""
    put(config=entry_config, ms=0.18)
    if state == "banned":                       # its configuration is in quarantine under its toolkit: nobody touched the entry
        quarantine_put({"operator": "matmul", "dtype": "bf16", "config": entry_config, "capability": "9.0",
                        "toolkit": "cuda 13.0, triton 3.6.0", "source_hash": "ab12", "reason": "timeout"},
                       {"message": "", "shape": SHAPE, "gpu": GPU, "job": None})
    else:
        CachedConfig.objects.update(state=state)
    job = TuneJob.objects.create(
        operator="matmul", shape=SHAPE, dtype="bf16", device="gpu", strategy="local", budget_trials=9, budget_seconds=9,
        status="done", gpu=GPU, environment=ENVIRONMENT, best_ms=ms, best_config=config, default_ms=0.3, finished=timezone.now())
    session = Session(gpu=GPU, compute_capability="9.0", environment=ENVIRONMENT, policy={"kind": "cold"})
    assert services.config_in_force(job, session, "ab12") == (entry_config if state == "verified" else None)
    outcome = measured(ms)
    served = Finalist(entry_config, measured(entry_ms) if entry_ms else Rejected(Reason.CRASH, "illegal access"), tie,
                      entry_ms / ms - 1 if entry_ms else None)
    winner = Finalist(config, outcome, True, 0.0)
    finalists = [winner, Finalist(DEFAULT, measured(0.3), False, 0.5), *([served] if config != entry_config else [])]
    return services.config_put(job, session, outcome, "ab12", finalists=finalists, default=DEFAULT), CachedConfig.objects.get()


@pytest.mark.parametrize(("entry_ms", "tie", "replaced"), [
    (0.22, False, True), (0.2, True, False), (0.19, True, False), (None, False, True)])
def test_an_entry_whose_stored_time_is_too_good_is_measured_again_and_replaced_where_it_is_slower(entry_ms, tie, replaced):
    written, entry = put_beside(OTHER, 0.2, FAST, entry_ms, tie)
    assert (written is not None) == replaced and entry.config == (OTHER if replaced else FAST)
    assert entry.median_ms == (0.2 if replaced else 0.18)
    if not replaced:
        assert entry.evidence["history"][-1]["in_force_ms"] == entry_ms and entry.evidence["history"][-1]["kept"] is False


def test_the_same_winner_again_has_the_time_of_the_last_session():
    written, entry = put_beside(FAST, 0.2, FAST, 0.2, True)
    assert written == entry and (entry.config, entry.median_ms) == (FAST, 0.2)


@pytest.mark.parametrize("state", ["quarantined", "banned"])
def test_an_entry_in_quarantine_is_not_run_and_blocks_no_other_winner(state):
    _, entry = put_beside(OTHER, 0.2, FAST, None, False, state=state)
    assert (entry.config, entry.state) == (OTHER, "verified")


def test_the_same_winner_again_leaves_a_persons_quarantine():
    _, entry = put_beside(FAST, 0.17, FAST, 0.17, True, state="quarantined")
    assert (entry.config, entry.state) == (FAST, "quarantined")


# ---- never worse than the default ----

def test_an_entry_holds_its_key_and_the_interval_of_its_gain():
    entry = put()
    assert (entry.toolkit, entry.driver, entry.policy, entry.state, entry.origin) == (
        "cuda 13.0, triton 3.6.0", "580.159", "cold", "verified", "tune")
    guard = entry.evidence["guard"]
    assert guard["verdict"] == "faster" and 1.49 < guard["low"] <= guard["ratio"] <= guard["high"] < 1.51
    assert "samples_ms" not in entry.evidence["facts"]


@pytest.mark.parametrize(("ms", "verdict"), [(0.2999, "equal"), (0.33, "slower")])
def test_the_default_serves_where_the_winner_is_not_surely_faster(ms, verdict):
    entry = put(ms=ms)
    assert entry.evidence["guard"]["verdict"] == verdict
    assert entry.config == DEFAULT and entry.median_ms == 0.3
    assert entry.evidence["history"][0]["config"] == FAST


def test_a_winner_that_is_the_default_is_the_default():
    assert put(config=DEFAULT, ms=0.3).evidence["guard"]["verdict"] == "equal"


# ---- states ----

def test_a_new_toolkit_turns_entries_unverified_and_measuring_again_turns_the_old_one_stale(monkeypatch):
    old = put()
    with monkeypatch.context() as dying, pytest.raises(ZeroDivisionError):       # the worker, before all entries are told
        dying.setattr(state_services, "state_set", lambda *args: 1 / 0)
        services.record_environment(GPU, "cuda 13.0, triton 3.7.1", "580.159")
    assert services.record_environment(GPU, "cuda 13.0, triton 3.7.1", "580.159")
    assert not services.record_environment(GPU, "cuda 13.0, triton 3.7.1", "580.159")
    old.refresh_from_db()
    assert old.state == "unverified" and "triton 3.7.1 was seen since" in old.state_why
    served = selectors.config_best("matmul", "bf16", GPU, SHAPE, "cuda 13.0, triton 3.7.1")
    assert (served["rule"], served["differs"]) == ("older toolkit", ["toolkit"])
    new = put(config=OTHER, environment={**ENVIRONMENT, "triton": "3.7.1"})
    old.refresh_from_db()
    assert (new.state, old.state) == ("verified", "stale")
    assert [event.get("state") for event in old.evidence["history"]] == [None, "unverified", "stale"]
    assert selectors.config_best("matmul", "bf16", GPU, SHAPE, "cuda 13.0, triton 3.7.1")["config"] == OTHER
    still = selectors.config_best("matmul", "bf16", GPU, SHAPE, "cuda 13.0, triton 3.6.0")
    assert (still["rule"], still["config"]) == ("exact", FAST)          # right for launches of the older toolkit


def test_a_searchs_slower_winner_does_not_replace_the_entry():
    entry = put()
    assert put(ms=0.25) is None
    entry.refresh_from_db()
    assert entry.median_ms == 0.2 and entry.evidence["history"][-1]["kept"] is False


def test_an_older_environment_or_another_gpu_changes_nothing():
    entry = put()
    services.record_environment(GPU, "cuda 12.8, triton 3.5.0", "570.1")
    services.record_environment("NVIDIA B200", "cuda 14.0, triton 4.0.0", "600.1")
    entry.refresh_from_db()
    assert entry.state == "verified"


def test_a_driver_or_a_kernel_source_that_changed():
    entry = put()
    services.record_environment(GPU, "cuda 13.0, triton 3.6.0", "590.1")
    entry.refresh_from_db()
    assert entry.state == "unverified" and "driver 590.1" in entry.state_why
    other = put(shape={**SHAPE, "M": 64}, environment={**ENVIRONMENT, "driver": "590.1"})
    put(shape={**SHAPE, "M": 128}, source="cd34", environment={**ENVIRONMENT, "driver": "590.1"})
    other.refresh_from_db()
    assert other.state == "unverified" and "source changed" in other.state_why


def test_a_job_on_a_host_that_is_behind_is_unverified_at_once():
    GpuEnvironment.objects.create(gpu=GPU, toolkit="cuda 13.0, triton 3.7.1", driver="580.159")
    assert put().state == "unverified"


def test_a_quarantined_configuration_never_serves():
    put()
    Quarantine.objects.create(signature="x", operator="matmul", dtype="bf16", config=FAST, config_key=config_key(FAST),
                              capability="9.0", reason="crash")
    answer = selectors.config_best("matmul", "bf16", GPU, SHAPE, why=True)
    assert (answer["rule"], answer["considered"][0]["state"]) == ("default", "quarantined")
    assert "never serves" in answer["considered"][0]["refused"]


def test_a_long_configuration_is_quarantined_as_a_short_one_is():
    """A key of more than 200 characters is stored as its digest; what is compared is the configuration."""
    long = {f"EPILOGUE_SCHEDULE_{number}": f"TmaWarpSpecialized{number}" for number in range(8)}
    assert len(config_key(long)) > 200
    row = put()
    CachedConfig.objects.filter(pk=row.pk).update(config=long)
    assert selectors.config_best("matmul", "bf16", GPU, SHAPE)["rule"] == "exact"
    quarantine_put({"operator": "matmul", "dtype": "bf16", "config": long, "capability": "9.0", "toolkit": row.toolkit,
                    "source_hash": row.source_hash, "reason": "crash"}, {"message": "", "shape": SHAPE, "gpu": GPU, "job": None})
    answer = selectors.config_best("matmul", "bf16", GPU, SHAPE, why=True)
    assert (answer["rule"], answer["considered"][0]["state"]) == ("default", "quarantined")


def test_a_clients_newer_toolkit_makes_no_entry_doubtful():
    entry = put()
    record_launches(reporter=None, snapshot="a", gpu=GPU, toolkit="cuda 99.0, triton 99.0", host="laptop", form=2, rows=[
        {"operator": "matmul", "dtype": "bf16", "bucket": "K=64 M=64 N=64", "rule": "exact", "entry": entry.pk, "launches": 9,
         "asked": 0}])
    entry.refresh_from_db()
    assert entry.state == "verified" and not GpuEnvironment.objects.filter(toolkit__contains="99").exists()
    assert services.initial_state(GPU, entry.toolkit, entry.driver)[0] == "verified"


def test_revalidation_measures_the_few_that_count(alice):
    rivals = {config_key({**FAST, "num_stages": n}): 0.2 + n / 100 for n in (2, 4, 5)}
    entry = put(trials={config_key(FAST): 0.2, config_key(DEFAULT): 0.3, **rivals})
    services.record_environment(GPU, "cuda 13.0, triton 3.7.1", "580.159")
    assert revalidation_selectors.waiting_entries() == [entry]
    (job,) = revalidation_services.revalidate(revalidation_selectors.waiting_entries(), alice)
    assert (job.reason, job.device, job.suite.policy) == ("revalidate", f"gpu:{GPU}", {"kind": "cold"})
    (key,) = job.about["entries"]
    known = [MATMUL.complete(config) for config in (DEFAULT, FAST, *({**FAST, "num_stages": n} for n in (2, 4)))]
    assert [each["configs"][key] for each in job.builds] == known              # the default, what serves, the two that came next
    assert revalidation_services.revalidate(revalidation_selectors.waiting_entries(), alice) == []      # it is under way


def test_what_the_fleet_spends_most_on_is_measured_again_first():
    big, hot = put(ms=0.1), put(shape={**SHAPE, "M": 64}, ms=0.29)
    services.record_environment(GPU, "cuda 13.0, triton 3.7.1", "580.159")
    assert revalidation_selectors.waiting_entries() == [big, hot]                  # nobody ran either: the larger gain
    ran(10**9, shape=hot.shape, gpu="NVIDIA B200")
    ran(10**7, shape=big.shape, dtype="fp16")
    assert revalidation_selectors.waiting_entries() == [big, hot]                  # that ran elsewhere, or something else
    for _ in range(2):
        ran(10**9, shape=hot.shape)
    assert revalidation_selectors.waiting_entries() == [hot, big]
    assert revalidation_selectors.entry_stakes([hot])[hot.pk][0] == pytest.approx(2 * 10**9 * (1 - 0.29 / 0.3))


# ---- evidence of other kinds ----

def test_a_listeners_or_a_files_entry_never_goes_before_a_tune_jobs():
    far = put(shape={**SHAPE, "M": 16384})
    services.evidence_put(origin="listener", operator="matmul", dtype="bf16", shape=SHAPE, gpu=GPU, config=OTHER, median_ms=0.01,
                          toolkit="cuda 13.0, triton 3.6.0")
    answer = selectors.config_best("matmul", "bf16", GPU, SHAPE)
    assert (answer["entry"]["id"], answer["rule"]) == (far.pk, "nearest bucket")
    far.delete()
    answer = selectors.config_best("matmul", "bf16", GPU, SHAPE)
    assert (answer["config"], answer["entry"]["state"]) == (OTHER, "unverified")
    with pytest.raises(ValueError):
        services.evidence_put(origin="tune", operator="matmul", dtype="bf16", shape=SHAPE, gpu=GPU, config=OTHER, median_ms=1)


IMPORTED = {"origin": "import", "operator": "matmul", "dtype": "bf16", "gpu": GPU, "toolkit": "cuda 13.0, triton 3.9.0"}


def test_what_is_asked_for_verified_is_never_a_files(api, bob):
    """Neither where it is all there is, nor where it is nearer than what was proven."""
    services.evidence_put(**IMPORTED, shape=SHAPE, config=OTHER, median_ms=0.01)
    assert selectors.config_best("matmul", "bf16", GPU, SHAPE)["entry"]["state"] == "unverified"
    answer = selectors.config_best("matmul", "bf16", GPU, SHAPE, verified=True, why=True)
    assert (answer["rule"], answer["entry"], answer["config"]) == ("default", None, dict(DEFAULT))
    assert answer["considered"][0]["refused"] == rules.NOT_VERIFIED
    put(shape={**SHAPE, "M": 16384})
    query = {"operator": "matmul", "dtype": "bf16", "gpu": GPU, **SHAPE, "verified": 1}
    answer = api(bob).get(reverse("api-config-best"), query).json()
    assert (answer["rule"], answer["entry"]["state"], answer["config"]["BM"]) == ("nearest bucket", "verified", 128)
    told = json.loads(command("best", "matmul", "M=4096 N=4096 K=4096", "--gpu", GPU, "--verified", "--json"))
    assert told["rule"] == "nearest bucket"


def test_a_file_that_comes_again_frees_nothing_from_quarantine():
    entry = services.evidence_put(**IMPORTED, shape=SHAPE, config=OTHER, median_ms=0.01)
    services.config_set_state(entry, rules.State.QUARANTINED, None, "hangs")
    again = services.evidence_put(**IMPORTED, shape=SHAPE, config=OTHER, median_ms=0.005)
    assert (again.pk, again.state, again.state_why) == (entry.pk, "quarantined", "by nobody known: hangs")
    assert services.evidence_put(**IMPORTED, shape=SHAPE, config=FAST, median_ms=0.01).state == "unverified"      # another one


def test_what_a_file_measured_elsewhere_keeps_no_proven_entry_from_serving(olga):
    """Its trials say that a bucket away costs 25 %, which is more than the entry gains: a proven entry is not judged by them."""
    near = put(shape={**SHAPE, "M": 8192}, ms=0.2, default_ms=0.21)
    for m, fast, other in ((4096, 0.2, 0.1), (8192, 0.1, 0.2)):
        times = {config_key(FAST): fast, config_key(OTHER): other}
        ImportedFile.objects.create(
            name="trials.json", format="t4", sha256="", size_bytes=1, operator="matmul", dtype="bf16", shape={**SHAPE, "M": m},
            gpu=GPU, toolkit="cuda 13.0, triton 3.6.0", tested=exchange_services._pack_times(times), n_trials=2, best_ms=0.1)
    answer = selectors.config_best("matmul", "bf16", GPU, SHAPE, why=True)
    assert answer["rule"] == "nearest bucket" and answer["entry"]["id"] == near.pk, answer["considered"][0]["refused"]
    assert portability_selectors.bucket_report("matmul")["pairs"]                             # the pages of portability show them


# ---- buckets ----

def test_a_bucket_policy_that_changes_loses_no_entry(api, olga):
    put(shape={"M": 3000, "N": 4096, "K": 4096})
    put(shape={"M": 5000, "N": 4096, "K": 4096}, config=OTHER)
    assert set(CachedConfig.objects.values_list("shape_bucket", flat=True)) == {"K=4096 M=4096 N=4096"}
    policy = {"operator": "matmul", "exact_up_to": 16, "steps_per_doubling": 2, "max_distance": 4}
    answer = api(olga).put(reverse("api-buckets"), policy, format="json")
    assert answer.status_code == 200 and answer.json()["moved"] == 2
    assert set(CachedConfig.objects.values_list("shape_bucket", flat=True)) == {"K=4096 M=2896 N=4096", "K=4096 M=5793 N=4096"}
    assert services.policy_set("matmul", Buckets(), olga) == 2
    assert CachedConfig.objects.count() == 2
    wrong = api(olga).put(reverse("api-buckets"), {**policy, "steps_per_doubling": 3}, format="json")
    assert wrong.status_code == 400


def test_the_loss_of_bucketing_comes_from_trials():
    put(shape={**SHAPE, "M": 3000}, trials={config_key(FAST): 0.2, config_key(OTHER): 0.25, config_key(DEFAULT): 0.3})
    put(shape={**SHAPE, "M": 5000}, config=OTHER, ms=0.3,
        trials={config_key(FAST): 0.4, config_key(OTHER): 0.3, config_key(DEFAULT): 0.5})
    found = portability_selectors.bucket_report("matmul")
    now = next(one for one in found["choices"] if one["now"])
    assert (now["known"], now["worst"]) == (2, pytest.approx(0.75))
    assert now["efficiency"] == pytest.approx((0.75 * 0.8) ** 0.5)
    assert next(one for one in found["choices"] if one["steps"] == 2)["efficiency"] is None
    assert [one["shape"] for one in found["tune_next"]]


def test_a_step_that_loses_more_than_the_entry_gains_is_not_taken():
    """matmul loses 25 % on average between these two shapes, and the entry gains 3 % over the default."""
    put(shape={**SHAPE, "M": 3000}, trials={config_key(FAST): 0.2, config_key(OTHER): 0.25, config_key(DEFAULT): 0.3})
    put(shape={**SHAPE, "M": 6000}, config=OTHER, ms=0.3, default_ms=0.309,
        trials={config_key(FAST): 0.4, config_key(OTHER): 0.3, config_key(DEFAULT): 0.309})
    CachedConfig.objects.filter(shape__M=3000).delete()
    answer = selectors.config_best("matmul", "bf16", GPU, {**SHAPE, "M": 4096}, why=True)
    assert answer["rule"] == "default"
    assert "the default may be faster" in answer["considered"][0]["refused"]


# ---- portability ----

def test_toolkits_and_gpus_are_compared_from_own_trials(api, bob):
    put(trials={config_key(FAST): 0.2, config_key(OTHER): 0.25})
    put(config=OTHER, environment={**ENVIRONMENT, "triton": "3.7.1"}, trials={config_key(FAST): 0.25, config_key(OTHER): 0.2})
    put(config=OTHER, gpu="NVIDIA H100 80GB HBM3", trials={config_key(OTHER): 0.3, config_key(FAST): None})
    found = api(bob).get(reverse("api-portability"), {"operator": "matmul"}).json()
    toolkits = {(cell["source"][-5:], cell["target"][-5:]): cell["efficiency"]
                for row in found["toolkit"]["rows"] for cell in row["cells"]}
    assert toolkits["3.6.0", "3.7.1"] == pytest.approx(0.8)
    gpus = {(cell["source"][7:11], cell["target"][7:11]): cell for row in found["gpu"]["rows"] for cell in row["cells"]}
    assert gpus["H200", "H100"]["efficiency"] == 1.0
    failed = [one for one in found["gpu"]["transfers"] if one["failed"]]
    assert not failed                                                     # the newest search of the H200 prefers what runs on both


# ---- files in ----

def moe(batches=(1, 64)):
    config = {"BM": 16, "BN": 64, "BK": 64, "GM": 1, "num_warps": 4, "num_stages": 4}
    return fused_moe.write(dict.fromkeys(batches, config), "3.6.0")


def test_a_vllm_linear_file_becomes_entries(olga):
    name = "N=4096,K=1024,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json"
    file = exchange_services.import_file(owner=olga, name=name, data=moe().encode())
    assert (file.format, file.entries, file.operator, file.dtype) == ("vllm", 2, "fp8_block_matmul", "fp8")
    rows = CachedConfig.objects.filter(imported=file)
    assert {row.shape["M"] for row in rows} == {1, 64} and {row.state for row in rows} == {"unverified"}
    again = export_selectors.export_entries("vllm", {"operator": "fp8_block_matmul", "dtype": "fp8"})
    assert list(again.files) == [name]
    exchange_services.delete_import(file)
    assert not CachedConfig.objects.exists()


def test_a_linear_file_is_for_the_kernel_with_scales(olga):
    """Entries of the unscaled product, as such files were read before, go out where the scaled one has none of that batch."""
    name = "N=4096,K=1024,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json"
    exchange_services.import_file(owner=olga, name=name, data=moe((1, 64)).encode())
    CachedConfig.objects.filter(shape__M=64).update(operator="matmul")
    larger = moe((64, 256)).replace('"BLOCK_SIZE_M": 16', '"BLOCK_SIZE_M": 32')
    exchange_services.import_file(owner=olga, name=name, data=larger.encode())
    written = json.loads(export_selectors.export_entries("vllm", {}).files[name])
    assert {batch: config["BLOCK_SIZE_M"] for batch, config in written.items()} == {"1": 16, "64": 32, "256": 32}
    other = name.replace("[128,128]", "[64,128]")
    assert exchange_services.import_file(owner=olga, name=other, data=moe().encode()).operator == "matmul"


def test_a_moe_file_goes_in_and_comes_out_the_same(olga, tmp_path):
    name, text = "E=128,N=768,device_name=NVIDIA_H200.json", moe()
    with pytest.raises(FormatError, match="hidden size"):
        exchange_services.import_file(owner=olga, name=name, data=text.encode())
    hints = exchange_services.Hints(shape={"K": 2048, "topk": 8})
    file = exchange_services.import_file(owner=olga, name=name, data=text.encode(), hints=hints)
    assert (file.operator, file.entries) == ("grouped_matmul", 2)
    assert {json.dumps(row.shape, sort_keys=True) for row in CachedConfig.objects.all()} == {
        json.dumps({"E": 128, "K": 2048, "M": 8 * batch, "N": 1536}) for batch in (1, 64)}
    assert dict(export_selectors.export_entries("vllm", {"topk": "8"}).files) == {name: text}
    sglang = export_selectors.export_entries("sglang", {"topk": "8", "K": "2048"}).files
    assert list(sglang) == [f"configs/triton_3_6_0/{name}"] and "triton_version" not in sglang[f"configs/triton_3_6_0/{name}"]
    with pytest.raises(FormatError, match="how many experts a token goes to"):
        export_selectors.export_entries("vllm", {})
    CachedConfig.objects.filter(shape__M=8).update(config={**CachedConfig.objects.first().config, "KERNEL": "persistent"})
    partly = export_selectors.export_entries("vllm", {"topk": "8"})
    assert list(json.loads(partly.files[name])) == ["triton_version", "64"]
    assert partly.left_out == {"KERNEL=persistent is a kernel that they do not have": 1}


def test_a_list_without_times_is_measured_not_believed(olga):
    text = "[triton.Config({'BM': 64, 'BN': 64, 'BK': 64, 'GM': 8}, num_warps=4, num_stages=3),\n" \
           " triton.Config({'BM': 128, 'BN': 64, 'BK': 64, 'GM': 8}, num_warps=4, num_stages=3), triton.Config({'BX': 1})]"
    hints = exchange_services.Hints("matmul", "bf16", GPU, shape=SHAPE)
    file = exchange_services.import_file(owner=olga, name="k.py", data=text.encode(), hints=hints)
    assert file.entries == 0 and not CachedConfig.objects.exists()
    assert len(exchange_services.untimed_configs(file)) == 2 and "matmul has no parameter BX" in file.refused
    job = exchange_services.create_measure_job(file, olga, "gpu")
    assert len(job.only) == 2


def test_a_log_of_tvm_is_evidence_of_a_file_and_no_more(olga):
    """The fastest of each shape, unverified; the times that were seen stand beside it."""
    from tests.tuner.cache.test_formats import autotvm
    data = "\n".join([autotvm(2, [2e-5]), autotvm(4, [1e-5]), autotvm(2, [3e-5], size=28)]).encode()
    with pytest.raises(FormatError, match="does not say the GPU"):
        exchange_services.import_file(owner=olga, name="conv.log", data=data)
    file = exchange_services.import_file(owner=olga, name="conv.log", data=data, hints=exchange_services.Hints(gpu=GPU))
    assert (file.format, file.entries, file.n_trials) == ("tvm", 2, 3)
    small, large = CachedConfig.objects.order_by("median_ms")
    assert (small.operator, small.config["tile_f"], small.state, small.origin) == (
        "conv2d_nchw.cuda", [-1, 1, 4, 1], "unverified", "import")
    assert len(small.evidence["timings"]) == 2 and large.shape["t0_2"] == 28
    assert "tvm" not in export_selectors.EXPORTS


def test_a_whole_space_feeds_the_matrix_and_nothing_else(olga):
    for gpu in ("A4000", "A6000"):
        packed = (SPACES / f"convolution_milo_{gpu}_T4.json.xz").read_bytes()
        hints = exchange_services.Hints("convolution", "fp32", f"NVIDIA RTX {gpu}", shape={"N": 4096})
        file = exchange_services.import_file(owner=olga, name=f"conv_{gpu}_T4.json.xz", data=packed, hints=hints)
        assert file.format == "t4" and file.n_trials > 4000 and file.best_ms
    found = portability_selectors.matrices("convolution")["gpu"]
    reaches = {(cell["source"][-5:], cell["target"][-5:]): cell["efficiency"] for row in found["rows"] for cell in row["cells"]}
    assert reaches["A4000", "A6000"] == pytest.approx(0.964, abs=0.001)
    assert reaches["A6000", "A4000"] == pytest.approx(0.996, abs=0.001)
    assert "imported from" in found["transfers"][0]["source"]["label"]


@pytest.mark.parametrize(("name", "data", "says"), [
    ("x.json", b"{}", "none of the formats"), ("x.py", b"triton.Config({'BM': 1})", "does not say the operator and the GPU"),
    ("x.json.gz", b"\x1f\x8bxxxx", "cannot be unpacked"), ("x.xz", lzma.compress(b"0" * 200)[:40], "cannot be unpacked"),
    ("N=1,K=2,device_name=x.json", b'{"1": {"BLOCK_SIZE_M": 16}}', "none of its 1 configurations can be used")])
def test_a_file_that_cannot_be_used_leaves_nothing(olga, name, data, says):
    with pytest.raises(FormatError, match=says):
        exchange_services.import_file(owner=olga, name=name, data=data)
    assert not ImportedFile.objects.exists() and not CachedConfig.objects.exists()


def test_what_unpacks_to_too_much_is_refused(olga, monkeypatch):
    monkeypatch.setattr(exchange_services, "MAX_EXPANDED", 1000)
    with pytest.raises(FormatError, match="unpacks to more"):
        exchange_services.import_file(owner=olga, name="x.xz", data=lzma.compress(b"0" * 2000))


# ---- files out ----

def test_entries_leave_as_each_project_reads_them():
    put()
    put(shape={**SHAPE, "M": 64}, config=OTHER)
    (path, text), = export_selectors.export_entries("triton", {}).files.items()
    assert path.endswith(".py") and text.count("triton.Config(") == 2 and "M=64 N=4096 K=4096, 0.2 ms" in text
    files = export_selectors.export_entries("helion", {}).files
    assert len(files) == 2 and all(json.loads(text)["block_sizes"] for text in files.values())
    assert helion.from_helion_config("matmul", json.loads(next(iter(files.values()))))["BM"] in (64, 128)
    with pytest.raises(FormatError, match="for linear layers are for fp8"):
        export_selectors.export_entries("vllm", {})


def test_stale_and_quarantined_entries_stay_and_it_is_said():
    entry = put()
    services.config_set_state(entry, rules.State.QUARANTINED, None, "hangs")
    with pytest.raises(FormatError, match="1 × it is quarantined"):
        export_selectors.export_entries("triton", {})


def moe_entry(tokens, config, **more):
    """An entry of a layer of 128 experts, 8 a token, as a tune job left it."""
    shape = {"E": 128, "K": 2048, "M": 8 * tokens, "N": 1536}
    return CachedConfig.objects.create(**{
        "operator": "grouped_matmul", "dtype": "bf16", "shape": shape, "shape_key": services.shape_key(shape), "gpu": GPU,
        "shape_bucket": selectors.bucket("grouped_matmul", shape), "compute_capability": "9.0", "median_ms": 1.0,
        "toolkit": "cuda 13.0, triton 3.6.0", "config": config, "origin": "tune", "state": "verified", **more})


def test_what_was_measured_here_shares_no_file_with_what_was_not(olga, api, bob, tmp_path):
    """Batch sizes of a file, under a newer Triton, beside one that a tune job proved: vLLM's format holds no state."""
    name = "E=128,N=768,device_name=NVIDIA_H200.json"
    newer = moe().replace("3.6.0", "3.9.0")
    hints = exchange_services.Hints(shape={"K": 2048, "topk": 8})
    exchange_services.import_file(owner=olga, name=name, data=newer.encode(), hints=hints)
    alone = export_selectors.export_entries("vllm", {"topk": "8"})
    assert (list(alone.files), list(alone.unverified)) == ([name], [name])
    config = dict(CachedConfig.objects.first().config)
    moe_entry(16, {**config, "BM": 32})
    both = export_selectors.export_entries("vllm", {"topk": "8"})
    assert set(both.files) == {name, f"unverified/{name}"} and list(both.unverified) == [f"unverified/{name}"]
    assert [key for key in json.loads(both.files[name]) if key != "triton_version"] == ["16"]
    assert [key for key in json.loads(both.files[f"unverified/{name}"]) if key != "triton_version"] == ["1", "64"]
    assert set(export_selectors.export_entries("vllm", {"topk": "8", "state": "verified"}).files) == {name}
    answer = api(bob).get(reverse("api-export"), {"as": "vllm", "topk": 8})
    assert answer["X-Unverified"].startswith("1 of 2 files")
    assert "unverified: never measured here" in command("export", "vllm", "--topk", "8", "--out", str(tmp_path))
    proven, others = (text for _, text in sorted(export_selectors.export_entries("triton", {}).files.items()))
    assert "unverified" not in proven and proven.count("triton.Config(") == others.count("triton.Config(") == 1
    assert others.count("unverified: from a file: never measured here") == 2
    moe_entry(1, {**config, "BM": 256})                                    # of a batch size that the file has too: the proven one
    both = export_selectors.export_entries("vllm", {"topk": "8"})
    assert json.loads(both.files[name])["1"]["BLOCK_SIZE_M"] == 256 and "1" not in json.loads(both.files[f"unverified/{name}"])


def test_of_two_that_a_job_measured_the_verified_one_is_exported():
    put()
    assert put(config=OTHER, environment={**ENVIRONMENT, "triton": "3.5.0"}).state == "unverified"      # of a host that is behind
    (text,) = export_selectors.export_entries("triton", {}).files.values()
    assert text.count("triton.Config(") == 1 and "'BN': 256" in text and "unverified" not in text


def heard(operator, config, **more):
    return services.evidence_put(**{"origin": "listener", "operator": operator, "dtype": "bf16", "gpu": GPU, "shape": {"N": 64},
                                    "config": config, "median_ms": 0.1, "toolkit": "triton 3.6.0", **more})


def listed_names(text):
    """Return the parameter names of each configuration of a list, as Triton reads it."""
    return [frozenset(ast.literal_eval(call.args[0])) for call in ast.parse(text, mode="eval").body.elts]


def test_configurations_of_two_kernels_never_share_a_list():
    """Names that a file name cannot hold, names that are cut, and one name for two kernels: a list is for one of them."""
    heard("triton:job.scale[ACT=relu]", {"BLOCK": 16, "num_warps": 4})
    heard("triton:job.scale(ACT=relu)", {"BLOCK": 32, "num_warps": 4})          # the same file name, another kernel
    heard("triton:job.norm", {"BLOCK": 16, "num_warps": 4})
    heard("triton:job.norm", {"ROWS": 8, "num_warps": 4}, shape={"N": 128})     # another module's kernel of this name
    heard("triton:job.norm", {"BLOCK": 64, "num_warps": 8, "num_ctas": 2}, shape={"N": 256})        # the first: an option more
    heard("x" * 60, {"BLOCK": 1}, gpu="g" * 120)
    heard("x" * 60, {"BLOCK": 2}, gpu="g" * 119 + "h")                          # differ where the file name is cut
    files = export_selectors.export_entries("triton", {}).files
    lists = {path: listed_names(text) for path, text in files.items()}
    assert all(len(set(names)) == 1 for names in lists.values()), lists
    assert sorted(len(names) for names in lists.values()) == [1, 1, 1, 1, 1, 2]
    assert all(len(path) < 200 for path in files)
    assert export_selectors.export_entries("triton", {}).files == files         # the same names again


def test_no_entry_is_lost_for_a_name_that_is_cut():
    for last in (1, 2):
        heard("y" * 60, {"BLOCK": last}, gpu="g" * 100, shape={"Z": last})
    files = export_selectors.export_entries("helion", {}).files
    assert len(files) == 2
    assert sorted(json.loads(text)["BLOCK"] for text in files.values()) == [1, 2]


def test_a_text_with_lists_of_two_kernels_is_no_list_of_one(olga):
    """A module with two autotuned kernels, for an operator that is none of ours: which of them it is for is not said."""
    both = b"triton.Config({'BLOCK': 64}, num_warps=4)\ntriton.Config({'BLOCK': 128}, num_warps=4, num_ctas=2)\n" \
           b"triton.Config({'BM': 64, 'BN': 64}, num_warps=4)"
    hints = exchange_services.Hints("their_norm", "bf16", GPU, shape={"N": 64})
    with pytest.raises(FormatError, match=r"more than one kernel: BLOCK; BM, BN"):
        exchange_services.import_file(owner=olga, name="kernels.py", data=both, hints=hints)
    assert not ImportedFile.objects.exists()
    file = exchange_services.import_file(owner=olga, name="kernels.py", data=both[:both.index(b"triton.Config({'BM")], hints=hints)
    assert len(exchange_services.untimed_configs(file)) == 2
    ours = exchange_services.Hints("matmul", "bf16", GPU, shape=SHAPE)          # of an operator here the others are told
    known = b"triton.Config({'BM': 64, 'BN': 64, 'BK': 64, 'GM': 8}, num_warps=4, num_stages=3), triton.Config({'BX': 1})"
    assert "matmul has no parameter BX" in exchange_services.import_file(owner=olga, name="k.py", data=known, hints=ours).refused


def test_lists_say_what_is_unverified(client, bob, olga):
    """Pages that list what was proven beside what was not."""
    put()
    services.evidence_put(**IMPORTED, shape={**SHAPE, "M": 512}, config=OTHER, median_ms=0.01)
    client.force_login(bob)
    for url in (reverse("cache-list"), "/search/?q=matmul"):
        page = client.get(url).content.decode()
        assert page.count("from a file: never measured here") == 1, url
    heard = CachedConfig.objects.get(origin="import")
    problem = reverse("problem") + f"?operator=matmul&dtype=bf16&gpu=NVIDIA+H200&M={heard.shape['M']}&N=4096&K=4096"
    CachedConfig.objects.filter(origin="tune").delete()
    assert "from a file: never measured here" in client.get(problem).content.decode()


# ---- API, pages, command ----

def test_import_and_export_over_http(api, alice, bob):
    put()
    sent = SimpleUploadedFile("best.json", helion.write("matmul", FAST).encode())
    asked = {"file": sent, "operator": "matmul", "dtype": "bf16", "gpu": "NVIDIA B200", "shape": "M=64 N=4096 K=4096"}
    made = api(alice).post(reverse("api-import"), asked, format="multipart")
    assert made.status_code == 201 and made.json()["entries"] == 1
    sent.seek(0)
    assert api(bob).post(reverse("api-import"), {**asked, "file": sent}, format="multipart").status_code == 403
    listed = api(bob).get(reverse("api-import")).json()
    assert [file["format"] for file in listed["files"]] == ["helion"] and "vllm" in listed["formats"]
    answer = api(bob).get(reverse("api-export"), {"as": "triton", "gpu": GPU})
    assert answer.status_code == 200 and b"triton.Config(" in answer.content
    assert api(bob).get(reverse("api-export"), {"as": "nothing"}).status_code == 400
    trials = api(bob).get(reverse("api-trials-export", args=[TuneJob.objects.get().pk, "t4"]))
    assert len(json.loads(trials.content)["results"]) == 2
    sent = SimpleUploadedFile("x.json", b"[]")
    bad = api(alice).post(reverse("api-import"), {"file": sent, "format": "helion"}, format="multipart")
    assert bad.status_code == 400 and "is no object" in bad.json()["fields"]["file"][0]


def test_a_person_takes_an_entry_out_of_service(api, alice, olga):
    entry = put()
    url = reverse("api-config", args=[entry.pk])
    assert api(alice).post(url, {"do": "quarantine"}, format="json").status_code == 403
    assert api(olga).post(url, {"do": "quarantine", "why": "wrong on odd K"}, format="json").json()["state"] == "quarantined"
    assert api(olga).get(reverse("api-config-best"), {"operator": "matmul", "gpu": GPU, **SHAPE}).json()["rule"] == "default"
    assert api(olga).post(url, {"do": "lift"}, format="json").json()["state"] == "unverified"


def test_pages(client, alice, olga):
    entry = put()
    services.record_environment(GPU, "cuda 13.0, triton 3.7.1", "580.159")
    client.force_login(alice)
    page = client.get(reverse("cache-list")).content.decode()
    assert "1</span> unverified" in page and "Measure 1 again" in page
    page = client.get(reverse("cache", args=[entry.pk])).content.decode()
    assert "Unverified" in page and "triton 3.7.1 was seen since" in page and "faster" in page
    asked = {"operator": "matmul", "gpu": GPU, "shape": "M=4096 N=4096 K=4096", "toolkit": "cuda 13.0, triton 3.7.1"}
    page = client.get(reverse("cache-why"), asked).content.decode()
    assert "by the rule <b>older toolkit</b>" in page and "Tune this" in page
    assert client.get(reverse("cache-why"), {**asked, "shape": "M=x"}).status_code == 400
    for name in ("cache-portability", "cache-buckets", "cache-exchange"):
        assert client.get(reverse(name)).status_code == 200
    made = client.post(reverse("cache-revalidate"), {"entry": entry.pk})
    assert made.url == reverse("cache-revalidation", args=[SuiteJob.objects.get(reason="revalidate").pk])
    refused = client.post(reverse("cache-exchange"), {"file": SimpleUploadedFile("x.txt", b"<script>")})
    assert refused.status_code == 400 and "none of the formats" in refused.content.decode()
    assert client.post(reverse("cache-buckets"), {}).status_code == 403
    client.force_login(olga)
    saved = client.post(reverse("cache-buckets") + "?operator=matmul",
                        {"steps_per_doubling": "2", "exact_up_to": "16", "max_distance": "4"})
    assert saved.status_code == 302 and selectors.bucket_policy("matmul").steps_per_doubling == 2


def test_a_file_on_the_page(client, alice):
    client.force_login(alice)
    sent = SimpleUploadedFile("best.json", helion.write("matmul", FAST).encode())
    made = client.post(reverse("cache-exchange"), {"file": sent, "operator": "matmul", "dtype": "bf16", "gpu": GPU,
                                                   "shape": "M=64 N=4096 K=4096"})
    assert made.status_code == 302
    page = client.get(made.url).content.decode()
    assert "1 of 1 configuration became entry" in page
    assert client.post(reverse("cache-import-forget", args=[ImportedFile.objects.get().pk])).status_code == 302
    assert not CachedConfig.objects.exists()


def command(*arguments):
    out = StringIO()
    call_command("configs", *arguments, stdout=out)
    return out.getvalue()


def test_the_command(tmp_path):
    put()
    assert "matmul" in command("list")
    why = json.loads(command("why", "matmul", "M=4096", "N=4096", "K=4096", "--gpu", GPU, "--json"))
    assert why["rule"] == "exact" and why["considered"][0]["serves"]
    assert "exact" in command("best", "matmul", "M=4096 N=4096 K=4096", "--gpu", GPU)
    command("export", "helion", "--out", str(tmp_path / "files"))
    (saved,) = (tmp_path / "files").iterdir()
    told = command("import", str(saved), "--operator", "matmul", "--dtype", "bf16", "--gpu", "NVIDIA B200",
                   "--shape", "M=1 N=4096 K=4096")
    assert "1 entry" in told
    assert json.loads(command("portability", "--json"))["searches"] == 1
    assert json.loads(command("buckets", "matmul", "--json"))["policy"]["steps_per_doubling"] == 1
    assert "1 of 1 unverified winner queued" in command("revalidate")    # the file's entry; the tune job's is verified
    assert "nothing to queue" in (again := command("revalidate")) and "queued, 1 winner will be measured again" in again
    for wrong in (["why", "conv", "M=1", "--gpu", GPU], ["import", str(tmp_path / "no.json")], ["export", "vllm"]):
        with pytest.raises(CommandError):
            command(*wrong)


def test_another_shape_of_the_bucket_says_what_it_costs():
    """Its word is bucket, not exact, and the loss is the measured one of the bucket, or unknown, never none."""
    put(shape={**SHAPE, "M": 3000}, trials={config_key(FAST): 0.2, config_key(OTHER): 0.25, config_key(DEFAULT): 0.3})
    answer = selectors.config_best("matmul", "bf16", GPU, {**SHAPE, "M": 3000})
    assert (answer["rule"], answer["expected_loss"]) == ("exact", 0.0)
    answer = selectors.config_best("matmul", "bf16", GPU, {**SHAPE, "M": 5000})
    assert (answer["rule"], answer["expected_loss"], answer["differs"]) == ("bucket", None, ["shape"])
    assert (answer["shape"]["M"], answer["measured_shape"]["M"], answer["bucket"]) == (5000, 3000, "K=4096 M=4096 N=4096")
    assert "another shape of the bucket" in portability_selectors.expected_loss_text(answer)
    put(shape={**SHAPE, "M": 5200}, config=OTHER, ms=0.3,
        trials={config_key(FAST): 0.4, config_key(OTHER): 0.3, config_key(DEFAULT): 0.5})
    assert selectors.config_best("matmul", "bf16", GPU, {**SHAPE, "M": 5000})["expected_loss"] == pytest.approx(0.6 ** -0.5 - 1)


def test_a_bucket_hit_is_told_as_one_everywhere(api, client, alice):
    """API, command, page: the rule's word, and the shapes that differ."""
    put(shape={**SHAPE, "M": 3000})
    query = {"operator": "matmul", "dtype": "bf16", "gpu": GPU, "M": 5000, "N": 4096, "K": 4096, "why": 1}
    answer = api(alice).get(reverse("api-config-best"), query).json()
    assert (answer["rule"], answer["measured_shape"]["M"]) == ("bucket", 3000) and "same bucket" in answer["why"]
    assert [(one["rule"], one["shape"]["M"]) for one in answer["considered"]] == [("bucket", 3000)]
    assert {one["rule"]: one["found"] for one in answer["rules"]}["exact"] == 0
    assert command("best", "matmul", "M=5000 N=4096 K=4096", "--gpu", GPU).startswith("bucket: ")
    client.force_login(alice)
    page = client.get(reverse("cache-why"), {"operator": "matmul", "dtype": "bf16", "gpu": GPU,
                                             "shape": "M=5000 N=4096 K=4096"}).content.decode()
    assert "by the rule <b>bucket</b>" in page and "Tune this" in page
    assert re.search(r"<dt>measured at</dt><dd[^>]*>[^<]*3000", page)
