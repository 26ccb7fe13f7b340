"""Traces that an engine writes into the object store: the worker, and storage as the settings have it, against an S3 server."""

from __future__ import annotations

import time
from typing import Any

import pytest
from django.core.files.storage import default_storage

from profiles.models import Profile
from profiles.running import engine_services as services
from profiles.running.models import EngineCapture, EngineServer
from tests.conftest import BUCKET
from tests.product import PROJECT
from tests.profiles.running.peer import Peer, peer
from webapp.settings import object_store
from workers.capture import engine as engine_worker
from workers.capture import engine_results

RANKS = [PROJECT / f"tests/data/ranks/collectives_rank{rank}.json.gz" for rank in range(2)]
FOLDER = "engines/llama"


@pytest.fixture
def store(bucket: Any, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The same bucket for the product and for the engine."""
    settings.STORAGES = {**settings.STORAGES, "default": object_store(
        {"RIDGEPOINT_S3_BUCKET": BUCKET, "AWS_ENDPOINT_URL_S3": bucket.meta.endpoint_url})}
    monkeypatch.setattr(engine_worker, "BESIDE_S", 0.3)
    monkeypatch.setattr(engine_results, "SETTLE_S", 0.6)
    monkeypatch.setattr(engine_results, "LOOK_S", 0.2)
    monkeypatch.setattr(engine_results.Results, "longest_s", 4.0)
    return bucket


def server(own: Peer) -> EngineServer:
    return services.server_save(name=f"llama-{own.kind}", kind=own.kind, address=own.address, results="bucket", folder=FOLDER)


def put(store: Any, name: str, body: bytes) -> None:
    store.put_object(Bucket=BUCKET, Key=f"{FOLDER}/{name}", Body=body)


def finished(row: EngineCapture) -> EngineCapture:
    engine_worker.run(row.pk, "worker-1")
    row.refresh_from_db()
    return row


@pytest.mark.django_db(transaction=True)
def test_new_objects_of_the_engines_folder_become_one_profile(store: Any) -> None:
    put(store, "ridgepoint-old.json.gz", RANKS[0].read_bytes())
    with peer() as own:
        row = services.capture_create(server(own), {"seconds": 0.3}, None)

        def answer(_: Any) -> Any:
            for rank, source in enumerate(RANKS):
                put(store, f"ridgepoint-{row.pk}_rank{rank}.pt.trace.json.gz", source.read_bytes())
            put(store, "another.json.gz", b"x")
            put(store, f"ridgepoint-{row.pk}.txt", b"no trace")
            put(store, f"below/ridgepoint-{row.pk}.json.gz", b"x")
            store.put_object(Bucket=BUCKET, Key=f"elsewhere/ridgepoint-{row.pk}.json.gz", Body=b"x")
            return 200, b"", {}
        own.on["/stop_profile"] = answer
        assert finished(row).status == "done", row.error
        assert "output_dir" not in next(each for each in own.asked if each[1] == "/start_profile")[3]
    profile = Profile.objects.get(pk=row.profile_id)
    assert [each["name"] for each in profile.metadata["files"]] == [
        f"ridgepoint-{row.pk}_rank{rank}.pt.trace.json.gz" for rank in range(2)]
    assert default_storage.exists(f"{FOLDER}/ridgepoint-{row.pk}_rank0.pt.trace.json.gz")       # the engine's own stay


@pytest.mark.django_db(transaction=True)
def test_an_object_that_grows_is_waited_for_and_none_is_said(store: Any) -> None:
    with peer() as own:
        row = services.capture_create(server(own), {"seconds": 0.2}, None)
        assert finished(row).status == "failed" and f"in {FOLDER}" in row.error["what"] and "object store" in row.error["hint"]
        again = services.capture_create(row.server, {"seconds": 0.2}, None)
        whole = RANKS[0].read_bytes()
        looks: list[float] = []
        listed = engine_results.BucketResults.listed

        def growing(self: engine_results.BucketResults) -> Any:
            looks.append(time.monotonic())
            put(store, f"ridgepoint-{again.pk}.json.gz", whole[:1000 * len(looks)] if len(looks) < 5 else whole)
            return listed(self)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(engine_results.BucketResults, "listed", growing)
            assert finished(again).status == "done", again.error
        assert looks[-1] - looks[4] >= 0.6


@pytest.mark.django_db(transaction=True)
def test_a_bucket_that_holds_too_much_and_one_that_is_away_are_said(store: Any, monkeypatch: pytest.MonkeyPatch,
                                                                    settings: Any) -> None:
    with peer() as own:
        for number in range(4):
            put(store, f"{number}.json", b"{}")
        monkeypatch.setattr(engine_results, "MOST_LISTED", 3)
        row = services.capture_create(server(own), {"seconds": 0.2}, None)
        assert finished(row).status == "failed" and "more than 3 objects" in row.error["what"]
        assert "/start_profile" not in own.paths()
        settings.STORAGES = {**settings.STORAGES, "default": object_store(
            {"RIDGEPOINT_S3_BUCKET": "no-such-bucket", "AWS_ENDPOINT_URL_S3": store.meta.endpoint_url})}
        again = services.capture_create(row.server, {"seconds": 0.2}, None)
        assert finished(again).status == "failed" and "object store" in again.error["what"], again.error
