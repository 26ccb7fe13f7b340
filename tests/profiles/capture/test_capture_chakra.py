"""Chakra execution traces, which are kept for download: what one holds is said, of a hostile one nothing is believed."""

import gzip
import json

import pytest

from profiles.capture import result_services


def node(number, name="aten::mm", parent=0, shapes=((2, 3),)):
    return {"id": number, "name": name, "ctrl_deps": parent, "inputs": {"values": [], "shapes": list(shapes)}, "attrs": []}


def told(tmp_path, document, name="execution_trace.json.gz"):
    path = tmp_path / name
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return result_services.holds(path)


@pytest.mark.slow
@pytest.mark.deep_only          # torch is imported for it; test_counts_collectives_and_depth has each number of the sentence
def test_what_torch_writes(tmp_path):
    torch = pytest.importorskip("torch")
    path = tmp_path / "et.json"
    observer = torch.profiler.ExecutionTraceObserver().register_callback(str(path))
    with torch.profiler.profile(execution_trace_observer=observer):
        for _ in range(3):
            torch.nn.Linear(8, 8)(torch.ones(3, 8)).sum().backward()
    observer.unregister_callback()
    recorded = json.loads(path.read_text())["nodes"]
    operators = [each for each in recorded if "::" in each["name"]]
    said = result_services.holds(path)
    assert said.startswith(f"{len(recorded):,} nodes; {len(operators)} operators of ") and " deep; " in said
    assert sum(each["name"] == "aten::addmm" for each in operators) == 3
    assert f"{sum(bool(each['inputs']['shapes']) for each in operators)} with inputs' shapes" in said


def test_counts_collectives_and_depth(tmp_path):
    nodes = [node(1, "[pytorch|profiler|execution_trace|process]", 1, ()), node(9, parent=5), node(5, "train", 1, ()),
             node(6, "record_param_comms", 5), node(7, parent=9), node(8, "aten::add", parent=9, shapes=())]
    said = told(tmp_path, {"schema": "1.1.1-chakra.0.0.4", "nodes": nodes})
    assert said == "6 nodes; 3 operators of 2 kinds, 2 with inputs' shapes; 4 deep; 1 collective; aten::mm × 2, aten::add × 1"


@pytest.mark.parametrize(("document", "words"), [
    (b"", "no execution trace"), (b"[]", "no execution trace"), (b"{", "no execution trace"),
    (b'{"nodes": 7}', "no execution trace"),
    ({"schema": "chakra", "nodes": [{"id": "x"}]}, "no execution trace"), ({"schema": "other", "nodes": []}, "no Chakra trace"),
    (b'{"schema": "chakra", "nodes": ' + b"[" * 200_000, "no execution trace"), (b"\xff" * 100, "no execution trace"),
    ({"schema": "chakra", "nodes": []}, "0 nodes; 0 operators of 0 kinds")])
def test_files_of_any_kind(tmp_path, document, words):
    assert words in told(tmp_path, document)


def test_circles_end(tmp_path):
    nodes = [node(1, parent=2), node(2, parent=3), node(3, parent=1), node(4, parent=4), node(5, parent=4)]
    assert " deep" in told(tmp_path, {"schema": "chakra", "nodes": nodes})
    chain = [node(number, parent=number - 1) for number in range(50_000, 0, -1)]
    assert "50000 deep" in told(tmp_path, {"schema": "chakra", "nodes": chain})


def test_reading_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(result_services, "MOST_BYTES", 1 << 20)
    assert "not looked into" in told(tmp_path, b" " * (2 << 20))
    path = tmp_path / "short.json.gz"
    path.write_bytes(gzip.compress(b"x" * 100_000)[:-20])
    assert result_services.holds(path) == "cut short"
    path.write_bytes(b"no gzip")
    assert result_services.holds(path) == "cut short"
