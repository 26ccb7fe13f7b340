"""GET …/critical-path/: segments of one path in a window, the list of paths, and what there is where there is none."""

from __future__ import annotations

from typing import Any

import pytest

from profiles.analysis.core.frame import frame_of
from profiles.analysis.trace.critical.topic import paths
from profiles.models import Profile
from profiles.store.frame import frame_read
from profiles.timeline import slice_selectors
from profiles.upload.services import profile_ingest
from tests.builders import trace
from tests.profiles.pages.test_services import recording
from tests.profiles.timeline.test_timeline_api import profile_of

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("tmp_store")]


def ask(client: Any, profile: Profile, **query: Any) -> Any:
    return client.get(f"/api/profiles/{profile.pk}/critical-path/", query)


def test_segments_of_a_recording_are_its_path(client: Any):
    profile = profile_ingest(recording("kineto_train.json.gz").pk, "test")
    whole = ask(client, profile).json()
    assert [each["key"] for each in whole["paths"]] == ["whole", "step-0", "step-1", "step-2", "step-3"]
    frame = frame_read(profile)
    path = paths(frame)[0].path
    assert whole["exact"] and sum(each[3] - each[2] for each in whole["segments"]) == path.end_ns - path.start_ns
    for track, depth, start_ns, end_ns, what, slice_id in whole["segments"]:
        assert 0 <= track < len(frame.tracks) and depth >= 0 and end_ns > start_ns
        if what == "GPU":
            said = client.get(f"/api/profiles/{profile.pk}/slices/{slice_id}/").json()
            assert said["track"] == track and said["depth"] == depth
            assert said["start_ns"] == start_ns and end_ns <= said["start_ns"] + said["dur_ns"]
            break
    step = whole["paths"][1]
    part = ask(client, profile, path="step-0", start=step["start_ns"] + 1_000_000, end=step["start_ns"] + 2_000_000).json()
    assert part["path"] == step and part["segments"][0][2] <= step["start_ns"] + 1_000_000
    assert all(each[2] < step["start_ns"] + 2_000_000 and each[3] > step["start_ns"] + 1_000_000 for each in part["segments"])


def test_where_there_is_no_path_the_answer_says_why(client: Any, monkeypatch: Any):
    unlinked = profile_of(trace("python (1) / main: aten::x 0-5\nGPU 0 / stream 7: k 1-3"))
    assert ask(client, unlinked).status_code == 404 and "does not say" in ask(client, unlinked).json()["error"]
    linked = profile_of(trace("python (1) / main: cudaLaunchKernel 0-1 corr=1\nGPU 0 / stream 7: k 2-3 corr=1"))
    assert ask(client, linked).status_code == 200
    assert "there are whole" in ask(client, linked, path="step-7").json()["error"]
    assert ask(client, linked, start="x").status_code == 400
    monkeypatch.setattr(slice_selectors, "MOST_SLICES", 1)
    assert ask(client, linked).status_code == 404 and "more than 1 slices" in ask(client, linked).json()["error"]


def test_a_stored_frame_has_the_same_path():
    made = trace("""
    python (1) / main: aten::a 0-20 | cudaLaunchKernel 10-16 corr=1 | aten::b 20-40 | cudaLaunchKernel 30-36 corr=2 \
| cudaDeviceSynchronize 42-60
    GPU 0 / stream 7:  ka 18-24 corr=1 | kb 38-55 corr=2
    """)
    fresh, stored = paths(frame_of(made))[0].path, paths(frame_read(profile_of(made)))[0].path
    for column in ("kind", "track", "from_ns", "to_ns"):
        assert getattr(fresh, column).tolist() == getattr(stored, column).tolist()
