"""The client against the running web: snapshots that stay, what was served, and what Triton's autotuner found elsewhere."""

import json
import os
import re
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
from django.db import connection
from django.urls import reverse
from django.utils import timezone

from tuner.cache import client as library
from tuner.cache.buckets import Buckets
from tuner.cache.entries import selectors as configs
from tuner.cache.entries.services import config_set_state as set_state
from tuner.cache.serve import api as serve_api
from tuner.cache.serve import resolve, selectors, services
from tuner.jobs.quarantine import quarantine_lift, quarantine_put
from tuner.models import BucketPolicy, CachedConfig, ConfigSnapshot, ServedCount, SnapshotView, TrialRow, TuneJob

pytestmark = pytest.mark.django_db
PROJECT = Path(__file__).resolve().parents[3]
GPU, TOOLKIT = "NVIDIA H200", "cuda 13.0, triton 3.6.0"
CONFIG = {"BM": 128, "BN": 128, "BK": 64, "GM": 8, "num_warps": 8, "num_stages": 3}
needs_triton = pytest.mark.skipif(not (find_spec("torch") and find_spec("triton")), reason="torch and Triton are not installed")


@pytest.fixture(autouse=True)
def looked_anew(monkeypatch):
    monkeypatch.setattr(services, "_newest", {})
    monkeypatch.setattr(services, "_revoked", {})
    monkeypatch.setattr(services, "LOOK_EVERY_S", 0.0)
    yield
    library._LIVING.clear()


def entry(shape, config=CONFIG, **more):
    job = TuneJob.objects.create(operator="matmul", shape=shape, dtype="bf16", device="gpu", strategy="random", status="done",
                                 budget_trials=1, budget_seconds=1)
    key = " ".join(f"{name}={value}" for name, value in sorted(shape.items()))
    return CachedConfig.objects.create(**{
        "operator": "matmul", "dtype": "bf16", "shape": shape, "shape_key": key, "shape_bucket": configs.bucket("matmul", shape),
        "gpu": GPU, "compute_capability": "9.0", "toolkit": TOOLKIT, "config": config, "median_ms": 1.0, "job": job, **more})


def square(n):
    return {"M": n, "N": n, "K": n}


def snapshot(http, **query):
    return http.get(reverse("api-config-snapshot"), {"gpu": GPU, "toolkit": TOOLKIT, **query})


def test_the_snapshot_answers_as_the_server_does(api, bob):
    for n in (64, 1024, 4096, 5000):
        entry(square(n), {**CONFIG, "BM": 16 * (n // 64 % 8 + 1)})
    entry(square(2048), gpu="NVIDIA H100")
    BucketPolicy.objects.create(operator="matmul", exact_up_to=8, steps_per_doubling=2.0, max_distance=2.0)
    found = library.Snapshot(snapshot(api(bob)).json())
    for M in (1, 9, 60, 700, 1000, 1500, 2048, 3000, 4096, 5000, 20000):
        shape = {"M": M, "N": 4096, "K": 4096} if M > 4000 else square(M)
        right = configs.config_best("matmul", "bf16", GPU, shape, TOOLKIT)
        served = found.find("matmul", "bf16", shape)
        if served is None:
            assert right["rule"] == "default"
        else:
            assert (served.rule, served.entry, served.config, served.bucket) == (
                right["rule"], right["entry"]["id"], right["config"], right["bucket"])
    assert Buckets.from_json(found.operators["matmul"]["policy"]).steps_per_doubling == 2.0


def test_a_pinned_snapshot_stays_what_it_was(api, bob):
    http, first = api(bob), entry(square(4096))
    before = snapshot(http).json()
    CachedConfig.objects.filter(pk=first.pk).update(config={**CONFIG, "BM": 256})
    after = snapshot(http).json()
    assert before["id"] != after["id"] and after["entries"][0]["config"]["BM"] == 256
    assert snapshot(http, id=before["id"]).json() == before
    other = snapshot(http, id=before["id"], gpu="NVIDIA GH200 480GB", compute_capability="9.0").json()     # of the same job
    assert other["id"] == before["id"] and other["entries"][0]["home"][1] == "same architecture"
    assert ConfigSnapshot.objects.count() == 2 and SnapshotView.objects.count() == 3
    assert snapshot(http, id="unheard-of").status_code == 404


def test_a_slice_of_a_card_is_served_as_another_gpu_of_its_architecture(api, bob):
    http = api(bob)
    entry(square(4096))
    whole = snapshot(http, sms=132).json()
    part = snapshot(http, sms=16, compute_capability="9.0").json()
    assert [each["entries"][0]["home"][1] for each in (whole, part)] == ["bucket", "same architecture"]
    assert (part["gpu"], part["id"]) == (GPU, whole["id"]), "the client keeps its file under the name that it asked with"
    entry(square(4096), {**CONFIG, "BM": 64}, gpu="NVIDIA H200 MIG 1g.18gb")
    own = snapshot(http, gpu="NVIDIA H200 MIG 1g.18gb", sms=16).json()
    assert own["compute_capability"] == "9.0", "by its card's name"
    assert [(each["config"]["BM"], each["home"][1]) for each in own["entries"] if each["home"]] == [(64, "bucket")]
    assert snapshot(http, gpu="NVIDIA H100 NVL").json()["compute_capability"] == "9.0", "an older client does not say"
    assert snapshot(http, sms="many").status_code == 400


def test_a_toolkit_that_is_not_known_is_never_this_toolkit(api, bob):
    entry(square(4096))
    known, unknown = (library.Snapshot(snapshot(api(bob), toolkit=toolkit).json()) for toolkit in (TOOLKIT, ""))
    assert "with this toolkit" in known.find("matmul", "bf16", square(4096)).why
    served = unknown.find("matmul", "bf16", square(4096))
    assert served.entry and "this toolkit" not in served.why and "toolkit is not known" in served.why
    assert configs.config_best("matmul", "bf16", GPU, square(4096))["why"] == served.why
    CachedConfig.objects.update(state="stale")
    services._newest.clear()
    assert library.Snapshot(snapshot(api(bob), toolkit=TOOLKIT).json()).find("matmul", "bf16", square(4096))
    assert library.Snapshot(snapshot(api(bob), toolkit="").json()).find("matmul", "bf16", square(4096)) is None


@pytest.mark.parametrize(("gpu", "toolkit"), [
    ("nvidia h200", TOOLKIT), ("NVIDIA  H200", TOOLKIT), ("H200", TOOLKIT), (GPU, "Triton 3.6.0, CUDA 13.0"),
    ("h200", "cuda13.0 triton 3.6.0")])
def test_spellings_of_an_environment_are_one(api, bob, gpu, toolkit):
    """RIDGEPOINT_GPU is typed by people; they got another GPU of the architecture, or an older toolkit."""
    entry(square(4096))
    served = library.Snapshot(snapshot(api(bob), gpu=gpu, toolkit=toolkit).json()).find("matmul", "bf16", square(4096))
    assert served.rule == "exact" == configs.config_best("matmul", "bf16", gpu, square(4096), toolkit)["rule"]
    other = library.Snapshot(snapshot(api(bob), gpu=gpu, toolkit=toolkit.replace("13.0", "13.1")).json())
    assert other.find("matmul", "bf16", square(4096)).rule == "older toolkit"


def test_an_unchanged_snapshot_is_not_sent_again(api, bob):
    entry(square(4096))
    answer = snapshot(api(bob))
    again = api(bob).get(reverse("api-config-snapshot"), {"gpu": GPU, "toolkit": TOOLKIT}, HTTP_IF_NONE_MATCH=answer["ETag"])
    assert (again.status_code, again.content, again["ETag"]) == (304, b"", answer["ETag"])


def test_a_snapshot_names_the_fastest_for_kernels_without_newer_parameters(api, bob):
    """The winner goes through TMA; a kernel that has no KERNEL gets the fastest plain trial of the same job, not a raced one."""
    full = {"KERNEL": "tiles", "SPLIT_K": 1, "STORE": "direct"}
    winner = entry(square(4096), {**CONFIG, **full, "KERNEL": "tma"})
    for number, (ms, change, facts) in enumerate([
            (1.0, {"KERNEL": "tma"}, {}), (1.1, {"BM": 32}, {"ended": "raced"}), (1.2, {"BM": 64}, {}), (1.3, {"BM": 256}, {}),
            (1.1, {"SPLIT_K": 4}, {})]):
        config = {**CONFIG, **full, **change}
        TrialRow.objects.create(job=winner.job, number=number, config=config, config_key=str(number), outcome="measured",
                                median_ms=ms, facts=facts, at_s=1)
    entry(square(64), {**CONFIG, **full})
    document = snapshot(api(bob)).json()
    assert {each["bucket"]: each["plain"] for each in document["entries"] if each["home"]} == {
        "K=4096 M=4096 N=4096": {**CONFIG, "BM": 64}, "K=64 M=64 N=64": None}
    assert document["operators"]["matmul"]["absent"] == full


def test_a_stored_view_of_before_calls_no_bucket_exact(api, bob):
    """A pinned snapshot serves what it did; the word is mended, and an unpinned job gets a snapshot with the shapes."""
    entry(square(4096))
    new = snapshot(api(bob)).json()
    old = {**new, "entries": [{name: each[name] for name in each if name not in ("shape", "same")} | {"home": [0.0, "exact"]}
                              for each in new["entries"]]}
    SnapshotView.objects.update(document=old)
    pinned = snapshot(api(bob), id=new["id"]).json()
    assert [each["home"] for each in pinned["entries"] if each["home"]] == [[0.0, "bucket"]] * len(pinned["entries"])
    assert "bucket" in pinned["why"] and "exact" not in json.dumps(pinned["entries"])
    before = {name: value for name, value in ConfigSnapshot.objects.get().content.items() if name != "form"}
    assert resolve.content_id(before) != new["id"]


def test_quarantined_entries_are_in_no_snapshot(api, bob):
    entry(square(4096), state="quarantined")
    assert snapshot(api(bob)).json()["entries"] == []


def test_who_holds_a_snapshot_is_told_what_is_in_quarantine(api, bob):
    held, other = entry(square(64)), entry(square(512))
    assert snapshot(api(bob), revoked="1").json() == {"revoked": []}
    CachedConfig.objects.filter(pk=held.pk).update(state="quarantined")
    assert snapshot(api(bob), revoked="1").json() == {"revoked": [held.pk]} and other.pk != held.pk


def ask_through(http, monkeypatch):
    """Let clients ask the product's own views, without a port."""
    def ask(self, path, timeout, *, send=None, etag=""):
        answer = http.post(path, send, format="json") if send else http.get(path)
        if answer.status_code != 200:
            raise library.Refused(answer.status_code, "refused")
        return 200, answer.content
    monkeypatch.setattr(library.Server, "ask", ask)
    monkeypatch.setattr(library.Client, "_start_thread", lambda self: None)


def job_client(tmp_path, **more):
    return library.Client(**{"url": "http://ridgepoint", "token": "", "file": str(tmp_path / "kept.json"), "gpu": GPU,
                             "toolkit": TOOLKIT, "snapshot": "", **more})


@pytest.mark.parametrize("kept", ["", "file", "pin"])
def test_a_recording_serves_only_a_job_that_asks_for_recordings(api, alice, monkeypatch, tmp_path, kept):
    """From the server, from a file while it is away, and pinned; client and server answer in the same words."""
    label = "recorded on NVIDIA H200, 2026-11-01"
    played = entry(square(4096), {**CONFIG, "BM": 64}, recorded=label)
    entry(square(64), toolkit="cuda 12.8, triton 3.4.0")
    hidden = entry(square(64), {**CONFIG, "BM": 32}, recorded=label)       # nearer by the rules than what was measured
    ask_through(api(alice), monkeypatch)
    pin = job_client(tmp_path).snapshot.id
    if kept:
        monkeypatch.setattr(library.Server, "ask", lambda *_, **__: (_ for _ in ()).throw(OSError("away")))
    for asks in (False, True):
        monkeypatch.setenv("RIDGEPOINT_RECORDED", str(int(asks)))
        one = job_client(tmp_path, snapshot=pin if kept == "pin" else "")
        assert one.source == ("file" if kept else "server") and one.status()["recorded"] == asks
        for shape in (square(4096), square(64), square(9)):
            served, right = one.best("matmul", "bf16", **shape), configs.config_best(
                "matmul", "bf16", GPU, shape, TOOLKIT, recorded=asks)
            told = re.sub("; measured at [^;]*", "", served.why), right["why"].replace(": the operator's default configuration", "")
            assert (served.rule, told[0], served.entry) == (right["rule"], told[1], right["entry"] and right["entry"]["id"])
            assert served.recorded == bool(right["entry"] and right["entry"]["recorded"])
    played_back, older = (one.best("matmul", "bf16", **square(n)) for n in (4096, 64))
    assert (played_back.entry, older.entry, older.rule) == (played.pk, hidden.pk, "exact") and "recorded" in repr(older)
    assert played_back.why.startswith("recorded, not measured here")
    one = job_client(tmp_path, recorded=False)
    assert one.best("matmul", "bf16", **square(64)).rule == "older toolkit"
    nothing = one.best("matmul", "bf16", **square(4096))
    assert (nothing.entry, nothing.config) == (None, None) and f"recording {played.pk} fits by the rule exact" in nothing.why
    assert "RIDGEPOINT_RECORDED=1" in nothing.why


def test_a_client_from_before_recordings_were_told_apart_gets_none(api, bob):
    """It asks for none; a view that an older server stored is resolved anew: there a recording hid what was measured."""
    measured = entry(square(64), toolkit="cuda 12.8, triton 3.4.0")
    played = entry(square(64), {**CONFIG, "BM": 32}, recorded="a recording")
    all_rows = snapshot(api(bob), recorded=1).json()
    assert {each["id"]: each["recorded"] for each in all_rows["entries"]} == {measured.pk: False, played.pk: True}
    assert [each["id"] for each in snapshot(api(bob)).json()["entries"] if each["home"]] == [measured.pk]
    old = [{name: value for name, value in each.items() if name != "recorded"} for each in all_rows["entries"]
           if each["id"] == played.pk]
    SnapshotView.objects.update(document={**all_rows, "entries": old})
    assert snapshot(api(bob), id=all_rows["id"], recorded=1).json() == all_rows
    assert [each["id"] for each in snapshot(api(bob), id=all_rows["id"]).json()["entries"] if each["home"]] == [measured.pk]


# ---- quarantine: for toolkit and source ----

OLD = "cuda 12.8, triton 3.4.0"


def ban(config=CONFIG, **facts):
    return quarantine_put({"operator": "matmul", "dtype": "bf16", "config": config, "capability": "9.0", "toolkit": TOOLKIT,
                           "source_hash": "ab", "reason": "crash", **facts},
                          {"message": "illegal memory access\nat 0x7f", "shape": square(4096), "gpu": GPU, "job": None})


@pytest.mark.parametrize(("facts", "under"), [
    ({}, ""), ({"toolkit": OLD}, TOOLKIT), ({"toolkit": "cuda 11.8, triton 2.1.0"}, f"{TOOLKIT}|{OLD}"),
    ({"source_hash": "cd"}, f"{TOOLKIT}|{OLD}|"), ({"source_hash": ""}, ""), ({"toolkit": ""}, ""), ({"toolkit": "unknown"}, ""),
    ({"capability": "8.0"}, f"{TOOLKIT}|{OLD}|"), ({"capability": ""}, ""), ({"dtype": "fp16"}, f"{TOOLKIT}|{OLD}|")])
def test_a_quarantine_speaks_for_its_toolkit_and_source_in_the_cache_too(api, bob, facts, under):
    """An entry of TOOLKIT and source "ab": the launches' toolkits that it serves; page, API, snapshot and revoked list agree.

    A launch without a toolkit may be under the one that crashed.
    """
    one = entry(square(4096), source_hash="ab")
    pinned = snapshot(api(bob)).json()["id"]
    ban(**facts)
    for toolkit in (TOOLKIT, OLD, ""):
        serves = toolkit in under.split("|") if under else False
        found = configs.config_best("matmul", "bf16", GPU, square(4096), toolkit, why=True)
        told = library.Snapshot(snapshot(api(bob), toolkit=toolkit).json()).find("matmul", "bf16", square(4096))
        revoked = snapshot(api(bob), toolkit=toolkit, revoked=1, id=pinned).json()["revoked"]
        assert (found["entry"] is not None, told is not None, revoked == []) == (serves,) * 3, toolkit
        if not serves:
            assert "quarantined" in found["considered"][0]["refused"]
    if not under:
        assert found["considered"][0]["refused"].endswith("never serves: crashed: illegal memory access")
    alone = snapshot(api(bob), revoked=1).json()["revoked"]                 # a client from before tells no toolkit: its entry's own
    assert alone == ([] if TOOLKIT in under.split("|") else [one.pk])


def test_a_client_is_told_why_what_was_measured_does_not_serve(api, alice, monkeypatch, tmp_path):
    """A person's reason, a crash, and a quarantine since the snapshot."""
    by_hand, later = entry(square(64)), entry(square(9000))
    entry(square(512), {**CONFIG, "BM": 64}, source_hash="ab")
    set_state(by_hand, "quarantined", alice, "hangs on node 7")
    ban({**CONFIG, "BM": 64})
    ask_through(api(alice), monkeypatch)
    one = job_client(tmp_path)
    assert one.best("matmul", "bf16", **square(64)).why == (
        f"nothing measured fits: entry {by_hand.pk}: it is quarantined and never serves: by alice: hangs on node 7")
    assert "never serves: crashed: illegal memory access" in one.best("matmul", "bf16", **square(512)).why
    assert one.best("matmul", "bf16", **square(16)).why == "nothing measured fits"
    assert one.best("matmul", "bf16", **square(9000)).entry == later.pk
    set_state(later, "quarantined", alice)
    pinned = job_client(tmp_path, snapshot=one.snapshot.id)
    assert pinned.best("matmul", "bf16", **square(9000)).why == (
        f"nothing measured fits: entry {later.pk} was quarantined since") and pinned.status()["revoked"] == [later.pk]


def test_a_pin_is_judged_by_what_it_holds(api, bob):
    """The entry has another winner by now: what crashed is the one of the pin."""
    one = entry(square(4096), source_hash="ab")
    pin = snapshot(api(bob)).json()["id"]
    CachedConfig.objects.filter(pk=one.pk).update(config={**CONFIG, "BM": 256})
    row = ban()
    assert snapshot(api(bob), revoked=1, toolkit=TOOLKIT, id=pin).json() == {"revoked": [one.pk]}
    assert snapshot(api(bob), revoked=1, toolkit=TOOLKIT).json() == {"revoked": []}
    assert snapshot(api(bob), revoked=1, toolkit=TOOLKIT, id="gone").json() == {"revoked": []}
    quarantine_lift(row, None)
    assert snapshot(api(bob), revoked=1, toolkit=TOOLKIT, id=pin).json() == {"revoked": []}


def test_a_snapshot_of_verified_entries_holds_nothing_else(api, bob):
    """Its id is another one, it can be pinned, and no other snapshot is given for it."""
    mine = entry(square(4096))
    for number, change in enumerate(({"origin": "import", "state": "unverified"}, {"origin": "listener", "state": "unverified"},
                                     {"state": "unverified"}, {"state": "stale"}, {"recorded": "a recording"},
                                     {"origin": "import", "state": "verified"})):
        entry(square(64 << number), **change)
    http = api(bob)
    everything, only = snapshot(http, recorded=1).json(), snapshot(http, verified=1).json()
    assert {each["id"] for each in only["entries"]} == {mine.pk} < {each["id"] for each in everything["entries"]}
    assert (only["verified"], everything["verified"]) == (True, False) and only["id"] != everything["id"]
    assert snapshot(http, verified=1, id=only["id"]).json() == only
    assert snapshot(http, verified=1, id=everything["id"]).status_code == 404
    found = library.Snapshot(everything)
    assert {found.find("matmul", "bf16", square(n)).state for n in (4096, 64, 128)} == {"verified", "unverified"}


@pytest.mark.parametrize("query", [{"gpu": ""}, {"gpu": "x" * 121}, {"id": "x" * 33}, {"toolkit": "x" * 81}])
def test_a_snapshot_asked_for_wrongly_says_why(api, bob, query):
    answer = snapshot(api(bob), **query)
    assert answer.status_code == 400 and set(query) == set(answer.json()["fields"])


# ---- what was served ----

def report(http, *rows, **more):
    told = {"snapshot": "a", "gpu": GPU, "toolkit": TOOLKIT, "host": "node-1", "form": 2, "served": list(rows), **more}
    told = {name: value for name, value in told.items() if value is not None}
    return http.post(reverse("api-config-served"), told, format="json")


def row(launches=10, bucket="K=64 M=64 N=64", rule="exact", number=1, operator="matmul", dtype="bf16"):
    return {"operator": operator, "dtype": dtype, "bucket": bucket, "rule": rule, "entry": number, "launches": launches}


def test_counts_add_up_over_clients_and_days(api, alice, bob, client):
    served = entry(square(64))
    for _ in range(3):
        told = report(api(alice), row(10, number=served.pk), row(5, "K=8192 M=8192 N=8192", "default", None))
        assert told.json() == {"launches": 15, "asked": 0}              # rows of clients that tell of no question
    assert ServedCount.objects.count() == 2
    ServedCount.objects.update(day=timezone.localdate() - timezone.timedelta(days=3))
    report(api(alice), row(70, number=served.pk))
    answer = api(bob).get(reverse("api-config-served")).json()
    assert [(each["launches"], each["rule"], each["entry"]) for each in answer["served"]] == [
        (100, "exact", served.pk), (15, "default", None)]
    assert [(each["rule"], round(each["share_pct"], 2)) for each in answer["shares"]] == [("exact", 86.96), ("default", 13.04)]
    assert selectors.entry_launches(served) == 100 and selectors.entry_launches(served, days=1) == 70
    client.force_login(alice)
    page = client.get(reverse("cache-served")).content.decode()
    assert "115" in page and "13.0" in page and "operator=matmul&amp;dtype=bf16&amp;K=8192" in page
    assert "bf16</td>" in client.get(reverse("cache-served"), {"days": "1"}).content.decode()


def test_a_report_of_an_older_client_counts_as_the_bucket_that_it_was(api, alice, client):
    """It calls every hit of a bucket exact."""
    stored = entry({"M": 60, "N": 64, "K": 64})
    assert report(api(alice), row(4, number=stored.pk), row(3, rule="older toolkit"), form=None).json()["launches"] == 7
    assert report(api(alice), row(2, number=stored.pk), row(1, rule="bucket", number=stored.pk)).json()["launches"] == 3
    assert dict(ServedCount.objects.values_list("rule", "launches")) == {"bucket": 5, "older toolkit": 3, "exact": 2}
    answer = api(alice).get(reverse("api-config-served")).json()
    assert {share["rule"]: share["launches"] for share in answer["shares"]} == {"exact": 2, "bucket": 5, "older toolkit": 3}
    assert {each["rule"]: each["measured_shape"] for each in answer["served"]}["bucket"] == {"M": 60, "N": 64, "K": 64}
    client.force_login(alice)
    page = client.get(reverse("cache-served")).content.decode()
    assert "rule-bucket" in page and "at a shape of the same bucket" in page


def test_rows_of_before_are_renamed_and_lose_no_launch(api, alice):
    """The migration; a row that a newer web has counted under the right word meanwhile is added to."""
    report(api(alice), row(4), row(9, number=2), row(5, "M=8192", "default", None))
    ServedCount.objects.update(day=timezone.localdate() - timezone.timedelta(days=2))
    report(api(alice), row(3), row(2, rule="bucket"))
    names = import_module("tuner.migrations.0020_bucket_hits")
    names.name_bucket_hits(None, SimpleNamespace(connection=connection))
    rows = ServedCount.objects.order_by("-day", "entry").values_list("rule", "entry", "launches", "host", "project")
    assert [(rule, entry, launches) for rule, entry, launches, *_ in rows] == [
        ("bucket", 1, 5), ("default", 0, 5), ("bucket", 1, 4), ("bucket", 2, 9)]
    assert {host for *_, host, _ in rows} == {"node-1"} and len({project for *_, project in rows}) == 1


def test_reading_people_cannot_report(api, alice, bob):
    assert report(api(bob), row()).status_code == 403
    assert report(api(alice, scope="read"), row()).status_code == 403
    assert not ServedCount.objects.exists()


def test_questions_are_counted_beside_launches_and_in_no_share(api, alice, client):
    stored = entry(square(64), toolkit="cuda 12.8, triton 3.4.0")
    asked = {**row(0, number=stored.pk), "asked": 30}
    assert report(api(alice), asked).json() == {"launches": 0, "asked": 30}
    stored.refresh_from_db()
    assert stored.state == "verified"                        # nothing ran there: no environment was seen
    client.force_login(alice)
    page = client.get(reverse("cache-served")).content.decode()
    assert "No launch told in 7 d" in page and ">30</span></span> asked" in page
    report(api(alice), asked, {**row(9, "K=8 M=8 N=8", "default", None), "asked": 1}, row(1, number=stored.pk))
    answer = api(alice).get(reverse("api-config-served")).json()
    assert [(each["rule"], each["launches"], each["asked"]) for each in answer["served"]] == [("default", 9, 1), ("exact", 1, 60)]
    assert {share["rule"]: (share["launches"], share["asked"], round(share["share_pct"])) for share in answer["shares"]} == {
        "exact": (1, 60, 10), "default": (9, 1, 90)}
    assert selectors.entry_launches(stored) == 1 and selectors.entry_asked(stored) == 60
    page = client.get(reverse("cache", args=[stored.pk])).content.decode()
    assert re.search(r">1</span>\s+launch\s+in\s+7 d\s+·\s+asked\s+<span[^>]*>60</span>×", page)
    page = client.get(reverse("cache-served")).content.decode()
    assert ">10</span></span> launches in 7 d" in page and ">61</span></span> asked" in page


@pytest.mark.parametrize("change", [
    {"asked": -1}, {"asked": "1"}, {"launches": 0, "asked": 0}, {"launches": 0}, {"launches": -1}, {"launches": True},
    {"launches": 10**16}, {"rule": "magic"}, {"operator": "x" * 61}, {"bucket": "\0"},
    {"entry": -1}, {"entry": "1"}, {"dtype": None}])
def test_a_wrong_report_changes_nothing(api, alice, change):
    assert report(api(alice), row(), {**row(), **change}).status_code == 400
    assert not ServedCount.objects.exists()


def test_a_report_is_bounded(api, alice):
    assert report(api(alice), *[row()] * (serve_api.MAX_ROWS + 1)).status_code == 400


def test_a_clients_newer_toolkit_makes_no_entry_unverified(api, alice):
    """Whoever may report launches could make a GPU model doubtful for good: that takes a worker's own run."""
    old = entry(square(64), toolkit="cuda 12.8, triton 3.4.0")
    report(api(alice), row())
    old.refresh_from_db()
    assert old.state == "verified"
    assert set(ServedCount.objects.values_list("gpu", "toolkit")) == {(GPU, TOOLKIT)}, "it is counted and shown"


def test_the_page_says_what_it_does_not_know(client, bob):
    client.force_login(bob)
    page = client.get(reverse("cache-served")).content.decode()
    assert "No launch told in" in page and "ridgepoint_client.py" in page


def test_the_files_that_jobs_copy_are_the_modules_themselves(api, bob):
    for name, module in (("ridgepoint_client.py", "client.py"), ("ridgepoint_listener.py", "listener.py"),
                         ("ridgepoint_shared.py", "shared.py")):
        answer = api(bob).get(reverse("api-config-client", args=[name]))
        assert answer.content == (PROJECT / "tuner" / "cache" / module).read_bytes()
    assert api(bob).get(reverse("api-config-client", args=["services.py"])).status_code == 404


# ---- Triton's own autotuner ----

JOB = """
import torch, triton, triton.language as tl

@triton.autotune(configs=[triton.Config({"BLOCK": block}, num_warps=warps) for block in (16, 64) for warps in (1, 4)],
                 key=["N", "ACT"],
                 do_bench=lambda call, quantiles: (call(), [TIMES.pop(0)] * 3)[1])
@triton.jit
def scale(x, y, N, ACT: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, 2 * tl.load(x + i, mask=i < N), mask=i < N)

TIMES = [4.0, 2.0, float("inf"), 3.0, 0.4, 0.2, 0.3, 0.1]
for n in (100, 100, 50):
    x, y = torch.randn(n), torch.empty(n)
    scale[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, n, "relu")
    assert torch.equal(y, 2 * x)
"""


@needs_triton
@pytest.mark.torch
@pytest.mark.django_db(transaction=True)
def test_a_jobs_autotuner_fills_the_cache_without_a_change_to_the_job(live_server, alice, tmp_path):
    """The job runs as `listener job.py`, from two copied files, interpreted; the product's web takes what it found."""
    from webapp.models import ApiToken
    _, token = ApiToken.objects.create(alice, name="job", scope="write")
    (tmp_path / "job.py").write_text(JOB)
    for name, module in (("ridgepoint_client.py", "client.py"), ("ridgepoint_listener.py", "listener.py")):
        (tmp_path / name).write_bytes((PROJECT / "tuner" / "cache" / module).read_bytes())
    done = subprocess.run(
        [sys.executable, "ridgepoint_listener.py", "job.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120,
        env={**os.environ, "TRITON_INTERPRET": "1", "RIDGEPOINT_URL": live_server.url, "RIDGEPOINT_TOKEN": token,
             "RIDGEPOINT_GPU": GPU, "PYTHONPATH": ""})
    assert done.returncode == 0, done.stderr[-3000:]
    first, second = CachedConfig.objects.order_by("median_ms")
    assert (second.config, second.median_ms, second.shape) == ({"BLOCK": 16, "num_warps": 4, "num_stages": 3}, 2.0, {"N": 100})
    assert (first.config["BLOCK"], first.config["num_warps"], first.shape) == (64, 4, {"N": 50})
    assert (second.origin, second.state, second.job) == ("listener", "unverified", None)
    assert second.operator == "triton:job.scale[ACT=relu]"
    assert (second.evidence["trials"], second.evidence["failed"], second.dtype, second.gpu) == (4, 1, "fp32", GPU)
    assert second.toolkit.startswith("triton 3.") and len(second.source_hash) == 64


def listened(http, **change):
    found = {"kernel": "m.matmul", "name": "matmul", "shape": square(4096), "variant": {}, "dtypes": ["bf16"] * 3,
             "config": {**CONFIG, "BM": 32}, "median_ms": 0.1, "timings": [], "tried": 9, "failed": 0, "source_hash": ""}
    return http.post(reverse("api-config-listened"), {"gpu": GPU, "toolkit": TOOLKIT, "host": "n", "found": [{**found, **change}]},
                     format="json")


def own_config(api_answer):
    return CachedConfig.objects.get(pk=api_answer.json()["entries"][0])


def test_a_listener_never_serves_before_a_tune_job(api, alice):
    """Even where its time is ten times better and it is for the very shape."""
    from tuner.tuning.operators import OPERATORS, limits
    default = dict(OPERATORS["matmul"].default_config(square(4096), "bf16", limits(GPU)))
    heard = own_config(listened(api(alice), config=default))
    assert (heard.operator, heard.origin, heard.shape) == ("matmul", "listener", square(4096))
    assert configs.config_best("matmul", "bf16", GPU, square(4096), TOOLKIT)["entry"]["id"] == heard.pk
    proven = entry({"M": 1024, "N": 4096, "K": 4096})
    best = configs.config_best("matmul", "bf16", GPU, square(4096), TOOLKIT)
    assert best["entry"]["id"] == proven.pk and best["rule"] == "nearest bucket"
    served = library.Snapshot(snapshot(api(alice)).json()).find("matmul", "bf16", square(4096))
    assert served.entry == proven.pk


def test_a_kernel_with_other_parameters_is_not_taken_for_the_operator(api, alice):
    assert own_config(listened(api(alice), config={"BLOCK_M": 64, "num_warps": 4})).operator == "triton:m.matmul"
    assert own_config(listened(api(alice), kernel="a." * 60 + "matmul", config={"B": 1})).operator == "triton:matmul"


@pytest.mark.parametrize("change", [
    {"median_ms": 0}, {"median_ms": True}, {"config": {}}, {"config": {"B": [1]}}, {"config": {"__import__('os')": 1}},
    {"shape": {"M": -1}}, {"shape": {"M": "1"}}, {"kernel": "x" * 201}, {"timings": [[1]]}, {"dtypes": [None]}, {"variant": []},
    {"config": {f"p{n}": n for n in range(25)}}, {"source_hash": "\0"}])
def test_a_wrong_finding_is_refused(api, alice, change):
    assert listened(api(alice), **change).status_code == 400 and not CachedConfig.objects.exists()


def test_listening_needs_the_right_to_write(api, alice, bob):
    assert listened(api(bob)).status_code == 403
    assert listened(api(alice, scope="read")).status_code == 403


# ---- the library against the product ----

@pytest.mark.django_db(transaction=True)
def test_the_library_speaks_with_the_product(live_server, alice, tmp_path):
    from webapp.models import ApiToken
    _, token = ApiToken.objects.create(alice, name="job", scope="write")
    stored = entry(square(4096))
    one = library.Client(url=live_server.url, token=token, file=str(tmp_path / "s.json"), gpu=GPU, toolkit=TOOLKIT, snapshot="")
    served = one.best("matmul", **square(4100))
    assert (served.entry, served.rule, served.config) == (stored.pk, "bucket", CONFIG)
    one.close()
    told = ServedCount.objects.get()
    assert (told.launches, told.asked, told.reporter) == (0, 1, alice)
    assert json.loads((tmp_path / "s.json").read_text())["id"] == ConfigSnapshot.objects.get().pk


HOOK = """
import json
import triton
from triton import knobs
heard = []          # somebody has taken Triton's hook already
object.__setattr__(knobs.autotuning, "listener", lambda **told: heard.append(told["fn"].__name__))
from tuner.cache import client, listener
told = []
client.Server.ask = lambda self, path, timeout, *, send=None, etag="": (told.append(send), (200, b""))[1]
one = listener.install(url="http://nobody")
from acme_kernels.kernels import scale_add
first, second = scale_add.configs[:2]
knobs.autotuning.listener(fn=scale_add.fn, key=(512, "torch.float16", "torch.float16"), best_config=second, duration=1.5,
                          configs_timings={first: [0.3, 0.2, 0.4], second: [0.1, 0.1, 0.1]}, cache_hit=False)
knobs.autotuning.listener(fn=scale_add.fn, key=None, best_config=None, duration=None, configs_timings=None, cache_hit=True)
one.send()
print(json.dumps([heard, told[0]["found"]]))
"""


@needs_triton
@pytest.mark.torch
def test_tritons_own_hook_is_used_where_there_is_one():
    """The signature of Triton's AutotuneListener (#10125), which is not told the key's names; a job is never ended by us."""
    done = subprocess.run([sys.executable, "-c", HOOK], cwd=PROJECT, capture_output=True, text=True, timeout=120,
                          env={**os.environ, "PYTHONPATH": str(PROJECT / "tests" / "packages")})
    assert done.returncode == 0, done.stderr[-3000:]
    heard, [found] = json.loads(done.stdout)
    assert heard == ["scale_add", "scale_add"] and found["shape"] == {"N": 512} and found["dtypes"] == ["fp16", "fp16"]
    assert (found["config"], found["median_ms"], found["tried"]) == ({"BLOCK": 256, "num_warps": 4, "num_stages": 2}, 0.1, 2)
