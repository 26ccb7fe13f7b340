"""What there is to gain is never more than the time that it is a part of."""

from __future__ import annotations

from typing import Any

from profiles.advice.selectors import advice_json
from profiles.models import Profile
from profiles.topics.services import document_of
from profiles.topics.table import TOPICS
from tests.truth.files import COUNTERS, TRACE, each_file

ROUNDING_NS = 1.0
# rule (or how it begins) -> which of a finding's numbers is its own time; of others the kernel's, else the run's
OWN = {"cause_": "time_ns", "tensor_cores_": "gpu_ns", "convolution_algorithm": "gpu_ns", "casts_and_copies": "gpu_ns",
       "small_collectives": "exposed_ns", "slow_step": "step_ns", "straggler": "waited_ns", "exposed_communication": "exposed_ns"}
# rules whose kernel only stands for several
SEVERAL = ("fusion", "serial_kernels", "unsteady_kernels", "straggler", "cause_")
# column of a table of an analysis -> the column of the time that it is a part of
COLUMNS = {"to win, at most": "time", "To win, at most": "GPU time", "GPU time saved, at most": "GPU time",
           "saved side by side": "total", "a graph wins back": "GPU idle before", "exposed": "total", "GPU idle meanwhile": "took"}
KERNELS = 3                     # of a profile, those of most time


@each_file(TRACE, COUNTERS)
def test_a_finding_gains_no_more_than_its_own_time(profile: Profile) -> None:
    for row in profile.findings.select_related("kernel"):
        _assert_part(row.worth_ns, _own_ns(profile, row.rule, row.numbers, row.kernel.total_ns if row.kernel else None), row.title)
        _assert_in_run(row.worth_ns, profile, row.title)


@each_file(TRACE)
def test_a_detail_gains_no_more_than_its_own_time(profile: Profile) -> None:
    """Findings that the account says already stand on the pages of their analyses."""
    total_ns = dict(profile.kernels.values_list("name", "total_ns"))
    for document in _documents(profile):
        for each in document["findings"]:
            own_ns = _own_ns(profile, each["rule"], each["numbers"], total_ns.get(each["kernel"]))
            _assert_part(each["worth_ns"], own_ns, document["topic"], each["title"])
            _assert_in_run(each["worth_ns"], profile, document["topic"], each["title"])


@each_file(TRACE)
def test_a_row_gains_no_more_than_its_own_time(profile: Profile) -> None:
    for document in _documents(profile):
        for table in document["tables"]:
            names = [column["name"] for column in table["columns"]]
            for gain, own in ((names.index(gain), names.index(own)) for gain, own in COLUMNS.items() if {gain, own} <= set(names)):
                for row in table["rows"]:
                    _assert_part(row[gain], row[own], document["topic"], table["title"], row)


@each_file(TRACE)
def test_causes_gain_no_more_than_the_run(profile: Profile) -> None:
    numbers = next(each["numbers"] for each in _documents(profile) if each["topic"] == "causes")
    for row in (*numbers["causes"], *numbers["groups"]):
        _assert_part(row["recoverable_ns"], row["wall_ns"], row)
    for gpu in {row["gpu"] for row in numbers["causes"]}:
        _assert_part(sum(row["recoverable_ns"] or 0 for row in numbers["causes"] if row["gpu"] == gpu), profile.wall_ns, gpu)


@each_file(COUNTERS)
def test_advice_gains_no_more_than_the_kernel(profile: Profile) -> None:
    for kernel in profile.kernels.all()[:KERNELS]:
        document = advice_json(kernel)
        _assert_part((document["headroom"] or {}).get("left_ns"), kernel.total_ns, kernel.short_name)
        for each in document["advice"]:
            for name in ("gain_ns", "gain_most_ns"):
                _assert_part(each[name], kernel.total_ns, kernel.short_name, each["title"])
            assert (each["gain_pct"] or 0.0) <= 100.0, each["title"]


def _own_ns(profile: Profile, rule: str, numbers: dict[str, Any], kernel_ns: int | None) -> float | None:
    named = next((numbers[key] for begin, key in OWN.items() if rule.startswith(begin) and numbers.get(key) is not None), None)
    if named is not None:
        return float(named)
    alone = kernel_ns is not None and not rule.startswith(SEVERAL)
    return kernel_ns if alone else profile.wall_ns if profile.kind == Profile.Kind.TRACE else None


def _assert_part(gain_ns: float | None, own_ns: float | None, *about: Any) -> None:
    if gain_ns is not None:
        assert own_ns is not None, (gain_ns, *about)
        assert 0 <= gain_ns <= own_ns + ROUNDING_NS, (gain_ns, own_ns, *about)


def _assert_in_run(gain_ns: float | None, profile: Profile, *about: Any) -> None:
    """Of several GPUs, too: their time is a sum, the run's is not."""
    if profile.kind == Profile.Kind.TRACE:
        _assert_part(gain_ns, profile.wall_ns, *about)


def _documents(profile: Profile) -> list[dict[str, Any]]:
    return [document for each in TOPICS if (document := document_of(profile, each)) is not None]
