"""The page of a trace without kernels: CPU time instead of empty tables; and error texts as people read them."""

from __future__ import annotations

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from profiles.models import Profile
from profiles.upload.services import profile_ingest
from tests.profiles.ingest.corpus import CORPUS
from tests.profiles.pages.test_pages import page, text
from tests.profiles.pages.test_services import create

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("tmp_store", "sign_in_mode")]


def ready(name: str, data: bytes) -> Profile:
    return profile_ingest(create(file=SimpleUploadedFile(name, data)).pk, "test")


def test_cpu_time_stands_where_kernels_would(bob):
    profile = ready("simple.json", (CORPUS / "chrome/speedscope_simple.json").read_bytes())
    assert (profile.status, profile.format, profile.launches) == (Profile.Status.READY, "chrome", 0)
    plain = text(page(bob, f"/profiles/{profile.pk}/"))
    assert "No GPU work in this trace: 6 records of the CPU over 14.0 µs; gamma itself takes 36 % of its threads' time." in plain
    assert "CPU time by name" in plain and "CPU time by thread" in plain
    for empty in ("No kernel ran", "Where the time went", "None ("):
        assert empty not in plain


def test_traces_with_kernels_keep_their_tables(bob):
    profile = ready("x.json.gz", (CORPUS / "xprof/tracelens_mi300_jax_conv.trace.json.gz").read_bytes())
    assert (profile.launches, profile.gpu_time_ns) == (235, 28_137_077)
    plain = text(page(bob, f"/profiles/{profile.pk}/"))
    assert "Where the time went" in plain and "CPU time by name" not in plain


def test_names_in_error_texts_are_code(bob):
    profile = ready("other.json", b'{"x": 1}')
    assert profile.status == Profile.Status.FAILED
    shown = page(bob, f"/profiles/{profile.pk}/")
    assert "<code>traceEvents</code>" in shown
    assert "`" not in text(shown)
