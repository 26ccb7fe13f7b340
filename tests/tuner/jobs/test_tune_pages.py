"""The tuner's pages over HTTP: forms and what they become, buttons, worth, groups, comparison, live parts."""

import json
import re
from datetime import timedelta
from urllib.parse import urlencode

import pytest
from django.core.cache import cache
from django.db import connection
from django.test.utils import CaptureQueriesContext, override_settings
from django.urls import reverse
from django.utils import timezone

from profiles.models import KernelShape, KernelStat, Profile
from tuner.jobs import page_selectors, selectors, worth_selectors
from tuner.models import TrialRow, TuneGroup, TuneJob
from tuner.tuning.trial import config_key
from workers import jobs

pytestmark = pytest.mark.django_db

SHAPE = {"M": 1024, "N": 1024, "K": 1024}
FORM = {"operator": "matmul", "shape": "M=1024 N=1024 K=1024", "dtype": "bf16", "device": "replay:matmul", "strategy": "random"}


@pytest.fixture(autouse=True)
def replay_worker():
    jobs.announce("replay@test", {"queues": ["replay"], "replay": ["matmul"], "gpus": []})
    cache.clear()
    yield
    jobs.retire("replay@test")


@pytest.fixture
def person(client, alice):
    client.force_login(alice)
    return client


def job(status="done", shape=None, trials=(), **fields):
    """A job of a GPU with its trials: (BM, warps, ms or a reason, facts)."""
    made = TuneJob.objects.create(**{
        "operator": "matmul", "shape": shape or SHAPE, "dtype": "bf16", "device": "gpu", "strategy": "local", "budget_trials": 100,
        "budget_seconds": 60, "status": status, "gpu": "NVIDIA H200", "elapsed_s": 20.0, **fields})
    for number, (bm, warps, ms, *facts) in enumerate(trials):
        config, timed = {"BM": bm, "num_warps": warps}, isinstance(ms, float)
        TrialRow.objects.create(
            job=made, number=number, config=config, config_key=config_key(config), at_s=float(number + 1),
            outcome="measured" if timed else "rejected", reason="" if timed else ms, message="" if timed else "no good",
            median_ms=ms if timed else None, min_ms=ms if timed else None, p90_ms=ms if timed else None, n=9 if timed else None,
            facts={"samples_ms": [1.0] * 50, **(facts[0] if facts else {})})
    return made


def seen(total_ns, launches=10, shape=SHAPE, dtype="bf16", kernel="matmul_kernel", gpu="NVIDIA H200"):
    """A profile with launches of one problem."""
    profile = Profile.objects.create(name="step", status="ready", kind="trace", gpu=gpu, file_name="f", upload_key="k")
    stat = KernelStat.objects.create(profile=profile, name=kernel, short_name=kernel, category="compute", launches=launches,
                                     total_ns=total_ns, mean_ns=total_ns / launches, share_pct=100)
    KernelShape.objects.create(kernel=stat, launches=launches, total_ns=total_ns, min_ns=1, max_ns=total_ns,
                               tune={"operator": "matmul", "dtype": dtype, **shape})
    return profile


# ---- worth ----

def test_worth_is_recorded_time_times_the_share_that_searches_won():
    seen(3_000_000_000)
    seen(1_000_000_000, gpu="NVIDIA A100-SXM4-80GB")
    seen(9_000_000_000, shape={**SHAPE, "M": 16})
    unknown = worth_selectors.search_worth("matmul", "bf16", SHAPE)
    assert unknown.seconds is None and "no job of matmul has finished" in unknown.why and unknown.fleet.ns == 4_000_000_000
    for best_ms in (0.5, 0.8, 0.9):
        job(shape={**SHAPE, "K": 64}, best_ms=best_ms, default_ms=1.0, library_ms=0.7)
    job(shape={**SHAPE, "K": 64}, status="stopped", best_ms=0.1, default_ms=1.0)
    assert worth_selectors.search_worth("matmul", "bf16", SHAPE).seconds == pytest.approx(4 * 0.2)
    assert worth_selectors.search_worth("matmul", "bf16", SHAPE, "NVIDIA H200").seconds == pytest.approx(3 * 0.2)
    assert worth_selectors.search_worth("matmul", "fp16", SHAPE).seconds is None


def test_a_winner_must_beat_the_library_where_the_fleet_runs_it():
    seen(1_000_000_000, kernel="nvjet_sm90_hsh_192x192")
    for best_ms in (0.5, 0.8, 0.9):
        job(shape={**SHAPE, "K": 64}, best_ms=best_ms, default_ms=1.0, library_ms=0.7)
    found = worth_selectors.search_worth("matmul", "bf16", SHAPE)
    assert found.seconds == 0.0 and "vendor library" in found.why


def test_a_job_of_the_very_problem_knows_better_than_the_median():
    seen(1_000_000_000, launches=1000)                              # 1 ms a launch
    done = job(best_ms=0.75, default_ms=5.0)
    found = worth_selectors.search_worth("matmul", "bf16", SHAPE)
    assert found.seconds == pytest.approx(0.25) and f"job {done.pk}" in found.why


# ---- the form ----

def test_an_effort_gives_its_numbers_and_own_numbers_are_kept(person):
    person.post(reverse("tune-new"), {**FORM, "effort": "quick"})
    quick = TuneJob.objects.get()
    assert (quick.effort, quick.budget_trials, quick.plateau) == ("quick", 30, 15)
    person.post(reverse("tune-new"), {**FORM, "effort": "quick", "budget_trials": "31", "budget_seconds": "90"})
    own = TuneJob.objects.latest("pk")
    assert (own.effort, own.budget_trials, own.budget_seconds, own.plateau) == ("", 31, 90, None)
    person.post(reverse("tune-new"), FORM)
    assert TuneJob.objects.latest("pk").effort == "normal"


def check(person, query="", **typed):
    return person.post(f"{reverse('api-tune-check')}{query}", {"form": urlencode({**FORM, "seed": "0", **typed}, doseq=True)},
                       content_type="application/json")


def test_a_form_is_checked_before_it_is_sent(person, bob):
    fine = check(person).json()
    assert (fine["fields"], fine["jobs"], fine["queue"]["text"]) == ({}, 1, "Starts at once: a worker is idle.")
    wrong = check(person, shape="M=3 N=3 K=3", budget_trials="0").json()["fields"]
    assert "not recorded; this landscape holds: M=4096" in wrong["shape"] and "between 1 and" in wrong["budget_trials"]
    assert "is not understood" in check(person, shape="4096x4096").json()["fields"]["shape"]
    assert "whole number" in check(person, budget_trials="many").json()["fields"]["budget_trials"]
    assert check(person, shape="M=0 N=4 K=4", device="gpu").json()["fields"]["shape"].startswith("M: ")
    assert "choices" in check(person, device="tpu").json()["fields"]["device"]
    assert not TuneJob.objects.exists()
    for hostile in ({"form": "x=1&" * 5000}, {"form": "a" * 200_000}, {}, {"form": {"a": 1}}):
        assert person.post(reverse("api-tune-check"), hostile, content_type="application/json").status_code == 400
    assert check(person, query="?profile=999999").status_code == 400
    person.force_login(bob)
    with override_settings(LOCAL_MODE=False):
        assert check(person).status_code == 403


def test_the_state_of_the_queue_is_named_before_a_job_is_in_it(person):
    job(status="queued", device="replay:softmax")
    job(status="running", device="replay:matmul")
    jobs.announce("replay@test", {"queues": ["replay"], "gpus": [], "busy": "tune-1"})
    assert check(person).json()["queue"]["text"] == "Queue: 1 job before it, 1 running."
    nobody = check(person, device="gpu").json()["queue"]
    assert "No living worker can take it: no gpu worker is running" in nobody["text"] and nobody["why_not"]
    jobs.retire("replay@test")
    assert "no replay worker is running" in check(person).json()["queue"]["why_not"]
    assert "(no worker)</option>" in person.get(reverse("tune-new")).content.decode()


def test_shapes_of_a_profile_run_where_a_worker_serves(person):
    profile = seen(1_000_000, gpu="NVIDIA A100-SXM4-80GB")
    device = lambda: person.get(reverse("tune-new"), {"profile": profile.pk}).context["form"]["device"].value()      # noqa: E731
    assert device() == "gpu:NVIDIA A100-SXM4-80GB"                         # nobody serves any GPU: it waits for its own
    jobs.announce("gpu@test", {"queues": ["gpu"], "gpus": [{"name": "NVIDIA H200"}]})
    try:
        assert device() == "gpu"
        jobs.announce("gpu@other", {"queues": ["gpu"], "gpus": [{"name": "NVIDIA A100-SXM4-80GB"}]})
        assert device() == "gpu:NVIDIA A100-SXM4-80GB"
        told = check(person, query=f"?profile={profile.pk}", hot=["matmul bf16 M=1024 N=1024 K=1024"], device=device()).json()
        assert (told["fields"], told["jobs"]) == ({}, 1)
        assert "Pick at least one" in check(person, query=f"?profile={profile.pk}", hot=[]).json()["fields"]["hot"]
    finally:
        jobs.retire("gpu@test")
        jobs.retire("gpu@other")


def test_many_shapes_become_a_group_all_or_none(person):
    lines = "M=4096 N=4096 K=4096\nM=1024, N=1024, K=1024\n\nK=1024 M=1024 N=1024"
    wrong = person.post(reverse("tune-new"), {**FORM, "shape": lines + "\nM=3 N=3 K=3"})
    assert wrong.status_code == 400 and "not recorded" in wrong.content.decode() and not TuneJob.objects.exists()
    made = person.post(reverse("tune-new"), {**FORM, "shape": lines})
    group = TuneGroup.objects.get()
    assert made.url == reverse("tune-group", args=[group.pk])
    assert [each.shape["M"] for each in group.jobs.order_by("group_place")] == [4096, 1024]
    page = person.get(made.url).content.decode()
    assert "0 of 2 shapes ended" in " ".join(re.sub(r"<[^>]+>", "", page).split()) and "Stop all" in page
    person.post(reverse("tune-group-act", args=[group.pk]), {"do": "stop"})
    assert {each.status for each in group.jobs.all()} == {"stopped"}


def test_hot_shapes_of_a_profile_are_picked_and_tuned_by_worth(person):
    profile = seen(1_000_000)
    stat = KernelStat.objects.get()
    small = {**SHAPE, "M": 4096, "N": 4096, "K": 4096}
    KernelShape.objects.create(kernel=stat, launches=2, total_ns=5_000_000, min_ns=1, max_ns=1,
                               tune={"operator": "matmul", "dtype": "bf16", **small})
    KernelShape.objects.create(kernel=stat, launches=2, total_ns=9_000_000, min_ns=1, max_ns=1, tune={"operator": "conv", "M": 1})
    job(shape={**SHAPE, "K": 64}, best_ms=0.5, default_ms=1.0)
    page = person.get(reverse("tune-new"), {"profile": profile.pk})
    boxes = re.findall(r'name="hot" value="([^"]+)"[^>]*?( checked)?[ >]', page.content.decode())
    assert [value for value, _ in boxes] == ["matmul bf16 M=4096 N=4096 K=4096", "matmul bf16 M=1024 N=1024 K=1024"]
    url = f"{reverse('tune-new')}?profile={profile.pk}"
    budget = {"device": "gpu:NVIDIA H200", "strategy": "random", "effort": "quick"}
    assert person.post(url, {**budget, "hot": []}).status_code == 400
    assert person.post(url, {**budget, "hot": ["matmul bf16 M=1 N=1 K=1"]}).status_code == 400       # not of this profile
    person.post(url, {**budget, "hot": [value for value, _ in reversed(boxes)]})
    group = TuneGroup.objects.get()
    assert group.source["profile"] == profile.pk
    assert [(each.shape["M"], each.worth_s) for each in group.jobs.order_by("group_place")] == [
        (4096, pytest.approx(0.0025)), (1024, pytest.approx(0.0005))]
    assert person.get(reverse("tune-new"), {"profile": "999999"}).status_code == 302
    assert person.get(reverse("tune-new"), {"profile": "x"}).status_code == 302


# ---- the job's page ----

TRIALS = [(16, 4, 4.0, {"measure_s": 1.0}), (64, 4, 2.0, {"measure_s": 1.0}), (128, 4, 1.0, {"measure_s": 2.0}),
          (128, 8, "spills", {"compile_s": 0.5}), (64, 8, 3.0, {"measure_s": 0.5, "ended": "raced", "racing": {"saved_s": 1.5}})]


def test_the_page_tells_effects_time_and_failures(person, bob):
    made = job(best_ms=1.0, best_config={"BM": 128, "num_warps": 4}, default_ms=2.0, trials=TRIALS, pruned={"shared memory": 10})
    page = person.get(reverse("tune", args=[made.pk]))
    text = page.content.decode()
    assert json.loads(re.search(r'id="tune-effects"[^>]*>(.*?)<', text)[1])[0][0] == "BM"
    assert "samples_ms" not in text
    saved = page_selectors.job_savings(made, selectors.lean_trials(made))
    assert (saved.busy_pct, saved.spent.raced_saved_s, saved.spent.compiled_saved_s) == (22.5, 1.5, 1.125)
    assert saved.pruned_saved_s == pytest.approx(10 * 20 / 5)
    told = person.get(reverse("api-tune-insight", args=[made.pk])).json()
    assert told["effects"][0]["name"] == "BM" and told["rejected"] == 1 and told["time"]["busy"] == 0.225
    person.force_login(bob)                                            # a viewer sees it, without buttons
    assert reverse("tune-stop", args=[made.pk]) not in person.get(reverse("tune", args=[made.pk])).content.decode()


def snapshot(person, made, **query):
    return person.get(reverse("tune-snapshot", args=[made.pk]), query).json()


def test_a_snapshot_says_the_same_in_every_part_and_is_made_twice_a_second_however_many_ask(person):
    made = job(status="running", best_ms=1.0, best_config={"BM": 128, "num_warps": 4}, trials=TRIALS)
    first = snapshot(person, made)
    assert [trial["number"] for trial in first["trials"]] == [0, 1, 2, 3, 4] and first["last"] == 4 and not first["more"]
    assert ">5</span> trials" in first["parts"]["answer"]
    assert "5 of 100 trials" in first["parts"]["progress"]
    TrialRow.objects.create(job=made, number=5, config={"BM": 8}, config_key="later", at_s=9.0, outcome="measured", median_ms=0.5,
                            min_ms=0.5, p90_ms=0.5, n=1, facts={})
    with CaptureQueriesContext(connection) as queries:
        second = snapshot(person, made, after=3, stamp=first["stamp"])
    assert [trial["number"] for trial in second["trials"]] == [4] and "parts" not in second       # not yet: its words say 5
    assert len(queries) < 12
    TuneJob.objects.filter(pk=made.pk).update(status="done")
    third = snapshot(person, made, after=4, stamp=first["stamp"])                  # a change of state is never kept back
    assert "Fastest" in third["parts"]["answer"] and ">6</span> trials" in third["parts"]["answer"]
    assert [trial["number"] for trial in third["trials"]] == [5] and third["state"]["ended"]
    assert third["version"] > first["version"]
    assert person.get(reverse("tune-snapshot", args=[10**9])).status_code == 404
    assert len(snapshot(person, made, after="1 or 1=1")["trials"]) == 6


def test_every_change_of_a_job_counts_its_version(person):
    made = job(status="queued", device="replay:matmul")
    seen_versions = [TuneJob.objects.get(pk=made.pk).version]
    for change in ({"status": "running"}, {"heartbeat": timezone.now()}, {"elapsed_s": 3.0}):
        TuneJob.objects.filter(pk=made.pk).update(**change)
        seen_versions.append(TuneJob.objects.get(pk=made.pk).version)
    made.save()                                                     # a stale row does not set it back
    seen_versions.append(TuneJob.objects.get(pk=made.pk).version)
    assert seen_versions == [0, 1, 2, 3, 4]


def test_a_stop_is_said_in_every_part_and_carried_out_where_the_worker_is_silent(person):
    now = timezone.now()
    made = job(status="running", worker="w", heartbeat=now, best_ms=1.0, best_config={"BM": 128, "num_warps": 4}, trials=TRIALS)
    stop, pause = reverse("api-tune-stop", args=[made.pk]), reverse("api-tune-pause", args=[made.pk])
    person.post(pause)
    assert snapshot(person, made)["state"]["asked"] == "pause"
    person.post(stop)
    told = snapshot(person, made)
    assert (told["state"]["asked"], told["state"]["status"]) == ("stop", "running")
    assert "Stopping…" in told["parts"]["answer"] and "stopping…" in told["parts"]["progress"]
    assert "stopping…" in person.get(reverse("tune-list")).content.decode()
    TuneJob.objects.filter(pk=made.pk).update(heartbeat=now - timedelta(seconds=6))        # its worker was killed
    cache.clear()
    assert "no sign of its worker" in snapshot(person, made)["parts"]["progress"]
    person.post(stop)
    told = snapshot(person, made)
    assert told["state"]["status"] == "stopped" and "Stopped" in told["parts"]["answer"] and "stopped" in told["parts"]["progress"]


@pytest.mark.parametrize(("fields", "words"), [
    ({"ended_by": "plateau", "plateau": 40}, "ended on its plateau: the last 40 trials gained less than 1 %"),
    ({"ended_by": "trials", "budget_trials": 5, "valid_size": 602}, "ended by its budget of 5 trials"),
    ({"ended_by": "trials", "budget_trials": 5, "valid_size": 5}, "the whole space was tried"),
    ({"ended_by": "seconds"}, "ended by its budget of 60 s"),
    ({"ended_by": "space", "valid_size": 5}, "the whole space was tried"),
    ({"ended_by": "space", "valid_size": 9, "strategy": "evolutionary"}, "evolutionary search had nothing more to propose"),
    ({"ended_by": "space", "only": [{"BM": 1}]}, "all that was listed has been measured"),
])
def test_a_job_says_why_it_ended(person, fields, words):
    made = job(best_ms=1.0, best_config={"BM": 128, "num_warps": 4}, trials=TRIALS, **fields)
    assert words in snapshot(person, made)["parts"]["answer"]


def test_progress_counts_trials_without_a_gain_as_the_loop_does():
    def count(*times):
        made = job(trials=[(at, 4, ms) for at, ms in enumerate(times)])
        return page_selectors.trials_without_gain(selectors.lean_trials(made))

    assert count("spills", "spills", 5.0) == 0
    assert count(5.0, "spills", 6.0, 4.99) == 3
    assert count(5.0, 4.97, 4.94, 4.93) == 1                               # two small gains add up to one per cent
    raced = job(trials=[(0, 4, 5.0), (1, 4, 3.0, {"ended": "raced"})])
    assert page_selectors.trials_without_gain(selectors.lean_trials(raced)) == 1


@pytest.mark.parametrize(("fields", "words"), [
    ({"elapsed_s": 0.0, "trials": ()}, "0 of 10 trials · 0 of 60 s"),
    ({"elapsed_s": 10.0}, "5 of 10 trials · 10 of 60 s · 0.5 trials/s · 2 of 40 without a gain · at most 10 s left"),
    ({"elapsed_s": 58.5, "budget_trials": 1000, "plateau": None},
     "5 of 1,000 trials · 58 of 60 s · 0.085 trials/s · about 2 s left"),
    ({"elapsed_s": 10.0, "valid_size": 6, "plateau": None}, "5 of 6 trials · 10 of 60 s · 0.5 trials/s · about 2 s left"),
])
def test_progress_says_how_far_how_fast_and_how_long(fields, words):
    made = job(status="running", **{"trials": TRIALS, "budget_trials": 10, "plateau": 40, **fields})
    assert page_selectors.progress_text(made, selectors.lean_trials(made)) == words


def test_each_tab_is_an_address(person):
    made = job(best_ms=1.0, best_config={"BM": 128, "num_warps": 4}, trials=TRIALS)

    def shown(query):
        return re.findall(r'id="tab-(\w+)">', person.get(reverse("tune", args=[made.pk]), query).content.decode())

    assert shown({}) == ["trials"] and shown({"tab": "saved"}) == ["saved"] and shown({"tab": "<script>"}) == ["trials"]


def test_buttons_pause_resume_extend_and_say_what_is_wrong(person):
    made = job(status="queued", device="replay:matmul")
    act = lambda name, **data: person.post(reverse(f"tune-{name}", args=[made.pk]), data, follow=True)      # noqa: E731
    act("pause")
    made.refresh_from_db()
    assert made.status == "paused" and b"Resume" in person.get(reverse("tune", args=[made.pk])).content
    act("resume")
    act("extend", trials="50", seconds="")
    made.refresh_from_db()
    assert (made.status, made.budget_trials) == ("queued", 150)
    assert b"Not extended" in act("extend", trials="many", seconds="").content
    assert b"Not extended" in act("extend", trials="", seconds="nan").content


def test_the_queue_stands_by_worth_and_moves_by_hand(person, bob):
    low, high, unknown = (job(status="queued", worth_s=worth_s) for worth_s in (1.0, 5.0, None))
    order = lambda: [row["job"].pk for row in page_selectors.queue_rows()]      # noqa: E731
    assert order() == [high.pk, low.pk, unknown.pk]
    person.post(reverse("tune-move", args=[unknown.pk]), {"before": high.pk})
    assert order() == [unknown.pk, high.pk, low.pk]
    page = person.get(reverse("tune-list")).content.decode()
    assert page.index(f'data-job="{unknown.pk}"') < page.index(f'data-job="{high.pk}"') and "by hand" in page
    person.post(reverse("tune-by-worth"))
    assert order() == [high.pk, low.pk, unknown.pk]
    assert person.post(reverse("tune-move", args=[low.pk]), {"before": "x", "after": "9" * 40}).status_code == 302
    person.force_login(bob)
    assert person.post(reverse("tune-move", args=[low.pk]), {"before": high.pk}).status_code == 403


# ---- two jobs ----

def test_two_jobs_side_by_side(person):
    a = job(best_ms=1.0, best_config={"BM": 128, "num_warps": 4}, trials=TRIALS, strategy="local")
    b = job(best_ms=2.0, best_config={"BM": 64, "num_warps": 4}, trials=TRIALS[:2], strategy="random")
    page = person.get(reverse("tune-compare"), {"a": a.pk, "b": b.pk})
    assert f"Job {a.pk} found 1 ms, 2.00× faster than job {b.pk}" in page.content.decode()
    told = person.get(reverse("api-tune-compare"), {"a": a.pk, "b": b.pk}).json()
    assert told["same_problem"] and [row["name"] for row in told["differences"]] == ["strategy"] and len(told["pairs"]) == 2
    assert told["crossed"][1] == {"ms": 2.0, "loss": 2.0}
    assert person.get(reverse("tune-compare")).status_code == 200
    assert person.get(reverse("tune-compare"), {"a": a.pk, "b": "0"}).status_code == 404
    assert person.get(reverse("api-tune-compare"), {"a": a.pk, "b": "x"}).status_code == 404


def test_jobs_to_compare_are_searched_and_those_of_the_same_problem_come_first(person):
    first, other, same = job(strategy="local"), job(shape={**SHAPE, "K": 100064}, gpu="NVIDIA A100"), job(strategy="random")
    values = lambda **query: [int(each["value"]) for each in person.get(reverse("api-tune-choices"), query).json()["choices"]]      # noqa: E731
    assert values() == [same.pk, other.pk, first.pk]
    assert values(beside=first.pk) == [same.pk, other.pk]
    assert values(q="a100 matmul") == [other.pk] and values(q="100064") == [other.pk] and values(q=str(first.pk))[-1] == first.pk
    assert values(q="%") == [] and person.get(reverse("api-tune-choices"), {"q": "x " * 500, "beside": "x"}).status_code == 200


def test_a_groups_winners_carry_from_shape_to_shape(person):
    group = TuneGroup.objects.create(name="two")
    for place, trials in enumerate((TRIALS[:3], [(16, 4, 1.0), (64, 4, 1.1), (128, 4, 3.0)])):
        job(shape={**SHAPE, "M": 2 ** (10 + place)}, trials=trials, best_ms=1.0, best_config={"BM": 16}, default_ms=1.25,
            group=group, group_place=place)
    page = person.get(reverse("tune-group", args=[group.pk])).content.decode()
    assert "3.00×" in page and "4.00×" in page                          # 128 at the second, 16 at the first
    assert re.search(r"worst\s+2\.00×, mean 1\.48×", page)
    assert "1.25×" in page
