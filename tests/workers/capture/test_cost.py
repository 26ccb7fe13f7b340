"""What a tool costs a whole program: once with it, once without, on the same GPU; of other captures, where one measured it."""

import pytest
from django.conf import settings

from profiles.base.refused import Refused
from profiles.capture import cost_selectors
from profiles.capture.tools import CAPTURE_TOOLS
from profiles.capture.tools.ncu import NcuOptions
from profiles.capture.tools.nsys import NsysOptions
from profiles.capture.tools.proton import ProtonOptions
from profiles.capture.tools.torch_profiler import TorchOptions
from profiles.models import Capture, CaptureTarget
from tests.workers.capture.test_capture import host, queued, ran, told  # noqa: F401
from tests.workers.tune import stand_ins

pytestmark = pytest.mark.django_db(transaction=True, available_apps=settings.INSTALLED_APPS)
SLOW = stand_ins.PROFILES + "\nsleep 1.5"
PLAIN = ("sh", "-c", "echo alone with $CUDA_VISIBLE_DEVICES; sleep 0.3")


def test_the_program_runs_once_more_without_the_tool(alice, host, told, tmp_store):  # noqa: F811
    stand_ins.ncu(host, SLOW)
    row = ran(queued(alice, PLAIN, plain_run=True))
    assert row.status == "done", (row.error, row.log)
    assert row.log.count("\nalone with GPU-1111") == 1            # the stand-in of ncu does not run the program
    assert row.log.index("without the tool: what the capture cost") < row.log.index("\nalone with")
    cost = cost_selectors.cost(row)
    assert cost.plain_of == row.pk and 0.3 <= cost.plain_s < cost.wall_s and cost.program_ratio == cost.wall_s / cost.plain_s
    assert cost.says.startswith(f"the whole program took {cost.program_ratio:.2f} times as long")
    assert row.facts["gpu"] == "NVIDIA H200"
    assert f"(measured, capture {row.pk}); each profiled launch" in cost_selectors.expected(NcuOptions(), row.target)
    # of a capture that did not measure it: what an earlier one did, of the same program on the same GPU
    later = ran(Capture.objects.create(target=row.target, tool="ncu", owner=alice))
    cost = cost_selectors.cost(later)
    assert (cost.plain_of, cost.plain_s) == (row.pk, row.facts["plain"]["s"]) and later.log.count("\nalone with") == 0
    Capture.objects.filter(pk=later.pk).update(facts={**later.facts, "gpu": "NVIDIA L4"})
    assert cost_selectors.cost(Capture.objects.get(pk=later.pk)).program_ratio is None
    row.target.argv = ["sleep", "1"]                            # another program by now
    row.target.save()
    assert cost_selectors.cost(Capture.objects.get(pk=later.pk)).plain_s is None


def test_a_program_that_fails_alone_loses_no_result(alice, host, told, tmp_store):  # noqa: F811
    row = ran(queued(alice, ("sh", "-c", "exit 3"), plain_run=True))
    assert row.status == "done" and row.facts["plain"]["why"] == "it ended with status 3"
    assert cost_selectors.cost(row).program_ratio is None and "not measured: it ended with status 3" in row.log


def test_what_ended_with_an_error_is_compared_with_nothing(alice, host, told, tmp_store):  # noqa: F811
    stand_ins.ncu(host, SLOW + "\nexit 3")
    row = ran(queued(alice, PLAIN, plain_run=True))
    assert row.status == "done" and row.facts["whole"] is False and "plain" not in row.facts and "\nalone with" not in row.log


def test_not_measured_is_said(alice, host, told, tmp_store):  # noqa: F811
    row = ran(queued(alice))
    target = CaptureTarget.objects.get()
    said = cost_selectors.expected(NcuOptions(), target)
    assert said.startswith(f"not measured with this program (capture {row.pk}: ") and "in all" in said


@pytest.mark.parametrize("given", [
    (TorchOptions, {}), (ProtonOptions, {"active": 3}), (NsysOptions, {"duration": 5}),
    (NsysOptions, {"capture_range": "cudaProfilerApi"}),
    (NsysOptions, {"capture_range": "cudaProfilerApi", "capture_range_end": "repeat-shutdown:2"})])
def test_a_program_that_is_cut_short_is_not_compared(given):
    kind, options = given
    kind.parse(options)
    with pytest.raises(Refused) as refused:
        kind.parse({**options, "plain_run": True})
    assert "nothing to compare" in refused.value.fields["plain_run"]


@pytest.mark.parametrize("given", [
    (TorchOptions, {"steps": "whole"}), (ProtonOptions, {}), (NsysOptions, {}), (NcuOptions, {}),
    (NsysOptions, {"capture_range": "cudaProfilerApi", "capture_range_end": "stop"})])
def test_a_whole_program_is(given):
    kind, options = given
    assert kind.parse({**options, "plain_run": "on"}).plain_run and CAPTURE_TOOLS[kind.TOOL].options is kind


