from dataclasses import replace

import pytest

from tuner.cache.buckets import bucket, bucket_distance
from tuner.cache.rules import Entry, Key, Origin, Rule, State, look_up, match_entry, toolkit_text
from tuner.cache.rules import (
    is_newer as newer,
)

H200 = {"operator": "matmul", "dtype": "bf16", "gpu": "NVIDIA H200", "compute_capability": "9.0",
        "toolkit": "cuda 13.0"}


@pytest.mark.parametrize(("shape", "exact", "text"), [
    ({"M": 4096, "K": 4096, "N": 4096}, (), "K=4096 M=4096 N=4096"),
    ({"M": 4100, "N": 11008}, (), "M=4096 N=8192"),
    ({"M": 16}, (), "M=16"), ({"M": 13}, (), "M=13"), ({"M": 23}, (), "M=32"),
    ({"B": 4, "D": 80, "causal": 1}, ("D", "causal"), "B=4 D=80 causal=1"),
])
def test_bucket(shape, exact, text):
    assert bucket(shape, exact) == text


def test_distance_of_buckets():
    assert bucket_distance("K=4096 M=4096", "K=1024 M=8192") == 3
    assert bucket_distance("M=16", "M=4096") == 8
    assert bucket_distance("M=13", "M=32") is None                  # a small dimension is its own bucket
    assert bucket_distance("D=64 N=512", "D=80 N=512") is None
    assert bucket_distance("M=32", "M=32 N=32") is None


def test_toolkit():
    assert toolkit_text({"cuda": "13.0", "triton": "3.6.0+git", "torch": "2.11"}) == "cuda 13.0, triton 3.6.0"
    assert toolkit_text({}) == "unknown"


def entry(number, recorded=False, shape=None, **key):
    return Entry(number, Key(**{**H200, "bucket": "M=4096", **key}), {"BM": number}, recorded, shape=shape or {})


def wanted(**key):
    return Key(**{**H200, "bucket": "M=4096", **key})


def test_lookup_order_names_the_rule():
    entries = [entry(1, bucket="M=8192"), entry(2, gpu="NVIDIA H100 80GB HBM3"), entry(3, toolkit="cuda 12.8"),
               entry(4)]
    entries += [entry(5, shape={"M": 4100}), entry(6, toolkit="cuda 12.8", shape={"M": 4100})]
    served = []
    while (found := look_up(entries, wanted(), shape={"M": 4100})) is not None:
        served.append((found.entry.id, found.rule))
        entries = [e for e in entries if e.id != found.entry.id]
    assert served == [(5, Rule.EXACT), (4, Rule.BUCKET), (3, Rule.OTHER_TOOLKIT), (6, Rule.OTHER_TOOLKIT),
                      (2, Rule.SAME_ARCHITECTURE), (1, Rule.NEAREST_BUCKET)]


def test_never_another_operator_dtype_or_architecture():
    others = [entry(1, operator="softmax"), entry(2, dtype="fp16"),
              entry(3, gpu="NVIDIA A100", compute_capability="8.0"),
              entry(4, gpu="unknown", compute_capability=""), entry(5, bucket="M=262144")]
    assert look_up(others, wanted()) is None


def test_the_nearest_of_several_buckets_and_measured_before_recorded():
    assert look_up([entry(1, bucket="M=16384"), entry(2, bucket="M=2048")], wanted()).entry.id == 2
    assert look_up([entry(1, recorded=True), entry(2)], wanted()).entry.id == 2


def test_what_serves_first_of_several_that_may():
    """Origin, rule, distance, measured here, verified, middle of the bucket: one difference each, in that order."""
    first = entry(1, shape={"M": 4096})
    others = [Entry(n, first.key, {}, **{"shape": {"M": 4096}, **change}) for n, change in enumerate((
        {"shape": {"M": 5000}}, {"state": State.UNVERIFIED}, {"recorded": True}), start=2)]
    rows = [*others, entry(5, bucket="M=8192"), Entry(6, first.key, {}, origin=Origin.LISTENER), first]
    served = []
    while (found := look_up(rows, wanted())) is not None:
        served.append(found.entry.id)
        rows = [row for row in rows if row.id != found.entry.id]
    assert served == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(("state", "exact", "other"), [
    (State.VERIFIED, True, True), (State.UNVERIFIED, True, True), (State.STALE, True, False), (State.QUARANTINED, False, False)])
def test_states_and_the_rules_they_serve_by(state, exact, other):
    row = Entry(1, entry(1).key, {}, state=state)
    assert (look_up([row], wanted()) is not None) == exact
    assert (look_up([row], wanted(toolkit="cuda 14.0")) is not None) == other
    assert isinstance(match_entry(row, wanted(toolkit="cuda 14.0")), str) != other


@pytest.mark.parametrize(("name", "value"), [("toolkit", "cuda 12"), ("driver", "590"), ("policy", "graph"), ("source_hash", "ff")])
def test_what_differs_is_named(name, value):
    row = Entry(1, Key(**{**H200, "bucket": "M=4096", "driver": "580", "policy": "cold", "source_hash": "ab"}), {})
    found = look_up([row], wanted(**{"driver": "580", "policy": "cold", "source_hash": "ab", name: value}))
    assert (found.rule, found.differs) == (Rule.OTHER_TOOLKIT, ("shape", name))
    row = replace(row, shape={"M": 4096})
    found = look_up([row], wanted(**{"driver": "580", "policy": "cold", "source_hash": "ab", name: value}), shape={"M": 4096})
    assert (found.rule, found.differs) == (Rule.OTHER_TOOLKIT, (name,))


def test_a_shape_that_was_not_measured_is_not_exact():
    row = entry(1, shape={"M": 4096})
    for shape, rule, differs in (({"M": 4096}, Rule.EXACT, ()), ({"M": 4100}, Rule.BUCKET, ("shape",)),
                                 (None, Rule.BUCKET, ("shape",))):
        found = look_up([row], wanted(), shape=shape)
        assert (found.rule, found.differs) == (rule, differs)
    assert look_up([entry(1)], wanted(), shape={"M": 4096}).rule == Rule.BUCKET          # measured nobody knows at which


@pytest.mark.parametrize(("left", "right", "is_newer"), [
    ("cuda 13.0, triton 3.7.1", "cuda 13.0, triton 3.6.0", True), ("cuda 13.0, triton 3.6.0", "cuda 13.0, triton 3.6.0", False),
    ("cuda 12.8, triton 3.7.1", "cuda 13.0, triton 3.6.0", False), ("triton 3.10.0", "cuda 13.0, triton 3.9.9", True),
    ("590.1", "580.159", True), ("580.9", "580.159", False), ("unknown", "cuda 13.0", False), ("", "", False)])
def test_newer(left, right, is_newer):
    assert newer(left, right) == is_newer


def test_a_dimension_of_the_code_is_never_bridged():
    row = entry(1, bucket="D=64 N=4096")
    assert look_up([row], wanted(bucket="D=128 N=4096")) is not None
    assert look_up([row], wanted(bucket="D=128 N=4096"), exact=("D",)) is None


def test_an_unstated_toolkit_accepts_any():
    assert look_up([entry(1, toolkit="cuda 11.8")], wanted(toolkit="")).rule == Rule.BUCKET
