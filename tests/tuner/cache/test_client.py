"""The client library against the server's own rules, against Triton's launch interface, and with the server away."""

import ast
import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from urllib.error import HTTPError

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scale import DEEP
from tuner.cache import buckets, client, listener, rules
from tuner.cache.buckets import BUCKETS, Buckets
from tuner.cache.serve import resolve

GPU, OTHER, FAR = "NVIDIA H200", "NVIDIA H100", "NVIDIA A100"
CAPABILITY = {GPU: "9.0", OTHER: "9.0", FAR: "8.0"}
NOW, OLD = "cuda 13.0, triton 3.6.0", "cuda 12.8, triton 3.4.0"
CONFIG = {"BM": 128, "BN": 64, "num_warps": 8}
MATMUL = {"dims": ["M", "N", "K"], "exact": [], "dtypes": ["bf16"], "policy": BUCKETS.as_json()}
ATTENTION = {"dims": ["B", "D"], "exact": ["D"], "dtypes": ["fp16"], "policy": BUCKETS.as_json()}


def entry(number, bucket="K=4096 M=4096 N=4096", operator="matmul", dtype="bf16", gpu=GPU, toolkit=NOW, config=CONFIG, **more):
    key = rules.Key(operator, dtype, bucket, gpu, CAPABILITY[gpu], toolkit)
    return rules.Entry(number, key, config, **{"shape": buckets.parse_bucket(bucket), **more})


def document(entries, operators=None, toolkit=NOW, loss=rules.unknown_loss, plain=None):
    content = json.loads(json.dumps(resolve.freeze(entries, operators or {"matmul": MATMUL, "attention": ATTENTION}, plain)))
    found = resolve.resolve(resolve.content_id(content), content, rules.Key("", "", "", GPU, "9.0", toolkit), loss)
    return json.loads(json.dumps(found))


@pytest.fixture(autouse=True)
def forgotten():
    """Nobody tells a server that is gone what it served, when the tests end."""
    yield
    client._LIVING.clear()


# ---- the same answers as the server ----

sizes = st.one_of(st.integers(1, 40), st.integers(0, 15).map(lambda n: 1 << n), st.integers(41, 20_000))
policies = st.builds(Buckets, exact_up_to=st.sampled_from([0, 8, 16]), steps_per_doubling=st.sampled_from([0.0, 0.5, 1.0, 2.0]),
                     max_distance=st.sampled_from([0.0, 1.0, 4.0]))


@st.composite
def caches(draw):
    policy = draw(policies)
    entries = []
    for number in range(draw(st.integers(0, 14))):
        shape = {"B": draw(sizes), "C": draw(sizes), "D": draw(st.sampled_from([32, 64]))}
        gpu = draw(st.sampled_from([GPU, GPU, OTHER, FAR]))
        entries.append(entry(
            number, buckets.bucket(shape, ("D",), policy), "team", "fp16", gpu, draw(st.sampled_from([NOW, OLD])),
            {"BLOCK": number},
            recorded=draw(st.booleans()), state=draw(st.sampled_from(list(rules.State))),
            origin=draw(st.sampled_from(list(rules.Origin))), shape=shape, gain=draw(st.sampled_from([None, 0.02, 0.5])),
            barred=draw(st.sampled_from([(), (), ((NOW, ""),), ((OLD, ""),)]))))
    wanted = [{"B": draw(sizes), "C": draw(sizes), "D": draw(st.sampled_from([32, 64, 128]))} for _ in range(8)]
    wanted += [dict(each.shape) for each in entries[:4]]
    return policy, entries, wanted, draw(st.booleans())


@pytest.mark.slow
@given(caches())
@settings(max_examples=150 if DEEP else 60, deadline=None, derandomize=True)
def test_the_client_serves_what_the_server_would(drawn):
    """Random caches × 8 shapes: tuner.cache.rules.look_up decides, the client must agree without knowing a rule.

    With recordings, and without them as if they were not there.
    """
    policy, entries, shapes, guarded = drawn

    def loss(rule, key, wanted, distance):
        return 0.01 * distance if rule == rules.Rule.NEAREST_BUCKET and guarded else None

    operators = {"team": {"dims": ["B", "C", "D"], "exact": ["D"], "dtypes": ["fp16"], "policy": policy.as_json()}}
    snapshot = client.Snapshot(document(entries, operators, loss=loss))
    for shape in shapes:
        wanted = rules.Key("team", "fp16", buckets.bucket(shape, ("D",), policy), GPU, "9.0", NOW)
        for recorded in (True, False):
            allowed = [one for one in entries if recorded or not one.recorded]
            right = rules.look_up(allowed, wanted, ("D",), policy, loss, shape)
            found = snapshot.find("team", "fp16", shape, recorded)
            assert (found and (found.entry, found.rule, found.config, found.recorded)) == (
                right and (right.entry.id, str(right.rule), dict(right.entry.config), right.entry.recorded))


def test_another_shape_of_the_bucket_is_not_called_exact():
    """The answer tells the word, the shape asked for, the one that was measured, and their bucket."""
    here, there = {"M": 4096, "N": 4096, "K": 4096}, {"M": 5000, "N": 4096, "K": 4096}
    one = client.Snapshot(document([entry(7, library=1.2)]))
    own, other = one.find("matmul", "bf16", here), one.find("matmul", "bf16", there)
    assert (own.rule, own.shape, own.measured, own.library) == ("exact", here, here, 1.2)
    assert (other.rule, other.shape, other.measured, other.library) == ("bucket", there, here, 1.2)
    assert other.bucket == own.bucket == "K=4096 M=4096 N=4096"
    assert "measured at K=4096 M=4096 N=4096, asked for K=4096 M=5000 N=4096" in other.why and "asked" not in own.why
    nearer = client.Snapshot(document([entry(7), entry(8, shape=there)]))          # of one bucket, each its own
    assert [nearer.find("matmul", "bf16", shape).entry for shape in (here, there, {**there, "M": 5001})] == [7, 8, 7]


def test_a_snapshot_of_an_older_server_is_not_believed_that_a_bucket_is_exact():
    """It calls every hit of a bucket so, and does not say at which shape it measured."""
    found = document([entry(7, library=1.2), entry(8, "K=64 M=64 N=64", toolkit=OLD)])
    for each in found["entries"]:
        each.pop("same"), each.pop("shape")
        if each["home"] and each["home"][1] == "bucket":
            each["home"][1] = "exact"
    served = client.Snapshot(found).find("matmul", "bf16", {"M": 4096, "N": 4096, "K": 4096})
    assert (served.rule, served.entry, served.measured, served.library) == ("bucket", 7, {}, 1.2)
    assert client.Snapshot(found).find("matmul", "bf16", {"M": 64, "N": 64, "K": 64}).rule == "older toolkit"


def test_a_rule_that_this_client_has_never_heard_of_is_told_as_it_came():
    found = document([entry(7)])
    found["entries"][0]["home"][1] = found["entries"][0]["same"][1] = "somehow"
    served = client.Snapshot(found).find("matmul", "bf16", {"M": 4096, "N": 4096, "K": 4096})
    assert (served.rule, served.why, served.config) == ("somehow", "somehow", CONFIG)


def test_an_older_client_reads_the_newer_snapshot():
    """It knows `home` and `away` alone, and takes the word as it comes: here is what that client did."""
    rows = document([entry(7), entry(8, shape={"M": 5000, "N": 4096, "K": 4096}), entry(9, "K=64 M=64 N=64")])
    assert rows["version"] == 1
    homes = [each for each in rows["entries"] if each["home"] and each["bucket"] == "K=4096 M=4096 N=4096"]
    place, _, rule, number = min((each["home"][0], index, each["home"][1], each["id"]) for index, each in enumerate(homes))
    assert (rule, number, place) == ("bucket", 7, homes[0]["home"][0]) and rows["why"][rule]


def test_the_same_entries_have_the_same_id_and_a_change_another():
    one, two = entry(1), entry(2, "K=64 M=64 N=64")
    assert resolve.content_id(resolve.freeze([one, two], {})) == resolve.content_id(resolve.freeze([two, one], {}))
    other = entry(2, "K=64 M=64 N=64", config={**CONFIG, "BM": 64})
    assert resolve.content_id(resolve.freeze([one, other], {})) != resolve.content_id(resolve.freeze([one, two], {}))


# ---- around a kernel ----

class Tensor:
    def __init__(self, dtype="torch.bfloat16", shape=(16, 16)):
        self.dtype, self.shape = dtype, shape


class Kernel:
    """What Triton's JITFunction offers a launcher."""

    arg_names = ["a", "b", "M", "N", "K", "BM", "BN"]

    def __init__(self):
        self.launches = []

    def run(self, *args, grid, warmup, **config):
        self.launches.append((args, grid, config))
        return "compiled"


class Autotuner(Kernel):
    def __init__(self, fn):
        super().__init__()
        self.fn, self.configs = fn, ["…"]


def offline(entries, **options):
    one = client.Client(url="", file="", gpu=GPU, toolkit=NOW)
    one.snapshot = client.Snapshot(document(entries, **options))
    return one


def test_a_launch_gets_the_configuration_of_its_bucket():
    kernel, one = Kernel(), offline([entry(7)])
    served = client.Tuned(kernel, "matmul", client=one, default={"BM": 16, "BN": 16})
    t = Tensor()
    for M in (4096, 5000, 4096):
        assert served[(8,)](t, t, M, 4096, 4096) == "compiled"
    served[(8,)](t, t, 3, 4096, 4096)                                   # nothing near: exact up to 16
    assert [config for _, _, config in kernel.launches] == [CONFIG] * 3 + [{"BM": 16, "BN": 16}]
    assert kernel.launches[0][:2] == ((t, t, 4096, 4096, 4096), (8,))
    one._sum_launches()
    assert dict(one._counted) == {("matmul", "bf16", "K=4096 M=4096 N=4096", "exact", 7): 2,
                                  ("matmul", "bf16", "K=4096 M=4096 N=4096", "bucket", 7): 1,
                                  ("matmul", "bf16", "K=4096 M=3 N=4096", "default", None): 1}


def test_dimensions_by_keyword_by_axis_and_by_another_name():
    one = offline([entry(7)])
    t, wide = Tensor(), Tensor(shape=(4096, 64))
    by_keyword = client.Tuned(Kernel(), "matmul", client=one)
    by_keyword[(1,)](t, t, 4096, K=4096, N=4096)
    by_axis = client.Tuned(Kernel(), "matmul", client=one, dims={"M": ("a", 0), "N": "N", "K": "K"}, names={"BM": "BN", "BN": "BM"})
    by_axis[(1,)](wide, t, 1, 4096, 4096)
    assert by_keyword.launches[0][2] == {**CONFIG, "K": 4096, "N": 4096}
    assert by_axis.launches[0][2] == {"BN": 128, "BM": 64, "num_warps": 8}


def test_an_entry_that_is_not_the_kernels_is_not_served():
    wider, narrower = entry(1, config={**CONFIG, "SPLIT_K": 4}), entry(2, config={"BM": 64})
    for wrong, why in ((wider, "sets SPLIT_K"), (narrower, "does not set BN")):
        kernel, one = Kernel(), offline([wrong])
        default = {"BM": 16, "BN": 16}
        client.Tuned(kernel, "matmul", client=one, default=default)[(1,)](Tensor(), Tensor(), 4096, 4096, 4096)
        assert kernel.launches[0][2] == default
        assert one._served[0].rule == "default" and why in one._served[0].why


def test_a_newer_parameter_is_left_out_where_it_changes_nothing():
    """SPLIT_K=1 is what a kernel without SPLIT_K does, maxnreg=0 is no limit: neither reaches the launch."""
    newer = {"matmul": {**MATMUL, "absent": {"SPLIT_K": 1, "KERNEL": "tiles", "maxnreg": 0}}}
    kernel, one = Kernel(), offline([entry(1, config={**CONFIG, "SPLIT_K": 1, "KERNEL": "tiles", "maxnreg": 0})], operators=newer)
    client.Tuned(kernel, "matmul", client=one)[(1,)](Tensor(), Tensor(), 4096, 4096, 4096)
    assert kernel.launches[0][2] == CONFIG


def test_a_kernel_without_the_winners_parameter_gets_the_fastest_that_it_takes():
    newer = {"matmul": {**MATMUL, "absent": {"KERNEL": "tiles"}}}
    plain = {**CONFIG, "BM": 64}
    kernel, one = Kernel(), offline([entry(1, config={**CONFIG, "KERNEL": "tma"})], operators=newer, plain={1: plain})
    client.Tuned(kernel, "matmul", client=one)[(1,)](Tensor(), Tensor(), 4096, 4096, 4096)
    assert kernel.launches[0][2] == plain
    assert (one._served[0].entry, one._served[0].rule) == (1, "exact") and "this kernel takes" in one._served[0].why


def test_an_autotuned_kernel_tunes_itself_only_where_nothing_is_served():
    inner = Kernel()
    outer = Autotuner(inner)
    served = client.Tuned(outer, "matmul", client=offline([entry(7)]))
    served[(1,)](Tensor(), Tensor(), 4096, 4096, 4096)
    served[(1,)](Tensor("torch.float16"), Tensor(), 4096, 4096, 4096)
    assert (len(inner.launches), len(outer.launches)) == (1, 1)
    assert outer.launches[0][2] == {}


def test_a_tuned_parameter_passed_at_launch_is_refused():
    served = client.Tuned(Kernel(), "matmul", client=offline([entry(7)]))
    with pytest.raises(TypeError, match="BM: tuned"):
        served[(1,)](Tensor(), Tensor(), 4096, 4096, 4096, BM=32)


def test_a_new_snapshot_reaches_kernels_that_were_launched():
    one, kernel = offline([entry(7)]), Kernel()
    served = client.Tuned(kernel, "matmul", client=one)
    served[(1,)](Tensor(), Tensor(), 4096, 4096, 4096)
    one._adopt(client.Snapshot(document([entry(8, config={**CONFIG, "BM": 256})])), "server")
    served[(1,)](Tensor(), Tensor(), 4096, 4096, 4096)
    assert [config["BM"] for _, _, config in kernel.launches] == [128, 256]
    one._sum_launches()
    assert sorted(key[-1] for key in one._counted) == [7, 8]


def test_best_answers_with_rule_and_reason():
    one = offline([entry(7)])
    near = one.best("matmul", M=1024, N=4096, K=4096)
    assert (near.config, near.rule, near.entry) == (CONFIG, "nearest bucket", 7)
    none = one.best("attention", "fp16", default={"BM": 64}, B=1, D=64)
    assert (none.config, none.rule, none.why) == ({"BM": 64}, "default", "nothing measured fits")


# ---- the server, there and away ----

class Web(ThreadingHTTPServer):
    """What the product answers, as a test wants it: `snapshots` by id, `newest`, what was `reported`."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.snapshots, self.newest, self.reported, self.asked = {}, "", [], []
        self.redirect, self.answer, self.refused, self.old = "", 200, b"", False
        self.revoked = None             # a server from before knows no such question
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def offer(self, *entries):
        found = document(list(entries))
        self.snapshots[found["id"]], self.newest = found, found["id"]
        return found["id"]


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        from urllib.parse import parse_qs, urlsplit
        self.server.asked.append((self.path, dict(self.headers)))
        query = parse_qs(urlsplit(self.path).query)
        wanted = query.get("id", [self.server.newest])[0]
        if "revoked" in query and self.server.revoked is not None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"revoked": self.server.revoked}).encode())
            return
        if self.server.refused:
            self.send_response(401)
            self.end_headers()
            self.wfile.write(self.server.refused)
            return
        if self.server.redirect:
            self.send_response(302)
            self.send_header("Location", self.server.redirect)
        elif self.headers.get("If-None-Match") == f'"{wanted}"':
            self.send_response(304)
        elif wanted in self.server.snapshots:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(self.server.snapshots[wanted]).encode())
            return
        else:
            self.send_response(404)
        self.end_headers()

    def do_POST(self):
        self.server.reported.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        old = self.server.old and any(row["rule"] == "bucket" or not row["launches"] for row in self.server.reported[-1]["served"])
        self.send_response(400 if old else self.server.answer)
        self.end_headers()


@pytest.fixture
def web():
    server = Web()
    server.clients = []
    yield server
    for one in server.clients:
        one._end.set()              # its thread would ask, and warn, in the middle of other tests
    server.shutdown()
    server.server_close()


def connect(web, tmp_path, **options):
    one = client.Client(**{"url": web.url, "token": "rp_secret", "file": str(tmp_path / "snapshot.json"), "gpu": GPU,
                           "toolkit": NOW, **options})
    web.clients.append(one)
    return one


def test_the_snapshot_outlives_the_server(web, tmp_path):
    name = web.offer(entry(7))
    assert connect(web, tmp_path).status()["from"] == "server"
    assert web.asked[0][1]["Authorization"] == "Token rp_secret"
    web.shutdown()
    web.server_close()
    later = connect(web, tmp_path)
    assert (later.status()["from"], later.snapshot.id) == ("file", name)
    assert later.best("matmul", M=4096, N=4096, K=4096).config == CONFIG
    assert "refused" in later.problem
    other_gpu = connect(web, tmp_path, gpu=OTHER)         # the file speaks for one GPU only
    assert other_gpu.best("matmul", default={"BM": 1}, M=4096, N=4096, K=4096).rule == "default"


def test_a_job_that_wants_verified_entries_is_served_nothing_else(web, tmp_path, monkeypatch):
    """A server that does not know the question sends everything: that is no snapshot for it, nor is such a file."""
    web.offer(entry(7, origin=rules.Origin.IMPORT, state=rules.State.UNVERIFIED))
    plain = connect(web, tmp_path)
    assert plain.best("matmul", M=4096, N=4096, K=4096).state == "unverified"
    monkeypatch.setenv("RIDGEPOINT_VERIFIED", "1")
    strict = connect(web, tmp_path)                         # the file of the other lies there
    assert "verified=1" in web.asked[-1][0] and strict.snapshot is None and "not verified" in strict.problem
    assert strict.best("matmul", default={"BM": 1}, M=4096, N=4096, K=4096).rule == "default"
    assert client._snapshot_path(GPU, NOW, True) != client._snapshot_path(GPU, NOW)
    rows = json.loads(json.dumps(document([entry(8)])))
    web.snapshots[rows["id"]], web.newest = {**rows, "verified": True}, rows["id"]
    assert strict.refresh() and strict.best("matmul", M=4096, N=4096, K=4096).entry == 8
    assert connect(web, tmp_path, verified=False).refresh() and not plain.verified


def test_all_ranks_of_a_job_agree(web, tmp_path):
    """Rank 0 starts, the cache changes, the other ranks come later: one by the server, one by a shared file."""
    name = web.offer(entry(7))
    first = connect(web, tmp_path)
    newer = web.offer(entry(8, config={**CONFIG, "BM": 256}))
    second = connect(web, tmp_path / "elsewhere", snapshot=name)
    third = connect(web, tmp_path, snapshot=name)
    assert {each.snapshot.id for each in (first, second, third)} == {name} and newer != name
    assert third.source == "file"
    gone = connect(web, tmp_path, snapshot="0" * 16)
    assert gone.snapshot is None and gone.best("matmul", M=4096, N=4096, K=4096).rule == "default"


def test_what_was_quarantined_since_leaves_a_pinned_snapshot_and_a_kept_file(web, tmp_path, caplog):
    name = web.offer(entry(7))
    shape = {"M": 4096, "N": 4096, "K": 4096}
    before = connect(web, tmp_path, snapshot=name)
    assert before.best("matmul", **shape).entry == 7
    assert before.status()["revoked"] == [] and before.status()["age_days"] < 1
    web.revoked = [7, 99]
    before.check_revoked()
    assert before.best("matmul", **shape).rule == "default"
    assert before.status()["revoked"] == [7] and "quarantined since and do not serve: 7" in caplog.text
    assert connect(web, tmp_path, snapshot=name).best("matmul", **shape).rule == "default"
    away = client.Client(url="http://127.0.0.1:9", file=str(tmp_path / "snapshot.json"), gpu=GPU, toolkit=NOW)
    web.clients.append(away)
    assert (away.source, away.best("matmul", **shape).rule) == ("file", "default"), "also while the server is away"
    web.revoked = []
    connect(web, tmp_path, snapshot=name)
    again = client.Client(url="http://127.0.0.1:9", file=str(tmp_path / "snapshot.json"), gpu=GPU, toolkit=NOW)
    web.clients.append(again)
    assert (again.source, again.best("matmul", **shape).entry) == ("file", 7), "a quarantine that ended is over there too"


def test_an_old_file_is_said_and_another_servers_is_not_read(web, tmp_path, caplog, monkeypatch):
    web.offer(entry(7))
    connect(web, tmp_path)
    month_ago_s = time.time() - 40 * 86400
    os.utime(tmp_path / "snapshot.json", (month_ago_s, month_ago_s))
    away = {"url": "http://127.0.0.1:9", "gpu": GPU, "toolkit": NOW}
    old = client.Client(file=str(tmp_path / "snapshot.json"), **away)
    web.clients.append(old)
    assert round(old.status()["age_days"]) == 40 and "of 40 days ago, and no server confirmed it" in caplog.text
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    mine = client.Client(url=web.url, token="rp_secret", gpu=GPU, toolkit=NOW)
    web.clients.append(mine)
    assert mine.snapshot is not None and os.path.exists(mine.file)
    for other in ({"url": "http://127.0.0.1:9", "token": "rp_secret"}, {"url": "http://127.0.0.1:8", "token": "rp_other"}):
        stranger = client.Client(**other, gpu=GPU, toolkit=NOW)
        web.clients.append(stranger)
        assert stranger.file != mine.file and stranger.snapshot is None


def test_a_server_that_was_away_at_the_start_is_asked_again(web, tmp_path):
    name = document([entry(7)])["id"]
    one = connect(web, tmp_path, snapshot=name, refresh_s=0.05)
    assert one.best("matmul", M=4096, N=4096, K=4096).rule == "default"
    web.offer(entry(7))
    end = time.monotonic() + 30
    while one.best("matmul", M=4096, N=4096, K=4096).entry != 7 or one.problem:
        assert time.monotonic() < end, one.problem
        time.sleep(0.02)
    assert one.snapshot.id == name


def test_pauses_are_short_after_a_failure_and_grow(tmp_path):
    one = client.Client(url="", file=str(tmp_path / "s.json"), gpu=GPU, toolkit=NOW)
    assert one._pause_s(0.0) == client.REFRESH_S
    one.problem = "away"
    pauses = [one._pause_s(0.0)]
    for _ in range(5):
        pauses.append(one._pause_s(pauses[-1]))
    assert pauses == [5, 10, 20, 40, 60, 60]


def test_what_did_not_change_is_not_sent_again_and_what_did_is_taken(web, tmp_path):
    web.offer(entry(7))
    one = connect(web, tmp_path)
    before = one.snapshot
    assert one.refresh() and one.snapshot is before
    assert web.asked[-1][1]["If-None-Match"] == f'"{before.id}"'
    web.offer(entry(8))
    assert one.refresh() and one.snapshot.id == web.newest


def test_it_refreshes_and_reports_in_the_background(web, tmp_path):
    web.offer(entry(7))
    one = connect(web, tmp_path, refresh_s=0.05)
    kernel = Kernel()
    served = client.Tuned(kernel, "matmul", client=one)
    for _ in range(50):
        served[(1,)](Tensor(), Tensor(), 4096, 4096, 4096)
    newer = web.offer(entry(8))
    end = time.monotonic() + 10
    while time.monotonic() < end and (one.snapshot.id != newer or not web.reported):
        time.sleep(0.01)
    assert one.snapshot.id == newer
    for _ in range(7):
        served[(1,)](Tensor(), Tensor(), 4096, 4096, 4096)
    one.close()
    told = {}
    for report in web.reported:
        for row in report["served"]:
            told[row["entry"]] = told.get(row["entry"], 0) + row["launches"]
    assert told == {7: 50, 8: 7}


def test_what_could_not_be_told_is_told_next_time(web, tmp_path):
    web.offer(entry(7))
    one = connect(web, tmp_path)
    one.best("matmul", M=4096, N=4096, K=4096)
    right, one.server.url = one.server.url, "http://127.0.0.1:9"
    assert not one.report()
    one.server.url = right
    one.best("matmul", M=4096, N=4096, K=4096)
    assert one.report() and [(row["launches"], row["asked"]) for row in web.reported[0]["served"]] == [(0, 2)]
    assert one.report() and len(web.reported) == 1


def test_asking_is_no_launch(web, tmp_path):
    """One shape, launched by a kernel and asked for beside it: each is told as what it was, in one row."""
    web.offer(entry(7))
    one = connect(web, tmp_path)
    kernel = client.Tuned(Kernel(), "matmul", client=one)
    for _ in range(3):
        kernel[(1,)](Tensor(), Tensor(), 4096, 4096, 4096)
    asked = [one.best("matmul", M=4096, N=4096, K=4096) for _ in range(5)]
    one.best("matmul", default=CONFIG, M=3, N=4096, K=4096)
    web.shutdown()                                          # what cannot be told now keeps its kind
    right, one.server.url = one.server.url, "http://127.0.0.1:9"
    assert not one.report(1.0)
    one.server.url = right
    threading.Thread(target=web.serve_forever, args=(0.02,), daemon=True).start()
    asked[0].launches += 2                                  # who launches it himself says so
    assert one.report()
    (told,) = web.reported
    assert told["form"] == 2
    assert {row["rule"]: (row["entry"], row["launches"], row["asked"]) for row in told["served"]} == {
        "exact": (7, 5, 5), "default": (None, 0, 1)}


def test_a_server_from_before_is_told_what_it_takes(web, tmp_path):
    """It knows neither the rule bucket nor rows without a launch; its own word for both was exact."""
    web.offer(entry(7))
    web.old = True
    one = connect(web, tmp_path)
    kernel = client.Tuned(Kernel(), "matmul", client=one)
    for M in (4096, 5000, 5000):
        kernel[(1,)](Tensor(), Tensor(), M, 4096, 4096)
    one.best("matmul", M=64, N=4096, K=4096)
    assert one.report()
    assert [(row["rule"], row["launches"]) for row in web.reported[-1]["served"]] == [("exact", 1), ("exact", 2)]
    one.best("matmul", M=64, N=4096, K=4096)                # nothing that it would take
    assert not one.report() and len(web.reported) == 3


def test_many_shapes_are_told_in_reports_that_the_server_takes(web, tmp_path):
    web.offer(entry(7))
    one = connect(web, tmp_path)
    for n in range(client.MAX_TOLD + 5):
        one.best("unknown", M=n)
    assert one.report() and [len(report["served"]) for report in web.reported] == [client.MAX_TOLD, 5]
    assert len({row["bucket"] for report in web.reported for row in report["served"]}) == client.MAX_TOLD + 5


def test_what_the_server_refuses_does_not_stand_before_what_comes_later(web, tmp_path):
    web.offer(entry(7))
    one = connect(web, tmp_path)
    one.best("x" * 99, M=1)
    web.answer = 400
    assert not one.report()
    web.answer = 200
    one.best("matmul", M=4096, N=4096, K=4096)
    assert one.report() and [row["operator"] for row in web.reported[-1]["served"]] == ["matmul"]


def test_the_listener_tells_the_rest_of_what_the_server_refuses_one_of():
    class Refuses:
        url, told = "http://x", []

        def ask(self, path, timeout, *, send):
            if "bad" in send["found"]:
                raise HTTPError(self.url, 400, "no", None, None)
            self.told += send["found"]

    heard = listener.Listener(Refuses(), GPU, NOW)
    heard._found = ["one", "bad", "two"]
    assert not heard.send() and heard.server.told == ["one", "two"] and not heard._found
    config = SimpleNamespace(kwargs={"BM": 64, "ACC": float, "X": None}, num_warps=4, num_stages=3, num_ctas=1, maxnreg=None)
    assert json.loads(json.dumps(listener.plain_config(config)))["BM"] == 64, "a type among the parameters is told as text"


def test_a_token_that_may_only_read_is_told_of_once(web, tmp_path, caplog):
    web.offer(entry(7))
    web.answer = 403
    one = connect(web, tmp_path)
    for _ in range(3):
        one.best("matmul", M=4096, N=4096, K=4096)
        assert not one.report()
    assert len(web.reported) == 1 and caplog.text.count("may not write") == 1


@pytest.mark.parametrize(("body", "said"), [
    (b'{"error": "the token ended yesterday", "hint": "make another"}',
     "the server answers 401: the token ended yesterday: make another"),
    (b"<html>", "the server answers 401: Unauthorized"), (b"[" * 60_000, "the server answers 401: Unauthorized"),
    (b'{"error": ""}', "the server answers 401: Unauthorized")])
def test_why_the_server_refuses_is_told(web, tmp_path, body, said):
    web.refused = body
    one = connect(web, tmp_path)
    assert one.status()["problem"] == f"Refused: {said}" and f"no snapshot: Refused: {said}" in one.best("matmul", M=1).why


def test_the_token_goes_to_no_other_server(web, tmp_path):
    other = Web()
    other.offer(entry(7))
    web.redirect = f"{other.url}/api/configs/snapshot/"
    one = connect(web, tmp_path)
    assert one.snapshot is None and other.asked == []
    other.shutdown()
    other.server_close()
    with pytest.raises(ValueError, match="http"):
        client.Server("file:///etc/passwd")


@pytest.mark.parametrize("body", [b"", b"[]", b'{"version": 2}', b'{"version": 1, "id": 1}', b"\xff\xfe", b"[" * 100_000])
def test_a_damaged_file_is_no_snapshot(tmp_path, body):
    (tmp_path / "snapshot.json").write_bytes(body)
    one = client.Client(url="", file=str(tmp_path / "snapshot.json"), gpu=GPU, toolkit=NOW)
    assert one.snapshot is None and one.best("matmul", M=1, N=1, K=1).rule == "default"


def test_a_forked_child_tells_its_own_launches_only(web, tmp_path):
    web.offer(entry(7))
    one = connect(web, tmp_path)
    one.best("matmul", M=4096, N=4096, K=4096)
    one.after_fork()
    one.best("matmul", M=4096, N=4096, K=4096)
    assert one.report() and [row["asked"] for row in web.reported[-1]["served"]] == [1]


# ---- what it is made of ----

def test_it_is_one_file_of_the_standard_library():
    tree = ast.parse(Path(client.__file__).read_text())
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert {name.split(".")[0] for name in names} <= sys.stdlib_module_names


@pytest.mark.deep_only          # a time: make bench says it too
@pytest.mark.slow
def test_a_launch_costs_less_than_two_microseconds_more():
    pytest.importorskip("triton")
    from bench.client import measure
    assert measure(200)["added_us"] < 2.0


@pytest.mark.parametrize(("text", "name"), [("torch.bfloat16", "bf16"), ("torch.float16", "fp16"), ("fp8", "fp8"),
                                            ("torch.float8_e4m3fn", "fp8")])
def test_dtypes_have_the_caches_names(text, name):
    assert client.dtype_name(text) == name


@pytest.mark.parametrize(("written", "named"), [
    ("__version__ = '2.11.0+cu130'\ndebug = False\ncuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n", "13.0"),
    ("__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\n", None), ("cuda = '12.8'\n", "12.8"), ("", None)])
def test_the_toolkit_is_known_before_torch_is_imported(written, named, tmp_path, monkeypatch):
    """A wheel of PyPI names its CUDA in version.py alone; without it every configuration was one of an older toolkit."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise RuntimeError('imported')")
    (tmp_path / "torch" / "version.py").write_text(written)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert client._cuda_of_torch() == named
    assert (f"cuda {named}" in client.toolkit_name()) is bool(named)
