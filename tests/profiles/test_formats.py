"""docs/formats.md against the code, and what the recorders of an H200 say of their own files."""

from __future__ import annotations

import importlib
import json
import re
from operator import attrgetter
from pathlib import Path

import pytest

from profiles import ingest
from profiles.analysis.kernels import kernel_table
from profiles.trace import Trace
from tests.profiles.corpus import DATA

PAGE = (Path(__file__).parents[2] / "docs" / "formats.md").read_text()
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("| ")]
RECORDED = DATA / "recorded"


@pytest.mark.parametrize("reader", ingest.READERS, ids=lambda reader: reader.name)
def test_every_reader_has_its_row(reader: ingest.Reader) -> None:
    row, = (row for row in ROWS if row[0] == reader.name)
    assert len(row) == 4 and all(row), "known by, versions, verified against"


def test_every_limit_is_the_codes() -> None:
    limits = [row for row in ROWS if row[-1].startswith("`profiles.") and re.fullmatch(r"[\d,]+", row[1])]
    assert len(limits) > 12
    for _, stated, path in limits:
        module, _, name = path.strip("`").partition(":")
        assert attrgetter(name)(importlib.import_module(module)) == int(stated.replace(",", "")), path


def test_every_file_that_the_page_names_is_there() -> None:
    named = set(re.findall(r"`((?:profiles|tests)/[\w/]+\.py|test_\w+\.py)`", PAGE))
    root = Path(__file__).parents[2]
    assert named and all((root / name).is_file() or (root / "tests/profiles" / name).is_file() for name in named), named


def test_kernels_are_those_of_pytorchs_own_averages() -> None:
    """key_averages() of the same run, device time by name; operators and annotations of the same list are no kernels."""
    trace = ingest.read(RECORDED / "torch_graph_stack_memory.json.gz")
    assert isinstance(trace, Trace)
    said = {row["key"]: (row["count"], round(row["device_us"] * 1000))
            for row in json.loads((RECORDED / "torch_graph_stack_memory_truth.json").read_text())}
    found = {row.name: (row.launches, row.total_ns) for row in kernel_table(trace)}
    assert len(found) == 26 and {name: said.get(name) for name in found} == found


def test_three_forms_of_one_jax_profile_agree() -> None:
    sums = []
    for name in ("jax_xplane.pb", "jax_trace.json.gz", "jax_perfetto_trace.json.gz"):
        trace = ingest.read(RECORDED / name)
        assert isinstance(trace, Trace)
        sums.append({row.name: (row.launches, row.total_ns) for row in kernel_table(trace)})
    assert sums[0] == sums[1] == sums[2] and sum(launches for launches, _ in sums[0].values()) == 15
