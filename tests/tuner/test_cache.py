import pytest

from tuner.cache import Entry, Key, Rule, bucket, bucket_distance, lookup, toolkit

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
    assert toolkit({"cuda": "13.0", "triton": "3.6.0+git", "torch": "2.11"}) == "cuda 13.0, triton 3.6.0"
    assert toolkit({}) == "unknown"


def entry(number, recorded=False, **key):
    return Entry(number, Key(**{**H200, "bucket": "M=4096", **key}), {"BM": number}, recorded)


def wanted(**key):
    return Key(**{**H200, "bucket": "M=4096", **key})


def test_lookup_order_names_the_rule():
    entries = [entry(1, bucket="M=8192"), entry(2, gpu="NVIDIA H100 80GB HBM3"), entry(3, toolkit="cuda 12.8"),
               entry(4)]
    served = []
    while (found := lookup(entries, wanted())) is not None:
        served.append((found.entry.id, found.rule))
        entries = [e for e in entries if e.id != found.entry.id]
    assert served == [(4, Rule.EXACT), (3, Rule.OTHER_TOOLKIT), (2, Rule.SAME_ARCHITECTURE), (1, Rule.NEAREST_BUCKET)]


def test_never_another_operator_dtype_or_architecture():
    others = [entry(1, operator="softmax"), entry(2, dtype="fp16"),
              entry(3, gpu="NVIDIA A100", compute_capability="8.0"),
              entry(4, gpu="unknown", compute_capability=""), entry(5, bucket="M=262144")]
    assert lookup(others, wanted()) is None


def test_the_nearest_of_several_buckets_and_measured_before_recorded():
    assert lookup([entry(1, bucket="M=16384"), entry(2, bucket="M=2048")], wanted()).entry.id == 2
    assert lookup([entry(1, recorded=True), entry(2)], wanted()).entry.id == 2


def test_an_unstated_toolkit_accepts_any():
    assert lookup([entry(1, toolkit="cuda 11.8")], wanted(toolkit="")).rule == Rule.EXACT
